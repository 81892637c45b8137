//! `Controller`: a Reflector that fills a queue and a loop that processes it, which start and stop
//! together. [`process_deltas`] is what an informer does with the deltas.

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
use watchet_api::ResourceVersion;
use watchet_reflector::{
    Backoff, ChangeBatch, ListerWatcher, Reflector, ReflectorStore, SourceError,
};

/// Called when a source cannot be listed or watched. The Reflector retries in any case.
pub type WatchErrorHandler = Arc<dyn Fn(&SourceError) + Send + Sync>;

/// The parts of a [`Controller`].
pub struct Config<T: KubeObject, L, P> {
    /// The queue that the Reflector fills.
    pub queue: Arc<DeltaFifo<T>>,
    /// The source of objects.
    pub lister_watcher: L,
    /// Processes the deltas of one object, as in [`DeltaFifo::pop`]; the flag is true if the object
    /// was in the first list.
    pub process: P,
    /// When to queue a `Sync` delta for each known object.
    pub resync: Resync,
    /// Called on failures of the source; without one they are logged.
    pub watch_error_handler: Option<WatchErrorHandler>,
    /// The pauses of the Reflector after failures.
    pub backoff: Backoff,
}

impl<T: KubeObject, L, P> fmt::Debug for Config<T, L, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("resync", &self.resync)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}

/// When a queue resyncs all known objects.
pub struct Resync {
    period: watch::Receiver<Duration>,
    should_resync: Box<dyn FnMut() -> bool + Send>,
}

impl Resync {
    /// Never resyncs.
    pub fn never() -> Self {
        Self::every(Duration::ZERO)
    }

    /// Resyncs each `period`; never, if it is zero.
    pub fn every(period: Duration) -> Self {
        Self::following(watch::Sender::new(period).subscribe(), || true)
    }

    /// Resyncs only if `should_resync` returns true at that time.
    #[must_use]
    pub fn only_if(mut self, should_resync: impl FnMut() -> bool + Send + 'static) -> Self {
        self.should_resync = Box::new(should_resync);
        self
    }

    /// Resyncs with a period that can change.
    pub(super) fn following(
        period: watch::Receiver<Duration>,
        should_resync: impl FnMut() -> bool + Send + 'static,
    ) -> Self {
        Self {
            period,
            should_resync: Box::new(should_resync),
        }
    }

    /// Waits until the next resync is due, a period after `last`. Cancel safe.
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
                    // The sender was dropped: the period cannot change any more.
                    std::future::pending().await
                }
            };
            // Biased: a period that has just changed takes effect.
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

/// Fills a queue from a source and passes its deltas to `process`.
#[must_use = "it does nothing until it is run"]
pub struct Controller<T: KubeObject, L, P> {
    config: Config<T, L, P>,
    seen: Arc<Observed>,
}

/// The observable progress of a controller.
#[derive(Debug, Default)]
struct Observed {
    progress: Progress,
    last_sync_resource_version: Mutex<Option<ResourceVersion>>,
}

/// The state of a controller, also while it runs.
#[derive(Debug, Clone)]
pub struct ControllerState(Arc<Observed>);

impl ControllerState {
    /// Returns true if everything in the first list was processed.
    pub fn has_synced(&self) -> bool {
        self.0.progress.has_synced()
    }

    /// Returns the same as a future to wait for.
    pub fn synced(&self) -> InformerSynced {
        self.0.progress.subscribe()
    }

    /// Returns the version of the last list, change or bookmark that was queued.
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
    /// Creates a controller; it does nothing until it is run.
    pub fn new(config: Config<T, L, P>) -> Self {
        Self {
            config,
            seen: Arc::default(),
        }
    }

    /// Returns the observable state.
    pub fn state(&self) -> ControllerState {
        ControllerState(self.seen.clone())
    }

    /// Runs until `stop`. The queue is closed then; deltas in it are not processed.
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
        let store = ProgressStore {
            queue: queue.clone(),
            seen: seen.clone(),
            watch_error_handler,
        };
        let reflector = Reflector::new(lister_watcher, store, backoff).run(stop.clone());
        // Biased: stopping comes first; then deltas are processed before more are fetched, so that
        // the queue stays short (the loop yields by itself).
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
    seen: &Observed,
) {
    loop {
        match queue.pop(&mut process).await {
            Err(PopError::Closed) => return,
            // The key may come again immediately, so everything else gets its turn first.
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

/// The queue as the Reflector's store; also records the progress.
struct ProgressStore<T: KubeObject> {
    queue: Arc<DeltaFifo<T>>,
    seen: Arc<Observed>,
    watch_error_handler: Option<WatchErrorHandler>,
}

impl<T: KubeObject> ProgressStore<T> {
    fn reached(&self, at: ResourceVersion) {
        *self.seen.last_sync_resource_version.lock() = Some(at);
    }
}

impl<T: KubeObject> ReflectorStore for ProgressStore<T> {
    type Object = T;

    async fn replace(&mut self, objects: Vec<Arc<T>>, at: ResourceVersion) {
        self.queue.replace(objects);
        self.reached(at);
        // An empty list gives the pop loop nothing to do.
        if self.queue.has_synced() {
            self.seen.progress.sync();
        }
    }

    async fn watching(&mut self) {}

    async fn apply(&mut self, batch: ChangeBatch<T>) {
        let at = batch.at;
        self.queue.apply(batch);
        self.reached(at);
    }

    async fn failed(&mut self, error: &SourceError) {
        match (&self.watch_error_handler, error) {
            (Some(handler), error) => handler(error),
            // Not a failure: the watch was interrupted for longer than the server's history.
            (None, SourceError::Expired { .. }) => {
                tracing::info!(%error, "watch expired, listing again");
            }
            (None, SourceError::Unavailable { .. } | SourceError::Undecodable { .. }) => {
                tracing::warn!(%error, "list or watch failed, retrying");
            }
        }
    }
}

/// Applies the deltas of an object to `indexer`, as an informer does, and calls `notify` for each
/// resulting notification.
pub fn process_deltas<T: KubeObject>(
    indexer: &ThreadSafeStore<T>,
    deltas: &Deltas<T>,
    is_in_initial_list: bool,
    mut notify: impl FnMut(Notification<T>),
) {
    let key = deltas.key();
    for delta in deltas.iter() {
        notify(match delta {
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
