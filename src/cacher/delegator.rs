//! The delegator: is a read answered by the cache or by storage, at which version, and what does it
//! wait for? Each verb has one table, and one match that mirrors it. How the cache comes by its
//! state is not decided here, nor how storage is read.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cache_watcher::{CacheWatcher, Start};
use super::freshness::NotReached;
use super::list_plan::{At, ListPlan, plan};
use super::select::{count, select};
use super::snapshot::ObjectMap;
use super::storage_reads::Page;
use super::{CachedResource, Cacher, ObjectList, ReadError};
use crate::api::{GetOptions, ListOptions, Object, ObjectKey, ResourceVersion, SelectionPredicate};
use crate::metrics::ListCost;

/// While a read waits for the cache, storage is asked this often how far the watch is; the answer to
/// the first question nearly always settles it. Upstream's period.
const ASK_PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Without `timeoutSeconds` a watch lasts this long, and up to as long again, so that clients that
/// came together do not come back together (upstream's `--min-request-timeout`).
const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(1800);

impl CachedResource {
    /// The only key that `predicate` can select, when it names one: reads then look one object up.
    pub(super) fn only_key(&self, predicate: &SelectionPredicate) -> Option<ObjectKey> {
        let name = predicate.scope.name.as_deref()?;
        let namespace = predicate.scope.namespace.as_deref();
        if self.namespaced != namespace.is_some() {
            return None;
        }
        let key = ObjectKey::new(namespace, name);
        // A selector may say anything; what is no key is a search that finds nothing.
        let stored = self.storage_key(&key).ok()?;
        (!stored.is_prefix()).then_some(key)
    }
}

impl Cacher {
    /// One object, or that there is none.
    ///
    /// | version | from                                            |
    /// |---------|-------------------------------------------------|
    /// | ""      | the cache once it is as new as storage; storage when it cannot tell |
    /// | "0"     | the cache as it is                              |
    /// | N       | the cache once it has reached N, else 504; storage when it cannot tell |
    ///
    /// A cache without a state, and one that has stopped, leave every get to storage.
    ///
    /// # Errors
    /// [`ReadError`], but not for an object that is not there.
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
            let answer = self.get_from_storage(key, version.unwrap_or_default());
            return match version {
                None if cached => self.fallen_back(answer.await),
                _ => answer.await,
            };
        }
        Ok(self.peek(key))
    }

    /// A list, by the table of `list_plan` and of the crate's architecture page. Uses the version,
    /// match, limit and continue of the options; the selectors are in the predicate.
    ///
    /// # Errors
    /// [`ReadError`] by the same table.
    pub async fn list(
        &self,
        predicate: &SelectionPredicate,
        options: &ListOptions,
    ) -> Result<ObjectList, ReadError> {
        let only = self.resource.only_key(predicate);
        let plan = plan(options, only.is_some())?;
        let cold = self.published.snapshot.load().is_none();
        // A page does not wait for a cache that may be long in coming: it costs storage little.
        let small = plan.limit > 0 && predicate.selects_all();
        if self.stop.is_cancelled() || (cold && small) {
            return self.list_from_storage(predicate, &plan).await;
        }
        self.wait_for_a_state().await?;
        let fresh = match plan.at {
            At::Latest => self.can_answer_latest().await?,
            At::NotOlderThan(version) => self.not_older_than(version).await?,
            At::Exact(version) => {
                return self
                    .list_exact(predicate, only.as_ref(), &plan, version)
                    .await;
            }
        };
        if !fresh {
            let answer = self.list_from_storage(predicate, &plan).await;
            return match plan.at {
                At::Latest => self.fallen_back(answer),
                _ => answer,
            };
        }
        let snapshot = self.snapshot().await?;
        let (objects, index) = snapshot.candidates(predicate, only.as_ref());
        let page = page(&objects, predicate, &plan, snapshot.at).await;
        self.listed(&page, index);
        Ok(page.answer(predicate))
    }

    /// From a retained state when there is one, else from storage's history.
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
            // Storage's verdict is final: it may know the version, or that it is in the future.
            return self.list_from_storage(predicate, plan).await;
        }
        let snapshot = self.snapshot().await?;
        // What storage has forgotten is refused here as on every other server, whatever history holds.
        let untold = version > snapshot.at || self.is_compacted(version);
        if untold || !self.consistency.trusts_history() {
            return self.list_from_storage(predicate, plan).await;
        }
        match snapshot.objects_at(version) {
            Ok(objects) => {
                let objects = only.map_or(objects.clone(), |key| lookup(&objects, key));
                let page = page(&objects, predicate, plan, version).await;
                self.listed(&page, None);
                Ok(page.answer(predicate))
            }
            Err(_) => self.list_from_storage(predicate, plan).await,
        }
    }

    /// A watch.
    ///
    /// | version | sendInitialEvents | begins with                               |
    /// |---------|-------------------|-------------------------------------------|
    /// | ""      | unset, true       | the state, as new as storage (or storage's, when the cache cannot tell) |
    /// | ""      | false             | what follows storage's present version    |
    /// | "0"     | unset, true       | the state as it is                        |
    /// | "0"     | false             | what follows the state as it is           |
    /// | N       | true              | the state, once it has reached N (or storage's, when the cache cannot tell) |
    /// | N       | unset, false      | what follows N                            |
    ///
    /// # Errors
    /// [`ReadError::NotReady`] and [`ReadError::Stopped`]; every other failure is the first item of
    /// the watch, as upstream sends it in a stream with status 200.
    pub async fn watch(
        self: &Arc<Self>,
        predicate: SelectionPredicate,
        options: &ListOptions,
    ) -> Result<CacheWatcher, ReadError> {
        if self.stop.is_cancelled() {
            return Err(ReadError::Stopped);
        }
        let lineage = self.snapshot().await?.lineage();
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
            lineage,
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
                    self.backfill.settled_for(version).await;
                }
                Ok(Start::After(version))
            }
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
                    .start_from_storage(predicate, At::Latest, end_bookmark)
                    .await;
            }
            None => self.current_revision().await?,
            Some(version) => version,
        };
        if !self.not_older_than(version).await? {
            let at = At::NotOlderThan(version);
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

    /// The state as storage has it, when the cache cannot prove that it is as new. (Upstream refuses,
    /// and its clients fall back to a list, which storage then answers: the same for more work.)
    async fn start_from_storage(
        &self,
        predicate: &SelectionPredicate,
        at: At,
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

    /// Waits until the cache holds every write acknowledged before the call. False when it cannot
    /// prove that, so that storage has to answer.
    pub(super) async fn consistent(&self) -> Result<bool, ReadError> {
        if !self.storage.progress_supported() || self.published.is_stuck() {
            return Ok(false);
        }
        let version = self.current_revision().await?;
        Ok(self.wait_for(version).await.is_ok())
    }

    /// Waits until the cache has every change up to `version`, and tells the version of the last one that
    /// it has: a watch that has told that one has told all of them. `None` when storage cannot tell its
    /// progress and the cache is not there, so that nobody knows.
    ///
    /// # Errors
    /// [`ReadError::TooLargeResourceVersion`] when the cache does not get there in time, and those of a
    /// cache without a state.
    pub async fn changed_up_to(
        &self,
        version: ResourceVersion,
    ) -> Result<Option<ResourceVersion>, ReadError> {
        self.wait_for_a_state().await?;
        let fresh = self.not_older_than(version).await?;
        let snapshot = self.snapshot().await?;
        Ok(fresh.then(|| snapshot.changed_at()))
    }

    /// Waits until the cache holds `version`. False when storage cannot tell its progress and the
    /// cache is not there: a wait could be for nothing, so that storage has to answer.
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
        let ask = || self.progress.load().request();
        let began = Instant::now();
        let waited = self
            .published
            .freshness
            .wait(version, timeout, ASK_PROGRESS_EVERY, ask)
            .await;
        if !version.is_zero() {
            self.resource.metrics.waited(began.elapsed());
        }
        waited
    }
}

/// Of a state only the object of this key, if it is there.
pub(super) fn lookup(objects: &ObjectMap, key: &ObjectKey) -> ObjectMap {
    objects
        .get(key)
        .map(|object| ObjectMap::unit(key.clone(), object.clone()))
        .unwrap_or_default()
}

/// What a plan selects of a state at `at`. Lets others run while it looks through a large one.
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
        let wanted = match plan.limit {
            0 => usize::MAX,
            limit => limit - items.len(),
        };
        let part = select(objects, predicate, &start, wanted);
        let full = part.items.len() == wanted;
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
        // Counted on the first page only: the token takes the number along.
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
