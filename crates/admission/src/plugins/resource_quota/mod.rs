//! ResourceQuota: rejects objects with which a namespace would exceed its ResourceQuotas. Before an object is stored,
//! the plugin charges the request: it adds the usage to the status of the quotas by compare-and-swap. The resource
//! quota controller later subtracts what deletions and failed requests release.

mod charge;
mod evaluator;
mod limited;
mod pods;
mod scope;
mod usage;

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Semaphore;

use self::charge::{Quota, QuotaRequest, Refusal};
use self::evaluator::Evaluator;
pub(super) use self::limited::LimitedResources;
use super::super::cluster::{Cluster, Freshness, GroupResource};
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Operation, Request};
use super::plugin::AdmissionPlugin;
use super::resources::ResourceList;

pub use self::usage::QuotaUsage;

/// The time limit for charging a request.
const CHARGE_MAX: Duration = Duration::from_secs(10);

/// The number of locks for namespaces. The server charges requests of namespaces with the same lock one after the
/// other.
const NAMESPACE_LOCKS: usize = 64;

const QUOTAS: GroupResource<'static> = GroupResource::new("", "resourcequotas");

/// The ResourceQuota admission plugin; see the module.
#[derive(Debug)]
pub(super) struct ResourceQuota {
    /// The locks, selected by the hash of the namespace. Without them most of many concurrent requests would fail
    /// to charge and retry, because only one at a time can change a quota. Other servers have their own locks.
    namespace_locks: Vec<Semaphore>,
    hasher: RandomState,
    /// The resources that a namespace can use only with a quota.
    limited: LimitedResources,
}

impl ResourceQuota {
    /// Creates the plugin. Only namespaces with a quota for `limited` can use it.
    pub(super) fn new(limited: LimitedResources) -> Self {
        Self {
            namespace_locks: (0..NAMESPACE_LOCKS).map(|_| Semaphore::new(1)).collect(),
            hasher: RandomState::new(),
            limited,
        }
    }
}

#[async_trait]
impl AdmissionPlugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn validates(&self, request: Request<'_>) -> bool {
        let is_write = matches!(request.operation, Operation::Create | Operation::Update);
        let is_namespace = request.group.is_empty() && request.resource == "namespaces";
        let evaluator = Evaluator::of(request.group, request.resource);
        is_write
            && !is_namespace
            && evaluator.is_some_and(|e| e.handles(request.operation, request.subresource))
    }

    async fn validate(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let request = attributes.request();
        let Some(evaluator) = Evaluator::of(request.group, request.resource) else {
            return Ok(());
        };
        let (new, old) = (&*attributes.object, &*attributes.old_object);
        let is_update = attributes.operation == Operation::Update;
        if attributes.namespace.is_empty()
            || is_update && !evaluator.handles_update(attributes.subresource, old, new)
        {
            return Ok(());
        }
        let quotas = read(cluster, attributes, Freshness::Cached).await?;
        if quotas.is_empty() && self.limited.is_empty() {
            return Ok(());
        }
        let quota_request = QuotaRequest {
            evaluator: &evaluator,
            resource: (request.group, request.resource),
            subresource: attributes.subresource,
            object: new,
            old_object: old,
            now: Timestamp::now(),
        };
        let charging = self.charge(cluster, attributes, quota_request);
        match tokio::time::timeout(CHARGE_MAX, charging).await {
            Ok(charged) => charged,
            Err(_) => {
                let why = "resource quota evaluation timed out";
                Err(AdmissionError::Internal(why.to_owned()))
            }
        }
    }
}

impl ResourceQuota {
    /// Charges a request to every quota that limits its object.
    async fn charge(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
        quota_request: QuotaRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let index =
            self.hasher.hash_one(attributes.namespace) as usize % self.namespace_locks.len();
        let lock = self.namespace_locks[index].acquire().await;
        let _lock = lock.map_err(|error| AdmissionError::Internal(error.to_string()))?;
        let mut done: BTreeSet<String> = BTreeSet::new();
        loop {
            let mut quotas = read(cluster, attributes, Freshness::Latest).await?;
            quotas.retain(|quota| !done.contains(uid(quota)));
            let parsed: Vec<Quota> = quotas.iter().map(Quota::parse).collect();
            // After a quota is charged, the remaining ones do not show whether quotas cover the limited resources.
            let limited = Some(&self.limited).filter(|_| done.is_empty());
            // All quotas are checked before the first one is charged.
            let changes = quota_request.charge(&parsed, limited);
            let changes = changes.map_err(|refusal| match refusal {
                Refusal::Forbidden(why) => attributes.forbidden(why),
                Refusal::UncoveredScopes(why) => AdmissionError::Failed(why),
            })?;
            if attributes.dry_run || changes.is_empty() {
                return Ok(());
            }
            let mut lost = false;
            for (index, used) in changes {
                let quota = &mut quotas[index];
                quota["status"]["used"] = quantities_json(&used);
                let written = cluster.replace_status(QUOTAS, quota).await;
                match written? {
                    true => drop(done.insert(uid(quota).to_owned())),
                    false => lost = true,
                }
            }
            if !lost {
                return Ok(());
            }
        }
    }
}

async fn read(
    cluster: &dyn Cluster,
    attributes: &AdmissionRequest<'_>,
    freshness: Freshness,
) -> Result<Vec<Value>, AdmissionError> {
    let quotas = cluster
        .objects(QUOTAS, attributes.namespace, freshness)
        .await;
    let failed = |why| AdmissionError::Internal(format!("error resolving quota: {why}"));
    quotas.map_err(|error| error.or_failed(failed))
}

fn uid(quota: &Value) -> &str {
    quota["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Formats a list of resources as objects contain it.
fn quantities_json(list: &ResourceList) -> Value {
    let members = list.iter();
    members
        .map(|(name, amount)| (name.clone(), Value::from(amount.to_string())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[cfg(test)]
mod tests;
