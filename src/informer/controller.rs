//! `Controller`: a Reflector that fills a queue and a loop that empties it, which start and stop
//! together. What is done with what comes out of the queue is its user's business; what an informer does
//! is [`process_deltas`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::shared::Progress;
use super::{
    Delta, DeltaFifo, Deltas, FOREVER, InformerSynced, KubeObject, Notification, PopError, Requeue,
    ThreadSafeStore,
};
use crate::api::ResourceVersion;
use crate::reflector::{
    Backoff, ChangeBatch, ListerWatcher, Reflector, ReflectorStore, SourceError,
};

/// Is told when a source cannot be listed or watched. The Reflector goes on in any case.
pub type WatchErrorHandler = Arc<dyn Fn(&SourceError) + Send + Sync>;

/// What a [`Controller`] is made of.
pub struct Config<T: KubeObject, L, P> {
    /// Where the Reflector puts what happens.
    pub queue: Arc<DeltaFifo<T>>,
    /// Where objects come from.
    pub lister_watcher: L,
    /// What is done with what happened to one object, as in [`DeltaFifo::pop`]; it is also told whether
    /// that object was in the first list.
    pub process: P,
    /// When what is known is processed anew, by a `Sync` delta for each object.
    pub resync: Resync,
    /// Told of failures of the source; without one they are logged.
    pub watch_error_handler: Option<WatchErrorHandler>,
    /// How long the Reflector waits after a failure.
    pub backoff: Backoff,
}

/// When a queue is asked to tell again of all objects that it knows.
pub struct Resync {
    period: watch::Receiver<Duration>,
    should_resync: Box<dyn FnMut() -> bool + Send>,
}

impl Resync {
    /// Never.
    pub fn never() -> Self {
        Self::every(Duration::ZERO)
    }

    /// Each `period`; never, if it is zero.
    pub fn every(period: Duration) -> Self {
        Self::following(watch::Sender::new(period).subscribe(), || true)
    }

    /// Only if `should_resync` says so at that time.
    pub fn only_if(mut self, should_resync: impl FnMut() -> bool + Send + 'static) -> Self {
        self.should_resync = Box::new(should_resync);
        self
    }

    /// By a period that can change.
    pub(super) fn following(
        period: watch::Receiver<Duration>,
        should_resync: impl FnMut() -> bool + Send + 'static,
    ) -> Self {
        Self {
            period,
            should_resync: Box::new(should_resync),
        }
    }

    /// Waits until the next one is due, a period after `last`. Cancel safe.
    async fn due(&mut self, last: Instant) {
        loop {
            let period = *self.period.borrow_and_update();
            let wait = async {
                match period {
                    Duration::ZERO => std::future::pending().await,
                    period => tokio::time::sleep_until(last + period.min(FOREVER)).await,
                }
            };
            let changed = async {
                if self.period.changed().await.is_err() {
                    // Nobody can change it any more.
                    std::future::pending().await
                }
            };
            // Biased: a period that has just changed counts.
            tokio::select! {
                biased;
                () = changed => {}
                () = wait => return,
            }
        }
    }
}

impl fmt::Debug for Resync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = *self.period.borrow();
        f.debug_struct("Resync")
            .field("period", &period)
            .finish_non_exhaustive()
    }
}

/// Keeps a queue filled from a source and empties it into `process`.
#[must_use = "it does nothing until it is run"]
pub struct Controller<T: KubeObject, L, P> {
    config: Config<T, L, P>,
    seen: Arc<Seen>,
}

/// What a controller tells of itself.
#[derive(Debug, Default)]
struct Seen {
    progress: Progress,
    last_sync_resource_version: Mutex<Option<ResourceVersion>>,
}

/// Tells how far a running controller is.
#[derive(Debug, Clone)]
pub struct ControllerState(Arc<Seen>);

impl ControllerState {
    /// Whether everything that the first list had was processed.
    pub fn has_synced(&self) -> bool {
        self.0.progress.has_synced()
    }

    /// The same, to be waited for.
    pub fn synced(&self) -> InformerSynced {
        self.0.progress.told()
    }

    /// How far the queue has been filled: the version of the last list, change or bookmark.
    pub fn last_sync_resource_version(&self) -> Option<ResourceVersion> {
        *self.0.last_sync_resource_version.lock()
    }
}

impl<T, L, P> Controller<T, L, P>
where
    T: KubeObject,
    L: ListerWatcher<Object = T>,
    P: FnMut(&Deltas<T>, bool) -> Result<(), Requeue> + Send,
{
    /// A controller that does nothing until it is run.
    pub fn new(config: Config<T, L, P>) -> Self {
        Self {
            config,
            seen: Arc::default(),
        }
    }

    /// To see how far it is, also while it runs.
    pub fn state(&self) -> ControllerState {
        ControllerState(self.seen.clone())
    }

    /// Runs until `stop`. What is in the queue then is left there, and the queue is closed.
    pub async fn run(self, stop: CancellationToken) {
        let Self { config, seen } = self;
        let Config {
            queue,
            lister_watcher,
            process,
            resync,
            watch_error_handler,
            backoff,
        } = config;
        let store = Told {
            queue: queue.clone(),
            seen: seen.clone(),
            watch_error_handler,
        };
        let reflector = Reflector::new(lister_watcher, store, backoff).run(stop.clone());
        // Biased: stopping comes first. Then, what has happened is processed before more is fetched, so
        // that the queue stays short; that loop gives way by itself.
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = pop_loop(&queue, process, &seen) => {}
            () = resync_loop(&queue, resync) => {}
            () = reflector => {}
        }
        queue.close();
        seen.progress.end();
    }
}

async fn pop_loop<T: KubeObject>(
    queue: &DeltaFifo<T>,
    mut process: impl FnMut(&Deltas<T>, bool) -> Result<(), Requeue>,
    seen: &Seen,
) {
    loop {
        match queue.pop(&mut process).await {
            Err(PopError::Closed) => return,
            // It may come again at once: everything else has its turn before.
            Err(PopError::Requeued) => tokio::task::yield_now().await,
            Ok(()) => {}
        }
        if queue.has_synced() {
            seen.progress.sync();
        }
        tokio::task::consume_budget().await;
    }
}

async fn resync_loop<T: KubeObject>(queue: &DeltaFifo<T>, mut resync: Resync) {
    let mut last = Instant::now();
    loop {
        resync.due(last).await;
        last = Instant::now();
        if (resync.should_resync)() {
            queue.resync();
        }
    }
}

/// The queue as the Reflector's store, with what is told of it.
struct Told<T: KubeObject> {
    queue: Arc<DeltaFifo<T>>,
    seen: Arc<Seen>,
    watch_error_handler: Option<WatchErrorHandler>,
}

impl<T: KubeObject> Told<T> {
    fn reached(&self, at: ResourceVersion) {
        *self.seen.last_sync_resource_version.lock() = Some(at);
    }
}

impl<T: KubeObject> ReflectorStore for Told<T> {
    type Object = T;

    async fn replace(&mut self, objects: Vec<Arc<T>>, at: ResourceVersion) {
        ReflectorStore::replace(&mut self.queue, objects, at).await;
        self.reached(at);
        // A list of nothing gives the pop loop nothing to do.
        if self.queue.has_synced() {
            self.seen.progress.sync();
        }
    }

    async fn watching(&mut self) {
        self.queue.watching().await;
    }

    async fn apply(&mut self, batch: ChangeBatch<T>) {
        let at = batch.at;
        self.queue.apply(batch).await;
        self.reached(at);
    }

    async fn failed(&mut self, error: &SourceError) {
        match (&self.watch_error_handler, error) {
            (Some(handler), error) => handler(error),
            // Nothing is wrong: the Reflector was away for longer than the source remembers.
            (None, SourceError::Expired { .. }) => {
                tracing::info!(%error, "the watch is over; listing again");
            }
            (None, SourceError::Unavailable { .. } | SourceError::Undecodable { .. }) => {
                tracing::warn!(%error, "failed to list or watch; trying again");
            }
        }
    }
}

/// What an informer does with what happened to one object: it changes `indexer`, and then says by
/// `tell` what its handlers are told.
pub fn process_deltas<T: KubeObject>(
    indexer: &ThreadSafeStore<T>,
    deltas: &Deltas<T>,
    is_in_initial_list: bool,
    mut tell: impl FnMut(Notification<T>),
) {
    let key = deltas.key();
    for delta in deltas.iter() {
        tell(match delta {
            Delta::Sync(object)
            | Delta::Replaced(object)
            | Delta::Added(object)
            | Delta::Updated(object) => match indexer.put(key, object.clone()) {
                Some(old) => Notification::Updated {
                    old,
                    new: object.clone(),
                },
                None => Notification::Added {
                    object: object.clone(),
                    is_in_initial_list,
                },
            },
            Delta::Deleted(deleted) => {
                indexer.delete_by_key(key.as_str());
                Notification::Deleted(deleted.clone())
            }
        });
    }
}

impl<T: KubeObject, L, P> fmt::Debug for Controller<T, L, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
