//! `EncryptedStorage`: a storage that encrypts the values of one resource, over any back end.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use watchet_api::{ResourceVersion, StorageKey};
use watchet_metrics::Transformation;
use watchet_storage::{
    KeyValue, ListPage, ListRequest, ListVisitor, Outcome, Put, Storage, StorageBatch,
    StorageError, StorageEvent, StorageLayer, StorageWatch,
};

use crate::encryption::Encryption;
use crate::transformer::{TransformError, Transformer};

/// The number of bytes that a list decrypts before it yields to other tasks.
const BYTES_BETWEEN_YIELDS: usize = 1 << 20;

/// A storage of one resource that encrypts its values. A value that cannot be decrypted is returned as it is stored:
/// the reader of the value reports that it is not an object, and it can be deleted as any unreadable value. If a later
/// attempt may succeed, because a KMS plugin does not respond, the request fails instead.
#[derive(Debug, Clone)]
pub struct EncryptedStorage {
    encryption: Arc<Encryption>,
    group: String,
    resource: String,
    /// The resource with its group, for metrics.
    qualified: Arc<str>,
    storage: Arc<dyn Storage>,
}

/// The stored values of a request that cannot be decrypted.
#[derive(Default)]
struct Undecryptable {
    first: Option<(StorageKey, TransformError)>,
    count: usize,
}

impl Undecryptable {
    fn add(&mut self, key: &StorageKey, error: TransformError) {
        self.first.get_or_insert_with(|| (key.clone(), error));
        self.count += 1;
    }

    /// Logs the first value and their number, because there can be very many.
    fn log(self) {
        if let Some((key, error)) = self.first {
            tracing::error!(%key, %error, count = self.count, "cannot decrypt stored values");
        }
    }
}

impl EncryptedStorage {
    /// Returns `storage` with the values of a resource encrypted. `group` is empty for the core group.
    pub fn new(
        encryption: Arc<Encryption>,
        group: &str,
        resource: &str,
        storage: Arc<dyn Storage>,
    ) -> Arc<Self> {
        let qualified = match group {
            "" => resource.into(),
            group => format!("{resource}.{group}").into(),
        };
        Arc::new(Self {
            encryption,
            group: group.to_owned(),
            resource: resource.to_owned(),
            qualified,
            storage,
        })
    }

    /// Returns the providers; `None` if the resource is not encrypted.
    fn transformer(&self) -> Option<Transformer> {
        self.encryption.transformer(&self.group, &self.resource)
    }

    /// Replaces `value`, which is stored at `key`, by its plaintext. Returns true if the value is stale: another key
    /// encrypts now. A value that cannot be decrypted is unchanged, and added to `failed`.
    ///
    /// # Errors
    /// The value cannot be decrypted now, but a later attempt may succeed.
    async fn decrypt(
        &self,
        transformer: &Transformer,
        key: &StorageKey,
        value: &mut Bytes,
        failed: &mut Undecryptable,
    ) -> Result<bool, StorageError> {
        let context = self.encryption.context(key);
        match transformer.decrypt(value, &context).await {
            Ok(decrypted) => {
                self.count(false, decrypted.provider, true);
                if let Some(plaintext) = decrypted.value {
                    *value = Bytes::from(plaintext);
                }
                Ok(decrypted.is_stale)
            }
            Err(error) => {
                self.count(false, "unknown".into(), false);
                if error.is_temporary() {
                    return Err(unavailable("decrypt", key, &error));
                }
                failed.add(key, error);
                Ok(false)
            }
        }
    }

    async fn decrypt_items(&self, items: &mut [KeyValue]) -> Result<(), StorageError> {
        let Some(transformer) = self.transformer() else {
            return Ok(());
        };
        let mut failed = Undecryptable::default();
        let mut bytes = 0;
        for item in items {
            bytes += item.value.len();
            if bytes > BYTES_BETWEEN_YIELDS {
                bytes = 0;
                tokio::task::yield_now().await;
            }
            let decrypted = self.decrypt(&transformer, &item.key, &mut item.value, &mut failed);
            item.is_stale = decrypted.await?;
        }
        failed.log();
        Ok(())
    }

    async fn decrypt_outcome(&self, mut outcome: Outcome) -> Result<Outcome, StorageError> {
        if let Outcome::Refused(Some(item)) = &mut outcome {
            self.decrypt_items(std::slice::from_mut(item)).await?;
        }
        Ok(outcome)
    }

    async fn decrypt_batch(&self, mut batch: StorageBatch) -> Result<StorageBatch, StorageError> {
        let Some(transformer) = self.transformer() else {
            return Ok(batch);
        };
        let mut failed = Undecryptable::default();
        for event in &mut batch.events {
            let StorageEvent {
                key,
                value,
                previous,
                ..
            } = event;
            for value in [value, previous].into_iter().flatten() {
                self.decrypt(&transformer, key, value, &mut failed).await?;
            }
        }
        failed.log();
        Ok(batch)
    }

    fn count(&self, is_encryption: bool, provider: Arc<str>, is_success: bool) {
        let transformation = Transformation {
            resource: Arc::clone(&self.qualified),
            is_encryption,
            provider,
            is_success,
        };
        let metrics = self.encryption.metrics().encryption();
        metrics.transformed(transformation);
    }
}

fn unavailable(verb: &str, key: &StorageKey, error: &TransformError) -> StorageError {
    StorageError::Unavailable(format!("cannot {verb} {key}: {error}"))
}

#[async_trait]
impl StorageLayer for EncryptedStorage {
    fn inner(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        let (mut item, revision) = self.storage.get(key).await?;
        self.decrypt_items(item.as_mut_slice()).await?;
        Ok((item, revision))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        let mut page = self.storage.list(request).await?;
        self.decrypt_items(&mut page.items).await?;
        Ok(page)
    }

    /// Returns `None`. Values must be decrypted, so they cannot be passed without a copy.
    async fn visit(
        &self,
        _: &StorageKey,
        _: Arc<dyn ListVisitor>,
    ) -> Option<Result<ResourceVersion, StorageError>> {
        None
    }

    async fn put(&self, mut put: Put) -> Result<Outcome, StorageError> {
        if let Some(transformer) = self.transformer() {
            let context = self.encryption.context(&put.key);
            match transformer.encrypt(&put.value, &context) {
                Ok(Some(encrypted)) => {
                    self.count(true, encrypted.provider, true);
                    put.value = Bytes::from(encrypted.value);
                }
                Ok(None) => {}
                Err(error) => {
                    self.count(true, "unknown".into(), false);
                    return Err(unavailable("encrypt", &put.key, &error));
                }
            }
        }
        self.decrypt_outcome(self.storage.put(put).await?).await
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        let outcome = self.storage.delete(key, expect).await?;
        self.decrypt_outcome(outcome).await
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        let watch = self.storage.watch(prefix, after).await?;
        let storage = self.clone();
        let batches = watch.batches.then(move |batch| {
            let storage = storage.clone();
            async move { storage.decrypt_batch(batch?).await }
        });
        Ok(StorageWatch {
            batches: Box::pin(batches),
            progress: watch.progress,
        })
    }
}
