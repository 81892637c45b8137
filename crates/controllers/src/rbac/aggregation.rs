//! The controller of aggregated cluster roles: writes the rules of the cluster roles that the selectors of an
//! aggregationRule match into the role with that rule.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as MetaSelector;
use memchr::memmem;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::resource;
use crate::follower::{Follower, FollowerEvent};
use crate::framework::{self, Controller};
use crate::queue::{Next, Pauses, WorkQueue};
use watchet_api::{GetOptions, LabelSelector, ListOptions, ObjectKey, ResourceVersion};
use watchet_auth::rbac::RbacKind;
use watchet_metrics::Metrics;
use watchet_registry::{ApiError, Patch, Registry, Resource, Target};

const NAME: &str = "clusterrole-aggregation-controller";

const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(50),
    max: Duration::from_secs(10),
};

/// Writes the rules of aggregated cluster roles.
#[derive(Debug)]
pub(crate) struct ClusterRoleAggregation {
    registry: Arc<Registry>,
    queue: WorkQueue<ObjectKey>,
    /// The cluster roles with an aggregationRule, or that had one.
    aggregated: Mutex<BTreeSet<ObjectKey>>,
}

impl ClusterRoleAggregation {
    pub(crate) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(NAME)),
            aggregated: Mutex::default(),
        }
    }

    fn resource(&self) -> Arc<Resource> {
        resource(&self.registry, RbacKind::ClusterRole)
    }

    /// Returns the rules of the cluster roles that `selectors` match, except those of `own`: in the order of the
    /// selectors, then of the names, each rule once.
    async fn aggregate(&self, selectors: &Value, own: &str) -> Result<Vec<Value>, ApiError> {
        let mut rules: Vec<Value> = Vec::new();
        for selector in selectors.as_array().into_iter().flatten() {
            let Some(labels) = label_selector(selector) else {
                tracing::warn!(role = own, %selector, "an aggregationRule has an invalid selector");
                continue;
            };
            let options = ListOptions {
                // The cache that sent the event has the changed role.
                resource_version: Some(ResourceVersion::ZERO),
                labels,
                ..ListOptions::default()
            };
            let list = self.registry.list(&self.resource(), None, &options).await?;
            for role in list.items.iter().filter(|role| role.key().name() != own) {
                let role: Value = serde_json::from_slice(role.body_slice()).unwrap_or_default();
                for rule in role["rules"].as_array().into_iter().flatten() {
                    if !rules.contains(rule) {
                        rules.push(rule.clone());
                    }
                }
            }
        }
        Ok(rules)
    }
}

fn label_selector(selector: &Value) -> Option<LabelSelector> {
    let selector: MetaSelector = serde_json::from_value(selector.clone()).ok()?;
    LabelSelector::from_meta(&selector).ok()
}

impl Controller for ClusterRoleAggregation {
    type Key = ObjectKey;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 1;

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn follow(&self) {
        let mut roles = Follower::new(self.registry.clone(), self.resource());
        loop {
            let events = roles.next().await;
            let mut aggregated = self.aggregated.lock();
            let mut has_changed = false;
            for event in events {
                match event {
                    FollowerEvent::Object(role) => {
                        if memmem::find(role.body_slice(), b"\"aggregationRule\"").is_some() {
                            aggregated.insert(role.key().clone());
                        }
                        has_changed = true;
                    }
                    FollowerEvent::Deleted(_) | FollowerEvent::SyncComplete => has_changed = true,
                    FollowerEvent::SyncStarted => {}
                }
            }
            // Any role can be one that a selector matches, or matched.
            if has_changed {
                for key in &*aggregated {
                    self.queue.add(key.clone());
                }
            }
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        let target = Target {
            resource: self.resource(),
            namespace: None,
            name: key.name().to_owned(),
            subresource: None,
        };
        let role = match self.registry.get(&target, GetOptions::default()).await {
            Ok(role) => role,
            Err(error) if error.is_not_found() => {
                self.aggregated.lock().remove(key);
                return Ok(Next::Done);
            }
            Err(error) => return Err(error),
        };
        let value: Value = serde_json::from_slice(role.body_slice()).unwrap_or_default();
        if !value["aggregationRule"].is_object() {
            self.aggregated.lock().remove(key);
            return Ok(Next::Done);
        }
        let selectors = &value["aggregationRule"]["clusterRoleSelectors"];
        let rules = self.aggregate(selectors, key.name()).await?;
        let present = value["rules"].as_array().map(Vec::as_slice);
        if present.unwrap_or_default() == rules {
            return Ok(Next::Done);
        }
        let patch = Patch::Merge(json!({
            "metadata": {
                "uid": role.uid(),
                "resourceVersion": role.resource_version().to_string(),
            },
            "rules": rules,
        }));
        let options = framework::write_options("clusterrole-aggregation-controller");
        self.registry.patch(&target, &patch, &options).await?;
        Ok(Next::Done)
    }
}
