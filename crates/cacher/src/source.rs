//! `StorageSource`: a Reflector source that reads storage, decodes values into `Object`s and
//! converts storage errors. Its only state is the progress requester of the current watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::CachedResource;
use super::pressure::WithPressure;
use super::unreadable::Unreadable;
use watchet_api::{EventType, Object, ResourceVersion};
use watchet_reflector::{ChangeStream, ListerWatcher, Listing, SourceError};
use watchet_storage::{
    KeyValue, ListPage, ListRequest, ListVisitor, ProgressRequester, Storage, StorageError,
    VisitedValue,
};
use watchet_tasks::{Tasks, report_slow};

/// Page size of lists from storage: upstream's page size of an initial list. It bounds the memory
/// of one response.
pub(super) const LIST_PAGE: usize = 10_000;

/// Page size of the cache's own lists, which hold two pages in memory: one being decoded and the
/// next, being read.
const FILL_PAGE: usize = LIST_PAGE / 4;

/// Larger pages are decoded on a blocking thread, because they take more than about a millisecond.
const INLINE_DECODE_MAX: usize = 256;

/// Before this time, a list that has no object yet is not logged. It waits for storage, as the lists of all caches do while
/// etcd is restored, and storage logs the cause once.
const SILENT_WAIT_MAX: Duration = Duration::from_secs(5);

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
        let decoded = Arc::new(AtomicUsize::new(0));
        let list = async {
            match self.list_by_visit(&decoded).await {
                Some(listing) => listing,
                None => self.list_by_pages(&decoded).await,
            }
        };
        let resource = &self.resource.name;
        report_slow(list, |elapsed, is_done| {
            let objects = decoded.load(Ordering::Relaxed);
            if objects == 0 && elapsed < SILENT_WAIT_MAX {
                return;
            }
            let per_second = objects as f64 / elapsed.as_secs_f64();
            let what = if is_done { "list ended" } else { "listing" };
            tracing::info!(%resource, objects, ?elapsed, objects_per_second = per_second as u64, "{what}");
        })
        .await
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
    async fn list_by_visit(
        &self,
        decoded: &Arc<AtomicUsize>,
    ) -> Option<Result<Listing<Object>, SourceError>> {
        let decoder = Arc::new(Decoder {
            resource: self.resource.clone(),
            decoded: Arc::clone(decoded),
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
    async fn list_by_pages(
        &self,
        decoded_objects: &AtomicUsize,
    ) -> Result<Listing<Object>, SourceError> {
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
            let decoded = decoded?;
            decoded_objects.fetch_add(decoded.len(), Ordering::Relaxed);
            list.add(decoded);
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
    /// The number of values in them.
    decoded: Arc<AtomicUsize>,
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
        self.decoded.fetch_add(values.len(), Ordering::Relaxed);
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
    use super::super::tests::{pod, resource};
    use super::*;
    use watchet_api::StorageKey;
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
            let progress = Arc::default();
            let visited = source.list_by_visit(&progress).await.unwrap().unwrap();
            let paged = source.list_by_pages(&progress).await.unwrap();
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
            let progress = Arc::default();
            let error = source.list_by_pages(&progress).await.unwrap_err();
            let SourceError::Undecodable { detail: expected } = error else {
                panic!("{error:?}");
            };
            assert!(expected.contains("/pods/ns/0"), "{expected}");
            match source.list_by_visit(&progress).await.unwrap() {
                Err(SourceError::Undecodable { detail }) => assert_eq!(detail, expected),
                other => panic!("{other:?}"),
            }
        }
    }
}
