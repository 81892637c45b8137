//! The delegator: is a read answered by the cache or by storage, at which version, and what does it
//! wait for? Each verb has one table, and one match that mirrors it. How the cache comes by its
//! state is not decided here.

use std::sync::Arc;
use std::time::Duration;

use super::cache_watcher::{CacheWatcher, Start};
use super::freshness::NotReached;
use super::snapshot::{Page, select};
use super::{Cacher, CorruptObjects, ObjectList, ReadError};
use crate::api::{
    ContinueToken, GetOptions, ListOptions, Object, ObjectKey, ResourceVersion,
    ResourceVersionMatch, SelectionPredicate,
};
use crate::storage::ListRequest;

/// While a read waits for the cache, storage is asked this often how far the watch is; the answer to
/// the first question nearly always settles it. Upstream's period.
const ASK_PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Without `timeoutSeconds` a watch lasts this long, and up to as long again, so that clients that
/// came together do not come back together (upstream's `--min-request-timeout`).
const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(1800);

/// The first fetch of a filtered page from storage; each further one doubles, up to a whole page of
/// the source's, while matches are missing.
const STORAGE_PAGE_MAX: usize = super::source::LIST_PAGE;

/// Which state answers a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Every write acknowledged before the list began is in it.
    Latest,
    /// Whatever the cache has.
    Any,
    /// At least this.
    NotOlderThan(ResourceVersion),
    /// Exactly this.
    Exact(ResourceVersion),
}

/// A list, decided.
#[derive(Debug, PartialEq, Eq)]
struct ListPlan {
    at: At,
    /// The first key, relative to the resource; empty for the beginning.
    start: String,
    /// 0 for no limit.
    limit: usize,
    continued: bool,
}

impl ListPlan {
    /// All there is, now.
    const LATEST: Self = Self {
        at: At::Latest,
        start: String::new(),
        limit: 0,
        continued: false,
    };
}

/// The table of lists.
///
/// | match        | version  | limit | continue | state            |
/// |--------------|----------|-------|----------|------------------|
/// | -            | ""       | any   | -        | latest           |
/// | any but Exact| "0"      | void  | -        | any              |
/// | -            | N        | 0     | -        | not older than N |
/// | -            | N        | > 0   | -        | exactly N        |
/// | NotOlderThan | N        | any   | -        | not older than N |
/// | Exact        | N        | any   | -        | exactly N        |
/// | -            | "", "0"  | any   | at N     | exactly N        |
/// | -            | "", "0"  | any   | at -1    | latest           |
/// | -            | N        | any   | any      | 400              |
fn plan(options: &ListOptions) -> Result<ListPlan, ReadError> {
    use ResourceVersionMatch::{Exact, NotOlderThan};
    let version = options.resource_version;
    let any = version.is_some_and(ResourceVersion::is_zero);
    if let Some(token) = &options.continue_token {
        if !any && version.is_some() {
            return Err(ReadError::VersionWithContinue);
        }
        let token = ContinueToken::decode(token)?;
        let at = token.resource_version.map_or(At::Latest, At::Exact);
        let limit = if any { 0 } else { options.limit };
        return Ok(ListPlan {
            at,
            start: token.start,
            limit,
            continued: true,
        });
    }
    let at = match (options.resource_version_match, version) {
        (_, None) => At::Latest,
        (_, Some(_)) if any => At::Any,
        (None, Some(version)) if options.limit > 0 => At::Exact(version),
        (None | Some(NotOlderThan), Some(version)) => At::NotOlderThan(version),
        (Some(Exact), Some(version)) => At::Exact(version),
    };
    let limit = if any { 0 } else { options.limit };
    Ok(ListPlan {
        at,
        start: String::new(),
        limit,
        continued: false,
    })
}

impl Cacher {
    /// One object, or that there is none.
    ///
    /// | version | from                                            |
    /// |---------|-------------------------------------------------|
    /// | ""      | the cache once it is as new as storage; storage when it cannot tell |
    /// | "0"     | the cache as it is                              |
    /// | N       | the cache once it has reached N, else 504       |
    ///
    /// A cache without a state leaves every get to storage.
    ///
    /// # Errors
    /// [`ReadError`], but not for an object that is not there.
    pub async fn get(
        &self,
        key: &ObjectKey,
        options: GetOptions,
    ) -> Result<Option<Arc<Object>>, ReadError> {
        if self.published.snapshot.load().is_none() {
            return self
                .get_from_storage(key, options.resource_version.unwrap_or_default())
                .await;
        }
        match options.resource_version {
            None if !self.consistent().await? => {
                return self.get_from_storage(key, ResourceVersion::ZERO).await;
            }
            None => {}
            Some(version) => self.not_older_than(version).await?,
        }
        Ok(self.peek(key))
    }

    /// A list, by the table in this file's source and in the crate's architecture page. Uses the
    /// version, match, limit and continue of the options; the selectors are in the predicate.
    ///
    /// # Errors
    /// [`ReadError`] by the same table.
    pub async fn list(
        &self,
        predicate: &SelectionPredicate,
        options: &ListOptions,
    ) -> Result<ObjectList, ReadError> {
        let plan = plan(options)?;
        let cold = self.published.snapshot.load().is_none();
        if cold && plan.limit > 0 && predicate.selects_all() {
            // Does not wait for a cache that may be long in coming; a page costs storage little.
            return self.list_from_storage(predicate, &plan).await;
        }
        let snapshot = self.snapshot().await?;
        match plan.at {
            At::Latest if !self.consistent().await? => {
                return self.list_from_storage(predicate, &plan).await;
            }
            At::Latest | At::Any => {}
            At::NotOlderThan(version) => self.not_older_than(version).await?,
            At::Exact(version) => {
                drop(snapshot);
                return self.list_exact(predicate, &plan, version).await;
            }
        }
        drop(snapshot);
        let snapshot = self.snapshot().await?;
        let page = select(&snapshot.objects, predicate, &plan.start, plan.limit);
        Ok(object_list(page, snapshot.at, plan.limit))
    }

    /// From a retained state when there is one, else from storage's history.
    async fn list_exact(
        &self,
        predicate: &SelectionPredicate,
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
        if version > snapshot.at || self.is_compacted(version) {
            return self.list_from_storage(predicate, plan).await;
        }
        match snapshot.objects_at(version) {
            Ok(objects) => {
                let page = select(&objects, predicate, &plan.start, plan.limit);
                Ok(object_list(page, version, plan.limit))
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
    /// | N       | true              | the state, once it has reached N          |
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
            match options.resource_version {
                None if !self.storage.progress_supported() => {
                    return self.start_from_storage(predicate, options).await;
                }
                None => {
                    let version = self.current_revision().await?;
                    self.not_older_than(version).await?;
                }
                Some(version) => self.not_older_than(version).await?,
            }
            let snapshot = self.snapshot().await?;
            return Ok(Start::Initial {
                objects: snapshot.objects.clone(),
                at: snapshot.at,
                end_bookmark: options.allow_watch_bookmarks,
            });
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

    /// The state as storage has it, when the cache cannot prove that it is as new. (Upstream refuses,
    /// and its clients fall back to a list, which storage then answers: the same for more work.)
    async fn start_from_storage(
        &self,
        predicate: &SelectionPredicate,
        options: &ListOptions,
    ) -> Result<Start, ReadError> {
        let list = self.list_from_storage(predicate, &ListPlan::LATEST).await?;
        let objects = list.items.into_iter();
        Ok(Start::Initial {
            objects: objects
                .map(|object| (object.key().clone(), object))
                .collect(),
            at: list.resource_version,
            end_bookmark: options.allow_watch_bookmarks,
        })
    }

    /// Waits until the cache holds every write acknowledged before the call. False when it cannot
    /// prove that, so that storage has to answer.
    async fn consistent(&self) -> Result<bool, ReadError> {
        if !self.storage.progress_supported() || self.published.is_stuck() {
            return Ok(false);
        }
        let version = self.current_revision().await?;
        Ok(self.wait_for(version).await.is_ok())
    }

    async fn current_revision(&self) -> Result<ResourceVersion, ReadError> {
        self.probe
            .current_revision()
            .await
            .map_err(ReadError::Storage)
    }

    async fn not_older_than(&self, version: ResourceVersion) -> Result<(), ReadError> {
        self.wait_for(version).await.map_err(|NotReached(current)| {
            ReadError::TooLargeResourceVersion {
                requested: version,
                current,
                retry_after: Duration::from_secs(1),
            }
        })
    }

    async fn wait_for(&self, version: ResourceVersion) -> Result<(), NotReached> {
        let ask = || self.progress.load().request();
        let timeout = self.config.freshness_timeout;
        self.published
            .freshness
            .wait(version, timeout, ASK_PROGRESS_EVERY, ask)
            .await
    }

    async fn get_from_storage(
        &self,
        key: &ObjectKey,
        not_older_than: ResourceVersion,
    ) -> Result<Option<Arc<Object>>, ReadError> {
        let storage_key = self.resource.storage_key(key)?;
        let (found, at) = self
            .storage
            .get(&storage_key)
            .await
            .map_err(|e| ReadError::from_storage(e, None))?;
        if at < not_older_than {
            return Err(ReadError::TooLargeResourceVersion {
                requested: not_older_than,
                current: at,
                retry_after: Duration::ZERO,
            });
        }
        found
            .map(|item| self.resource.decode(&item).map_err(ReadError::from))
            .transpose()
    }

    /// The same list, read and filtered from storage.
    async fn list_from_storage(
        &self,
        predicate: &SelectionPredicate,
        plan: &ListPlan,
    ) -> Result<ObjectList, ReadError> {
        let mut at = match plan.at {
            At::Exact(version) => Some(version),
            At::Latest | At::Any | At::NotOlderThan(_) => None,
        };
        let scope = self.resource.storage_prefix(&predicate.scope)?;
        let scope_prefix = predicate.scope.key_prefix();
        let mut start = plan
            .start
            .strip_prefix(&scope_prefix)
            .unwrap_or_default()
            .to_owned();
        let mut fetch = if plan.limit > 0 {
            plan.limit
        } else {
            STORAGE_PAGE_MAX
        };
        let mut page = Page {
            items: Vec::new(),
            more_after: None,
            remaining: None,
        };
        // All are told together, so that they can be dealt with together.
        let mut corrupt = CorruptObjects::default();
        loop {
            let request = ListRequest {
                prefix: scope.clone(),
                start: start.clone(),
                at,
                limit: fetch.min(STORAGE_PAGE_MAX),
                count: plan.limit > 0 && predicate.selects_all(),
            };
            let continued = plan.continued.then_some(plan.start.as_str());
            let part = self
                .storage
                .list(request)
                .await
                .map_err(|error| ReadError::from_storage(error, continued))?;
            let fetched = part.items.len() as u64;
            let mut examined = 0;
            let mut last = None;
            for item in &part.items {
                examined += 1;
                last = Some(self.resource.key_of(&item.key)?);
                let object = match self.resource.decode(item) {
                    Ok(object) => object,
                    Err(unreadable) => match corrupt.add(unreadable) {
                        true => continue,
                        false => return Err(ReadError::Corrupt(corrupt)),
                    },
                };
                if predicate.matches(&object) {
                    page.items.push(object);
                    if page.items.len() == plan.limit {
                        break;
                    }
                }
            }
            let more = part.more || examined < fetched;
            let full = plan.limit > 0 && page.items.len() == plan.limit;
            match last {
                Some(last) if more && !full => {
                    start = format!("{}\0", &last.as_str()[scope_prefix.len()..]);
                    at = Some(part.revision);
                    fetch = fetch.saturating_mul(2);
                }
                _ if !corrupt.objects.is_empty() => return Err(ReadError::Corrupt(corrupt)),
                last => {
                    if more {
                        page.more_after = last;
                        page.remaining = part.remaining.map(|after| after + fetched - examined);
                    }
                    return self.checked(object_list(page, part.revision, plan.limit), plan.at);
                }
            }
        }
    }

    /// A list that storage answered where "not older than" was asked.
    fn checked(&self, list: ObjectList, at: At) -> Result<ObjectList, ReadError> {
        match at {
            At::NotOlderThan(version) if list.resource_version < version => {
                Err(ReadError::TooLargeResourceVersion {
                    requested: version,
                    current: list.resource_version,
                    retry_after: Duration::ZERO,
                })
            }
            _ => Ok(list),
        }
    }
}

fn object_list(page: Page, at: ResourceVersion, limit: usize) -> ObjectList {
    let more = page.more_after.filter(|_| limit > 0);
    let token = |last| ContinueToken {
        resource_version: Some(at),
        start: format!("{last}\0"),
    };
    ObjectList {
        resource_version: at,
        items: page.items,
        remaining: page.remaining.filter(|_| more.is_some()),
        continue_token: more.map(|last| token(last).encode()),
    }
}

#[cfg(test)]
mod tests;
