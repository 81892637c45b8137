//! The watch cache: one `Cacher` for each resource keeps its collection and its recent history in
//! memory, answers gets and lists from it, and feeds any number of watches. It reads storage and
//! never writes it; what an object means is unknown here, and so are HTTP and etcd.
//!
//! ```text
//!  storage ─▶ StorageSource ─▶ Reflector ─▶ WatchCache ─publishes─▶ Snapshot (objects + history)
//!                                                                      │            │
//!                            delegator: get, list ◀────────────────────┤            │
//!                                                                      ▼            ▼
//!                          CacheWatcher ◀─ Inbox ◀─ Dispatcher (a cursor)     CatchUp reads
//! ```

mod backfill;
mod cache_watcher;
mod consistency;
mod delegator;
mod dispatcher;
mod error;
mod event;
mod freshness;
mod inbox;
mod index;
mod list_plan;
mod metered;
mod probe;
mod relist;
mod replay;
mod select;
mod snapshot;
mod source;
mod storage_reads;
mod watch_cache;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

pub use cache_watcher::CacheWatcher;
pub use error::{CorruptObjects, ReadError};

use self::backfill::Backfill;
use self::cache_watcher::WatchContext;
use self::consistency::Consistency;
use self::dispatcher::Dispatcher;
use self::metered::{Arrival, MeteredSource};
use self::probe::RevisionProbe;
use self::snapshot::Snapshot;
use self::source::{ProgressSlot, StorageSource};
use self::watch_cache::{Published, SourceState, WatchCache};
use crate::api::{ColumnSet, FieldRef, Object, ObjectKey, ResourceVersion, StorageKey, WatchEvent};
use crate::metrics::{CacheState, ResourceMetrics};
use crate::reflector::{Backoff, Reflector};
use crate::storage::{ProgressRequester, Storage};
use crate::tasks::Tasks;

/// What a Cacher needs to know of its resource.
#[derive(Debug, Clone)]
pub struct CachedResource {
    /// For logs: `pods`, `deployments.apps`.
    pub name: String,
    /// Whether objects live in namespaces: whether a name alone is a key.
    pub namespaced: bool,
    /// Where the objects are: a prefix ending in `/`.
    pub prefix: StorageKey,
    /// The selectable fields.
    pub columns: Arc<ColumnSet>,
    /// Fields that reads often pin (`spec.nodeName`): an event is only shown to watchers of its values,
    /// and lists look only at the objects that have theirs.
    pub triggers: Vec<FieldRef>,
    /// Where what happens to it is counted; group and plural name are known there.
    pub metrics: Arc<ResourceMetrics>,
    /// How what is stored reads, where that is not as it is.
    pub reading: Option<Arc<dyn Reading>>,
}

/// How stored bytes read: what is done to an object once, when it comes out of storage, so that no read
/// has to do it.
pub trait Reading: Send + Sync + std::fmt::Debug {
    /// What `stored` reads as; `None`: as it is. What is no object is nobody's to change.
    fn read(&self, stored: &[u8]) -> Option<Vec<u8>>;
}

/// Limits of a Cacher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacherConfig {
    /// How long history is kept at least, memory permitting. Upstream's freshness window: a
    /// bookmark period and a bit, so that a client that has just had a bookmark can resume.
    pub history_window: Duration,
    /// How much memory one resource's history may take, in bytes of the objects that its events are
    /// about. With the events themselves it is what the window wants of 1 KB objects that change 2,500
    /// times a second, and only used when they do.
    pub history_bytes_max: usize,
    /// How long a read waits for the cache to reach a version (upstream: 3 s).
    pub freshness_timeout: Duration,
    /// How long a request waits for a cold cache; longer than a list of a large collection takes,
    /// shorter than the request's own limit.
    pub start_timeout: Duration,
    /// How often an idle watch gets a bookmark (upstream: 1 minute).
    pub bookmark_period: Duration,
    /// How often the state is compared with storage's (upstream: 5 minutes); `None` never. It costs a
    /// list of the whole resource.
    pub consistency_check_period: Option<Duration>,
}

impl Default for CacherConfig {
    fn default() -> Self {
        Self {
            history_window: Duration::from_secs(75),
            history_bytes_max: 256 << 20,
            freshness_timeout: Duration::from_secs(3),
            start_timeout: Duration::from_secs(30),
            bookmark_period: Duration::from_secs(60),
            consistency_check_period: None,
        }
    }
}

/// An answered list.
#[derive(Debug, Clone)]
pub struct ObjectList {
    /// The version of the list.
    pub resource_version: ResourceVersion,
    /// The objects, in key order.
    pub items: Vec<Arc<Object>>,
    /// Where to go on, when there is more.
    pub continue_token: Option<String>,
    /// How many objects come after the items, when that is known.
    pub remaining: Option<u64>,
}

/// What a watch has to say.
#[derive(Debug, Clone)]
pub enum WatchItem {
    /// ADDED, as part of the initial state.
    Initial(Arc<Object>),
    /// A change.
    Event(Arc<WatchEvent>),
    /// Nothing up to this version is missing.
    Bookmark {
        /// The version.
        resource_version: ResourceVersion,
        /// It ends the initial events (KEP-3157) and carries the annotation that says so.
        initial_events_end: bool,
    },
    /// The watch failed; nothing follows.
    Error(ReadError),
}

/// The cache of one resource.
#[derive(Debug)]
pub struct Cacher {
    resource: Arc<CachedResource>,
    storage: Arc<dyn Storage>,
    config: CacherConfig,
    published: Arc<Published>,
    progress: ProgressSlot,
    probe: Arc<RevisionProbe>,
    dispatcher: Arc<Dispatcher>,
    backfill: Arc<Backfill>,
    /// What storage has forgotten, as it said last.
    compacted: AtomicU64,
    consistency: Consistency,
    stop: CancellationToken,
}

/// The source is a local store or an etcd that others depend on too: try again sooner than a client
/// on the far side of a network would. Jitter comes on top: at most twice this long.
const BACKOFF_INITIAL: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How often storage is asked what it has forgotten (upstream's period).
const COMPACTION_POLL: Duration = Duration::from_secs(15);

impl Cacher {
    /// Starts to fill the cache, in tasks of `tasks`.
    pub fn start(
        resource: CachedResource,
        storage: Arc<dyn Storage>,
        tasks: &Tasks,
        config: CacherConfig,
    ) -> Arc<Self> {
        let resource = Arc::new(resource);
        let progress: ProgressSlot = Arc::new(ArcSwap::from_pointee(ProgressRequester::default()));
        let cacher = Arc::new(Self {
            published: Arc::new(Published::new()),
            probe: RevisionProbe::new(storage.clone(), tasks.clone()),
            dispatcher: Dispatcher::new(resource.triggers.clone(), resource.metrics.clone()),
            backfill: Backfill::new(),
            compacted: AtomicU64::new(0),
            consistency: Consistency::default(),
            stop: tasks.token(),
            resource,
            storage,
            config,
            progress,
        });
        let looked_at: Arc<dyn CacheState> = cacher.clone();
        let indexes = index::names(&cacher.resource);
        let metrics = &cacher.resource.metrics;
        metrics.look_at(Arc::downgrade(&looked_at), indexes);
        cacher.clone().spawn(tasks);
        cacher
    }

    fn spawn(self: Arc<Self>, tasks: &Tasks) {
        let source = StorageSource {
            resource: self.resource.clone(),
            storage: self.storage.clone(),
            progress: self.progress.clone(),
            tasks: tasks.clone(),
        };
        let arrival = Arrival::new();
        let source = MeteredSource {
            source,
            resource: self.resource.clone(),
            arrival: arrival.clone(),
        };
        let cache = WatchCache::new(
            self.resource.clone(),
            self.config.clone(),
            self.storage.clone(),
            self.published.clone(),
            arrival,
        );
        let source = self.consistency.guard(source);
        let reflector = Reflector::new(source, cache, Backoff::new(BACKOFF_INITIAL, BACKOFF_MAX));
        tasks.spawn("reflector", reflector.run(self.stop.clone()));

        // Twice a period, so that the next bookmark tells of a version of the last half.
        let progress_every = self.config.bookmark_period / 2;
        tasks.spawn(
            "dispatcher",
            self.dispatcher.clone().run(
                self.published.clone(),
                self.progress.clone(),
                progress_every,
                self.stop.clone(),
            ),
        );
        tasks.spawn("compaction poll", self.clone().follow_compaction());
        if let Some(period) = self.config.consistency_check_period {
            let checks = self.clone().check_consistency(period);
            self.spawn_until_stop(tasks, "consistency", checks);
        }
        let (backfill, fill_in) = (self.backfill.clone(), self.clone().fill_in_history());
        let stop = self.stop.clone();
        tasks.spawn("backfill", async move {
            // Biased: stopping comes first.
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = fill_in => {}
            }
            backfill.settle();
        });
    }

    fn spawn_until_stop(
        &self,
        tasks: &Tasks,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let stop = self.stop.clone();
        tasks.spawn(name, async move {
            // Biased: stopping comes first.
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Asks storage each while what it has forgotten, until the stop.
    async fn follow_compaction(self: Arc<Self>) {
        let ask = async {
            loop {
                match self.storage.compacted_revision().await {
                    Ok(compacted) => self.compacted.store(compacted.get(), Ordering::Relaxed),
                    // The Reflector says what is wrong with storage.
                    Err(error) => tracing::debug!(%error, "storage does not say what it forgot"),
                }
                tokio::time::sleep(COMPACTION_POLL).await;
            }
        };
        // Biased: stopping comes first.
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = ask => {}
        }
    }

    /// Whether storage has forgotten the state at `version`.
    fn is_compacted(&self, version: ResourceVersion) -> bool {
        version.get() < self.compacted.load(Ordering::Relaxed)
    }

    /// Reads the history from before the first list, once there is one.
    async fn fill_in_history(self: Arc<Self>) {
        let mut source = self.published.source.subscribe();
        let started = |state: &SourceState| !matches!(state, SourceState::Pending { .. });
        // The sender lives in `self`, so this cannot fail.
        source.wait_for(started).await.ok();
        let Some(first) = self.published.snapshot.load_full() else {
            return;
        };
        let (backfill, resource) = (self.backfill.clone(), self.resource.clone());
        let (storage, config) = (self.storage.clone(), self.config.clone());
        backfill.run(resource, storage, config, first).await;
    }

    /// The object as the cache has it at this moment, perhaps stale: a base for an optimistic write.
    /// `None` when it has none, or no state yet.
    pub fn peek(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.published
            .snapshot
            .load()
            .as_ref()?
            .objects()
            .get(key)
            .cloned()
    }

    /// The version that the state of this moment has; zero before there is one.
    pub fn seen(&self) -> ResourceVersion {
        let snapshot = self.published.snapshot.load();
        snapshot.as_ref().map_or(ResourceVersion::ZERO, |s| s.at)
    }

    /// Whether the cache has its first state and can follow storage.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn readiness(&self) -> Result<(), String> {
        match &*self.published.source.borrow() {
            SourceState::Following => Ok(()),
            SourceState::Lost { error } => Err(error.clone()),
            SourceState::Pending {
                error: Some(error), ..
            } => Err(error.clone()),
            SourceState::Pending { error: None, .. } => Err("initializing".to_owned()),
        }
    }

    /// Whether it has had no state yet, and storage has refused it none: who asks now waits for it.
    pub fn is_starting(&self) -> bool {
        matches!(
            &*self.published.source.borrow(),
            SourceState::Pending { error: None, .. }
        )
    }

    /// Waits for the first state, without holding one.
    async fn wait_for_a_state(&self) -> Result<(), ReadError> {
        self.snapshot().await.map(drop)
    }

    /// The present state, waiting for the first one.
    ///
    /// # Errors
    /// [`ReadError::NotReady`] when there is none in time, at once when storage was tried in vain.
    async fn snapshot(&self) -> Result<Arc<Snapshot>, ReadError> {
        if let Some(snapshot) = self.published.snapshot.load_full() {
            return Ok(snapshot);
        }
        let mut source = self.published.source.subscribe();
        let decided =
            source.wait_for(|state| !matches!(state, SourceState::Pending { error: None, .. }));
        // Biased: a state that is there at the last moment is good.
        let state = tokio::select! {
            biased;
            state = tokio::time::timeout(self.config.start_timeout, decided) => match state {
                Ok(state) => state.map_err(|_| ReadError::Stopped)?.clone(),
                Err(_) => self.published.source.borrow().clone(),
            },
            () = self.stop.cancelled() => return Err(ReadError::Stopped),
        };
        match (self.published.snapshot.load_full(), state) {
            (Some(snapshot), _) => Ok(snapshot),
            (None, SourceState::Pending { since, error }) => {
                Err(ReadError::not_ready(since.elapsed(), error))
            }
            (None, SourceState::Following | SourceState::Lost { .. }) => Err(ReadError::Stopped),
        }
    }

    fn watch_context(&self) -> WatchContext {
        WatchContext {
            published: self.published.clone(),
            dispatcher: self.dispatcher.clone(),
            backfill: self.backfill.clone(),
            stop: self.stop.clone(),
            bookmark_period: self.config.bookmark_period,
            metrics: self.resource.metrics.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
