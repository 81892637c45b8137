//! Counts the usage of ResourceQuotas for the quota controller, by the rules of the built-in resources.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;

use crate::api::{Object, ObjectKey, WriteOptions};
use crate::builtin::quotas::{self, QuotaBaseline};
use crate::controllers::QuotaCounter;
use crate::registry::{ApiError, Registry, Resource};

/// Counts the quotas of a registry.
#[derive(Debug)]
pub(crate) struct BuiltinQuotas {
    registry: Arc<Registry>,
    /// The baselines of quotas that must be counted again.
    baselines: Mutex<HashMap<ObjectKey, QuotaBaseline>>,
}

impl BuiltinQuotas {
    /// Creates the counter of the quotas in `registry`.
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            baselines: Mutex::default(),
        }
    }
}

#[async_trait]
impl QuotaCounter for BuiltinQuotas {
    fn resources(&self, quota: &Value) -> Vec<Arc<Resource>> {
        quotas::resources_of_quota(&self.registry, quota)
    }

    fn is_uncounted(&self, quota: &Value) -> bool {
        quotas::is_quota_uncounted(&self.registry, quota)
    }

    fn footprint(&self, resource: &Resource, object: &Object) -> Option<u64> {
        quotas::quota_footprint(resource, object)
    }

    async fn count(
        &self,
        key: &ObjectKey,
        options: &WriteOptions,
    ) -> Result<Option<Duration>, ApiError> {
        let mut baseline = self.baselines.lock().remove(key);
        let counted = quotas::count_quota(&self.registry, key, &mut baseline, options).await;
        if let Some(baseline) = baseline {
            self.baselines.lock().insert(key.clone(), baseline);
        }
        counted
    }
}
