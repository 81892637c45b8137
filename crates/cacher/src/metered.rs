//! `MeteredSource`: a Reflector source that counts lists, failures and received events.

use std::sync::Arc;
use std::task::Poll;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::CachedResource;
use watchet_api::{Object, ResourceVersion};
use watchet_metrics::ListCost;
use watchet_reflector::{ChangeStream, ListerWatcher, Listing, SourceError};

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
                metrics.count_storage_list(cost, self.arrival.get().elapsed());
            }
            Err(_) => metrics.initialization_errors.inc(),
        }
        listing
    }

    async fn recovered(&mut self) {
        self.source.recovered().await;
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
