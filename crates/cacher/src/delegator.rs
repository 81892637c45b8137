//! The delegator: decides for each read whether the cache or storage answers, at which version, and
//! what to wait for. Each verb has one table and one match that mirrors it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cache_watcher::CacheWatcher;
use super::freshness::NotReached;
use super::list_plan::{ListPlan, ReadVersion, plan};
use super::object_map::{ObjectMap, lookup};
use super::page::Page;
use super::select::{count, select};
use super::watch_context::Start;
use super::{CachedResource, Cacher, ObjectList, ReadError};
use watchet_api::{
    GetOptions, ListOptions, Object, ObjectKey, ResourceVersion, SelectionPredicate,
};
use watchet_metrics::ListCost;

/// The interval of progress requests while a read waits for the cache; the first response is nearly
/// always sufficient. Upstream's interval.
const PROGRESS_REQUEST_INTERVAL: Duration = Duration::from_millis(100);

/// The duration of a watch without `timeoutSeconds`, plus a random time of up to as much again, so
/// that clients do not reconnect simultaneously (upstream's `--min-request-timeout`).
const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(1800);

impl CachedResource {
    /// Returns the only key that `predicate` can select, if it has a name; the read is then a
    /// lookup.
    pub(super) fn only_key(&self, predicate: &SelectionPredicate) -> Option<ObjectKey> {
        let name = predicate.scope.name.as_deref()?;
        let namespace = predicate.scope.namespace.as_deref();
        if self.namespaced != namespace.is_some() {
            return None;
        }
        let key = ObjectKey::new(namespace, name);
        // A selector may contain any text. An invalid key becomes a search without results.
        let stored = self.storage_key(&key).ok()?;
        (!stored.is_prefix()).then_some(key)
    }
}

impl Cacher {
    /// Returns an object, or `None`.
    ///
    /// | resourceVersion | answered by                                     |
    /// |---------|-------------------------------------------------|
    /// | ""      | the cache once it is as new as storage; storage if the cache cannot determine that |
    /// | "0"     | the cache as it is                              |
    /// | N       | the cache once it has reached N, else 504; storage if the cache cannot determine that |
    ///
    /// Storage answers if the cache has no state or has stopped.
    ///
    /// # Errors
    /// Returns [`ReadError`]; a missing object is not an error.
    pub async fn get(
        &self,
        key: &ObjectKey,
        options: GetOptions,
    ) -> Result<Option<Arc<Object>>, ReadError> {
        let version = options.resource_version;
        let cached = self.published.snapshot.load().is_some() && !self.stop.is_cancelled();
        let fresh = match version {
            _ if !cached => false,
            None => self.can_answer_latest().await?,
            Some(version) => self.not_older_than(version).await?,
        };
        if !fresh {
            let stored = self.get_from_storage(key, version.unwrap_or_default());
            return match version {
                None if cached => self.count_fallback(stored.await),
                _ => stored.await,
            };
        }
        Ok(self.peek(key))
    }

    /// Returns a list by the table in `list_plan` and in the crate's architecture page. Uses the
    /// version, match, limit and continue token of `options`; the selectors are in `predicate`.
    ///
    /// # Errors
    /// Returns [`ReadError`] by the same table.
    pub async fn list(
        &self,
        predicate: &SelectionPredicate,
        options: &ListOptions,
    ) -> Result<ObjectList, ReadError> {
        let only = self.resource.only_key(predicate);
        let plan = plan(options, only.is_some())?;
        let cold = self.published.snapshot.load().is_none();
        // A page does not wait for a cold cache: reading it from storage is cheap.
        let small = plan.limit > 0 && predicate.selects_all();
        if self.stop.is_cancelled() || (cold && small) {
            return self.list_from_storage(predicate, &plan).await;
        }
        self.wait_for_a_state().await?;
        let fresh = match plan.at {
            ReadVersion::Latest => self.can_answer_latest().await?,
            ReadVersion::NotOlderThan(version) => self.not_older_than(version).await?,
            ReadVersion::Exact(version) => {
                return self
                    .list_exact(predicate, only.as_ref(), &plan, version)
                    .await;
            }
        };
        if !fresh {
            let list = self.list_from_storage(predicate, &plan).await;
            return match plan.at {
                ReadVersion::Latest => self.count_fallback(list),
                _ => list,
            };
        }
        let snapshot = self.snapshot().await?;
        let (objects, index) = snapshot.candidates(predicate, only.as_ref());
        let page = page(&objects, predicate, &plan, snapshot.at).await;
        self.count_list(&page, index);
        Ok(page.into_list(predicate))
    }

    /// Returns the list at exactly `plan`'s version: from a retained state if there is one, else
    /// from storage.
    async fn list_exact(
        &self,
        predicate: &SelectionPredicate,
        only: Option<&ObjectKey>,
        plan: &ListPlan,
        version: ResourceVersion,
    ) -> Result<ObjectList, ReadError> {
        if self.storage.progress_supported()
            && let Err(NotReached(_)) = self.wait_for(version).await
        {
            // Storage decides: it may have the version, or the version is in the future.
            return self.list_from_storage(predicate, plan).await;
        }
        let snapshot = self.snapshot().await?;
        // Rejects versions that storage has compacted, even if the cache retains them, so that all
        // servers return the same.
        let unknown = version > snapshot.at || self.is_compacted(version);
        if unknown || !self.consistency.trusts_history() {
            return self.list_from_storage(predicate, plan).await;
        }
        match snapshot.objects_at(version) {
            Ok(objects) => {
                let objects = only.map_or(objects.clone(), |key| lookup(&objects, key));
                let page = page(&objects, predicate, plan, version).await;
                self.count_list(&page, None);
                Ok(page.into_list(predicate))
            }
            Err(_) => self.list_from_storage(predicate, plan).await,
        }
    }

    /// Starts a watch.
    ///
    /// | resourceVersion | sendInitialEvents | begins with                       |
    /// |---------|-------------------|-------------------------------------------|
    /// | ""      | unset, true       | the state, as new as storage (storage's state if the cache cannot determine that) |
    /// | ""      | false             | the events after storage's current revision |
    /// | "0"     | unset, true       | the state as it is                        |
    /// | "0"     | false             | the events after the state as it is       |
    /// | N       | true              | the state, once it has reached N (storage's state if the cache cannot determine that) |
    /// | N       | unset, false      | the events after N                        |
    ///
    /// # Errors
    /// Returns [`ReadError::NotReady`] and [`ReadError::Stopped`]; every other failure is the first
    /// item of the watch, as upstream sends it in a stream with status 200.
    pub async fn watch(
        self: &Arc<Self>,
        predicate: SelectionPredicate,
        options: &ListOptions,
    ) -> Result<CacheWatcher, ReadError> {
        if self.stop.is_cancelled() {
            return Err(ReadError::Stopped);
        }
        let generation = self.snapshot().await?.generation;
        let start = match self.watch_start(&predicate, options).await {
            Ok(start) => start,
            Err(error @ (ReadError::NotReady { .. } | ReadError::Stopped)) => return Err(error),
            Err(error) => Start::Failed(error),
        };
        let timeout = options
            .timeout
            .unwrap_or_else(|| WATCH_TIMEOUT_MIN.mul_f64(1.0 + fastrand::f64()));
        Ok(CacheWatcher::new(
            self.watch_context(),
            predicate,
            generation,
            start,
            options.allow_watch_bookmarks,
            timeout,
        ))
    }

    async fn watch_start(
        &self,
        predicate: &SelectionPredicate,
        options: &ListOptions,
    ) -> Result<Start, ReadError> {
        let any = options
            .resource_version
            .is_none_or(ResourceVersion::is_zero);
        if options.send_initial_events.unwrap_or(any) {
            return self.initial_state(predicate, options).await;
        }
        match options.resource_version {
            None => Ok(Start::After(self.current_revision().await?)),
            Some(version) if version.is_zero() => Ok(Start::After(self.snapshot().await?.at)),
            Some(version) => {
                if version < self.snapshot().await?.reaches_back_to() {
                    self.backfill.wait_for(version).await;
                }
                self.check_not_lost(version).await?;
                Ok(Start::After(version))
            }
        }
    }

    /// Returns an error for a version that storage had before it was replaced by an earlier state: the watch would
    /// miss the events up to that version.
    async fn check_not_lost(&self, version: ResourceVersion) -> Result<(), ReadError> {
        if self.storage.incarnation() == 0 || version <= self.snapshot().await?.at {
            return Ok(());
        }
        let current = self.current_revision().await?;
        match version > current {
            true => Err(ReadError::Expired {
                requested: version,
                oldest: current,
                fresh_token: None,
            }),
            false => Ok(()),
        }
    }

    async fn initial_state(
        &self,
        predicate: &SelectionPredicate,
        options: &ListOptions,
    ) -> Result<Start, ReadError> {
        let end_bookmark = options.allow_watch_bookmarks;
        let version = match options.resource_version {
            None if !self.storage.progress_supported() => {
                return self
                    .start_from_storage(predicate, ReadVersion::Latest, end_bookmark)
                    .await;
            }
            None => self.current_revision().await?,
            Some(version) => version,
        };
        if !self.not_older_than(version).await? {
            let at = ReadVersion::NotOlderThan(version);
            return self.start_from_storage(predicate, at, end_bookmark).await;
        }
        let snapshot = self.snapshot().await?;
        let only = self.resource.only_key(predicate);
        Ok(Start::Initial {
            objects: snapshot.candidates(predicate, only.as_ref()).0,
            at: snapshot.at,
            end_bookmark,
        })
    }

    /// Starts with the state read from storage, for a cache that cannot prove its freshness.
    /// (Upstream rejects the watch, and its clients fall back to a list, which storage answers.)
    async fn start_from_storage(
        &self,
        predicate: &SelectionPredicate,
        at: ReadVersion,
        end_bookmark: bool,
    ) -> Result<Start, ReadError> {
        let plan = ListPlan::whole(at);
        let list = self.list_from_storage(predicate, &plan).await?;
        let objects = list.items.into_iter();
        Ok(Start::Initial {
            objects: objects
                .map(|object| (object.key().clone(), object))
                .collect(),
            at: list.resource_version,
            end_bookmark,
        })
    }

    /// Waits until the cache holds every write acknowledged before the call. Returns false if it
    /// cannot prove that; storage has to answer then.
    pub(super) async fn consistent(&self) -> Result<bool, ReadError> {
        if !self.storage.progress_supported() || self.published.is_stuck() {
            return Ok(false);
        }
        let version = self.current_revision().await?;
        Ok(self.wait_for(version).await.is_ok())
    }

    /// Waits until the cache has every change up to `version`, and returns the version of its last
    /// change: a watch that has sent that one has sent all of them. Returns `None` if storage does
    /// not support progress requests and the cache has not reached `version`.
    ///
    /// # Errors
    /// Returns [`ReadError::TooLargeResourceVersion`] if the cache does not reach `version` in
    /// time, and the errors of a cache without a state.
    pub async fn changed_up_to(
        &self,
        version: ResourceVersion,
    ) -> Result<Option<ResourceVersion>, ReadError> {
        self.wait_for_a_state().await?;
        let fresh = self.not_older_than(version).await?;
        let snapshot = self.snapshot().await?;
        Ok(fresh.then(|| snapshot.changed_at()))
    }

    /// Waits until the cache holds `version`. Returns false if storage does not support progress
    /// requests and the cache has not reached `version`; storage has to answer then.
    async fn not_older_than(&self, version: ResourceVersion) -> Result<bool, ReadError> {
        let wait = match self.storage.progress_supported() {
            true => self.config.freshness_timeout,
            false => Duration::ZERO,
        };
        match self.wait_at_most(wait, version).await {
            Ok(()) => Ok(true),
            Err(_) if wait.is_zero() => Ok(false),
            Err(NotReached(current)) => Err(ReadError::TooLargeResourceVersion {
                requested: version,
                current,
                retry_after: Duration::from_secs(1),
            }),
        }
    }

    async fn current_revision(&self) -> Result<ResourceVersion, ReadError> {
        self.probe
            .current_revision()
            .await
            .map_err(ReadError::Storage)
    }

    async fn wait_for(&self, version: ResourceVersion) -> Result<(), NotReached> {
        self.wait_at_most(self.config.freshness_timeout, version)
            .await
    }

    async fn wait_at_most(
        &self,
        timeout: Duration,
        version: ResourceVersion,
    ) -> Result<(), NotReached> {
        let request_progress = || self.progress.load().request();
        let began = Instant::now();
        let waited = self
            .published
            .freshness
            .wait(
                version,
                timeout,
                PROGRESS_REQUEST_INTERVAL,
                request_progress,
            )
            .await;
        if !version.is_zero() {
            self.resource.metrics.observe_wait(began.elapsed());
        }
        waited
    }
}

/// Returns the page that a plan selects from the state at `at`. Yields to other tasks while it
/// searches a large state.
async fn page(
    objects: &ObjectMap,
    predicate: &SelectionPredicate,
    plan: &ListPlan,
    at: ResourceVersion,
) -> Page {
    let first = plan.first_key(predicate);
    let mut start = first.clone();
    let mut examined = 0;
    let mut items = Vec::new();
    let more_after = loop {
        let count_max = match plan.limit {
            0 => usize::MAX,
            limit => limit - items.len(),
        };
        let part = select(objects, predicate, &start, count_max);
        let full = part.items.len() == count_max;
        examined += part.examined;
        items.extend(part.items);
        match part.more_after {
            Some(last) if !full => start = format!("{last}\0"),
            more_after => break more_after,
        }
        tokio::task::yield_now().await;
    };
    let remaining = more_after.is_some() && predicate.selects_all();
    let remaining = remaining.then(|| {
        // Counted for the first page only; the continue token carries the number.
        let all = plan.remaining;
        let all = all.unwrap_or_else(|| count(objects, predicate, &first));
        all.saturating_sub(items.len() as u64)
    });
    Page {
        at,
        cost: ListCost {
            fetched: examined,
            ..ListCost::default()
        },
        items,
        more_after,
        remaining,
    }
}
