//! The [`Cacher`]: starts the tasks that fill and serve the cache of one resource, and reports its state. Gets, lists and
//! watches are in `delegator`.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use super::backfill::Backfill;
use super::cache_status::{CacheSize, CacheStatus};
use super::consistency::Consistency;
use super::dispatcher::Dispatcher;
use super::metered::{Arrival, MeteredSource};
use super::probe::RevisionProbe;
use super::snapshot::Snapshot;
use super::source::{ProgressSlot, StorageSource};
use super::watch_cache::{Published, SourceState, WatchCache};
use super::watch_context::WatchContext;
use super::{CachedResource, CacherConfig, ReadError, index};
use watchet_api::{Object, ObjectKey, ResourceVersion};
use watchet_metrics::CacheState;
use watchet_reflector::{Backoff, Reflector};
use watchet_storage::{ProgressRequester, Storage};
use watchet_tasks::Tasks;

/// The cache of one resource.
#[derive(Debug)]
pub struct Cacher {
    pub(super) resource: Arc<CachedResource>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) config: CacherConfig,
    pub(super) published: Arc<Published>,
    pub(super) progress: ProgressSlot,
    pub(super) probe: Arc<RevisionProbe>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) backfill: Arc<Backfill>,
    /// The last known compacted revision of storage.
    pub(super) compacted: AtomicU64,
    pub(super) consistency: Consistency,
    pub(super) stop: CancellationToken,
}

/// The initial back-off. It is short because the source is a local store or an etcd in the same
/// network. The actual delay is randomized up to twice this value.
const BACKOFF_INITIAL: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// The interval at which the compacted revision is read (upstream's interval).
const COMPACTION_POLL: Duration = Duration::from_secs(15);

impl Cacher {
    /// Starts to fill the cache in tasks of `tasks`.
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
            dispatcher: Dispatcher::new(
                resource.triggers.clone(),
                resource.metrics.clone(),
                config.inbox_events_max,
            ),
            backfill: Backfill::new(),
            compacted: AtomicU64::new(0),
            consistency: Consistency::default(),
            stop: tasks.token(),
            resource,
            storage,
            config,
            progress,
        });
        let state: Arc<dyn CacheState> = cacher.clone();
        let indexes = index::names(&cacher.resource);
        let metrics = &cacher.resource.metrics;
        metrics.set_cache(Arc::downgrade(&state), indexes);
        cacher.clone().spawn(tasks);
        cacher
    }

    fn spawn(self: Arc<Self>, tasks: &Tasks) {
        let source = StorageSource {
            resource: self.resource.clone(),
            storage: self.storage.clone(),
            progress: self.progress.clone(),
            memory: self.config.memory.clone(),
            tasks: tasks.clone(),
            incarnation: self.storage.incarnation(),
            recoveries: self.storage.recoveries(),
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
        let source = self.consistency.wrap(source);
        let reflector = Reflector::new(source, cache, Backoff::new(BACKOFF_INITIAL, BACKOFF_MAX));
        tasks.spawn("reflector", reflector.run(self.stop.clone()));

        // Twice per bookmark period, so that a bookmark's version is at most half a period old.
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
            backfill.finish();
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

    /// Reads storage's compacted revision periodically, until the cache stops.
    async fn follow_compaction(self: Arc<Self>) {
        let ask = async {
            loop {
                match self.storage.compacted_revision().await {
                    Ok(compacted) => self.compacted.store(compacted.get(), Ordering::Relaxed),
                    // The Reflector logs storage failures.
                    Err(error) => tracing::debug!(%error, "cannot read the compacted revision"),
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

    /// Returns true if storage has compacted the state at `version`.
    pub(super) fn is_compacted(&self, version: ResourceVersion) -> bool {
        version.get() < self.compacted.load(Ordering::Relaxed)
    }

    /// Starts the history backfill once the first list is complete.
    async fn fill_in_history(self: Arc<Self>) {
        let mut source = self.published.source.subscribe();
        let started = |state: &SourceState| !matches!(state, SourceState::Pending { .. });
        // The sender is in `self`, so `wait_for` cannot fail.
        source.wait_for(started).await.ok();
        let Some(first) = self.published.snapshot.load_full() else {
            return;
        };
        let (backfill, resource) = (self.backfill.clone(), self.resource.clone());
        let (storage, config) = (self.storage.clone(), self.config.clone());
        backfill.run(resource, storage, config, first).await;
    }

    /// Returns the object as it is in the cache, possibly stale: the base of an optimistic write.
    /// `None` if the cache does not have it, or no state yet.
    pub fn peek(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.published
            .snapshot
            .load()
            .as_ref()?
            .objects()
            .get(key)
            .cloned()
    }

    /// Returns the size of the cache; `None` if it has no state yet.
    pub fn size(&self) -> Option<CacheSize> {
        let snapshot = self.published.snapshot.load();
        snapshot.as_ref().map(|snapshot| self.size_of(snapshot))
    }

    fn size_of(&self, snapshot: &Snapshot) -> CacheSize {
        CacheSize {
            objects: snapshot.objects().len(),
            objects_bytes: snapshot.objects_bytes(),
            watchers: usize::try_from(self.resource.metrics.watchers.get()).unwrap_or_default(),
        }
    }

    /// Returns the state of the cache, for `watchcaches`.
    pub fn status(&self) -> CacheStatus {
        let snapshot = self.published.snapshot.load();
        let history = snapshot.as_ref().map(|snapshot| snapshot.history());
        CacheStatus {
            readiness: self.readiness(),
            size: snapshot.as_ref().map(|snapshot| self.size_of(snapshot)),
            at: snapshot
                .as_ref()
                .map_or(ResourceVersion::ZERO, |snapshot| snapshot.at),
            storage_at: self.storage.known_revision().and_then(Result::ok),
            history: history.unwrap_or_default(),
            relists: self.published.relists.load(Ordering::Relaxed),
        }
    }

    /// Returns the version of the cache's state; zero before the first list.
    pub fn seen(&self) -> ResourceVersion {
        let snapshot = self.published.snapshot.load();
        snapshot.as_ref().map_or(ResourceVersion::ZERO, |s| s.at)
    }

    /// Returns `Ok` if the cache has a state and can follow storage.
    ///
    /// # Errors
    /// Returns the reason, for people.
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

    /// Returns true if the cache waits for its first list and storage has not failed; requests wait
    /// for it then.
    pub fn is_starting(&self) -> bool {
        matches!(
            &*self.published.source.borrow(),
            SourceState::Pending { error: None, .. }
        )
    }

    /// Waits for the first state.
    pub(super) async fn wait_for_a_state(&self) -> Result<(), ReadError> {
        self.snapshot().await.map(drop)
    }

    /// Returns the current state; waits for the first one.
    ///
    /// # Errors
    /// Returns [`ReadError::NotReady`] if there is none in time, or immediately if storage has
    /// failed.
    pub(super) async fn snapshot(&self) -> Result<Arc<Snapshot>, ReadError> {
        if let Some(snapshot) = self.published.snapshot.load_full() {
            return Ok(snapshot);
        }
        let mut source = self.published.source.subscribe();
        let decided =
            source.wait_for(|state| !matches!(state, SourceState::Pending { error: None, .. }));
        // Biased: a state that arrives at the deadline counts.
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

    pub(super) fn watch_context(&self) -> WatchContext {
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
