//! Defaults of the resources that create pods: the workloads of `apps` and `batch`, replication controllers.

use serde_json::Value;

use super::pods;
use watchet_registry::fields::{Fields, child, existing, is_unset, items, object, set, text};

const REVISIONS_KEPT: i64 = 10;

pub(super) fn deployment(object: &mut Fields) {
    let Some(spec) = child(object, "spec") else {
        return;
    };
    pods::template(spec);
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", REVISIONS_KEPT);
    set(spec, "progressDeadlineSeconds", 600);
    let Some(strategy) = child(spec, "strategy") else {
        return;
    };
    set(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = child(strategy, "rollingUpdate")
    {
        set(rolling, "maxUnavailable", "25%");
        set(rolling, "maxSurge", "25%");
    }
}

pub(super) fn replica_set(object: &mut Fields) {
    if let Some(spec) = child(object, "spec") {
        pods::template(spec);
        set(spec, "replicas", 1);
    }
}

/// Sets the defaults of a replication controller, whose selector and labels default to the labels of the template.
pub(super) fn replication_controller(controller: &mut Fields) {
    let Some(spec) = child(controller, "spec") else {
        return;
    };
    if object(spec, "template").is_some() {
        pods::template(spec);
    }
    set(spec, "replicas", 1);
    let Some(labels) = template_labels(spec) else {
        return;
    };
    if object(spec, "selector").is_none_or(Fields::is_empty) {
        spec.insert("selector".to_owned(), labels.clone());
    }
    label(controller, labels);
}

pub(super) fn stateful_set(object: &mut Fields) {
    let Some(spec) = child(object, "spec") else {
        return;
    };
    pods::template(spec);
    // The only optional string of a spec that Go always encodes.
    set(spec, "serviceName", "");
    set(spec, "podManagementPolicy", "OrderedReady");
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", REVISIONS_KEPT);
    if let Some(retention) = child(spec, "persistentVolumeClaimRetentionPolicy") {
        set(retention, "whenDeleted", "Retain");
        set(retention, "whenScaled", "Retain");
    }
    for claim in items(spec, "volumeClaimTemplates") {
        set(claim, "apiVersion", "v1");
        set(claim, "kind", "PersistentVolumeClaim");
        crate::defaults::storage::claim(claim);
        if let Some(status) = child(claim, "status") {
            set(status, "phase", "Pending");
        }
    }
    let Some(strategy) = child(spec, "updateStrategy") else {
        return;
    };
    set(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = child(strategy, "rollingUpdate")
    {
        set(rolling, "partition", 0);
    }
}

pub(super) fn daemon_set(object: &mut Fields) {
    let Some(spec) = child(object, "spec") else {
        return;
    };
    pods::template(spec);
    set(spec, "revisionHistoryLimit", REVISIONS_KEPT);
    let Some(strategy) = child(spec, "updateStrategy") else {
        return;
    };
    set(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = child(strategy, "rollingUpdate")
    {
        set(rolling, "maxUnavailable", 1);
        set(rolling, "maxSurge", 0);
    }
}

pub(super) fn job(job: &mut Fields) {
    let Some(spec) = child(job, "spec") else {
        return;
    };
    pods::template(spec);
    if is_unset(spec, "parallelism") {
        if is_unset(spec, "completions") {
            set(spec, "completions", 1);
        }
        set(spec, "parallelism", 1);
    }
    let retries = match is_unset(spec, "backoffLimitPerIndex") {
        true => 6,
        false => i64::from(i32::MAX),
    };
    set(spec, "backoffLimit", retries);
    set(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    set(spec, "manualSelector", false);
    let replacement = match is_unset(spec, "podFailurePolicy") {
        true => "TerminatingOrFailed",
        false => "Failed",
    };
    set(spec, "podReplacementPolicy", replacement);
    if let Some(policy) = existing(spec, "podFailurePolicy") {
        for rule in items(policy, "rules") {
            for pattern in items(rule, "onPodConditions") {
                set(pattern, "status", "True");
            }
        }
    }
    if let Some(labels) = template_labels(spec) {
        label(job, labels);
    }
}

/// Sets the defaults of a cron job; its jobs get theirs when they are created.
pub(super) fn cron_job(object: &mut Fields) {
    let Some(spec) = child(object, "spec") else {
        return;
    };
    set(spec, "concurrencyPolicy", "Allow");
    set(spec, "suspend", false);
    set(spec, "successfulJobsHistoryLimit", 3);
    set(spec, "failedJobsHistoryLimit", 1);
    if let Some(template) = child(spec, "jobTemplate") {
        child(template, "metadata");
        child(template, "spec").into_iter().for_each(pods::template);
    }
}

/// Returns the labels of the template, if it has any.
fn template_labels(spec: &Fields) -> Option<Value> {
    let labels = object(object(object(spec, "template")?, "metadata")?, "labels")?;
    (!labels.is_empty()).then(|| Value::Object(labels.clone()))
}

/// Sets the labels of the object, unless it has any.
fn label(fields: &mut Fields, labels: Value) {
    if let Some(metadata) = child(fields, "metadata")
        && object(metadata, "labels").is_none_or(Fields::is_empty)
    {
        metadata.insert("labels".to_owned(), labels);
    }
}
