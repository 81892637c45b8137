//! A cache of objects that webhooks have converted. A thousand watchers of one event, and all lists of unchanged
//! objects, need only one call. The cache decides which request calls the webhook, but does not call it.
//!
//! # Invariants
//!
//! 1. At most one call per key is in progress.
//! 2. The converted objects of all definitions together take [`BYTES_MAX`], which the last object may exceed; conversions in
//!    progress are bounded by the requests that wait for them. The oldest conversions are removed first. They reach their maximum
//!    age first, and to maintain an order of use would cost a list more than the look-ups.
//! 3. A failure is returned to all requests that wait for it, and not stored.
//! 4. A converted object is not used longer than [`AGE_MAX`] after its conversion. The implementation of a webhook may
//!    change while its definition does not. (Upstream calls the webhook for each read from storage, and never again for objects in its
//!    watch cache.)
//! 5. A change of a definition removes the objects that were converted by the old one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::review::REVIEW_TIMEOUT;
use watchet_api::{Object, ObjectKey, ResourceVersion};
use watchet_registry::ConversionError;

/// The memory limit of the converted objects of all definitions: some twenty thousand objects of the usual size.
const BYTES_MAX: usize = 64 << 20;

/// The approximate size of an entry without the object.
const ENTRY_BYTES: usize = 256;

/// The maximum age of a converted object. It equals the time limit of a conversion, so clients cannot rely on newer conversions.
const AGE_MAX: Duration = REVIEW_TIMEOUT;

/// Identifies a conversion: an object at a resourceVersion, and the version of its definition to which it is converted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ConversionKey {
    /// The [ordinal](super::custom::Custom::ordinal) of the version.
    pub(super) version: u32,
    pub(super) key: ObjectKey,
    pub(super) at: ResourceVersion,
    /// The last state before the object was deleted or no longer selected, at the version of that change.
    pub(super) deleted: bool,
}

type ConversionResult = Result<Arc<Object>, ConversionError>;

/// What the cache has for a key.
#[derive(Debug)]
pub(super) enum Conversion {
    Done(Arc<Object>),
    /// Another request does it.
    Pending(PendingConversion),
    /// The caller must do it.
    Started(StartedConversion, PendingConversion),
}

/// The result of a conversion that is in progress.
#[derive(Debug, Clone)]
pub(super) struct PendingConversion(watch::Receiver<Option<ConversionResult>>);

/// A conversion that its holder must do, and then [publish](DefinitionCache::finish). All requests that wait for it fail
/// if it is dropped.
#[derive(Debug)]
pub(super) struct StartedConversion {
    key: ConversionKey,
    sender: watch::Sender<Option<ConversionResult>>,
}

impl PendingConversion {
    /// Returns true if nothing will be published: the server stops, or the task of the conversion panicked.
    fn is_dropped(&self) -> bool {
        self.0.has_changed().is_err()
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// The error of the conversion, or of a conversion that was dropped because the server stops.
    pub(super) async fn object(mut self) -> ConversionResult {
        let result = self.0.wait_for(Option::is_some).await;
        match result.as_deref() {
            Ok(Some(result)) => result.clone(),
            _ => Err(ConversionError::shutting_down()),
        }
    }
}

/// The objects of all definitions that are converted or being converted.
#[derive(Debug, Default)]
pub(super) struct ConversionCache(Mutex<Entries>);

/// The converted objects of one definition, as of one change of the definition.
#[derive(Debug)]
pub(super) struct DefinitionCache {
    cache: Arc<ConversionCache>,
    /// Identifies the state of the definition in the cache.
    id: u64,
}

#[derive(Debug, Default)]
struct Entries {
    all: HashMap<CacheKey, Entry>,
    /// The keys of the converted objects by their ordinals: the first was converted before all others.
    by_age: BTreeMap<u64, CacheKey>,
    /// The number of conversions that were stored.
    stored: u64,
    bytes: usize,
    definitions: u64,
}

/// A key with the ID of its definition's state, [`DefinitionCache::id`].
type CacheKey = (u64, ConversionKey);

#[derive(Debug)]
enum Entry {
    InProgress(PendingConversion),
    Done(Converted),
}

/// A converted object.
#[derive(Debug)]
struct Converted {
    object: Arc<Object>,
    /// The ordinal of the conversion among those that were stored.
    ordinal: u64,
    bytes: usize,
    since: Instant,
}

impl DefinitionCache {
    /// Returns an empty cache for a new state of a definition.
    pub(super) fn new(cache: &Arc<ConversionCache>) -> Self {
        let mut entries = cache.0.lock();
        entries.definitions += 1;
        Self {
            id: entries.definitions,
            cache: cache.clone(),
        }
    }

    /// Returns the conversion of `key`. If it was neither done nor in progress it is started now, and the caller must do it.
    pub(super) fn get_or_start(&self, key: ConversionKey) -> Conversion {
        let key = (self.id, key);
        let mut entries = self.cache.0.lock();
        if let Some(found) = entries.find(&key) {
            return found;
        }
        let (sender, receiver) = watch::channel(None);
        let pending = PendingConversion(receiver);
        entries
            .all
            .insert(key.clone(), Entry::InProgress(pending.clone()));
        Conversion::Started(StartedConversion { key: key.1, sender }, pending)
    }

    /// Publishes the result of a conversion.
    pub(super) fn finish(&self, started: StartedConversion, result: ConversionResult) {
        let key = (self.id, started.key);
        let mut entries = self.cache.0.lock();
        match &result {
            Ok(object) => entries.insert(key, object.clone()),
            Err(_) => entries.remove(&key),
        }
        drop(entries);
        // `send` would fail if no request waits any more.
        started.sender.send_replace(Some(result));
    }
}

impl Drop for DefinitionCache {
    fn drop(&mut self) {
        let mut entries = self.cache.0.lock();
        let keys = entries.all.keys().filter(|(of, _)| *of == self.id);
        let keys: Vec<_> = keys.cloned().collect();
        keys.iter().for_each(|key| entries.remove(key));
    }
}

impl Entries {
    /// Returns the conversion of a key if it is done or in progress.
    fn find(&mut self, key: &CacheKey) -> Option<Conversion> {
        match self.all.get(key)? {
            Entry::InProgress(pending) if pending.is_dropped() => {
                self.remove(key);
                None
            }
            Entry::InProgress(pending) => Some(Conversion::Pending(pending.clone())),
            Entry::Done(converted) if converted.since.elapsed() < AGE_MAX => {
                Some(Conversion::Done(converted.object.clone()))
            }
            Entry::Done(_) => {
                self.remove(key);
                None
            }
        }
    }

    /// Stores a converted object, and removes the oldest ones beyond the limit.
    fn insert(&mut self, key: CacheKey, object: Arc<Object>) {
        if let Some(entry) = self.all.get_mut(&key) {
            self.stored += 1;
            let bytes = object.memory() + ENTRY_BYTES;
            *entry = Entry::Done(Converted {
                object,
                ordinal: self.stored,
                bytes,
                since: Instant::now(),
            });
            self.by_age.insert(self.stored, key);
            self.bytes += bytes;
        }
        while self.bytes > BYTES_MAX
            && self.by_age.len() > 1
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &CacheKey) {
        if let Some(Entry::Done(converted)) = self.all.remove(key) {
            self.by_age.remove(&converted.ordinal);
            self.bytes -= converted.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchet_api::{ColumnSet, EventType};

    fn key(name: &str, at: u64) -> ConversionKey {
        ConversionKey {
            version: 1,
            key: ObjectKey::from(name),
            at: ResourceVersion::new(at),
            deleted: false,
        }
    }

    fn object(key: &ConversionKey, bytes: usize) -> Arc<Object> {
        let json = format!(r#"{{"metadata":{{}},"x":"{}"}}"#, "x".repeat(bytes));
        let columns = ColumnSet::default();
        let name = key.key.clone();
        let read = Object::decode(name, key.at, EventType::Added, json.as_bytes(), &columns);
        Arc::new(read.unwrap())
    }

    fn converted() -> DefinitionCache {
        DefinitionCache::new(&Arc::default())
    }

    fn started(conversion: Conversion) -> (StartedConversion, PendingConversion) {
        match conversion {
            Conversion::Started(started, pending) => (started, pending),
            other => panic!("the caller should do it: {other:?}"),
        }
    }

    fn done(conversion: Conversion) -> Arc<Object> {
        match conversion {
            Conversion::Done(object) => object,
            other => panic!("it should be done: {other:?}"),
        }
    }

    /// Converts an object to this size.
    fn convert(converted: &DefinitionCache, name: &str, bytes: usize) {
        let (started, _) = started(converted.get_or_start(key(name, 1)));
        let result = object(&key(name, 1), bytes);
        converted.finish(started, Ok(result));
    }

    #[tokio::test]
    async fn concurrent_requests_share_one_conversion() {
        let converted = converted();
        let (first, pending) = started(converted.get_or_start(key("a", 1)));
        let Conversion::Pending(second) = converted.get_or_start(key("a", 1)) else {
            panic!("it is in progress");
        };
        started(converted.get_or_start(key("a", 2)));
        let result = object(&key("a", 1), 1);
        converted.finish(first, Ok(result.clone()));
        for pending in [pending, second] {
            assert!(Arc::ptr_eq(&pending.object().await.unwrap(), &result));
        }
        let found = done(converted.get_or_start(key("a", 1)));
        assert!(Arc::ptr_eq(&found, &result));
    }

    #[tokio::test]
    async fn failure_is_returned_and_not_stored() {
        let converted = converted();
        let (conversion, pending) = started(converted.get_or_start(key("a", 1)));
        let error = ConversionError("no".to_owned());
        converted.finish(conversion, Err(error.clone()));
        assert_eq!(pending.object().await.unwrap_err(), error);
        let (conversion, pending) = started(converted.get_or_start(key("a", 1)));
        drop(conversion);
        assert!(
            pending.object().await.is_err(),
            "the conversion was dropped"
        );
        // A conversion that was dropped is started again.
        started(converted.get_or_start(key("a", 1)));
    }

    #[tokio::test(start_paused = true)]
    async fn object_is_converted_again_after_its_maximum_age() {
        let converted = converted();
        convert(&converted, "a", 10);
        let bytes = converted.cache.0.lock().bytes;
        tokio::time::advance(AGE_MAX - Duration::from_millis(1)).await;
        // A use does not extend its age.
        let older = done(converted.get_or_start(key("a", 1)));
        tokio::time::advance(Duration::from_millis(1)).await;
        let (conversion, _) = started(converted.get_or_start(key("a", 1)));
        assert_eq!(converted.cache.0.lock().bytes, 0);
        let newer = object(&key("a", 1), 10);
        converted.finish(conversion, Ok(newer.clone()));
        let found = done(converted.get_or_start(key("a", 1)));
        assert!(Arc::ptr_eq(&found, &newer));
        assert!(!Arc::ptr_eq(&found, &older));
        assert_eq!(converted.cache.0.lock().bytes, bytes);
    }

    #[test]
    fn oldest_conversion_of_any_definition_is_removed() {
        let cache = Arc::default();
        let (one, other) = (DefinitionCache::new(&cache), DefinitionCache::new(&cache));
        convert(&one, "a", BYTES_MAX / 3);
        convert(&other, "a", BYTES_MAX / 3);
        done(one.get_or_start(key("a", 1)));
        convert(&other, "b", BYTES_MAX / 3);
        done(other.get_or_start(key("a", 1)));
        done(other.get_or_start(key("b", 1)));
        started(one.get_or_start(key("a", 1)));
        let entries = cache.0.lock();
        assert!(entries.bytes <= BYTES_MAX);
        assert_eq!(entries.by_age.len(), 2);
    }

    #[test]
    fn objects_are_removed_with_their_definition() {
        let cache = Arc::default();
        let (old, other) = (DefinitionCache::new(&cache), DefinitionCache::new(&cache));
        convert(&old, "a", 10);
        convert(&other, "a", 10);
        let _in_progress = started(old.get_or_start(key("b", 1)));
        drop(old);
        let left = |entries: &Entries| (entries.all.len(), entries.by_age.len());
        assert_eq!(left(&cache.0.lock()), (1, 1));
        drop(other);
        assert_eq!(left(&cache.0.lock()), (0, 0));
        assert_eq!(cache.0.lock().bytes, 0);
    }
}
