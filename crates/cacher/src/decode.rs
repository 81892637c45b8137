//! Decodes stored values and events of a resource into objects and changes.

use std::sync::Arc;

use super::CachedResource;
use super::unreadable::Unreadable;
use watchet_api::{EventType, InvalidKey, Object, ObjectKey, ResourceVersion, StorageKey};
use watchet_reflector::{Change, ChangeBatch, SourceError};
use watchet_storage::{KeyValue, StorageBatch, StorageEvent, unreadable_reason};

impl CachedResource {
    /// Decodes the object stored in `item`.
    pub(super) fn decode(&self, item: &KeyValue) -> Result<Arc<Object>, Unreadable> {
        // ADDED, because the object is most often sent as part of an initial state.
        self.object(&item.key, item.mod_revision, EventType::Added, &item.value)
    }

    /// Decodes the object with this key, version and value.
    pub(super) fn object(
        &self,
        key: &StorageKey,
        at: ResourceVersion,
        event_type: EventType,
        bytes: &[u8],
    ) -> Result<Arc<Object>, Unreadable> {
        let object_key = self.key_of(key)?;
        let transform = self.transform.as_ref();
        let transformed = transform.and_then(|transform| transform.transform(bytes));
        let bytes = transformed.as_deref().unwrap_or(bytes);
        Object::decode(object_key, at, event_type, bytes, &self.columns)
            .map(Arc::new)
            .inspect_err(|_| self.metrics.decode_errors.inc())
            .map_err(|error| Unreadable {
                key: key.clone(),
                detail: unreadable_reason(bytes).unwrap_or_else(|| error.to_string()),
            })
    }

    /// Returns the storage key of an object's key.
    pub(super) fn storage_key(&self, key: &ObjectKey) -> Result<StorageKey, InvalidKey> {
        self.prefix.join(key.as_str())
    }

    /// Returns the object key of a storage key, which must have the resource's prefix.
    pub(super) fn key_of(&self, key: &StorageKey) -> Result<ObjectKey, Unreadable> {
        self.prefix
            .strip(key.as_str())
            .map(ObjectKey::from)
            .ok_or_else(|| Unreadable {
                key: key.clone(),
                detail: format!("the key is not under {}", self.prefix),
            })
    }

    /// Decodes the state before `event`, stored as `value`. Its own version is unknown; the version
    /// before the event stands for it.
    pub(super) fn previous(
        &self,
        event: &StorageEvent,
        value: &[u8],
    ) -> Result<Arc<Object>, Unreadable> {
        let before = ResourceVersion::new(event.revision.get() - 1);
        self.object(&event.key, before, EventType::Modified, value)
    }

    /// Decodes the change of `event`.
    pub(super) fn change(&self, event: &StorageEvent) -> Result<Change<Object>, Unreadable> {
        let object =
            |event_type, bytes: &[u8]| self.object(&event.key, event.revision, event_type, bytes);
        match (&event.value, &event.previous) {
            (Some(value), None) => Ok(Change::Added(object(EventType::Added, value)?)),
            (Some(value), Some(_)) => Ok(Change::Modified(object(EventType::Modified, value)?)),
            (None, Some(last)) => Ok(Change::Deleted(object(EventType::Deleted, last)?)),
            (None, None) => Err(Unreadable {
                key: event.key.clone(),
                detail: format!("deleted at {} without its last value", event.revision),
            }),
        }
    }

    /// Decodes the changes of `batch`. If one cannot be decoded, returns the complete revisions
    /// before it and the error.
    pub(super) fn changes(
        &self,
        batch: StorageBatch,
    ) -> Vec<Result<ChangeBatch<Object>, SourceError>> {
        let decoded: Result<Vec<_>, _> = batch
            .events
            .iter()
            .map(|event| self.change(event).map_err(|error| (event.revision, error)))
            .collect();
        let (revision, error) = match decoded {
            Ok(changes) => {
                let at = batch.revision;
                return vec![Ok(ChangeBatch { changes, at })];
            }
            Err(unreadable) => unreadable,
        };
        // A revision is returned whole or not at all.
        let before = batch
            .events
            .iter()
            .filter(|event| event.revision < revision);
        let changes = before.map_while(|event| self.change(event).ok()).collect();
        let at = ResourceVersion::new(revision.get() - 1);
        vec![Ok(ChangeBatch { changes, at }), Err(error.into())]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{pod, resource, rv};
    use super::*;

    /// WC-003: rejects keys of other resources that storage returns.
    #[test]
    fn key_outside_of_prefix_is_rejected() {
        let item = |key: &str| KeyValue {
            key: StorageKey::new(key).unwrap(),
            value: pod("ns/a", "web", "n1", 1).into(),
            create_revision: rv(2),
            mod_revision: rv(2),
            is_stale: false,
        };
        let ours = resource().decode(&item("/pods/ns/a")).unwrap();
        assert_eq!(ours.key().as_str(), "ns/a");
        for foreign in ["/podsecrets/ns/a", "/secrets/ns/a"] {
            let error = resource().decode(&item(foreign)).unwrap_err().to_string();
            assert!(error.starts_with(foreign), "{error}");
        }
    }

    /// Returns no part of a revision that has an unreadable change.
    #[test]
    fn changes_before_an_unreadable_one_are_whole_revisions() {
        let event = |key: &str, revision, value: String| StorageEvent {
            key: StorageKey::new(key).unwrap(),
            revision: rv(revision),
            value: Some(value.into()),
            previous: None,
        };
        let batch = StorageBatch {
            events: vec![
                event("/pods/ns/a", 5, pod("ns/a", "web", "n1", 1)),
                event("/pods/ns/b", 7, pod("ns/b", "web", "n1", 1)),
                event("/pods/ns/c", 7, "garbage".into()),
                event("/pods/ns/d", 9, pod("ns/d", "web", "n1", 1)),
            ],
            revision: rv(9),
        };
        let changes = resource().changes(batch);
        let [Ok(before), Err(SourceError::Undecodable { detail })] = &changes[..] else {
            panic!("{changes:?}");
        };
        assert_eq!((before.changes.len(), before.at), (1, rv(6)));
        assert!(detail.starts_with("/pods/ns/c"), "{detail}");
    }
}
