//! Data encryption keys and the cache of those that a plugin has decrypted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::encrypted_object::{AES_GCM_KEY, EncryptedObject, HKDF_SHA256_XNONCE_AES_GCM_SEED};
use crate::ciphers::{AesGcm, Cipher, CipherError, DerivedKeyAesGcm};

/// How long an unused key stays in the cache, as upstream. There are about as many keys as the stored values were
/// written by different server processes and with different keys of the plugin.
const UNUSED_MAX: Duration = Duration::from_hours(24);

/// A data encryption key: a key or a seed.
#[derive(Clone)]
pub(super) struct DataKey(Arc<dyn Cipher>);

impl DataKey {
    /// # Errors
    /// The source type is unknown, or the key has a wrong length.
    pub(super) fn new(source_type: i32, source: &[u8]) -> Result<Self, String> {
        let length = |error: CipherError| error.to_string();
        match source_type {
            AES_GCM_KEY => Ok(Self(Arc::new(AesGcm::new(source).map_err(length)?))),
            HKDF_SHA256_XNONCE_AES_GCM_SEED => Ok(Self(Arc::new(
                DerivedKeyAesGcm::new(source).map_err(length)?,
            ))),
            other => Err(format!("unknown type {other} of the data encryption key")),
        }
    }
}

impl std::ops::Deref for DataKey {
    type Target = dyn Cipher;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// What identifies an encrypted key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct DataKeyId {
    source_type: i32,
    encrypted: Vec<u8>,
    key_id: String,
    annotations: BTreeMap<String, Vec<u8>>,
}

impl DataKeyId {
    pub(super) fn of(object: &EncryptedObject) -> Self {
        Self {
            source_type: object.encrypted_dek_source_type,
            encrypted: object.encrypted_dek_source.clone(),
            key_id: object.key_id.clone(),
            annotations: object.annotations.clone(),
        }
    }
}

/// The decrypted keys, with the time of their last use.
#[derive(Default)]
pub(super) struct DataKeyCache(Mutex<HashMap<DataKeyId, (DataKey, Instant)>>);

impl DataKeyCache {
    pub(super) fn get(&self, id: &DataKeyId) -> Option<DataKey> {
        let mut keys = self.0.lock();
        let (key, used) = keys.get_mut(id)?;
        *used = Instant::now();
        Some(key.clone())
    }

    /// Adds a key, and deletes those that were not used for long.
    pub(super) fn insert(&self, id: DataKeyId, key: DataKey) {
        let mut keys = self.0.lock();
        keys.retain(|_, (_, used)| used.elapsed() < UNUSED_MAX);
        keys.insert(id, (key, Instant::now()));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
