//! Finds the existing pods that violate the new enforced level of their namespace. The pods continue to run, so the
//! client gets warnings and no error.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::checks::{Pod, reasons, violations};
use super::level::{LABEL_PREFIX, Level, LevelVersion, Policy};
use crate::cluster::{Cluster, Freshness, GroupResource};

/// The maximum number of pods that are checked, and the maximum duration of the check.
const PODS_MAX: usize = 3000;
const TIME_MAX: Duration = Duration::from_secs(1);

/// The pods with the same violations: the first name, and the number of pods.
struct Group {
    name: String,
    count: usize,
}

/// Returns the warnings for a namespace that is to enforce `level` on the pods that are checked.
pub(super) async fn warnings(
    cluster: &dyn Cluster,
    namespace: &str,
    level: LevelVersion,
    is_checked: impl Fn(&Value) -> bool,
) -> Vec<String> {
    let resource = GroupResource::new("", "pods");
    let pods = match cluster
        .objects(resource, namespace, Freshness::Cached)
        .await
    {
        Ok(pods) => prioritized(pods.into_iter().filter(is_checked).collect()),
        Err(error) => {
            tracing::warn!(namespace, %error, "cannot list pods to check a new level");
            let text = "failed to list pods while checking new PodSecurity enforce level";
            return vec![text.to_owned()];
        }
    };
    let until = Instant::now() + TIME_MAX;
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut checked = 0;
    for pod in pods.iter().take(PODS_MAX) {
        let violated = violations(level, Pod::of(pod));
        if !violated.is_empty() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let group = groups.entry(reasons(&violated)).or_insert_with(|| Group {
                name: name.to_owned(),
                count: 0,
            });
            group.count += 1;
            if name < group.name.as_str() {
                name.clone_into(&mut group.name);
            }
        }
        checked += 1;
        if Instant::now() >= until {
            break;
        }
    }
    texts(namespace, level, (checked, pods.len()), groups)
}

fn texts(
    namespace: &str,
    level: LevelVersion,
    (checked, all): (usize, usize),
    groups: BTreeMap<String, Group>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if checked < all {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {all} existing pods"
        ));
    }
    if !groups.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \
             \"{level}\""
        ));
    }
    let groups = groups.into_iter().map(|(reasons, group)| {
        let Group { name, count } = group;
        match count {
            1 => format!("{name}: {reasons}"),
            2 => format!("{name} (and 1 other pod): {reasons}"),
            _ => format!("{name} (and {} other pods): {reasons}", count - 1),
        }
    });
    let mut groups: Vec<_> = groups.collect();
    groups.sort();
    warnings.extend(groups);
    warnings
}

/// Sorts pods without a controller and the first pod of each controller before the others: the pods of one controller
/// are usually alike.
fn prioritized(pods: Vec<Value>) -> Vec<Value> {
    let mut controllers = HashSet::new();
    let (mut first, others): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| {
        let owners = pod["metadata"]["ownerReferences"].as_array();
        let mut owners = owners.into_iter().flatten();
        let controller = owners.find(|owner| owner["controller"] == true);
        controller.is_none_or(|owner| {
            controllers.insert(owner["uid"].as_str().unwrap_or_default().to_owned())
        })
    });
    first.extend(others);
    first
}

/// Returns the warning about labels that have no effect, because the configuration exempts the namespace.
pub(super) fn exempt_warning(
    namespace: &str,
    policy: Policy,
    defaults: Policy,
    labels: &Value,
) -> Option<String> {
    if policy.is_fully_privileged() || policy.is_equivalent(&defaults) {
        return None;
    }
    let is_labeled = |name: &str| {
        let labels =
            ["", "-version"].map(|suffix| &labels[format!("{LABEL_PREFIX}{name}{suffix}")]);
        labels.into_iter().any(Value::is_string)
    };
    let modes = policy.modes().into_iter();
    let shown = modes.filter(|(name, mode)| mode.level != Level::Privileged && is_labeled(name));
    let shown: Vec<String> = shown.map(|(name, mode)| format!("{name}={mode}")).collect();
    Some(format!(
        "namespace {namespace:?} is exempt from Pod Security, and the policy ({}) will be ignored",
        shown.join(", ")
    ))
}
