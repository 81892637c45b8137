//! `SharedInformer`: one Reflector, one indexer and any number of handlers. How a handler is told, and
//! what is kept for a slow one, is in `listener` and `pending`.
//!
//! # Invariants
//!
//! 1. The indexer is changed, and the change is given to the handlers, under one lock; a handler that
//!    comes later reads the indexer under the same one. So it misses nothing and hears nothing twice.
//! 2. Nobody waits under that lock, nor is a handler called: what is given is only put down.

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
use crate::api::ResourceVersion;
use crate::informer::controller::{
    Config, Controller, ControllerState, Resync, WatchErrorHandler, process_deltas,
};
use crate::informer::metrics::Seen;
use crate::informer::{
    DeltaFifo, Deltas, IndexTaken, Indexers, KubeObject, Lister, Notification, ReflectorMetrics,
    Requeue, ResourceEventHandler, ThreadSafeStore,
};
use crate::reflector::{Backoff, ListerWatcher, SourceError};
use crate::tasks::Tasks;

/// A local, indexed copy of a collection that any number of handlers share. Clones are the same one.
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
/// # use watchet::api::ResourceVersion;
/// # use watchet::informer::*;
/// # use watchet::reflector::*;
/// # use watchet::tasks::Tasks;
/// # /// Stands for a server.
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
/// let (told, mut tells) = tokio::sync::mpsc::channel(16);
/// let handler = ResourceEventHandlerFuncs::<ConfigMap>::new()
///     .on_add(move |map, _| told.try_send(map).unwrap());
/// informer.add_event_handler(handler).unwrap();
///
/// let tasks = Tasks::new();
/// informer.start(&tasks).unwrap();
/// informer.wait_for_cache_sync().await.unwrap();
/// let map = informer.lister().get("settings").unwrap();
/// assert!(Arc::ptr_eq(&tells.recv().await.unwrap(), &map));
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
    /// Once it runs.
    run: OnceLock<Run<T>>,
}

/// What is looked at while it runs, and after that.
struct Run<T: KubeObject> {
    queue: Weak<DeltaFifo<T>>,
    controller: ControllerState,
}

struct State<T: KubeObject> {
    processor: Processor<T>,
    life: Life<T>,
    reflector: Option<Arc<ReflectorMetrics>>,
}

enum Life<T: KubeObject> {
    New(Preparation<T>),
    Running(Tasks),
    Stopped,
}

/// What is decided before the start.
struct Preparation<T: KubeObject> {
    control: Control<T>,
    transform: Option<WithTransform<T>>,
    watch_error_handler: Option<WatchErrorHandler>,
    /// The tasks of the handlers that there are.
    listeners: Vec<Spawn>,
}

/// Spawns the task of a handler.
type Spawn = Box<dyn FnOnce(&Tasks) + Send>;

/// Runs a controller of the source, whose type is known to it alone, until it is told to stop.
#[allow(clippy::type_complexity, reason = "it is the name of the type")]
type Control<T> = Box<dyn FnOnce(SharedInformer<T>, Started<T>) -> Running + Send>;
/// Gives a queue its transform function; by whom the objects can be cloned for it is known where it was set.
type WithTransform<T> = Box<dyn FnOnce(DeltaFifo<T>) -> DeltaFifo<T> + Send>;
type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Started<T: KubeObject> {
    transform: Option<WithTransform<T>>,
    watch_error_handler: Option<WatchErrorHandler>,
    tasks: Tasks,
}

impl<T: KubeObject> SharedInformer<T> {
    /// An informer of `source`, which does nothing until it is started. `resource` is what it is called
    /// in messages, such as `deployments.apps`. Handlers that do not say otherwise are told of every
    /// object anew each `default_resync`; never, if that is zero.
    pub fn new<L>(resource: &str, source: L, default_resync: Duration) -> Self
    where
        L: ListerWatcher<Object = T>,
    {
        Self::with_backoff(resource, source, default_resync, Backoff::default())
    }

    /// One whose Reflector waits by `backoff` after failures.
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
                life: Life::New(preparation),
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

    /// Starts it as tasks of `tasks`, which stop with that group.
    ///
    /// # Errors
    /// [`AlreadyStarted`]
    pub fn start(&self, tasks: &Tasks) -> Result<(), AlreadyStarted> {
        let mut state = self.inner.state.lock();
        let life = std::mem::replace(&mut state.life, Life::Running(tasks.clone()));
        let preparation = match life {
            Life::New(preparation) => preparation,
            started => {
                state.life = started;
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
        // Also when it panics.
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

    /// Changes the indexer and tells the handlers.
    fn process(&self, deltas: &Deltas<T>, is_in_initial_list: bool) {
        let state = self.inner.state.lock();
        let tell = |notification: Notification<T>| state.processor.distribute(&notification);
        process_deltas(&self.inner.indexer, deltas, is_in_initial_list, tell);
    }

    fn mark_synced(&self) {
        let state = self.inner.state.lock();
        self.inner.progress.sync();
        for listener in state.processor.listeners() {
            listener.source_synced();
        }
    }

    /// Adds a handler, which gets a task of its own. One that comes late first gets `on_add` of each
    /// object that is known, then every change.
    ///
    /// # Errors
    /// [`InformerStopped`]
    pub fn add_event_handler<H: ResourceEventHandler<T>>(
        &self,
        handler: H,
    ) -> Result<HandlerRegistration, InformerStopped> {
        self.add_event_handler_with_resync_period(handler, self.inner.default_resync)
    }

    /// The same, for one that is told of every object anew each `period` (of one second at least; never,
    /// if it is zero): by an update whose objects have equal resource versions. Whether a handler is due
    /// is looked at as often as the one with the smallest period wants it.
    ///
    /// # Errors
    /// [`InformerStopped`]
    pub fn add_event_handler_with_resync_period<H: ResourceEventHandler<T>>(
        &self,
        handler: H,
        period: Duration,
    ) -> Result<HandlerRegistration, InformerStopped> {
        let listener = Arc::new(Listener::new());
        let told = listener.clone();
        let task = move |tasks: &Tasks| {
            let stop = tasks.token();
            let run = async move { told.run(handler, stop).await };
            drop(tasks.spawn("informer handler", run));
        };
        let mut state = self.inner.state.lock();
        let State {
            processor, life, ..
        } = &mut *state;
        match life {
            Life::New(preparation) => preparation.listeners.push(Box::new(task)),
            Life::Running(tasks) => {
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
            Life::Stopped => return Err(InformerStopped),
        }
        let registration =
            HandlerRegistration::new(processor.add(listener.clone(), period), &listener);
        self.follow_resync_check_period(&state);
        Ok(registration)
    }

    /// Removes a handler. It is told nothing more; a call that is in progress is finished. Whether it
    /// was there.
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

    /// Has `transform` change each object before anybody sees it, once: to drop what takes memory and
    /// is not needed, such as managed fields.
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

    /// Has `handler` told when the source cannot be listed or watched, instead of the log. It is tried
    /// again in any case.
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

    /// Says where its source counts, so that [`InformerMetrics`](crate::informer::InformerMetrics) can tell
    /// it: [`HttpListerWatcher::metrics`](crate::informer::HttpListerWatcher::metrics).
    pub fn set_reflector_metrics(&self, metrics: Arc<ReflectorMetrics>) {
        self.inner.state.lock().reflector = Some(metrics);
    }

    /// What is told of it in a scrape.
    pub(in crate::informer) fn seen(&self) -> Seen {
        // Before the lock, which is taken under that of the queue.
        let queue = self.inner.run.get().and_then(|run| run.queue.upgrade());
        let queued = queue.map_or(0, |queue| queue.len());
        let state = self.inner.state.lock();
        Seen {
            name: self.inner.resource.to_string(),
            reflector: state.reflector.clone(),
            synced: self.has_synced(),
            objects: self.inner.indexer.list().len(),
            queued,
            handlers: state.processor.metrics(),
        }
    }

    fn prepare(&self, prepare: impl FnOnce(&mut Preparation<T>)) -> Result<(), AlreadyStarted> {
        match &mut self.inner.state.lock().life {
            Life::New(preparation) => {
                prepare(preparation);
                Ok(())
            }
            Life::Running(_) | Life::Stopped => Err(AlreadyStarted),
        }
    }

    /// Adds indexes, before or after the start; objects that are there are taken into them.
    ///
    /// # Errors
    /// [`IndexTaken`] when there is one of that name.
    pub fn add_indexers(&self, indexers: Indexers<T>) -> Result<(), IndexTaken> {
        self.inner.indexer.add_indexers(indexers)
    }

    /// The copy, to be read.
    pub fn indexer(&self) -> &Arc<ThreadSafeStore<T>> {
        &self.inner.indexer
    }

    /// Reads the copy by namespace, name and labels.
    pub fn lister(&self) -> Lister<T> {
        Lister::new(&self.inner.resource, self.inner.indexer.clone())
    }

    /// What it is called.
    pub fn resource(&self) -> &str {
        &self.inner.resource
    }

    /// Up to where its source has been followed: the version of the last list, change or bookmark. The copy
    /// may be a little behind. `None` before the first list.
    pub fn last_sync_resource_version(&self) -> Option<ResourceVersion> {
        let run = self.inner.run.get()?;
        run.controller.last_sync_resource_version()
    }

    /// Whether the copy has all that there was at first.
    pub fn has_synced(&self) -> bool {
        self.inner.progress.has_synced()
    }

    /// The same, to be waited for.
    pub fn synced(&self) -> InformerSynced {
        self.inner.progress.told()
    }

    /// Waits until the copy has all that there was at first. Cancel safe.
    ///
    /// # Errors
    /// [`NeverSynced`] when it is stopped before.
    pub async fn wait_for_cache_sync(&self) -> Result<(), NeverSynced> {
        self.synced().wait().await
    }

    /// Whether it was started and is so no longer.
    pub fn is_stopped(&self) -> bool {
        matches!(self.inner.state.lock().life, Life::Stopped)
    }

    fn stop(&self) {
        let mut state = self.inner.state.lock();
        state.life = Life::Stopped;
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
