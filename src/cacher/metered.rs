//! How a Cacher is counted: what it is asked about when metrics are read, how its reads went, and
//! `MeteredSource`, a Reflector's source whose lists, failures and arrivals are counted. It changes
//! nothing of what it passes on.

use std::sync::Arc;
use std::task::Poll;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::storage_reads::Page;
use super::{CachedResource, Cacher, ReadError};
use crate::api::{Object, ResourceVersion};
use crate::metrics::{CacheLook, CacheState, ListCost};
use crate::reflector::{ChangeStream, ListerWatcher, Listing, SourceError};

impl CacheState for Cacher {
    fn look(&self) -> Option<CacheLook> {
        let snapshot = self.published.snapshot.load_full()?;
        Some(CacheLook {
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
    /// The answer of storage to a consistent read that the cache did not answer in time, counted.
    pub(super) fn fallen_back<T>(&self, answer: Result<T, ReadError>) -> Result<T, ReadError> {
        if self.storage.progress_supported() {
            let metrics = &self.resource.metrics;
            metrics.read_consistently(answer.is_ok(), true);
        }
        answer
    }

    /// Whether the cache can answer a consistent read, which is counted when it can.
    pub(super) async fn can_answer_latest(&self) -> Result<bool, ReadError> {
        let fresh = self.consistent().await?;
        if fresh {
            self.resource.metrics.read_consistently(true, false);
        }
        Ok(fresh)
    }

    /// Counts a list that the cache answered, from this index if from any.
    pub(super) fn listed(&self, page: &Page, index: Option<usize>) {
        let metrics = &self.resource.metrics;
        metrics.listed_from_cache(page.cost(), index);
    }
}

/// When what the source told last began to come. Written by the source, read by the store behind the
/// same Reflector, which takes in one thing after the other.
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

/// A source that is counted.
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
            // The poll that finds something has been woken by its arrival, and decodes it.
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
