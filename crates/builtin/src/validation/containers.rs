//! Validates containers: their names, images, ports, environment, mounts, resources, probes.

use std::collections::HashSet;

use serde_json::Value;

use super::members::{numbered, objects, required_one_of};
use super::text as rules;
use super::text::NOT_NEGATIVE;
use super::{resources, restart_rules, security};
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, is_unset, list, number, object, text};

pub(super) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const MESSAGE_POLICIES: &[&str] = &["File", "FallbackToLogsOnError"];
const FIELD_PATHS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

/// The properties of a pod that the validation of its containers depends on.
#[derive(Debug)]
pub(super) struct Pod<'a> {
    /// The names of its volumes.
    pub(super) volumes: HashSet<&'a str>,
    /// The termination grace period.
    pub(super) grace: Option<i64>,
}

/// `spec.containers`.
pub(super) fn containers(spec: &Fields, pod: &Pod<'_>, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("containers");
    let all = list(spec, "containers");
    if all.is_empty() {
        causes.required(&at, "");
    }
    let mut names = HashSet::new();
    let mut ports = HashSet::new();
    for (index, container) in objects(all) {
        let at = at.item(index);
        common(container, pod, &at, causes);
        if !names.insert(text(container, "name")) {
            causes.duplicate(&at.member("name"), text(container, "name"));
        }
        lifecycle(container, pod, &at, causes);
        restart_rules::check(container, &at, causes);
        host_ports(container, &mut ports, &at, causes);
    }
}

/// `spec.initContainers`.
pub(super) fn init_containers(spec: &Fields, pod: &Pod<'_>, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("initContainers");
    let regular = objects(list(spec, "containers")).map(|(_, c)| text(c, "name"));
    let mut names: HashSet<&str> = regular.collect();
    for (index, container) in objects(list(spec, "initContainers")) {
        let at = at.item(index);
        common(container, pod, &at, causes);
        restart_rules::check(container, &at, causes);
        let name = text(container, "name");
        if !name.is_empty() && !names.insert(name) {
            causes.duplicate(&at.member("name"), name);
        }
        host_ports(container, &mut HashSet::new(), &at, causes);
        if text(container, "restartPolicy") == "Always" {
            lifecycle(container, pod, &at, causes);
            continue;
        }
        for (index, policy) in objects(list(container, "resizePolicy")) {
            if text(policy, "restartPolicy") == "RestartContainer" {
                causes.invalid(
                    &at.member("resizePolicy")
                        .item(index)
                        .member("restartPolicy"),
                    "RestartContainer",
                    "must not be set to 'RestartContainer' for non-sidecar initContainers",
                );
            }
        }
        for member in ["lifecycle"].iter().chain(&PROBES) {
            if !is_unset(container, member) {
                let why = "may not be set for init containers without restartPolicy=Always";
                causes.forbidden(&at.member(member), why);
            }
        }
    }
}

/// `spec.ephemeralContainers`.
pub(super) fn ephemeral(spec: &Fields, pod: &Pod<'_>, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("ephemeralContainers");
    let others = ["containers", "initContainers"].map(|name| list(spec, name));
    let others = others
        .into_iter()
        .flat_map(objects)
        .map(|(_, c)| text(c, "name"));
    let mut names: HashSet<&str> = others.collect();
    let targets = names.clone();
    for (index, container) in objects(list(spec, "ephemeralContainers")) {
        let at = at.item(index);
        common(container, pod, &at, causes);
        if !names.insert(text(container, "name")) {
            causes.duplicate(&at.member("name"), text(container, "name"));
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !targets.contains(target) {
            causes.not_found(&at.member("targetContainerName"), target);
        }
        not_ephemeral(container, &at, causes);
    }
}

/// Reports the fields that an ephemeral container must not have.
fn not_ephemeral(container: &Fields, at: &Path<'_>, causes: &mut Causes) {
    const WHY: &str = "cannot be set for an Ephemeral Container";
    let others = [
        "ports",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "lifecycle",
    ];
    for member in others.iter().chain(&PROBES) {
        if !is_unset(container, member) {
            causes.forbidden(&at.member(member), WHY);
        }
    }
    if object(container, "resources").is_some_and(|resources| !resources.is_empty()) {
        causes.forbidden(&at.member("resources"), WHY);
    }
    let at = at.member("volumeMounts");
    for (index, mount) in objects(list(container, "volumeMounts")) {
        for member in ["subPath", "subPathExpr"] {
            if !text(mount, member).is_empty() {
                causes.forbidden(&at.item(index).member(member), WHY);
            }
        }
    }
}

fn common(container: &Fields, pod: &Pod<'_>, at: &Path<'_>, causes: &mut Causes) {
    let name = text(container, "name");
    match name {
        "" => causes.required(&at.member("name"), ""),
        name => causes.invalid_each(&at.member("name"), name, rules::label(name)),
    }
    if text(container, "image").is_empty() {
        causes.required(&at.member("image"), "");
    }
    required_one_of(
        container,
        "terminationMessagePolicy",
        MESSAGE_POLICIES,
        at,
        causes,
    );
    ports(container, at, causes);
    environment(container, at, causes);
    mounts(container, pod, at, causes);
    required_one_of(container, "imagePullPolicy", PULL_POLICIES, at, causes);
    if let Some(given) = object(container, "resources") {
        resources::requirements(given, &at.member("resources"), causes);
    }
    if let Some(context) = security::within(container) {
        security::of_container(context, &at.member("securityContext"), causes);
    }
}

fn ports(container: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("ports");
    let mut names = HashSet::new();
    for (index, port) in objects(list(container, "ports")) {
        let at = at.item(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let problems = rules::port_name(name);
            let good = problems.is_empty();
            causes.invalid_each(&at.member("name"), name, problems);
            if good && !names.insert(name) {
                causes.duplicate(&at.member("name"), name);
            }
        }
        match number(port, "containerPort").unwrap_or(0) {
            0 => causes.required(&at.member("containerPort"), ""),
            port => numbered(&at.member("containerPort"), port, rules::port(port), causes),
        }
        match number(port, "hostPort").unwrap_or(0) {
            0 => {}
            port => numbered(&at.member("hostPort"), port, rules::port(port), causes),
        }
        required_one_of(port, "protocol", PROTOCOLS, &at, causes);
    }
}

/// Validates that no host port is used twice.
fn host_ports(container: &Fields, taken: &mut HashSet<String>, at: &Path<'_>, causes: &mut Causes) {
    for (index, port) in objects(list(container, "ports")) {
        let Some(number) = number(port, "hostPort").filter(|n| *n != 0) else {
            continue;
        };
        let key = format!(
            "{}/{}/{number}",
            text(port, "protocol"),
            text(port, "hostIP")
        );
        if taken.contains(&key) {
            causes.duplicate(&at.member("ports").item(index).member("hostPort"), key);
        } else {
            taken.insert(key);
        }
    }
}

fn environment(container: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let env_at = at.member("env");
    for (index, variable) in objects(list(container, "env")) {
        if causes.is_full() {
            return;
        }
        let at = env_at.item(index);
        match text(variable, "name") {
            "" => causes.required(&at.member("name"), ""),
            name => causes.invalid_each(&at.member("name"), name, rules::variable(name)),
        }
        if let Some(from) = object(variable, "valueFrom") {
            let valued = !text(variable, "value").is_empty();
            value_from(from, valued, &at.member("valueFrom"), causes);
        }
    }
    let from_at = at.member("envFrom");
    for (index, source) in objects(list(container, "envFrom")) {
        let at = from_at.item(index);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            causes.invalid_each(&at.member("prefix"), prefix, rules::variable(prefix));
        }
        let mut given = 0;
        for member in ["configMapRef", "secretRef"] {
            let Some(reference) = object(source, member) else {
                continue;
            };
            given += 1;
            match text(reference, "name") {
                "" => causes.required(&at.member(member).member("name"), ""),
                name => {
                    let at = at.member(member);
                    causes.invalid_each(&at.member("name"), name, rules::subdomain(name));
                }
            }
        }
        match given {
            0 => {
                let why = "must specify one of: `configMapRef` or `secretRef`";
                causes.invalid(&from_at, "", why);
            }
            1 => {}
            _ => {
                let why = "may not have more than one field specified at a time";
                causes.invalid(&from_at, "", why);
            }
        }
    }
}

fn value_from(from: &Fields, valued: bool, at: &Path<'_>, causes: &mut Causes) {
    let mut given = 0;
    if let Some(field) = object(from, "fieldRef") {
        given += 1;
        field_ref(field, FIELD_PATHS, &at.member("fieldRef"), causes);
    }
    if let Some(resource) = object(from, "resourceFieldRef") {
        given += 1;
        if text(resource, "resource").is_empty() {
            causes.required(&at.member("resourceFieldRef").member("resource"), "");
        }
    }
    for member in ["configMapKeyRef", "secretKeyRef"] {
        let Some(reference) = object(from, member) else {
            continue;
        };
        given += 1;
        let at = at.member(member);
        let name = text(reference, "name");
        causes.invalid_each(&at.member("name"), name, rules::subdomain(name));
        match text(reference, "key") {
            "" => causes.required(&at.member("key"), ""),
            key => causes.invalid_each(&at.member("key"), key, rules::config_key(key)),
        }
    }
    given += usize::from(object(from, "fileKeyRef").is_some());
    if given == 0 {
        let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or \
                   `secretKeyRef`";
        causes.invalid(at, "", why);
    } else if valued {
        causes.invalid(at, "", "may not be specified when `value` is not empty");
    } else if given > 1 {
        causes.invalid(
            at,
            "",
            "may not have more than one field specified at a time",
        );
    }
}

/// Validates `fieldRef`: a field of the pod that a container may read.
pub(super) fn field_ref(field: &Fields, supported: &[&str], at: &Path<'_>, causes: &mut Causes) {
    match text(field, "fieldPath") {
        "" => causes.required(&at.member("fieldPath"), ""),
        path => {
            let subscript = ["metadata.labels['", "metadata.annotations['"];
            let subscripted = subscript.iter().any(|s| path.starts_with(s)) && path.ends_with("']");
            if !subscripted && !supported.contains(&path) {
                causes.not_supported(&at.member("fieldPath"), path, supported);
            }
        }
    }
}

fn mounts(container: &Fields, pod: &Pod<'_>, at: &Path<'_>, causes: &mut Causes) {
    let devices = list(container, "volumeDevices");
    for (list, member, path) in [
        (list(container, "volumeMounts"), "volumeMounts", "mountPath"),
        (devices, "volumeDevices", "devicePath"),
    ] {
        let at = at.member(member);
        let mut paths = HashSet::new();
        for (index, mount) in objects(list) {
            if causes.is_full() {
                return;
            }
            let at = at.item(index);
            let name = text(mount, "name");
            if name.is_empty() {
                causes.required(&at.member("name"), "");
            }
            if !pod.volumes.contains(name) {
                causes.not_found(&at.member("name"), name);
            }
            let place = text(mount, path);
            if place.is_empty() {
                causes.required(&at.member(path), "");
            }
            if !paths.insert(place) {
                causes.invalid(&at.member(path), place, "must be unique");
            }
            for member in ["subPath", "subPathExpr"] {
                let place = text(mount, member);
                if place.starts_with('/') {
                    causes.invalid(&at.member(member), place, "must be a relative path");
                }
                if place.split('/').any(|part| part == "..") {
                    causes.invalid(&at.member(member), place, "must not contain '..'");
                }
            }
        }
    }
}

fn lifecycle(container: &Fields, pod: &Pod<'_>, at: &Path<'_>, causes: &mut Causes) {
    if let Some(lifecycle) = object(container, "lifecycle") {
        let at = at.member("lifecycle");
        for name in ["postStart", "preStop"] {
            if let Some(given) = object(lifecycle, name) {
                handler(given, pod, &at.member(name), causes);
            }
        }
    }
    for name in PROBES {
        let Some(probe) = object(container, name) else {
            continue;
        };
        let at = at.member(name);
        handler(probe, pod, &at, causes);
        for member in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            if let Some(number) = number(probe, member).filter(|n| *n < 0) {
                causes.invalid(&at.member(member), number, NOT_NEGATIVE);
            }
        }
        let success = number(probe, "successThreshold").unwrap_or(1);
        if name != "readinessProbe" && success != 1 {
            causes.invalid(&at.member("successThreshold"), success, "must be 1");
        }
        let Some(grace) = number(probe, "terminationGracePeriodSeconds") else {
            continue;
        };
        if name == "readinessProbe" {
            let why = "must not be set for readinessProbes";
            causes.invalid(&at.member("terminationGracePeriodSeconds"), grace, why);
        } else if grace <= 0 {
            let why = "must be greater than 0";
            causes.invalid(&at.member("terminationGracePeriodSeconds"), grace, why);
        }
    }
}

/// Validates the handler of a probe or a hook: exactly one action.
fn handler(handler: &Fields, pod: &Pod<'_>, at: &Path<'_>, causes: &mut Causes) {
    let mut given = 0;
    for member in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = object(handler, member) else {
            continue;
        };
        given += 1;
        let at = at.member(member);
        if given > 1 {
            causes.forbidden(&at, "may not specify more than 1 handler type");
            continue;
        }
        match member {
            "exec" if list(action, "command").is_empty() => {
                causes.required(&at.member("command"), "");
            }
            "httpGet" => {
                port_or_name(action.get("port"), &at.member("port"), causes);
                required_one_of(action, "scheme", &["HTTP", "HTTPS"], &at, causes);
            }
            "tcpSocket" | "grpc" => port_or_name(action.get("port"), &at.member("port"), causes),
            "sleep" => {
                let seconds = number(action, "seconds").unwrap_or(0);
                if let Some(grace) = pod.grace.filter(|g| seconds < 0 || seconds > *g) {
                    let why = format!(
                        "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                    );
                    causes.invalid(&at, seconds, &why);
                }
            }
            _ => {}
        }
    }
    if given == 0 {
        causes.required(at, "must specify a handler type");
    }
}

/// Validates a port, given by its number or its name.
pub(super) fn port_or_name(port: Option<&Value>, at: &Path<'_>, causes: &mut Causes) {
    match port {
        Some(Value::String(name)) => causes.invalid_each(at, name, rules::port_name(name)),
        port => {
            let port = port.and_then(Value::as_i64).unwrap_or(0);
            numbered(at, port, rules::port(port), causes);
        }
    }
}
