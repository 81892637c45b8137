//! `SharedInformer`: a Reflector, an indexer and any number of handlers.
//!
//! # Invariants
//!
//! 1. The indexer is updated and the notification is queued for all handlers under one lock, under
//!    which a new handler also reads the indexer. So a handler misses nothing and receives nothing
//!    twice.
//! 2. Nothing waits under that lock, and no handler is called.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::listener::Listener;
use super::processor::Processor;
use super::registration::HandlerRegistration;
use super::synced::{InformerSynced, NeverSynced, Progress};
use super::{AlreadyStarted, InformerStopped};
use crate::controller::{
    Config, Controller, ControllerState, Resync, WatchErrorHandler, process_deltas,
};
use crate::informer_snapshot::InformerSnapshot;
use crate::{
    DeltaFifo, Deltas, IndexTaken, Indexers, KubeObject, Lister, Notification, ReflectorMetrics,
    Requeue, ResourceEventHandler, ThreadSafeStore,
};
use watchet_api::ResourceVersion;
use watchet_reflector::{Backoff, ListerWatcher, SourceError};
use watchet_tasks::Tasks;

/// A local, indexed copy of a collection with any number of handlers. Clones share it.
///
/// ```text
///   ListerWatcher ─▶ Reflector ─▶ DeltaFifo ─▶ indexer ◀── Lister
///                                       └────▶ processor ─▶ handler, handler, ...
/// ```
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use watchet_api::ResourceVersion;
/// # use watchet_client::*;
/// # use watchet_reflector::*;
/// # use watchet_tasks::Tasks;
/// # /// A server with constant content.
/// # struct Constant;
/// # impl ListerWatcher for Constant {
/// #     type Object = ConfigMap;
/// #     async fn list(&mut self) -> Result<Listing<ConfigMap>, SourceError> {
/// #         let mut map = ConfigMap::default();
/// #         map.metadata.name = Some("settings".to_owned());
/// #         Ok(Listing { objects: vec![Arc::new(map)], at: ResourceVersion::new(1) })
/// #     }
/// #     async fn watch(
/// #         &mut self,
/// #         _: ResourceVersion,
/// #     ) -> Result<ChangeStream<ConfigMap>, SourceError> {
/// #         Ok(Box::pin(futures_util::stream::pending()))
/// #     }
/// # }
/// # let source = Constant;
/// let informer = SharedInformer::<ConfigMap>::new("configmaps", source, Duration::ZERO);
/// let (sender, mut receiver) = tokio::sync::mpsc::channel(16);
/// let handler = ResourceEventHandlerFuncs::<ConfigMap>::new()
///     .on_add(move |map, _| sender.try_send(map).unwrap());
/// informer.add_event_handler(handler).unwrap();
///
/// let tasks = Tasks::new();
/// informer.start(&tasks).unwrap();
/// informer.wait_for_cache_sync().await.unwrap();
/// let map = informer.lister().get("settings").unwrap();
/// assert!(Arc::ptr_eq(&receiver.recv().await.unwrap(), &map));
/// tasks.drain(Duration::from_secs(1)).await.unwrap();
/// assert!(informer.is_stopped());
/// # }
/// ```
pub struct SharedInformer<T: KubeObject> {
    inner: Arc<Inner<T>>,
}

struct Inner<T: KubeObject> {
    resource: Arc<str>,
    indexer: Arc<ThreadSafeStore<T>>,
    default_resync: Duration,
    state: Mutex<State<T>>,
    resync_check_period: watch::Sender<Duration>,
    progress: Progress,
    /// Set when it is started.
    run: OnceLock<Run<T>>,
}

/// The state that remains observable after the stop.
struct Run<T: KubeObject> {
    queue: Weak<DeltaFifo<T>>,
    controller: ControllerState,
}

struct State<T: KubeObject> {
    processor: Processor<T>,
    phase: Phase<T>,
    reflector: Option<Arc<ReflectorMetrics>>,
}

enum Phase<T: KubeObject> {
    New(Preparation<T>),
    Running(Tasks),
    Stopped,
}

/// The settings before the start.
struct Preparation<T: KubeObject> {
    control: Control<T>,
    transform: Option<WithTransform<T>>,
    watch_error_handler: Option<WatchErrorHandler>,
    /// Spawns the handlers that were added before the start.
    listeners: Vec<Spawn>,
}

/// Spawns the task of a handler.
type Spawn = Box<dyn FnOnce(&Tasks) + Send>;

/// Runs the controller of a source (of erased type) until it is stopped.
#[allow(clippy::type_complexity, reason = "the alias is its name")]
type Control<T> = Box<dyn FnOnce(SharedInformer<T>, Started<T>) -> Running + Send>;
/// Sets the transform of a queue; captures the `Clone` bound, which the informer does not have.
type WithTransform<T> = Box<dyn FnOnce(DeltaFifo<T>) -> DeltaFifo<T> + Send>;
type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Started<T: KubeObject> {
    transform: Option<WithTransform<T>>,
    watch_error_handler: Option<WatchErrorHandler>,
    tasks: Tasks,
}

impl<T: KubeObject> SharedInformer<T> {
    /// Creates an informer of `source`; it does nothing until it is started. `resource` is its name
    /// in messages, such as `deployments.apps`. Handlers without their own period are resynced each
    /// `default_resync`; never, if that is zero.
    pub fn new<L>(resource: &str, source: L, default_resync: Duration) -> Self
    where
        L: ListerWatcher<Object = T>,
    {
        Self::with_backoff(resource, source, default_resync, Backoff::default())
    }

    /// Creates an informer with a `backoff` for its Reflector.
    pub(super) fn with_backoff<L>(
        resource: &str,
        source: L,
        default_resync: Duration,
        backoff: Backoff,
    ) -> Self
    where
        L: ListerWatcher<Object = T>,
    {
        let preparation = Preparation {
            control: Box::new(move |informer, started| {
                Box::pin(informer.run(source, backoff, started))
            }),
            transform: None,
            watch_error_handler: None,
            listeners: Vec::new(),
        };
        let inner = Inner {
            resource: resource.into(),
            indexer: Arc::new(ThreadSafeStore::new(Indexers::namespaced())),
            default_resync,
            state: Mutex::new(State {
                processor: Processor::default(),
                phase: Phase::New(preparation),
                reflector: None,
            }),
            resync_check_period: watch::Sender::default(),
            progress: Progress::default(),
            run: OnceLock::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Starts the informer as tasks of `tasks`.
    ///
    /// # Errors
    /// [`AlreadyStarted`]
    pub fn start(&self, tasks: &Tasks) -> Result<(), AlreadyStarted> {
        let mut state = self.inner.state.lock();
        let phase = std::mem::replace(&mut state.phase, Phase::Running(tasks.clone()));
        let preparation = match phase {
            Phase::New(preparation) => preparation,
            started => {
                state.phase = started;
                return Err(AlreadyStarted);
            }
        };
        for listener in preparation.listeners {
            listener(tasks);
        }
        let started = Started {
            transform: preparation.transform,
            watch_error_handler: preparation.watch_error_handler,
            tasks: tasks.clone(),
        };
        let running = (preparation.control)(self.clone(), started);
        drop(tasks.spawn("informer", running));
        Ok(())
    }

    async fn run<L: ListerWatcher<Object = T>>(
        self,
        source: L,
        backoff: Backoff,
        started: Started<T>,
    ) {
        // Also after a panic.
        let _stopped = StopOnDrop(&self);
        let inner = &self.inner;
        let queue = DeltaFifo::new().with_known_objects(inner.indexer.clone());
        let queue = match started.transform {
            Some(with_transform) => with_transform(queue),
            None => queue,
        };
        let queue = Arc::new(queue);
        let known = Arc::downgrade(&queue);
        let due = self.clone();
        let controller = Controller::new(Config {
            queue,
            lister_watcher: source,
            process: |deltas: &Deltas<T>, is_in_initial_list| {
                self.process(deltas, is_in_initial_list);
                Ok::<_, Requeue>(())
            },
            resync: Resync::following(inner.resync_check_period.subscribe(), move || {
                let mut state = due.inner.state.lock();
                state.processor.should_resync(Instant::now())
            }),
            watch_error_handler: started.watch_error_handler,
            backoff,
        });
        let state = controller.state();
        let synced = state.synced();
        inner.run.get_or_init(|| Run {
            queue: known,
            controller: state,
        });
        let mark = async {
            if synced.wait().await.is_ok() {
                self.mark_synced();
            }
        };
        tokio::join!(controller.run(started.tasks.token()), mark);
    }

    /// Updates the indexer and notifies the handlers.
    fn process(&self, deltas: &Deltas<T>, is_in_initial_list: bool) {
        let state = self.inner.state.lock();
        let notify = |notification: Notification<T>| state.processor.distribute(&notification);
        process_deltas(&self.inner.indexer, deltas, is_in_initial_list, notify);
    }

    fn mark_synced(&self) {
        let state = self.inner.state.lock();
        self.inner.progress.sync();
        for listener in state.processor.listeners() {
            listener.source_synced();
        }
    }

    /// Adds a handler, which gets its own task. A handler added after the start first receives
    /// `on_add` for each known object.
    ///
    /// # Errors
    /// [`InformerStopped`]
    /// [`InformerStopped`]
    pub fn add_event_handler<H: ResourceEventHandler<T>>(
        &self,
        handler: H,
    ) -> Result<HandlerRegistration, InformerStopped> {
        self.add_event_handler_with_resync_period(handler, self.inner.default_resync)
    }

    /// Adds a handler that is resynced each `period` (at least one second; never, if zero): it
    /// receives an update with equal objects for each known object. Resyncs are checked with the
    /// smallest period of all handlers.
    ///
    /// # Errors
    /// [`InformerStopped`]
    pub fn add_event_handler_with_resync_period<H: ResourceEventHandler<T>>(
        &self,
        handler: H,
        period: Duration,
    ) -> Result<HandlerRegistration, InformerStopped> {
        let listener = Arc::new(Listener::new());
        let task_listener = listener.clone();
        let task = move |tasks: &Tasks| {
            let stop = tasks.token();
            let run = async move { task_listener.run(handler, stop).await };
            drop(tasks.spawn("informer handler", run));
        };
        let mut state = self.inner.state.lock();
        let State {
            processor, phase, ..
        } = &mut *state;
        match phase {
            Phase::New(preparation) => preparation.listeners.push(Box::new(task)),
            Phase::Running(tasks) => {
                for object in &self.inner.indexer.list() {
                    listener.add(Notification::Added {
                        object: object.clone(),
                        is_in_initial_list: true,
                    });
                }
                if self.inner.progress.has_synced() {
                    listener.source_synced();
                }
                task(tasks);
            }
            Phase::Stopped => return Err(InformerStopped),
        }
        let registration =
            HandlerRegistration::new(processor.add(listener.clone(), period), &listener);
        self.follow_resync_check_period(&state);
        Ok(registration)
    }

    /// Removes a handler; returns whether it existed. A call in progress is completed.
    pub fn remove_event_handler(&self, handler: &HandlerRegistration) -> bool {
        let mut state = self.inner.state.lock();
        let Some(listener) = state.processor.remove(handler) else {
            return false;
        };
        self.follow_resync_check_period(&state);
        drop(state);
        listener.end();
        true
    }

    fn follow_resync_check_period(&self, state: &State<T>) {
        let period = state.processor.resync_check_period();
        self.inner
            .resync_check_period
            .send_if_modified(|known| std::mem::replace(known, period) != period);
    }

    /// Sets a function that changes each object once before it is stored, e.g. to drop managed
    /// fields.
    ///
    /// # Errors
    /// [`AlreadyStarted`]
    pub fn set_transform(
        &self,
        transform: impl Fn(&mut T) + Send + Sync + 'static,
    ) -> Result<(), AlreadyStarted>
    where
        T: Clone,
    {
        let with_transform: WithTransform<T> = Box::new(|queue| queue.with_transform(transform));
        self.prepare(|preparation| preparation.transform = Some(with_transform))
    }

    /// Sets a function that is called when a list or watch fails, instead of logging. The Reflector
    /// retries in any case.
    ///
    /// # Errors
    /// [`AlreadyStarted`]
    pub fn set_watch_error_handler(
        &self,
        handler: impl Fn(&SourceError) + Send + Sync + 'static,
    ) -> Result<(), AlreadyStarted> {
        let handler: WatchErrorHandler = Arc::new(handler);
        self.prepare(|preparation| preparation.watch_error_handler = Some(handler))
    }

    /// Sets the metrics of the source for [`InformerMetrics`](crate::InformerMetrics),
    /// from [`HttpListerWatcher::metrics`](crate::HttpListerWatcher::metrics).
    pub fn set_reflector_metrics(&self, metrics: Arc<ReflectorMetrics>) {
        self.inner.state.lock().reflector = Some(metrics);
    }

    /// Returns a snapshot for metrics.
    pub(crate) fn snapshot(&self) -> InformerSnapshot {
        // Before the lock, which is acquired while the queue's lock is held elsewhere.
        let queue = self.inner.run.get().and_then(|run| run.queue.upgrade());
        let queued = queue.map_or(0, |queue| queue.len());
        let state = self.inner.state.lock();
        InformerSnapshot {
            name: self.inner.resource.to_string(),
            reflector: state.reflector.clone(),
            synced: self.has_synced(),
            objects: self.inner.indexer.list().len(),
            queued,
            handlers: state.processor.metrics(),
        }
    }

    fn prepare(&self, prepare: impl FnOnce(&mut Preparation<T>)) -> Result<(), AlreadyStarted> {
        match &mut self.inner.state.lock().phase {
            Phase::New(preparation) => {
                prepare(preparation);
                Ok(())
            }
            Phase::Running(_) | Phase::Stopped => Err(AlreadyStarted),
        }
    }

    /// Adds indexes, before or after the start; existing objects are indexed.
    ///
    /// # Errors
    /// [`IndexTaken`] if an index with that name exists.
    pub fn add_indexers(&self, indexers: Indexers<T>) -> Result<(), IndexTaken> {
        self.inner.indexer.add_indexers(indexers)
    }

    /// Returns the indexer, to be read.
    pub fn indexer(&self) -> &Arc<ThreadSafeStore<T>> {
        &self.inner.indexer
    }

    /// Returns a lister of the indexer.
    pub fn lister(&self) -> Lister<T> {
        Lister::new(&self.inner.resource, self.inner.indexer.clone())
    }

    /// Returns the name of the resource.
    pub fn resource(&self) -> &str {
        &self.inner.resource
    }

    /// Returns the version of the last list, change or bookmark of the source; `None` before the
    /// first list. The indexer may be slightly behind.
    pub fn last_sync_resource_version(&self) -> Option<ResourceVersion> {
        let run = self.inner.run.get()?;
        run.controller.last_sync_resource_version()
    }

    /// Returns true if the indexer contains the first list.
    pub fn has_synced(&self) -> bool {
        self.inner.progress.has_synced()
    }

    /// Returns the same as a future to wait for.
    pub fn synced(&self) -> InformerSynced {
        self.inner.progress.subscribe()
    }

    /// Waits until the indexer contains the first list. Cancel safe.
    ///
    /// # Errors
    /// [`NeverSynced`] if the informer is stopped before.
    pub async fn wait_for_cache_sync(&self) -> Result<(), NeverSynced> {
        self.synced().wait().await
    }

    /// Returns true if it was started and stopped.
    pub fn is_stopped(&self) -> bool {
        matches!(self.inner.state.lock().phase, Phase::Stopped)
    }

    fn stop(&self) {
        let mut state = self.inner.state.lock();
        state.phase = Phase::Stopped;
        self.inner.progress.end();
        for listener in state.processor.listeners() {
            listener.end();
        }
    }
}

struct StopOnDrop<'a, T: KubeObject>(&'a SharedInformer<T>);

impl<T: KubeObject> Drop for StopOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<T: KubeObject> Clone for SharedInformer<T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<T: KubeObject> fmt::Debug for SharedInformer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer")
            .field("resource", &self.inner.resource)
            .field("synced", &self.has_synced())
            .finish_non_exhaustive()
    }
}
