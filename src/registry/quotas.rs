//! Counts what is used of a ResourceQuota, for the controller that keeps the quotas' status up to date.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::{ApiError, Registry, Resource, Target, metadata, read, update};
use crate::admission::QuotaUsage;
use crate::api::{GetOptions, ListOptions, Object, ObjectKey, WriteOptions};
use crate::cacher::ReadError;

/// How often a quota is counted again if it is charged meanwhile.
const COUNTS_MAX: usize = 10;

/// How long it takes at most, as a rule, to store an object after it was charged.
const IN_FLIGHT: Duration = Duration::from_millis(200);

impl Registry {
    /// Returns the resources whose objects the limits of a quota are about.
    pub(crate) fn resources_of_quota(&self, quota: &Value) -> Vec<Arc<Resource>> {
        let usage = QuotaUsage::new(quota);
        let table = self.table.load();
        let is_counted = |resource: &&Arc<Resource>| {
            let preferred = table.preferred(&resource.group, &resource.plural);
            resource.namespaced
                && resource.is_stored()
                && preferred.is_some_and(|preferred| Arc::ptr_eq(preferred, resource))
                && usage.is_about(&resource.group, &resource.plural)
        };
        table.all().iter().filter(is_counted).cloned().collect()
    }

    /// Returns true if the status of a quota cannot be right: it is of another spec, or says nothing of a limit.
    pub(crate) fn is_quota_uncounted(&self, quota: &Value) -> bool {
        let mut usage = QuotaUsage::new(quota);
        let is_of_spec = usage.is_status_of(quota);
        let counted = self.resources_of_quota(quota);
        for resource in counted {
            usage.add_missing(&resource.group, &resource.plural);
        }
        !is_of_spec || !usage.is_status_of(quota)
    }

    /// Returns a hash of how much an object counts for, and in which scopes. While it stays the same, an update
    /// of the object changes no quota. Returns nothing for objects that are only counted.
    pub(crate) fn quota_footprint(&self, resource: &Resource, object: &Object) -> Option<u64> {
        let (group, plural) = (&resource.group, &resource.plural);
        if !QuotaUsage::varies(group, plural) {
            return None;
        }
        let value = value_of(object).ok()?;
        let mut hasher = DefaultHasher::new();
        QuotaUsage::footprint(group, plural, &value, Timestamp::now()).hash(&mut hasher);
        Some(hasher.finish())
    }

    /// Counts the objects that a quota is about, and writes what they use into its status.
    ///
    /// What a request is charged for is not stored yet at that moment, and is not counted. So if less is used than
    /// the status says, that is believed only after the status has not changed for a while.
    ///
    /// # Errors
    /// Something cannot be read, or the status cannot be written: 409 if the quota is charged all the time.
    pub(crate) async fn count_quota(
        &self,
        key: &ObjectKey,
        options: &WriteOptions,
    ) -> Result<(), ApiError> {
        let resource = self.resource("", "v1", "resourcequotas");
        let target = |subresource: Option<&str>| Target {
            resource: resource.clone().expect("the table of built-ins has it"),
            namespace: Some(key.namespace().to_owned()),
            name: key.name().to_owned(),
            subresource: subresource.map(str::to_owned),
        };
        let (quota, status) = (target(None), target(Some("status")));
        let mut quiet_at = None;
        for _ in 0..COUNTS_MAX {
            let found = match read::get(self, &quota, GetOptions::default()).await {
                Ok(found) => found,
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut value = value_of(&found)?;
            let usage = self.usage_of_quota(&value).await?;
            if usage.is_status_of(&value) {
                return Ok(());
            }
            let version = Some(found.resource_version());
            if usage.is_less_than(&value) && quiet_at != version {
                quiet_at = version;
                tokio::time::sleep(IN_FLIGHT).await;
                continue;
            }
            value["status"] = usage.status();
            match update::update(self, &status, value, options).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_not_found() => return Ok(()),
                Err(ApiError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(update::modified(&quota.resource, &quota.name))
    }

    async fn usage_of_quota(&self, quota: &Value) -> Result<QuotaUsage, ApiError> {
        let mut usage = QuotaUsage::new(quota);
        let namespace = metadata::text(quota, "namespace");
        for resource in self.resources_of_quota(quota) {
            let all = ListOptions::default();
            let list = read::list(self, &resource, Some(namespace), &all).await?;
            let objects = list.items.iter().map(|object| value_of(object));
            let objects: Vec<Value> = objects.collect::<Result<_, _>>()?;
            let (group, plural) = (&resource.group, &resource.plural);
            usage.count(group, plural, &objects, Timestamp::now());
        }
        Ok(usage)
    }
}

/// The object as it is stored. That is enough to count it: what is counted by more than its number has one
/// version.
fn value_of(object: &Object) -> Result<Value, ApiError> {
    serde_json::from_slice(object.body_slice())
        .map_err(|error| ReadError::Undecodable(error.to_string()).into())
}
