//! Validates jobs and cron jobs, and updates of jobs.

use serde_json::Value;

use super::members::{not_negative, one_of, required_one_of};
use super::text as rules;
use super::text::IMMUTABLE;
use super::{cron, failure_policies, pods, selectors, workloads};
use crate::prepare::JOB_LABELS;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, flag, is_unset, items, list, number, object, text};

const COUNTS: &[&str] = &[
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
];

/// Validates a job; a job whose selector is generated must have the generated labels.
pub(super) fn job(job: &Fields, is_new: bool, causes: &mut Causes) {
    let Some(spec) = object(job, "spec") else {
        return;
    };
    if is_new {
        generated_selector(job, spec, causes);
    }
    let at = Path::Top("spec");
    job_spec(spec, &at, causes);
    match object(spec, "selector") {
        None => causes.required(&at.member("selector"), ""),
        Some(selector) => selectors::selector(selector, &at.member("selector"), causes),
    }
    workloads::selected(spec, causes);
}

fn generated_selector(job: &Fields, spec: &Fields, causes: &mut Causes) {
    let metadata = object(job, "metadata");
    let own = |member: &str| metadata.map_or("", |metadata| text(metadata, member));
    if flag(spec, "manualSelector") {
        return;
    }
    let template = object(spec, "template").and_then(|template| object(template, "metadata"));
    let labels = template.and_then(|metadata| object(metadata, "labels"));
    let at = Path::Top("spec");
    let at = at.member("template");
    let at = at.member("metadata");
    let at = at.member("labels");
    for (label, is_uid) in JOB_LABELS {
        let expected = if is_uid { own("uid") } else { own("name") };
        let given = labels.map_or("", |labels| text(labels, label));
        if given != expected {
            let shown = labels.map_or(Value::Null, |labels| Value::Object(labels.clone()));
            causes.invalid(&at.key(label), shown, &format!("must be '{expected}'"));
        }
    }
    let selector = object(spec, "selector");
    let matched = selector.and_then(|selector| object(selector, "matchLabels"));
    let (label, _) = JOB_LABELS[0];
    let right = matched.is_some_and(|m| text(m, label) == own("uid"));
    let extra = matched.is_some_and(|m| m.len() > 1)
        || selector.is_some_and(|s| !list(s, "matchExpressions").is_empty());
    if !right || extra {
        let at = Path::Top("spec");
        let shown = selector.map_or(Value::Null, |s| Value::Object(s.clone()));
        causes.invalid(
            &at.member("selector"),
            shown,
            "`selector` not auto-generated",
        );
    }
}

/// Validates the spec of a job, or of the job template of a cron job.
fn job_spec(spec: &Fields, at: &Path<'_>, causes: &mut Causes) {
    not_negative(spec, COUNTS, at, causes);
    let indexed = text(spec, "completionMode") == "Indexed";
    one_of(
        spec,
        "completionMode",
        &["NonIndexed", "Indexed"],
        at,
        causes,
    );
    if indexed && is_unset(spec, "completions") {
        causes.required(&at.member("completions"), "when completion mode is Indexed");
    }
    if !indexed {
        for member in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(given) = number(spec, member) {
                causes.invalid(
                    &at.member(member),
                    given,
                    "requires indexed completion mode",
                );
            }
        }
    }
    let replacements: &[&str] = match object(spec, "podFailurePolicy") {
        None => &["Failed", "TerminatingOrFailed"],
        Some(policy) => {
            failure_policies::policy(spec, policy, &at.member("podFailurePolicy"), causes);
            &["Failed"]
        }
    };
    one_of(spec, "podReplacementPolicy", replacements, at, causes);
    let at = at.member("template");
    let Some(template) = object(spec, "template") else {
        return causes.required(&at, "");
    };
    pods::template(template, &at, causes);
    let policy = object(template, "spec").map_or("", |spec| text(spec, "restartPolicy"));
    let at = at.member("spec");
    match policy {
        // The pods of a job must not be restarted forever, so a restart policy is required.
        "" | "Always" => {
            let why = "valid values: \"OnFailure\", \"Never\"";
            causes.required(&at.member("restartPolicy"), why);
        }
        "OnFailure" if object(spec, "podFailurePolicy").is_some() => {
            let why = "only \"Never\" is supported when podFailurePolicy is specified";
            causes.invalid(&at.member("restartPolicy"), policy, why);
        }
        "OnFailure" | "Never" => {}
        other => causes.not_supported(&at.member("restartPolicy"), other, &["OnFailure", "Never"]),
    }
}

pub(super) fn cron_job(cron_job: &Fields, causes: &mut Causes) {
    let Some(spec) = object(cron_job, "spec") else {
        return;
    };
    let at = Path::Top("spec");
    match text(spec, "schedule") {
        "" => causes.required(&at.member("schedule"), ""),
        schedule if schedule.contains("TZ") => {
            let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            causes.invalid(&at.member("schedule"), schedule, why);
        }
        schedule => {
            if let Err(why) = cron::check(schedule) {
                causes.invalid(&at.member("schedule"), schedule, &why);
            }
        }
    }
    not_negative(spec, &["startingDeadlineSeconds"], &at, causes);
    if let Some(Value::String(zone)) = spec.get("timeZone") {
        let at = at.member("timeZone");
        match &**zone {
            "" => causes.invalid(&at, "", "timeZone must be nil or non-empty string"),
            "Local" => causes.invalid(
                &at,
                "Local",
                "timeZone must be an explicit time zone as \
                                                     defined in https://www.iana.org/time-zones",
            ),
            zone if jiff::tz::TimeZone::get(zone).is_err() => {
                causes.invalid(&at, zone, &format!("unknown time zone {zone}"));
            }
            _ => {}
        }
    }
    required_one_of(
        spec,
        "concurrencyPolicy",
        &["Allow", "Forbid", "Replace"],
        &at,
        causes,
    );
    let at_template = at.member("jobTemplate");
    let at_spec = at_template.member("spec");
    let template = object(spec, "jobTemplate").and_then(|template| object(template, "spec"));
    if let Some(template) = template {
        job_spec(template, &at_spec, causes);
        if flag(template, "manualSelector") {
            let why = "`manualSelector` cannot be used in the template of a CronJob";
            causes.forbidden(&at_spec.member("manualSelector"), why);
        }
    }
    let limits = &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"];
    not_negative(spec, limits, &at, causes);
    // The names of its jobs have a suffix of eleven characters.
    let name = object(cron_job, "metadata").map_or("", |metadata| text(metadata, "name"));
    if name.len() > 52 {
        let at = Path::Top("metadata");
        causes.invalid(
            &at.member("name"),
            name,
            "must be no more than 52 characters",
        );
    }
}

/// Reports changes of an update that a job does not permit.
pub(super) fn update(old: &Fields, new: &Fields, causes: &mut Causes) {
    let (Some(old_spec), Some(spec)) = (object(old, "spec"), object(new, "spec")) else {
        return;
    };
    let at = Path::Top("spec");
    let immutable = |member: &str, causes: &mut Causes| {
        let (before, now) = (old_spec.get(member), spec.get(member));
        if before != now {
            let shown = now.cloned().unwrap_or(Value::Null);
            causes.invalid(&at.member(member), shown, IMMUTABLE);
        }
    };
    let elastic = text(spec, "completionMode") == "Indexed"
        && number(spec, "completions") == number(spec, "parallelism");
    if !elastic {
        immutable("completions", causes);
    }
    immutable("selector", causes);
    template_update(old, old_spec, spec, causes);
    for member in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        immutable(member, causes);
    }
}

/// Reports changes of a job's pod template. While no pod of a suspended job runs, the scheduling
/// directives and the resources of containers may change (KEP-2926, KEP-5440).
fn template_update(old: &Fields, old_spec: &Fields, spec: &Fields, causes: &mut Causes) {
    let template = |spec: &Fields| {
        let mut template = spec.get("template").cloned().unwrap_or(Value::Null);
        if is_template_mutable(old, old_spec) {
            remove_mutable_members(&mut template);
        }
        template
    };
    if template(old_spec) != template(spec) {
        let at = Path::Top("spec");
        causes.invalid(&at.member("template"), spec["template"].clone(), IMMUTABLE);
    }
}

fn is_template_mutable(job: &Fields, spec: &Fields) -> bool {
    let none = Fields::new();
    let status = object(job, "status").unwrap_or(&none);
    let is_suspended = |c: &Value| c["type"] == "Suspended" && c["status"] == "True";
    let has_stopped =
        is_unset(status, "startTime") || list(status, "conditions").iter().any(is_suspended);
    flag(spec, "suspend") && has_stopped && number(status, "active").unwrap_or(0) == 0
}

/// Removes the fields that may change while a job is suspended.
fn remove_mutable_members(template: &mut Value) {
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("labels");
        metadata.remove("annotations");
    }
    let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for member in ["nodeSelector", "tolerations", "schedulingGates"] {
        pod.remove(member);
    }
    if let Some(affinity) = pod.get_mut("affinity").and_then(Value::as_object_mut) {
        affinity.remove("nodeAffinity");
        if affinity.is_empty() {
            pod.remove("affinity");
        }
    }
    for member in ["containers", "initContainers"] {
        for container in items(pod, member) {
            container.remove("resources");
        }
    }
}

/// Validates that the name of a job is a valid label value, because its pods have it as a label.
pub(super) fn job_name(job: &Fields, causes: &mut Causes) {
    let Some(metadata) = object(job, "metadata") else {
        return;
    };
    let spec = object(job, "spec");
    let indexed = spec.is_some_and(|spec| text(spec, "completionMode") == "Indexed");
    let name = text(metadata, "name");
    let at = Path::Top("metadata");
    if indexed {
        let completions = spec
            .and_then(|spec| number(spec, "completions"))
            .unwrap_or(0);
        let host = format!("{name}-{}", completions - 1);
        if completions > 0 && !rules::label(&host).is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {host}");
            causes.invalid(&at.member("name"), name, &why);
        }
    }
}
