//! `StorageSource`: storage as a Reflector's source. It turns stored bytes into `Object`s, and
//! storage's failures into the Reflector's words; it keeps no state but where the watch is asked
//! for progress.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;

use super::CachedResource;
use crate::api::{
    DecodeError, EventType, InvalidKey, Object, ObjectKey, ResourceVersion, StorageKey,
};
use crate::reflector::{Change, ChangeBatch, ChangeStream, ListerWatcher, Listing, SourceError};
use crate::storage::{
    KeyValue, ListRequest, ProgressRequester, Storage, StorageError, StorageEvent,
};

/// Objects read from storage at a time. Upstream's page of an initial list; it bounds what a back
/// end holds in one answer.
pub(super) const LIST_PAGE: usize = 10_000;

/// Where to ask the present watch for progress; replaced whenever a new watch opens.
pub(super) type ProgressSlot = Arc<ArcSwap<ProgressRequester>>;

#[derive(Debug)]
pub(super) struct StorageSource {
    pub(super) resource: Arc<CachedResource>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) progress: ProgressSlot,
}

impl ListerWatcher for StorageSource {
    type Object = Object;

    async fn list(&mut self) -> Result<Listing<Object>, SourceError> {
        let prefix = self.resource.prefix.clone();
        let mut request = ListRequest {
            prefix,
            start: String::new(),
            at: None,
            limit: LIST_PAGE,
        };
        let mut objects = Vec::new();
        loop {
            let page = self
                .storage
                .list(request.clone())
                .await
                .map_err(source_error)?;
            for item in &page.items {
                objects.push(self.resource.decode(item).map_err(undecodable)?);
            }
            match page.items.last() {
                Some(last) if page.remaining > 0 => {
                    let key = self.resource.key_of(&last.key).map_err(undecodable_key)?;
                    request.start = format!("{key}\0");
                    request.at = Some(page.revision);
                }
                _ => {
                    return Ok(Listing {
                        objects,
                        at: page.revision,
                    });
                }
            }
        }
    }

    async fn watch(&mut self, after: ResourceVersion) -> Result<ChangeStream<Object>, SourceError> {
        let watch = self
            .storage
            .watch(&self.resource.prefix, after)
            .await
            .map_err(source_error)?;
        self.progress.store(Arc::new(watch.progress));
        let resource = self.resource.clone();
        Ok(Box::pin(watch.batches.map(move |batch| {
            let batch = batch.map_err(source_error)?;
            let changes = batch.events.into_iter().map(|event| resource.change(event));
            Ok(ChangeBatch {
                changes: changes.collect::<Result<_, _>>()?,
                at: batch.revision,
            })
        })))
    }
}

impl CachedResource {
    /// The object stored in `item`.
    pub(super) fn decode(&self, item: &KeyValue) -> Result<Arc<Object>, DecodeError> {
        // The loader will most often send it as part of somebody's initial state.
        let key = ObjectKey::from(
            self.prefix
                .strip(item.key.as_str())
                .unwrap_or(item.key.as_str()),
        );
        let at = item.mod_revision;
        Object::decode(key, at, EventType::Added, &item.value, &self.columns).map(Arc::new)
    }

    /// Where the object of this key is stored.
    pub(super) fn storage_key(&self, key: &ObjectKey) -> Result<StorageKey, InvalidKey> {
        self.prefix.join(key.as_str())
    }

    /// The key inside the resource of a storage key; the whole storage key when it is not inside.
    fn key_of(&self, key: &StorageKey) -> Result<ObjectKey, String> {
        self.prefix
            .strip(key.as_str())
            .map(ObjectKey::from)
            .ok_or_else(|| format!("storage returned {key}, which is not under {}", self.prefix))
    }

    /// The state before `event`, whose bytes are `value`. Its own version is not told; the one before
    /// the event stands for it.
    pub(super) fn previous(
        &self,
        event: &StorageEvent,
        value: &[u8],
    ) -> Result<Arc<Object>, SourceError> {
        let key = self.key_of(&event.key).map_err(undecodable_key)?;
        let before = ResourceVersion::new(event.revision.get() - 1);
        Object::decode(key, before, EventType::Modified, value, &self.columns)
            .map(Arc::new)
            .map_err(undecodable)
    }

    /// The change that `event` tells.
    pub(super) fn change(&self, event: StorageEvent) -> Result<Change<Object>, SourceError> {
        let key = self.key_of(&event.key).map_err(undecodable_key)?;
        let created = event.is_create();
        let decode = |event_type, bytes: &[u8]| {
            Object::decode(
                key.clone(),
                event.revision,
                event_type,
                bytes,
                &self.columns,
            )
            .map(Arc::new)
            .map_err(undecodable)
        };
        match (&event.value, &event.previous) {
            (Some(value), _) if created => Ok(Change::Added(decode(EventType::Added, value)?)),
            (Some(value), _) => Ok(Change::Modified(decode(EventType::Modified, value)?)),
            (None, Some(last)) => Ok(Change::Deleted(decode(EventType::Deleted, last)?)),
            (None, None) => Err(SourceError::Undecodable {
                detail: format!(
                    "deletion of {key} at {} without its last value",
                    event.revision
                ),
            }),
        }
    }
}

fn undecodable(error: DecodeError) -> SourceError {
    SourceError::Undecodable {
        detail: error.to_string(),
    }
}

fn undecodable_key(detail: String) -> SourceError {
    SourceError::Undecodable { detail }
}

fn source_error(error: StorageError) -> SourceError {
    match error {
        StorageError::Compacted { requested, .. } => SourceError::Expired {
            at: requested,
            detail: error.to_string(),
        },
        // A store that lost its newest writes: what was cached is no longer true.
        StorageError::Future { requested, .. } => SourceError::Expired {
            at: requested,
            detail: error.to_string(),
        },
        StorageError::Corrupt(_) => SourceError::Undecodable {
            detail: error.to_string(),
        },
        StorageError::TooLarge { .. } | StorageError::Unavailable(_) | StorageError::Failed(_) => {
            SourceError::Unavailable {
                detail: error.to_string(),
                retry_after: None,
            }
        }
    }
}
