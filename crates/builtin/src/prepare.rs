//! Sets the fields of a new object that the server controls (upstream's `PrepareForCreate`): its initial status, and
//! the fields of its spec that clients cannot choose.

use serde_json::{Map, Value, json};

use crate::defaults;
use watchet_registry::Resource;
use watchet_registry::fields::{Fields, child, list, object, text};
use watchet_registry::metadata::now;
use watchet_schema::Quantity;

/// The label by which a job selects its pods.
const JOB_UID: &str = "batch.kubernetes.io/controller-uid";
/// The labels that the server adds to the pods of a job. The boolean is true if the value is the job's uid, and false
/// if it is the job's name.
pub(super) const JOB_LABELS: [(&str, bool); 4] = [
    (JOB_UID, true),
    ("controller-uid", true),
    ("batch.kubernetes.io/job-name", false),
    ("job-name", false),
];

/// Sets the initial status of a new object. A node reports its own status when it registers, so only the defaults apply
/// to it.
pub(super) fn status(resource: &Resource, object: &mut Fields) {
    let status = match (&*resource.group, &*resource.plural) {
        ("", "nodes") => return,
        ("", "namespaces") => json!({"phase": "Active"}),
        ("", "persistentvolumes") => {
            json!({"phase": "Pending", "lastPhaseTransitionTime": now().to_string()})
        }
        ("", "persistentvolumeclaims") => json!({"phase": "Pending"}),
        ("", "pods") => pod_status(object),
        ("", "replicationcontrollers") | ("apps", "replicasets") => json!({"replicas": 0}),
        ("", "services") | ("networking.k8s.io", "ingresses") => json!({"loadBalancer": {}}),
        ("apps", "daemonsets") => json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0,
            "numberReady": 0,
        }),
        ("apps", "statefulsets") => json!({"availableReplicas": 0, "replicas": 0}),
        ("autoscaling", "horizontalpodautoscalers") => json!({"desiredReplicas": 0}),
        ("policy", "poddisruptionbudgets") => json!({
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
        }),
        _ => json!({}),
    };
    object.insert("status".to_owned(), status);
}

/// Sets the time of the last change of a volume's phase, unless the client that changes the phase has set it.
pub(super) fn keep_phase_time(old: &Value, new: &mut Value) {
    const TIME: &str = "lastPhaseTransitionTime";
    let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    let old = &old["status"];
    let given = status.get(TIME).filter(|time| !time.is_null());
    if old["phase"] == *status.get("phase").unwrap_or(&Value::Null) {
        if let (None, Some(time)) = (given, old.get(TIME)) {
            status.insert(TIME.to_owned(), time.clone());
        }
    } else if given.is_none_or(|time| *time == old[TIME]) {
        status.insert(TIME.to_owned(), now().to_string().into());
    }
}

fn pod_status(pod: &Fields) -> Value {
    let mut status = json!({"phase": "Pending"});
    let Some(spec) = object(pod, "spec") else {
        return status;
    };
    status["qosClass"] = service_class(spec).into();
    if !list(spec, "schedulingGates").is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    status
}

/// Returns the QoS class of a pod, computed from the requests and limits of its containers.
pub(crate) fn service_class(spec: &Fields) -> &'static str {
    let mut guaranteed = true;
    let mut asks = false;
    let containers = ["containers", "initContainers"].map(|name| list(spec, name));
    for container in containers.into_iter().flatten() {
        let resources = container.get("resources");
        let amount = |kind: &str, of: &str| {
            let text = resources?.get(kind)?.get(of)?.as_str()?;
            Quantity::parse(text)
                .ok()
                .filter(|q| !q.is_zero() && !q.is_negative())
        };
        for of in ["cpu", "memory"] {
            let (request, limit) = (amount("requests", of), amount("limits", of));
            asks |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (asks, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Sets the fields of a new object's spec that depend on its identity.
pub(super) fn spec(resource: &Resource, object: &mut Fields) {
    if resource.is("batch", "jobs") {
        select_own_pods(object);
        // The labels of the template are also the defaults of those of the job. Upstream sets the defaults again when it
        // reads what it has stored.
        defaults::fill(resource, object);
    }
}

/// Makes a job select its pods by its uid, unless it has a manual selector. Labels of the client are retained, and
/// validation refuses other values.
fn select_own_pods(job: &mut Fields) {
    let Some(metadata) = object(job, "metadata") else {
        return;
    };
    let uid = text(metadata, "uid").to_owned();
    let name = text(metadata, "name").to_owned();
    let Some(spec) = child(job, "spec") else {
        return;
    };
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let template = child(spec, "template").and_then(|template| child(template, "metadata"));
    if let Some(labels) = template.and_then(|metadata| child(metadata, "labels")) {
        for (label, is_uid) in JOB_LABELS {
            let value = if is_uid { &uid } else { &name };
            labels.entry(label).or_insert_with(|| value.clone().into());
        }
    }
    let selector = child(spec, "selector").and_then(|selector| child(selector, "matchLabels"));
    if let Some(labels) = selector {
        labels.entry(JOB_UID).or_insert_with(|| uid.into());
    }
}

/// Removes null members, because they mean the same as absent ones; a null in a list of strings becomes an empty
/// string. The `opaque` members of `fields` contain data of clients and are not changed.
pub(super) fn drop_nulls(fields: &mut Map<String, Value>, opaque: &[&str]) {
    fields.retain(|_, value| !value.is_null());
    for (name, value) in fields.iter_mut() {
        if !opaque.contains(&name.as_str()) {
            drop_nulls_within(value);
        }
    }
}

fn drop_nulls_within(value: &mut Value) {
    match value {
        Value::Object(fields) => drop_nulls(fields, &[]),
        Value::Array(items) => items.iter_mut().for_each(drop_nulls_within),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(containers: Value) -> &'static str {
        service_class(json!({ "containers": containers }).as_object().unwrap())
    }

    #[test]
    fn the_quality_of_service_is_that_of_the_containers() {
        let full = json!({"resources": {
            "requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1Gi"},
        }});
        assert_eq!(class(json!([{}])), "BestEffort");
        assert_eq!(
            class(json!([{"resources": {"requests": {"cpu": "0"}}}])),
            "BestEffort"
        );
        assert_eq!(class(json!([full])), "Guaranteed");
        assert_eq!(class(json!([full, {}])), "Burstable");
        assert_eq!(
            class(json!([{"resources": {"limits": {"cpu": "1"}}}])),
            "Burstable"
        );
    }

    #[test]
    fn a_job_selects_its_own_pods() {
        let mut job = json!({
            "metadata": {"name": "j", "uid": "u"},
            "spec": {"template": {"metadata": {"labels": {"job-name": "mine", "a": "b"}}}},
        });
        select_own_pods(job.as_object_mut().unwrap());
        assert_eq!(
            job["spec"],
            json!({
                "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
                "template": {"metadata": {"labels": {
                    "a": "b", "job-name": "mine", "controller-uid": "u",
                    "batch.kubernetes.io/controller-uid": "u",
                    "batch.kubernetes.io/job-name": "j",
                }}},
            })
        );
        let manual = json!({"metadata": {"name": "j"}, "spec": {"manualSelector": true}});
        let mut job = manual.clone();
        select_own_pods(job.as_object_mut().unwrap());
        assert_eq!(job, manual);
    }

    #[test]
    fn null_members_are_dropped_except_in_maps() {
        let mut object =
            json!({"a": null, "b": {"c": null, "d": [{"e": null}]}, "data": {"x": null}});
        drop_nulls(object.as_object_mut().unwrap(), &["data"]);
        assert_eq!(object, json!({"b": {"d": [{}]}, "data": {"x": null}}));
    }
}
