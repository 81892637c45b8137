//! Metrics of a Cacher: gauges read at scrape time, results of reads, and `MeteredSource`, a
//! Reflector source that counts lists, failures and received events.

use std::sync::Arc;
use std::task::Poll;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::storage_reads::Page;
use super::{CachedResource, Cacher, ReadError};
use watchet_api::{Object, ResourceVersion};
use watchet_metrics::{CacheState, CacheStats, ListCost};
use watchet_reflector::{ChangeStream, ListerWatcher, Listing, SourceError};

impl CacheState for Cacher {
    fn stats(&self) -> Option<CacheStats> {
        let snapshot = self.published.snapshot.load_full()?;
        Some(CacheStats {
            resource_version: snapshot.at.get(),
            objects: snapshot.objects().len(),
            objects_bytes: snapshot.objects_bytes(),
            history_events: snapshot.history_len(),
            live_watchers: self.dispatcher.members(),
            consistency_checks: self.consistency_checks(),
        })
    }
}

impl Cacher {
    /// Counts the result of a consistent read that fell back to storage.
    pub(super) fn count_fallback<T>(&self, answer: Result<T, ReadError>) -> Result<T, ReadError> {
        if self.storage.progress_supported() {
            let metrics = &self.resource.metrics;
            metrics.read_consistently(answer.is_ok(), true);
        }
        answer
    }

    /// Returns true if the cache can answer a consistent read, and counts it then.
    pub(super) async fn can_answer_latest(&self) -> Result<bool, ReadError> {
        let fresh = self.consistent().await?;
        if fresh {
            self.resource.metrics.read_consistently(true, false);
        }
        Ok(fresh)
    }

    /// Counts a list answered by the cache, with the index that it used.
    pub(super) fn count_list(&self, page: &Page, index: Option<usize>) {
        let metrics = &self.resource.metrics;
        metrics.listed_from_cache(page.cost(), index);
    }
}

/// When the last item of the source started to arrive. The source writes it and the store of the
/// same Reflector reads it; they run alternately.
#[derive(Debug, Clone)]
pub(super) struct Arrival(Arc<Mutex<Instant>>);

impl Arrival {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(super) fn get(&self) -> Instant {
        *self.0.lock()
    }

    fn now(&self) {
        *self.0.lock() = Instant::now();
    }
}

/// A source with metrics.
#[derive(Debug)]
pub(super) struct MeteredSource<L> {
    pub(super) source: L,
    pub(super) resource: Arc<CachedResource>,
    pub(super) arrival: Arrival,
}

impl<L: ListerWatcher<Object = Object>> ListerWatcher for MeteredSource<L> {
    type Object = Object;

    async fn list(&mut self) -> Result<Listing<Object>, SourceError> {
        self.arrival.now();
        let listing = self.source.list().await;
        let metrics = &self.resource.metrics;
        match &listing {
            Ok(listing) => {
                let count = listing.objects.len();
                let cost = ListCost {
                    fetched: count,
                    evaluated: count,
                    returned: count,
                };
                metrics.listed_from_storage(cost, self.arrival.get().elapsed());
            }
            Err(_) => metrics.initialization_errors.inc(),
        }
        listing
    }

    async fn watch(&mut self, after: ResourceVersion) -> Result<ChangeStream<Object>, SourceError> {
        let mut changes = self.source.watch(after).await?;
        let (arrival, resource) = (self.arrival.clone(), self.resource.clone());
        Ok(Box::pin(futures_util::stream::poll_fn(move |cx| {
            // Measured when the poll that returns the batch was woken, before decoding.
            let polled = Instant::now();
            let found = changes.poll_next_unpin(cx);
            if found.is_ready() {
                *arrival.0.lock() = polled;
            }
            if let Poll::Ready(Some(Ok(batch))) = &found {
                let metrics = &resource.metrics;
                metrics.storage_events.add(batch.changes.len());
                let progress = usize::from(batch.changes.is_empty());
                metrics.storage_bookmarks.add(progress);
            }
            found
        })))
    }
}
