//! Data encryption keys and the cache of those that a plugin has decrypted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, WeakShared};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::KmsError;
use super::encrypted_object::{AES_GCM_KEY, EncryptedObject, HKDF_SHA256_XNONCE_AES_GCM_SEED};
use crate::ciphers::{AesGcm, Cipher, CipherError, DerivedKeyAesGcm};

/// The time for which the cache retains an unused key, as upstream. There is about one key for each server process that
/// wrote stored values and each key of the plugin.
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

/// The identity of an encrypted key in the cache.
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

/// The decrypted keys. Concurrent reads of values with the same key wait for one call of the plugin.
#[derive(Default)]
pub(super) struct DataKeyCache(Mutex<HashMap<DataKeyId, Entry>>);

enum Entry {
    /// A key, and the time of its last use.
    Loaded(DataKey, Instant),
    /// The call for which reads wait. It is dropped when no read waits any more.
    Loading(WeakShared<Load>),
}

/// A call of the plugin.
pub(super) type Load = BoxFuture<'static, Result<DataKey, KmsError>>;

impl DataKeyCache {
    /// Returns a key, which `load` decrypts if it is not in the cache.
    ///
    /// # Errors
    /// The error of `load`; the next call loads again.
    pub(super) async fn get(
        &self,
        id: DataKeyId,
        load: impl FnOnce() -> Load,
    ) -> Result<DataKey, KmsError> {
        let loading = {
            let mut keys = self.0.lock();
            let running = match keys.get_mut(&id) {
                Some(Entry::Loaded(key, used)) => {
                    *used = Instant::now();
                    return Ok(key.clone());
                }
                Some(Entry::Loading(loading)) => loading.upgrade(),
                None => None,
            };
            running.unwrap_or_else(|| {
                let started = load().shared();
                if let Some(loading) = started.downgrade() {
                    keys.insert(id.clone(), Entry::Loading(loading));
                }
                started
            })
        };
        let loaded = loading.await;
        match &loaded {
            Ok(key) => self.insert(id, key.clone()),
            Err(_) => self.remove_failed(&id),
        }
        loaded
    }

    /// Adds a key, and deletes those that have been unused for too long.
    pub(super) fn insert(&self, id: DataKeyId, key: DataKey) {
        let mut keys = self.0.lock();
        keys.retain(|_, entry| match entry {
            Entry::Loaded(_, used) => used.elapsed() < UNUSED_MAX,
            Entry::Loading(loading) => loading.upgrade().is_some(),
        });
        keys.insert(id, Entry::Loaded(key, Instant::now()));
    }

    /// Deletes a call that has failed, unless another one has succeeded or is running.
    fn remove_failed(&self, id: &DataKeyId) {
        let mut keys = self.0.lock();
        let is_failed = keys.get(id).is_some_and(|entry| match entry {
            Entry::Loaded(..) => false,
            Entry::Loading(loading) => {
                let running = loading.upgrade();
                running.is_none_or(|running| running.peek().is_some())
            }
        });
        if is_failed {
            keys.remove(id);
        }
    }

    /// Returns the number of keys, without those that are being decrypted.
    pub(super) fn len(&self) -> usize {
        let keys = self.0.lock();
        let loaded = keys
            .values()
            .filter(|entry| matches!(entry, Entry::Loaded(..)));
        loaded.count()
    }
}
