//! Counts the usage of a ResourceQuota, for the controller that updates its status.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use watchet_admission::{QuotaUsage, ResourceList, parse_resources};
use watchet_api::{GetOptions, ListOptions, Object, ObjectKey, WriteOptions};
use watchet_cacher::ReadError;
use watchet_registry::{ApiError, Registry, Resource, Target, metadata};

/// The maximum number of times that a quota is counted because requests were charged to it meanwhile.
const COUNTS_MAX: usize = 10;

/// The time after a charge within which the object is normally stored.
const IN_FLIGHT: Duration = Duration::from_millis(200);

/// The usage in the status of a quota at a time. Later charges increase the status beyond it.
#[derive(Debug, Clone)]
pub struct QuotaBaseline {
    uid: String,
    used: ResourceList,
    at: Instant,
}

impl QuotaBaseline {
    fn of(quota: &Value, at: Instant) -> Self {
        Self {
            uid: metadata::text(quota, "uid").to_owned(),
            used: parse_resources(&quota["status"]["used"]),
            at,
        }
    }

    /// Returns true if `quota` has the same uid and no smaller usage, so that only charges have changed it since.
    fn is_before(&self, quota: &Value) -> bool {
        let now = parse_resources(&quota["status"]["used"]);
        let mut used = self.used.iter();
        let is_less = |(limit, used): (&String, _)| now.get(limit).is_some_and(|now| now < used);
        metadata::text(quota, "uid") == self.uid && !used.any(is_less)
    }
}

/// Returns the resources whose objects a quota limits.
pub fn resources_of_quota(registry: &Registry, quota: &Value) -> Vec<Arc<Resource>> {
    let usage = QuotaUsage::new(quota);
    let is_counted = |resource: &Arc<Resource>| {
        let preferred = registry.preferred_resource(&resource.group, &resource.plural);
        resource.namespaced
            && resource.is_stored()
            && preferred.is_some_and(|preferred| Arc::ptr_eq(&preferred, resource))
            && usage.is_about(&resource.group, &resource.plural)
    };
    let mut resources = registry.resources();
    resources.retain(is_counted);
    resources
}

/// Returns true if the status of a quota is out of date: it has other limits than the spec, or lacks the usage of one.
pub fn is_quota_uncounted(registry: &Registry, quota: &Value) -> bool {
    let mut usage = QuotaUsage::new(quota);
    let is_of_spec = usage.is_status_of(quota);
    let counted = resources_of_quota(registry, quota);
    for resource in counted {
        usage.add_missing(&resource.group, &resource.plural);
    }
    !is_of_spec || !usage.is_status_of(quota)
}

/// Returns a hash of the usage of an object and its scopes. An update that does not change the hash changes the usage
/// of no quota. Returns `None` for objects of which only the number is limited.
pub fn quota_footprint(resource: &Resource, object: &Object) -> Option<u64> {
    let (group, plural) = (&resource.group, &resource.plural);
    if !QuotaUsage::varies(group, plural) {
        return None;
    }
    let value = value_of(object).ok()?;
    let mut hasher = DefaultHasher::new();
    QuotaUsage::footprint(group, plural, &value, Timestamp::now()).hash(&mut hasher);
    Some(hasher.finish())
}

/// Counts the objects that a quota limits and writes their usage to its status. Returns when to count again if the
/// status is greater than the counted usage.
///
/// When a request is charged, its object is not stored yet and cannot be counted. So the status is lowered only by the
/// part that it already contained `IN_FLIGHT` ago; `baseline` has that status from the previous call.
///
/// # Errors
/// An object cannot be read, or the status cannot be written: 409 if requests charge the quota again and again.
pub async fn count_quota(
    registry: &Registry,
    key: &ObjectKey,
    baseline: &mut Option<QuotaBaseline>,
    options: &WriteOptions,
) -> Result<Option<Duration>, ApiError> {
    let resource = registry.resource("", "v1", "resourcequotas");
    let target = |subresource: Option<&str>| Target {
        resource: resource.clone().expect("the table of built-ins has it"),
        namespace: Some(key.namespace().to_owned()),
        name: key.name().to_owned(),
        subresource: subresource.map(str::to_owned),
    };
    let (quota, status) = (target(None), target(Some("status")));
    for _ in 0..COUNTS_MAX {
        let Some(mut value) = read_quota(registry, &quota).await? else {
            *baseline = None;
            return Ok(None);
        };
        baseline.take_if(|before| !before.is_before(&value));
        let now = Instant::now();
        let before = baseline.get_or_insert_with(|| QuotaBaseline::of(&value, now));
        let is_stored = now.duration_since(before.at) >= IN_FLIGHT;
        let mut usage = usage_of_quota(registry, &value).await?;
        let is_more = usage.keep_charged(&value, is_stored.then_some(&before.used));
        if !usage.is_status_of(&value) {
            value["status"] = usage.status();
            match registry.update(&status, value.clone(), options).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => continue,
                Err(ApiError::Conflict { .. }) => continue,
                Err(error) => return Err(error),
            }
        }
        if !is_more {
            *baseline = None;
            return Ok(None);
        }
        if is_stored {
            *baseline = Some(QuotaBaseline::of(&value, now));
        }
        return Ok(Some(IN_FLIGHT));
    }
    Err(ApiError::modified(&quota.resource, &quota.name))
}

/// Returns the quota as it is stored; `None` if it does not exist.
async fn read_quota(registry: &Registry, target: &Target) -> Result<Option<Value>, ApiError> {
    match registry.get(target, GetOptions::default()).await {
        Ok(found) => value_of(&found).map(Some),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Counts the objects that a quota limits.
async fn usage_of_quota(registry: &Registry, quota: &Value) -> Result<QuotaUsage, ApiError> {
    let mut usage = QuotaUsage::new(quota);
    let namespace = metadata::text(quota, "namespace");
    for resource in resources_of_quota(registry, quota) {
        let all = ListOptions::default();
        let list = registry.list(&resource, Some(namespace), &all).await?;
        let objects = list.items.iter().map(|object| value_of(object));
        let objects: Vec<Value> = objects.collect::<Result<_, _>>()?;
        let (group, plural) = (&resource.group, &resource.plural);
        usage.count(group, plural, &objects, Timestamp::now());
    }
    Ok(usage)
}

/// Returns the object as it is stored. No conversion is needed: resources whose usage is more than the number of
/// objects have only one version.
fn value_of(object: &Object) -> Result<Value, ApiError> {
    serde_json::from_slice(object.body_slice())
        .map_err(|error| ReadError::Undecodable(error.to_string()).into())
}
