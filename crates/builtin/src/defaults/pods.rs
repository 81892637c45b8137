//! Defaults of pods and of pod templates.

use serde_json::{Map, Value};

use super::volumes;
use watchet_registry::fields::{
    Fields, child, existing, flag, is_unset, items, number, object, set, set_number, text,
};

/// The lists of containers in a pod.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Defaults of a pod.
pub(super) fn pod(pod: &mut Fields) {
    let Some(spec) = child(pod, "spec") else {
        return;
    };
    fill_spec(spec);
    set(spec, "enableServiceLinks", true);
    let on_host = flag(spec, "hostNetwork");
    for list in ["initContainers", "containers"] {
        for container in items(spec, list) {
            request_limits(container);
            if on_host {
                open_on_host(container);
            }
        }
    }
}

/// Sets the defaults of the pod template in the spec of a workload.
pub(super) fn template(owner: &mut Fields) {
    let Some(template) = child(owner, "template") else {
        return;
    };
    child(template, "metadata");
    if let Some(spec) = child(template, "spec") {
        fill_spec(spec);
    }
}

fn fill_spec(spec: &mut Fields) {
    set(spec, "dnsPolicy", "ClusterFirst");
    set(spec, "restartPolicy", "Always");
    set(spec, "schedulerName", "default-scheduler");
    set(spec, "terminationGracePeriodSeconds", 30);
    child(spec, "securityContext");
    mirror_account(spec);
    for list in CONTAINERS {
        items(spec, list).for_each(fill_container);
    }
    items(spec, "volumes").for_each(volumes::fill);
}

/// Sets the two fields with the service account to the same value; `serviceAccount` is the deprecated one.
fn mirror_account(spec: &mut Fields) {
    if is_unset(spec, "serviceAccountName") && !is_unset(spec, "serviceAccount") {
        let account = spec["serviceAccount"].clone();
        spec.insert("serviceAccountName".to_owned(), account);
    }
    if !is_unset(spec, "serviceAccountName") {
        let account = spec["serviceAccountName"].clone();
        spec.insert("serviceAccount".to_owned(), account);
    }
}

fn fill_container(container: &mut Fields) {
    let policy = match is_latest(text(container, "image")) {
        true => "Always",
        false => "IfNotPresent",
    };
    set(container, "imagePullPolicy", policy);
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
    child(container, "resources");
    for port in items(container, "ports") {
        set(port, "protocol", "TCP");
    }
    for variable in items(container, "env") {
        let from = existing(variable, "valueFrom").and_then(|from| existing(from, "fieldRef"));
        if let Some(field) = from {
            set(field, "apiVersion", "v1");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = existing(container, name) {
            fill_probe(probe);
        }
    }
    if let Some(lifecycle) = existing(container, "lifecycle") {
        for name in ["postStart", "preStop"] {
            existing(lifecycle, name).into_iter().for_each(fill_handler);
        }
    }
}

/// Returns true if the tag of an image is `latest` or missing.
fn is_latest(image: &str) -> bool {
    let pinned = image.contains('@');
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    let last = name.rsplit_once('/').map_or(name, |(_, last)| last);
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !pinned && !name.is_empty(),
    }
}

fn fill_probe(probe: &mut Fields) {
    for (member, default) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        set_number(probe, member, default);
    }
    if let Some(grpc) = existing(probe, "grpc") {
        set(grpc, "service", "");
    }
    fill_handler(probe);
}

fn fill_handler(handler: &mut Fields) {
    if let Some(get) = existing(handler, "httpGet") {
        set(get, "path", "/");
        set(get, "scheme", "HTTP");
    }
}

/// Sets the request of each resource that has only a limit to that limit.
fn request_limits(container: &mut Fields) {
    let Some(resources) = existing(container, "resources") else {
        return;
    };
    let Some(limits) = object(resources, "limits").cloned() else {
        return;
    };
    let requests = resources.entry("requests").or_insert(Value::Null);
    if requests.is_null() {
        *requests = Value::Object(Map::new());
    }
    if let Some(requests) = requests.as_object_mut() {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

/// Sets `hostPort` to the container port in a pod on the host's network.
fn open_on_host(container: &mut Fields) {
    for port in items(container, "ports") {
        if let Some(number) = number(port, "containerPort") {
            set_number(port, "hostPort", number);
        }
    }
}
