//! Reads answered by storage, for a cache that has no state, cannot prove its freshness, or does
//! not hold the requested version. The delegator decides when.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::list_plan::{ListPlan, ReadVersion};
use super::page::Page;
use super::source::LIST_PAGE;
use super::{Cacher, CorruptObjects, ObjectList, ReadError};
use watchet_api::{Object, ObjectKey, ResourceVersion, SelectionPredicate};
use watchet_metrics::ListCost;
use watchet_storage::{KeyValue, ListRequest, StorageError};

impl Cacher {
    pub(super) async fn get_from_storage(
        &self,
        key: &ObjectKey,
        not_older_than: ResourceVersion,
    ) -> Result<Option<Arc<Object>>, ReadError> {
        let (found, at) = self.stored(key).await?;
        checked(at, not_older_than)?;
        found.map(|item| self.decoded(&item)).transpose()
    }

    /// Reads and filters a list.
    pub(super) async fn list_from_storage(
        &self,
        predicate: &SelectionPredicate,
        plan: &ListPlan,
    ) -> Result<ObjectList, ReadError> {
        let began = Instant::now();
        let page = match self.resource.only_key(predicate) {
            Some(key) => self.single_from_storage(&key, predicate, plan.at).await?,
            None => self.page_from_storage(predicate, plan).await?,
        };
        let metrics = &self.resource.metrics;
        metrics.count_storage_list(page.cost(), began.elapsed());
        if let ReadVersion::NotOlderThan(version) = plan.at {
            checked(page.at, version)?;
        }
        Ok(page.into_list(predicate))
    }

    /// Reads a list of at most one object by a lookup.
    async fn single_from_storage(
        &self,
        key: &ObjectKey,
        predicate: &SelectionPredicate,
        at: ReadVersion,
    ) -> Result<Page, ReadError> {
        let (fetched, found, at) = match at {
            ReadVersion::Exact(version) => {
                let request = ListRequest {
                    prefix: self.resource.prefix.clone(),
                    start: key.as_str().to_owned(),
                    at: Some(version),
                    limit: 1,
                    count: false,
                };
                let page = self.storage.list(request).await.map_err(failed)?;
                let storage_key = self.resource.storage_key(key)?;
                let fetched = page.items.len();
                let found = page.items.into_iter().find(|item| item.key == storage_key);
                (fetched, found, page.revision)
            }
            ReadVersion::Latest | ReadVersion::NotOlderThan(_) => {
                let (found, at) = self.stored(key).await?;
                (usize::from(found.is_some()), found, at)
            }
        };
        let cost = ListCost {
            fetched,
            evaluated: usize::from(found.is_some()),
            returned: 0,
        };
        let found = found.map(|item| self.decoded(&item)).transpose()?;
        let items = found.into_iter().filter(|object| predicate.matches(object));
        Ok(Page::whole(at, cost, items.collect()))
    }

    /// Reads a range. Selectors may match few objects: each further read doubles in size, up to a
    /// whole page, while matches are missing.
    async fn page_from_storage(
        &self,
        predicate: &SelectionPredicate,
        plan: &ListPlan,
    ) -> Result<Page, ReadError> {
        let prefix = predicate.scope.list_prefix();
        let mut request = ListRequest {
            prefix: self.resource.prefix.join(&prefix)?,
            start: plan.start.clone(),
            at: match plan.at {
                ReadVersion::Exact(version) => Some(version),
                ReadVersion::Latest | ReadVersion::NotOlderThan(_) => None,
            },
            limit: match plan.limit {
                0 => LIST_PAGE,
                limit => limit.min(LIST_PAGE),
            },
            count: plan.limit > 0 && predicate.selects_all(),
        };
        let (mut items, mut cost) = (Vec::new(), ListCost::default());
        // All unreadable objects are reported together, so that they can be deleted together.
        let mut corrupt = CorruptObjects::default();
        loop {
            let continued = plan.continued.then_some(plan.start.as_str());
            let part = self
                .storage
                .list(request.clone())
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
                    items.push(object);
                    if items.len() == plan.limit {
                        break;
                    }
                }
            }
            cost.fetched += part.items.len();
            cost.evaluated += examined as usize;
            let more = part.more || examined < fetched;
            let full = plan.limit > 0 && items.len() == plan.limit;
            match last {
                Some(last) if more && !full => {
                    request.start = format!("{}\0", &last.as_str()[prefix.len()..]);
                    request.at = Some(part.revision);
                    request.limit = request.limit.saturating_mul(2).min(LIST_PAGE);
                }
                _ if !corrupt.objects.is_empty() => return Err(ReadError::Corrupt(corrupt)),
                last if more => {
                    return Ok(Page {
                        at: part.revision,
                        cost,
                        items,
                        more_after: last,
                        remaining: part.remaining.map(|after| after + fetched - examined),
                    });
                }
                _ => return Ok(Page::whole(part.revision, cost, items)),
            }
        }
    }

    async fn stored(
        &self,
        key: &ObjectKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), ReadError> {
        let key = self.resource.storage_key(key)?;
        self.storage.get(&key).await.map_err(failed)
    }

    fn decoded(&self, item: &KeyValue) -> Result<Arc<Object>, ReadError> {
        self.resource.decode(item).map_err(ReadError::from)
    }
}

fn failed(error: StorageError) -> ReadError {
    ReadError::from_storage(error, None)
}

/// Checks a response of storage to a "not older than" request.
fn checked(at: ResourceVersion, not_older_than: ResourceVersion) -> Result<(), ReadError> {
    if at >= not_older_than {
        return Ok(());
    }
    Err(ReadError::TooLargeResourceVersion {
        requested: not_older_than,
        current: at,
        retry_after: Duration::ZERO,
    })
}
