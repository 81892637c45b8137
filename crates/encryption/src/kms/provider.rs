//! `KmsProvider`: encrypts values with keys derived from a seed, and has the plugin encrypt and decrypt seeds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use aws_lc_rs::digest;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::time::Instant;
use uuid::Uuid;
use watchet_metrics::{KmsKey, KmsMetrics};

use super::KmsError;
use super::data_key::{DataKey, DataKeyCache, DataKeyId};
use super::encrypted_object::{
    EncryptedObject, HKDF_SHA256_XNONCE_AES_GCM_SEED, check_annotations, check_encrypted_key,
    check_key_id, invalid_key_id,
};
use super::plugin::{DecryptRequest, EncryptRequest, Plugin, StatusResponse};
use crate::ciphers::{SEED_BYTES, random};
use crate::configuration::KmsConfiguration;

/// The time after a successful status request for which writes are allowed, as upstream: a plugin that does not respond
/// may have rotated its key.
const WRITES_ALLOWED_FOR: Duration = Duration::from_mins(3);

/// A KMS provider.
pub(crate) struct KmsProvider {
    name: String,
    plugin: Arc<Plugin>,
    seed: ArcSwapOption<Seed>,
    cache: DataKeyCache,
    health: Mutex<Result<(), String>>,
    metrics: Arc<KmsMetrics>,
}

/// The seed with which writes encrypt.
#[derive(Clone)]
struct Seed {
    key: DataKey,
    /// The stored form of a value, without the value.
    envelope: EncryptedObject,
    /// The time after which writes fail, unless the plugin confirms the key before.
    valid_until: Instant,
}

/// A decrypted value.
#[derive(Debug)]
pub(crate) struct Decrypted {
    pub(crate) value: Vec<u8>,
    /// True if writes now use another key of the plugin.
    pub(crate) is_stale: bool,
}

impl fmt::Debug for KmsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KmsProvider").field(&self.name).finish()
    }
}

impl KmsProvider {
    /// Returns a provider that cannot write before [`Self::probe`] has succeeded. Must be called within a tokio
    /// runtime.
    pub(crate) fn new(
        configuration: &KmsConfiguration,
        metrics: Arc<KmsMetrics>,
    ) -> Result<Self, KmsError> {
        Ok(Self {
            name: configuration.name.clone(),
            plugin: Arc::new(Plugin::new(configuration, Arc::clone(&metrics))?),
            seed: ArcSwapOption::empty(),
            cache: DataKeyCache::default(),
            health: Mutex::new(Err("the plugin has not responded yet".to_owned())),
            metrics,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the result of the last probe.
    pub(crate) fn health(&self) -> Result<(), String> {
        self.health.lock().clone()
    }

    /// Requests the status of the plugin, and has it encrypt a new seed if its key has changed.
    ///
    /// # Errors
    /// The plugin cannot be reached, or reports that it is not healthy. Values that were encrypted with a cached seed
    /// can still be read, and writes succeed for three minutes.
    pub(crate) async fn probe(&self) -> Result<(), KmsError> {
        let checked = self.check().await;
        let health = checked.as_ref().map(drop).map_err(ToString::to_string);
        *self.health.lock() = health;
        checked
    }

    async fn check(&self) -> Result<(), KmsError> {
        let status = self.plugin.status().await?;
        match invalid_key_id(&status.key_id) {
            Some(error) => self.metrics.invalid_key_id_reported(&self.name, error),
            None => self.metrics.key_reported(self.key(&status.key_id)),
        }
        check_status(&status).map_err(|detail| self.unavailable(detail))?;
        let valid_until = Instant::now() + WRITES_ALLOWED_FOR;
        let current = self.seed.load_full();
        let seed = match current {
            Some(seed) if seed.envelope.key_id == status.key_id => Seed {
                valid_until,
                ..Seed::clone(&seed)
            },
            _ => self.new_seed(&status.key_id, valid_until).await?,
        };
        self.seed.store(Some(seed.into()));
        Ok(())
    }

    /// Returns a seed that the plugin encrypted with the key `key_id`.
    async fn new_seed(&self, key_id: &str, valid_until: Instant) -> Result<Seed, KmsError> {
        let invalid =
            |detail: String| self.unavailable(format!("invalid response to Encrypt: {detail}"));
        let source = random::<SEED_BYTES>().map_err(|error| self.unavailable(error.to_string()))?;
        let request = EncryptRequest {
            plaintext: source.to_vec(),
            uid: Uuid::new_v4().to_string(),
        };
        let encrypted = self.plugin.encrypt(request).await?;
        if encrypted.key_id != key_id {
            return Err(invalid(
                "the key is not the one that Status reports: the next probe tries again".to_owned(),
            ));
        }
        check_encrypted_key(&encrypted.ciphertext).map_err(invalid)?;
        check_annotations(&encrypted.annotations).map_err(invalid)?;
        let key = DataKey::new(HKDF_SHA256_XNONCE_AES_GCM_SEED, &source).map_err(invalid)?;
        let envelope = EncryptedObject {
            encrypted_data: Vec::new(),
            key_id: encrypted.key_id,
            encrypted_dek_source: encrypted.ciphertext,
            annotations: encrypted.annotations,
            encrypted_dek_source_type: HKDF_SHA256_XNONCE_AES_GCM_SEED,
        };
        self.cache.insert(DataKeyId::of(&envelope), key.clone());
        self.count_data_keys();
        tracing::info!(provider = %self.name, "a new data encryption key encrypts values");
        Ok(Seed {
            key,
            envelope,
            valid_until,
        })
    }

    /// Encrypts a value for the storage key `context`.
    ///
    /// # Errors
    /// No probe has succeeded for three minutes.
    pub(crate) fn encrypt(&self, value: &[u8], context: &[u8]) -> Result<Vec<u8>, KmsError> {
        let seed = self.seed.load();
        let seed = seed.as_ref().ok_or_else(|| {
            let health = self.health().err().unwrap_or_default();
            self.unavailable(format!("there is no data encryption key yet: {health}"))
        })?;
        if seed.valid_until < Instant::now() {
            let health = self.health().err().unwrap_or_default();
            return Err(self.unavailable(format!(
                "the plugin has not confirmed its key for {WRITES_ALLOWED_FOR:?}: {health}"
            )));
        }
        let encrypted = seed.key.encrypt(value, context);
        let object = EncryptedObject {
            encrypted_data: encrypted.map_err(|error| self.unavailable(error.to_string()))?,
            ..seed.envelope.clone()
        };
        self.metrics.key_used(self.key(&object.key_id), true);
        Ok(object.encode_to_vec())
    }

    /// Decrypts a stored value of the storage key `context`.
    ///
    /// # Errors
    /// [`KmsError::Unavailable`] if the plugin cannot decrypt the data encryption key now.
    pub(crate) async fn decrypt(
        &self,
        stored: &[u8],
        context: &[u8],
    ) -> Result<Decrypted, KmsError> {
        let invalid = |detail: String| KmsError::InvalidValue {
            provider: self.name.clone(),
            detail,
        };
        let object = EncryptedObject::decode(stored).map_err(|error| invalid(error.to_string()))?;
        check_key_id(&object.key_id).map_err(invalid)?;
        check_encrypted_key(&object.encrypted_dek_source).map_err(invalid)?;
        check_annotations(&object.annotations).map_err(invalid)?;
        let key = self.data_key(&object).await?;
        let value = key
            .decrypt(&object.encrypted_data, context)
            .map_err(|error| invalid(error.to_string()))?;
        self.metrics.key_used(self.key(&object.key_id), false);
        let seed = self.seed.load();
        // Until the plugin has responded, its current key is unknown, and no value counts as stale.
        let is_stale = seed.as_ref().is_some_and(|seed| {
            seed.envelope.key_id != object.key_id
                || seed.envelope.encrypted_dek_source_type != object.encrypted_dek_source_type
        });
        Ok(Decrypted { value, is_stale })
    }

    /// Returns the data encryption key of a value, from the cache or the plugin.
    async fn data_key(&self, object: &EncryptedObject) -> Result<DataKey, KmsError> {
        let mut is_loaded = false;
        let load = || {
            is_loaded = true;
            let plugin = Arc::clone(&self.plugin);
            let source_type = object.encrypted_dek_source_type;
            let request = DecryptRequest {
                ciphertext: object.encrypted_dek_source.clone(),
                uid: Uuid::new_v4().to_string(),
                key_id: object.key_id.clone(),
                annotations: object.annotations.clone(),
            };
            let provider = self.name.clone();
            let load = async move {
                let source = plugin.decrypt(request).await?.plaintext;
                DataKey::new(source_type, &source).map_err(|detail| KmsError::Unavailable {
                    provider,
                    detail: format!("invalid response to Decrypt: {detail}"),
                })
            };
            load.boxed()
        };
        let key = self.cache.get(DataKeyId::of(object), load).await;
        if is_loaded {
            self.count_data_keys();
        }
        key
    }

    fn count_data_keys(&self) {
        let count = self.cache.len();
        self.metrics.set_cached_data_keys(&self.name, count);
    }

    fn key<'a>(&'a self, id: &'a str) -> KmsKey<'a> {
        KmsKey {
            provider: &self.name,
            id,
            digest: key_id_digest,
        }
    }

    fn unavailable(&self, detail: String) -> KmsError {
        KmsError::Unavailable {
            provider: self.name.clone(),
            detail,
        }
    }

    #[cfg(test)]
    pub(super) fn cached_keys(&self) -> usize {
        self.cache.len()
    }
}

/// Returns the digest of the ID of a key, the value of a label of upstream's metrics.
pub(super) fn key_id_digest(id: &str) -> String {
    let digest = digest::digest(&digest::SHA256, id.as_bytes());
    let hexadecimal = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", hexadecimal.collect::<String>())
}

/// # Errors
/// The plugin is not healthy, or has another API version.
fn check_status(status: &StatusResponse) -> Result<(), String> {
    if status.healthz != "ok" {
        return Err(format!("got unexpected healthz status: {}", status.healthz));
    }
    if !["v2", "v2beta1"].contains(&status.version.as_str()) {
        return Err(format!(
            "expected KMSv2 API version v2, got {:?}",
            status.version
        ));
    }
    check_key_id(&status.key_id)
}
