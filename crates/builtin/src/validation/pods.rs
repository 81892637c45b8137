//! Validates pods, pod templates, and updates of pods.

use std::collections::HashSet;

use serde_json::Value;

use super::containers;
use super::members::objects;
use super::members::{nullable_range, one_of, required_one_of};
use super::text as rules;
use super::{pod_annotations, resources, scheduling, security, selectors, volumes};
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, flag, is_unset, list, number, object, text};

const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
/// Checks the format of a string and returns an error message.
type Rule = fn(&str) -> Vec<String>;

const ID_MAX: i64 = i32::MAX as i64;

/// Validates the spec of a pod.
pub(super) fn pod(pod: &Fields, causes: &mut Causes) {
    pod_annotations::pod_annotations(pod, causes);
    if let Some(spec) = object(pod, "spec") {
        spec_of(spec, true, &Path::Top("spec"), causes);
    }
}

/// Validates the labels, annotations and spec of a pod template.
pub(super) fn template(template: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let metadata = object(template, "metadata");
    if let Some(labels) = metadata.and_then(|metadata| object(metadata, "labels")) {
        selectors::labels(labels, &at.member("labels"), causes);
    }
    let Some(spec) = object(template, "spec") else {
        return;
    };
    spec_of(spec, false, &at.member("spec"), causes);
    if !list(spec, "ephemeralContainers").is_empty() {
        causes.forbidden(
            &at.member("spec").member("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

fn spec_of(spec: &Fields, is_pod: bool, at: &Path<'_>, causes: &mut Causes) {
    let context = containers::Pod {
        volumes: volumes::volumes(spec, at, causes),
        grace: number(spec, "terminationGracePeriodSeconds"),
    };
    containers::containers(spec, &context, at, causes);
    containers::init_containers(spec, &context, at, causes);
    containers::ephemeral(spec, &context, at, causes);
    if flag(spec, "hostNetwork") {
        ports_on_host(spec, is_pod, at, causes);
    }
    required_one_of(spec, "restartPolicy", RESTART_POLICIES, at, causes);
    required_one_of(spec, "dnsPolicy", DNS_POLICIES, at, causes);
    if let Some(labels) = object(spec, "nodeSelector") {
        selectors::labels(labels, &at.member("nodeSelector"), causes);
    }
    if let Some(context) = security::within(spec) {
        security::pod_security_context(context, &at.member("securityContext"), causes);
    }
    if let Some(given) = object(spec, "resources") {
        resources::pod_level_resources(spec, given, &at.member("resources"), causes);
    }
    scheduling::affinity(spec, at, causes);
    dns_config(spec, at, causes);
    gates(spec, at, causes);
    scheduling::spread(spec, at, causes);
    let names: [(&str, Rule); 6] = [
        ("serviceAccountName", rules::subdomain),
        ("nodeName", rules::subdomain),
        ("hostname", rules::label),
        ("subdomain", rules::label),
        ("priorityClassName", rules::subdomain),
        ("runtimeClassName", rules::subdomain),
    ];
    for (member, rule) in names {
        let name = text(spec, member);
        if !name.is_empty() {
            causes.invalid_each(&at.member(member), name, rule(name));
        }
    }
    nullable_range(spec, "activeDeadlineSeconds", 1, ID_MAX, at, causes);
    scheduling::tolerations(spec, at, causes);
    host_aliases(spec, at, causes);
    one_of(
        spec,
        "preemptionPolicy",
        &["PreemptLowerPriority", "Never"],
        at,
        causes,
    );
    if let Some(os) = object(spec, "os") {
        required_one_of(os, "name", &["linux", "windows"], &at.member("os"), causes);
    }
}

fn ports_on_host(spec: &Fields, is_pod: bool, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("containers");
    for (index, container) in objects(list(spec, "containers")) {
        let at = at.item(index);
        let at = at.member("ports");
        for (index, port) in objects(list(container, "ports")) {
            let host = number(port, "hostPort").unwrap_or(0);
            let own = number(port, "containerPort").unwrap_or(0);
            if (is_pod || host != 0) && host != own {
                let why = "must match `containerPort` when `hostNetwork` is true";
                causes.invalid(&at.item(index).member("hostPort"), host, why);
            }
        }
    }
}

fn dns_config(spec: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("dnsConfig");
    let config = object(spec, "dnsConfig");
    if text(spec, "dnsPolicy") == "None" {
        let Some(config) = config else {
            return causes.required(&at, "must provide `dnsConfig` when `dnsPolicy` is None");
        };
        if list(config, "nameservers").is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return causes.required(&at.member("nameservers"), why);
        }
    }
    let Some(config) = config else {
        return;
    };
    let servers_at = at.member("nameservers");
    let servers = list(config, "nameservers");
    if servers.len() > 3 {
        let why = "must not have more than 3 nameservers";
        causes.invalid(&servers_at, servers.to_vec(), why);
    }
    for (index, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or_default();
        causes.invalid_each(&servers_at.item(index), server, rules::ip(server));
    }
    if list(config, "searches").len() > 32 {
        let why = "must not have more than 32 search paths";
        causes.invalid(
            &at.member("searches"),
            list(config, "searches").to_vec(),
            why,
        );
    }
}

fn gates(spec: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let readiness = at.member("readinessGates");
    for (index, gate) in objects(list(spec, "readinessGates")) {
        let kind = text(gate, "conditionType");
        let at = readiness.item(index);
        causes.invalid_each(&at.member("conditionType"), kind, rules::qualified(kind));
    }
    let at = at.member("schedulingGates");
    let mut names = HashSet::new();
    for (index, gate) in objects(list(spec, "schedulingGates")) {
        let name = text(gate, "name");
        causes.invalid_each(&at.item(index), name, rules::qualified(name));
        if !names.insert(name) {
            causes.duplicate(&at.item(index), name);
        }
    }
}

fn host_aliases(spec: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("hostAliases");
    for (index, alias) in objects(list(spec, "hostAliases")) {
        let at = at.item(index);
        let ip = text(alias, "ip");
        causes.invalid_each(&at.member("ip"), ip, rules::ip(ip));
        for name in list(alias, "hostnames") {
            let name = name.as_str().unwrap_or_default();
            causes.invalid_each(&at.member("hostnames"), name, rules::subdomain(name));
        }
    }
}

/// Reports the changes of an update that a pod does not permit.
pub(super) fn update(old: &Fields, new: &Fields, causes: &mut Causes) {
    let at = Path::Top("spec");
    let (Some(old), Some(new)) = (object(old, "spec"), object(new, "spec")) else {
        return;
    };
    for member in ["containers", "initContainers"] {
        if list(old, member).len() != list(new, member).len() {
            let why = "pod updates may not add or remove containers";
            return causes.forbidden(&at.member(member), why);
        }
    }
    deadline(old, new, &at, causes);
    added_tolerations(old, new, &at, causes);
    let gates = list(old, "schedulingGates");
    for gate in list(new, "schedulingGates") {
        if !gates.contains(gate) {
            let name = gate["name"].as_str().unwrap_or_default();
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            causes.forbidden(&at.member("schedulingGates"), &why);
        }
    }
    if fixed(old, !gates.is_empty()) != fixed(new, !gates.is_empty()) {
        causes.forbidden(
            &at,
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
             additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to \
             be set to 1 if it was previously negative)",
        );
    }
}

/// Reports changes of immutable fields of a pod's spec. The scheduling fields of a pod with scheduling gates may still
/// change.
fn fixed(spec: &Fields, gated: bool) -> Fields {
    let mut spec = spec.clone();
    for member in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        spec.remove(member);
    }
    if gated {
        spec.remove("nodeSelector");
        spec.remove("affinity");
    }
    if number(&spec, "terminationGracePeriodSeconds").is_some_and(|grace| grace < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), 1.into());
    }
    for member in ["containers", "initContainers"] {
        for container in watchet_registry::fields::items(&mut spec, member) {
            container.remove("image");
        }
    }
    spec
}

fn deadline(old: &Fields, new: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("activeDeadlineSeconds");
    let member = "activeDeadlineSeconds";
    match (number(old, member), number(new, member)) {
        (Some(old), Some(new)) if new > old => {
            causes.invalid(&at, new, "must be less than or equal to previous value");
        }
        (Some(_), None) if is_unset(new, member) => {
            let why = "must not update from a positive integer to nil value";
            causes.invalid(&at, Value::Null, why);
        }
        _ => {}
    }
}

fn added_tolerations(old: &Fields, new: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let timeless = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration
            .as_object_mut()
            .map(|t| t.remove("tolerationSeconds"));
        toleration
    };
    let new: Vec<Value> = list(new, "tolerations").iter().map(timeless).collect();
    if !list(old, "tolerations")
        .iter()
        .map(timeless)
        .all(|t| new.contains(&t))
    {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        causes.forbidden(&at.member("tolerations"), why);
    }
}

/// Validates an update of a pod's status.
pub(super) fn status_update(old: &Fields, new: &Fields, causes: &mut Causes) {
    pod_annotations::update(old, new, causes);
    let at = Path::Top("status");
    let restarts = object(old, "spec").map_or("", |spec| text(spec, "restartPolicy"));
    let (Some(before), Some(now)) = (object(old, "status"), object(new, "status")) else {
        return;
    };
    let node = text(now, "nominatedNodeName");
    if !node.is_empty() && node != text(before, "nominatedNodeName") {
        causes.invalid_each(
            &at.member("nominatedNodeName"),
            node,
            rules::subdomain(node),
        );
    }
    for member in ["containerStatuses", "initContainerStatuses"] {
        let at = at.member(member);
        for (index, status) in objects(list(before, member)) {
            let code = status
                .get("state")
                .and_then(|s| s.pointer("/terminated/exitCode"));
            let Some(code) = code.and_then(Value::as_i64) else {
                continue;
            };
            if restarts == "Always" || restarts == "OnFailure" && code != 0 {
                continue;
            }
            let mut same = objects(list(now, member)).map(|(_, now)| now);
            let same = same.find(|now| text(now, "name") == text(status, "name"));
            let ended = |now: &Fields| {
                now.get("state")
                    .is_some_and(|s| s["terminated"].is_object())
            };
            if same.is_some_and(|now| !ended(now)) {
                let why = "may not be transitioned to non-terminated state";
                causes.forbidden(&at.item(index).member("state"), why);
            }
        }
    }
}
