//! `StorageSource`: a Reflector source that reads storage, decodes values into `Object`s and
//! converts storage errors. Its only state is the progress requester of the current watch.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::CachedResource;
use super::pressure::WithPressure;
use super::unreadable::Unreadable;
use watchet_api::{EventType, InvalidKey, Object, ObjectKey, ResourceVersion, StorageKey};
use watchet_reflector::{Change, ChangeBatch, ChangeStream, ListerWatcher, Listing, SourceError};
use watchet_storage::{
    KeyValue, ListPage, ListRequest, ListVisitor, ProgressRequester, Storage, StorageBatch,
    StorageError, StorageEvent, VisitedValue, unreadable_reason,
};
use watchet_tasks::Tasks;

/// Page size of lists from storage: upstream's page size of an initial list. It bounds the memory
/// of one response.
pub(super) const LIST_PAGE: usize = 10_000;

/// Page size of the cache's own lists, which hold two pages in memory: one being decoded and the
/// next, being read.
const FILL_PAGE: usize = LIST_PAGE / 4;

/// Larger pages are decoded on a blocking thread, because they take more than about a millisecond.
const INLINE_DECODE_MAX: usize = 256;

/// Maximum number of unreadable keys in one message.
const UNREADABLE_KEYS_MAX: usize = 10;
/// The progress requester of the current watch; each new watch replaces it.
pub(super) type ProgressSlot = Arc<ArcSwap<ProgressRequester>>;

#[derive(Debug)]
pub(super) struct StorageSource {
    pub(super) resource: Arc<CachedResource>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) progress: ProgressSlot,
    pub(super) memory: Arc<watchet_api::ServerMemory>,
    pub(super) tasks: Tasks,
    /// The storage's incarnation at the last list, whose versions are void in another one.
    pub(super) incarnation: u64,
    /// Changes when an outage of storage has ended.
    pub(super) recoveries: Option<watch::Receiver<u64>>,
}

impl ListerWatcher for StorageSource {
    type Object = Object;

    async fn list(&mut self) -> Result<Listing<Object>, SourceError> {
        self.forget_recoveries();
        // Before the list: if storage is replaced during the list, the next watch is refused.
        self.incarnation = self.storage.incarnation();
        match self.list_by_visit().await {
            Some(listing) => listing,
            None => self.list_by_pages().await,
        }
    }

    async fn recovered(&mut self) {
        // An error means that the storage has been dropped, which this source refers to.
        if let Some(recoveries) = &mut self.recoveries
            && recoveries.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }

    async fn watch(&mut self, after: ResourceVersion) -> Result<ChangeStream<Object>, SourceError> {
        self.forget_recoveries();
        let watch = self
            .storage
            .watch(&self.resource.prefix, after)
            .await
            .map_err(source_error)?;
        // After the watch was opened, which may have found out that storage has been replaced.
        if self.storage.incarnation() != self.incarnation {
            return Err(SourceError::Expired {
                at: after,
                detail: "storage has been replaced by another state".to_owned(),
            });
        }
        self.progress.store(Arc::new(watch.progress));
        let resource = self.resource.clone();
        let batches = watch.batches.flat_map(move |batch| {
            let parts = match batch {
                Ok(batch) => resource.changes(batch),
                Err(error) => vec![Err(source_error(error))],
            };
            futures_util::stream::iter(parts)
        });
        Ok(Box::pin(WithPressure::new(batches, after, &self.memory)))
    }
}

impl StorageSource {
    /// Ignores the recoveries up to now.
    fn forget_recoveries(&mut self) {
        if let Some(recoveries) = &mut self.recoveries {
            recoveries.mark_unchanged();
        }
    }

    /// Lists by a visit, if the storage supports it: the values are decoded without a copy, on several
    /// threads.
    async fn list_by_visit(&self) -> Option<Result<Listing<Object>, SourceError>> {
        let decoder = Arc::new(Decoder {
            resource: self.resource.clone(),
            parts: Mutex::default(),
        });
        let visited = self.storage.visit(&self.resource.prefix, decoder.clone());
        let at = match visited.await? {
            Ok(at) => at,
            Err(error) => return Some(Err(source_error(error))),
        };
        Some(decoder.listing(at))
    }

    /// Lists page by page.
    async fn list_by_pages(&self) -> Result<Listing<Object>, SourceError> {
        let prefix = self.resource.prefix.clone();
        let mut request = ListRequest {
            prefix,
            start: String::new(),
            at: None,
            limit: FILL_PAGE,
            count: false,
        };
        let mut list = DecodedList::default();
        let mut page = self.page(&request).await?;
        loop {
            let last = page.items.last().filter(|_| page.more);
            let more = last.map(|last| self.resource.key_of(&last.key));
            let next = match more.transpose()? {
                Some(key) => {
                    request.start = format!("{key}\0");
                    request.at = Some(page.revision);
                    Some(&request)
                }
                None => None,
            };
            let read = async {
                let read = next.map(|request| self.page(request));
                futures_util::future::OptionFuture::from(read).await
            };
            // Reads the next page while this one is decoded.
            let (next, decoded) = tokio::join!(read, self.decode(page.items));
            list.add(decoded?);
            match next {
                Some(next) => page = next?,
                None => return list.into_listing(page.revision),
            }
        }
    }

    async fn page(&self, request: &ListRequest) -> Result<ListPage, SourceError> {
        let page = self.storage.list(request.clone()).await;
        page.map_err(source_error)
    }

    /// Decodes `items`.
    async fn decode(&self, items: Vec<KeyValue>) -> Result<Vec<Decoded>, SourceError> {
        let resource = self.resource.clone();
        let count = items.len();
        let decode = move || items.iter().map(|item| resource.decode(item)).collect();
        if count <= INLINE_DECODE_MAX {
            return Ok(decode());
        }
        let decoded = self.tasks.spawn_blocking("decode", decode).await;
        decoded.map_err(|error| SourceError::Unavailable {
            detail: error.to_string(),
            retry_after: None,
        })
    }
}

type Decoded = Result<Arc<Object>, Unreadable>;

/// The decoded values of a list.
#[derive(Default)]
struct DecodedList {
    objects: Vec<Arc<Object>>,
    unreadable: Vec<Unreadable>,
}

impl DecodedList {
    fn add(&mut self, decoded: Vec<Decoded>) {
        for result in decoded {
            match result {
                Ok(object) => self.objects.push(object),
                Err(error) => self.unreadable.push(error),
            }
        }
    }

    /// Returns the list at `at`.
    ///
    /// # Errors
    /// A value was unreadable: a partial state would be served as complete.
    fn into_listing(self, at: ResourceVersion) -> Result<Listing<Object>, SourceError> {
        let Self {
            objects,
            unreadable,
        } = self;
        match unreadable.is_empty() {
            true => Ok(Listing { objects, at }),
            false => Err(combine(&unreadable)),
        }
    }
}

/// Decodes the values of a visit.
struct Decoder {
    resource: Arc<CachedResource>,
    /// The visited parts with their indexes, in any order.
    parts: Mutex<Vec<(usize, Vec<Decoded>)>>,
}

impl ListVisitor for Decoder {
    fn visit(&self, index: usize, values: &[VisitedValue<'_>]) {
        let decode = |value: &VisitedValue<'_>| {
            let (at, event_type) = (value.mod_revision, EventType::Added);
            self.resource.object(value.key, at, event_type, value.value)
        };
        let decoded = values.iter().map(decode).collect();
        self.parts.lock().push((index, decoded));
    }
}

impl Decoder {
    /// Returns the list of all parts at `at`.
    fn listing(&self, at: ResourceVersion) -> Result<Listing<Object>, SourceError> {
        let mut parts = std::mem::take(&mut *self.parts.lock());
        parts.sort_unstable_by_key(|(index, _)| *index);
        let mut list = DecodedList::default();
        list.objects
            .reserve_exact(parts.iter().map(|(_, part)| part.len()).sum());
        parts.into_iter().for_each(|(_, part)| list.add(part));
        list.into_listing(at)
    }
}

/// Returns one error with the keys of all values, or of the first ones.
fn combine(unreadable: &[Unreadable]) -> SourceError {
    let named = unreadable.iter().take(UNREADABLE_KEYS_MAX);
    let mut detail = named
        .map(Unreadable::to_string)
        .collect::<Vec<_>>()
        .join("; ");
    if unreadable.len() > UNREADABLE_KEYS_MAX {
        detail += &format!("; and {} more", unreadable.len() - UNREADABLE_KEYS_MAX);
    }
    SourceError::Undecodable { detail }
}

impl CachedResource {
    /// Decodes the object stored in `item`.
    pub(super) fn decode(&self, item: &KeyValue) -> Result<Arc<Object>, Unreadable> {
        // ADDED, because the object is most often sent as part of an initial state.
        self.object(&item.key, item.mod_revision, EventType::Added, &item.value)
    }

    fn object(
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
    fn changes(&self, batch: StorageBatch) -> Vec<Result<ChangeBatch<Object>, SourceError>> {
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

fn source_error(error: StorageError) -> SourceError {
    match error {
        // Of a revision in the future, the store lost its newest writes: the cached state is invalid.
        StorageError::Compacted { requested, .. } | StorageError::Future { requested, .. } => {
            SourceError::Expired {
                at: requested,
                detail: error.to_string(),
            }
        }
        StorageError::Corrupt(_) => SourceError::Undecodable {
            detail: error.to_string(),
        },
        StorageError::TooLarge { .. }
        | StorageError::Unavailable(_)
        | StorageError::OutcomeUnknown(_)
        | StorageError::Failed(_) => SourceError::Unavailable {
            detail: error.to_string(),
            retry_after: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{pod, resource, rv};
    use super::*;
    use watchet_storage::memory::Memory;
    use watchet_storage::{Expect, Put};

    /// Returns a source over a store with `count` pods, of which `unreadable` have values that are no
    /// objects.
    async fn filled(count: usize, unreadable: &[usize]) -> StorageSource {
        let storage = Memory::new(std::time::Duration::ZERO).unwrap();
        for number in 0..count {
            let key = format!("ns/{number:04}");
            let value = match unreadable.contains(&number) {
                true => format!("garbage {number}"),
                false => pod(&key, "web", "n1", number as u64),
            };
            let put = Put {
                key: StorageKey::new(&format!("/pods/{key}")).unwrap(),
                value: value.into(),
                expect: Expect::Absent,
                ttl: None,
            };
            storage.put(put).await.unwrap();
        }
        StorageSource {
            resource: Arc::new(resource()),
            storage,
            progress: ProgressSlot::default(),
            tasks: Tasks::new(),
            incarnation: 0,
            memory: Arc::default(),
            recoveries: None,
        }
    }

    /// Both methods return the same list, with more keys than one part of a visit has.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_list_by_visit_equals_a_list_by_pages() {
        for count in [0, 1, 500] {
            let source = filled(count, &[]).await;
            let visited = source.list_by_visit().await.unwrap().unwrap();
            let paged = source.list_by_pages().await.unwrap();
            assert_eq!(visited.at, paged.at);
            let texts = |listing: Listing<Object>| {
                let objects = listing.objects.into_iter();
                let text = |object: Arc<Object>| {
                    (
                        object.key().as_str().to_owned(),
                        object.body_slice().to_vec(),
                    )
                };
                objects.map(text).collect::<Vec<_>>()
            };
            let (visited, paged) = (texts(visited), texts(paged));
            assert_eq!(visited.len(), count);
            assert!(visited.is_sorted(), "{visited:?}");
            assert_eq!(visited, paged);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn unreadable_values_fail_both_lists_alike() {
        let many: Vec<_> = (100..130).collect();
        for unreadable in [&[7][..], &[450, 3], &many] {
            let source = filled(500, unreadable).await;
            let error = source.list_by_pages().await.unwrap_err();
            let SourceError::Undecodable { detail: expected } = error else {
                panic!("{error:?}");
            };
            assert!(expected.contains("/pods/ns/0"), "{expected}");
            match source.list_by_visit().await.unwrap() {
                Err(SourceError::Undecodable { detail }) => assert_eq!(detail, expected),
                other => panic!("{other:?}"),
            }
        }
    }

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
