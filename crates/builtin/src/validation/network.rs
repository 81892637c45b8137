//! Validates ingresses, network policies and endpoints. Services are in `services`.

use serde_json::Value;

use super::containers::{PROTOCOLS, port_or_name};
use super::members::numbered;
use super::members::objects;
use super::members::{one_of, required_one_of};
use super::text as rules;
use super::{selectors, slices};
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, number, object, text};

const SPEC: Path<'static> = Path::Top("spec");
const PATH_TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];

/// Validates the resources of the groups `networking.k8s.io` and `discovery.k8s.io`.
pub(super) fn any(plural: &str, object_: &Fields, causes: &mut Causes) {
    let spec = object(object_, "spec");
    match (plural, spec) {
        ("ingresses", spec) => ingress(spec.unwrap_or(&Fields::new()), causes),
        ("ingressclasses", Some(spec)) => ingress_class(spec, causes),
        ("networkpolicies", Some(spec)) => network_policy(spec, causes),
        ("endpointslices", _) => slices::slice(object_, causes),
        ("servicecidrs", Some(spec)) => {
            let at = SPEC.member("cidrs");
            if list(spec, "cidrs").is_empty() {
                causes.required(&at, "at least one CIDR required");
            }
            for (index, cidr) in list(spec, "cidrs").iter().enumerate() {
                let cidr = cidr.as_str().unwrap_or_default();
                causes.invalid_each(&at.item(index), cidr, rules::cidr(cidr));
            }
        }
        ("ipaddresses", _) => {
            let name = object(object_, "metadata").map_or("", |metadata| text(metadata, "name"));
            let at = Path::Top("metadata");
            causes.invalid_each(&at.member("name"), name, rules::ip(name));
            if spec.and_then(|spec| object(spec, "parentRef")).is_none() {
                causes.required(&SPEC.member("parentRef"), "");
            }
        }
        _ => {}
    }
}

fn ingress(spec: &Fields, causes: &mut Causes) {
    let backend_given = object(spec, "defaultBackend");
    if list(spec, "rules").is_empty() && backend_given.is_none() {
        let why = "either `defaultBackend` or `rules` must be specified";
        causes.invalid(&SPEC, Value::Null, why);
    }
    if let Some(given) = backend_given {
        backend(given, &SPEC.member("defaultBackend"), causes);
    }
    let at_rules = SPEC.member("rules");
    for (index, rule) in objects(list(spec, "rules")) {
        if causes.is_full() {
            return;
        }
        let at = at_rules.item(index);
        rule_host(text(rule, "host"), &at.member("host"), causes);
        let Some(http) = object(rule, "http") else {
            continue;
        };
        let at = at.member("http");
        let at = at.member("paths");
        if list(http, "paths").is_empty() {
            causes.required(&at, "");
        }
        for (index, path) in objects(list(http, "paths")) {
            ingress_path(path, &at.item(index), causes);
        }
    }
    let at_tls = SPEC.member("tls");
    for (index, tls) in objects(list(spec, "tls")) {
        let at = at_tls.item(index);
        let at = at.member("hosts");
        for (index, name) in list(tls, "hosts").iter().enumerate() {
            host(name.as_str().unwrap_or_default(), &at.item(index), causes);
        }
    }
    let class = text(spec, "ingressClassName");
    if !class.is_empty() {
        causes.invalid_each(
            &SPEC.member("ingressClassName"),
            class,
            rules::subdomain(class),
        );
    }
}

/// Validates the host of a rule; an empty one matches all hosts.
fn rule_host(given: &str, at: &Path<'_>, causes: &mut Causes) {
    if given.is_empty() {
        return;
    }
    if rules::parse_ip(given).is_some() {
        causes.invalid(at, given, "must be a DNS name, not an IP address");
    }
    host(given, at, causes);
}

/// Validates a host: a name, or a wildcard such as `*.example.com`.
fn host(host: &str, at: &Path<'_>, causes: &mut Causes) {
    match host.strip_prefix("*.") {
        None => causes.invalid_each(at, host, rules::subdomain(host)),
        Some(domain) if rules::subdomain(domain).is_empty() => {}
        Some(_) => causes.invalid(
            at,
            host,
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS \
             subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and \
             end with an alphanumeric character (e.g. '*.example.com', regex used for validation \
             is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
    }
}

fn ingress_path(given: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let path = text(given, "path");
    match text(given, "pathType") {
        "" => return causes.required(&at.member("pathType"), "pathType must be specified"),
        "Exact" | "Prefix" => {
            if !path.starts_with('/') {
                causes.invalid(&at.member("path"), path, "must be an absolute path");
            }
            for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.contains(bad) {
                    causes.invalid(
                        &at.member("path"),
                        path,
                        &format!("must not contain '{bad}'"),
                    );
                }
            }
            for bad in ["/..", "/."] {
                if path.ends_with(bad) {
                    causes.invalid(
                        &at.member("path"),
                        path,
                        &format!("cannot end with '{bad}'"),
                    );
                }
            }
        }
        "ImplementationSpecific" => {
            if !path.is_empty() && !path.starts_with('/') {
                causes.invalid(&at.member("path"), path, "must be an absolute path");
            }
        }
        other => causes.not_supported(&at.member("pathType"), other, PATH_TYPES),
    }
    let empty = Fields::new();
    let given = object(given, "backend").unwrap_or(&empty);
    backend(given, &at.member("backend"), causes);
}

fn backend(given: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let (service, resource) = (object(given, "service"), object(given, "resource"));
    let Some(service) = service.filter(|_| resource.is_none()) else {
        match (service, resource) {
            (Some(_), Some(_)) => {
                causes.invalid(at, "", "cannot set both resource and service backends");
            }
            (None, None) => causes.invalid(at, "", "resource or service backend is required"),
            (None, Some(resource)) => local_reference(resource, &at.member("resource"), causes),
            _ => {}
        }
        return;
    };
    let at_service = at.member("service");
    match text(service, "name") {
        "" => causes.required(&at_service.member("name"), ""),
        name => causes.invalid_each(&at_service.member("name"), name, rules::label(name)),
    }
    let at_port = at_service.member("port");
    let port = object(service, "port");
    let name = port.map_or("", |port| text(port, "name"));
    let number = port.and_then(|port| number(port, "number")).unwrap_or(0);
    match (name, number) {
        ("", 0) => causes.required(at, "port name or number is required"),
        ("", number) => numbered(
            &at_port.member("number"),
            number,
            rules::port(number),
            causes,
        ),
        (name, 0) => causes.invalid_each(&at_port.member("name"), name, rules::port_name(name)),
        _ => causes.invalid(at, "", "cannot set both port name & port number"),
    }
}

/// Validates a reference to an object in the same namespace.
fn local_reference(reference: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let group = text(reference, "apiGroup");
    if !group.is_empty() {
        causes.invalid_each(&at.member("apiGroup"), group, rules::subdomain(group));
    }
    for member in ["kind", "name"] {
        match text(reference, member) {
            "" => causes.required(&at.member(member), &format!("{member} is required")),
            name => causes.invalid_each(&at.member(member), name, rules::path_segment(name)),
        }
    }
}

fn ingress_class(spec: &Fields, causes: &mut Causes) {
    let controller = text(spec, "controller");
    if controller.len() > 250 {
        causes.too_long(&SPEC.member("controller"), 250);
    }
    match controller {
        "" => causes.required(&SPEC.member("controller"), ""),
        name => {
            causes.invalid_each(
                &SPEC.member("controller"),
                name,
                rules::domain_prefixed(name),
            );
        }
    }
    let Some(parameters) = object(spec, "parameters") else {
        return;
    };
    let at = SPEC.member("parameters");
    for member in ["kind", "name"] {
        if text(parameters, member).is_empty() {
            causes.required(&at.member(member), &format!("{member} is required"));
        }
    }
    let namespace = text(parameters, "namespace");
    match text(parameters, "scope") {
        "Namespace" if namespace.is_empty() => causes.required(
            &at.member("namespace"),
            "`parameters.scope` is set to 'Namespace'",
        ),
        "Cluster" if !namespace.is_empty() => causes.forbidden(
            &at.member("namespace"),
            "`parameters.scope` is set to 'Cluster'",
        ),
        _ => required_one_of(parameters, "scope", &["Cluster", "Namespace"], &at, causes),
    }
}

fn network_policy(spec: &Fields, causes: &mut Causes) {
    if let Some(selector) = object(spec, "podSelector") {
        selectors::selector(selector, &SPEC.member("podSelector"), causes);
    }
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let at = SPEC.member(direction);
        for (index, rule) in objects(list(spec, direction)) {
            let at = at.item(index);
            let at_ports = at.member("ports");
            for (index, port) in objects(list(rule, "ports")) {
                policy_port(port, &at_ports.item(index), causes);
            }
            let at_peers = at.member(peers);
            for (index, peer) in objects(list(rule, peers)) {
                policy_peer(peer, &at_peers.item(index), causes);
            }
        }
    }
    let at = SPEC.member("policyTypes");
    let types = list(spec, "policyTypes");
    if types.len() > 2 {
        let why = "may not specify more than two policyTypes";
        return causes.invalid(&at, types.to_vec(), why);
    }
    for (index, given) in types.iter().enumerate() {
        let given = given.as_str().unwrap_or_default();
        if !["Ingress", "Egress"].contains(&given) {
            causes.not_supported(&at.item(index), given, &["Ingress", "Egress"]);
        }
    }
}

fn policy_port(port: &Fields, at: &Path<'_>, causes: &mut Causes) {
    one_of(port, "protocol", &["TCP", "UDP", "SCTP"], at, causes);
    let at_end = at.member("endPort");
    let end = number(port, "endPort");
    match (port.get("port").filter(|port| !port.is_null()), end) {
        (None, Some(end)) => {
            let why = "may not be specified when `port` is not specified";
            causes.invalid(&at_end, end, why);
        }
        (Some(Value::String(_)), Some(end)) => {
            let why = "may not be specified when `port` is non-numeric";
            causes.invalid(&at_end, end, why);
        }
        _ => {}
    }
    let Some(given) = port.get("port").filter(|port| !port.is_null()) else {
        return;
    };
    port_or_name(Some(given), &at.member("port"), causes);
    if let (Some(first), Some(end)) = (given.as_i64(), end) {
        if end < first {
            causes.invalid(&at_end, first, "must be greater than or equal to `port`");
        }
        numbered(&at_end, end, rules::port(end), causes);
    }
}

fn policy_peer(peer: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let mut given = 0;
    for member in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = object(peer, member) {
            given += 1;
            selectors::selector(selector, &at.member(member), causes);
        }
    }
    if let Some(block) = object(peer, "ipBlock") {
        if given > 0 {
            let why = "may not specify both ipBlock and another peer";
            causes.forbidden(at, why);
        }
        given += 1;
        ip_block(block, &at.member("ipBlock"), causes);
    }
    if given == 0 {
        causes.required(at, "must specify a peer");
    }
}

/// Validates an IP range and the smaller ranges that it excepts.
fn ip_block(block: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let cidr = text(block, "cidr");
    if cidr.is_empty() {
        return causes.required(&at.member("cidr"), "");
    }
    causes.invalid_each(&at.member("cidr"), cidr, rules::cidr(cidr));
    // A range with leading zeros or host bits has a cause, but its exceptions are compared nevertheless.
    if !rules::is_cidr(cidr) {
        return;
    }
    let at = at.member("except");
    for (index, except) in list(block, "except").iter().enumerate() {
        if causes.is_full() {
            return;
        }
        let at = at.item(index);
        let except = except.as_str().unwrap_or_default();
        causes.invalid_each(&at, except, rules::cidr(except));
        if rules::is_strict_subset(except, cidr) == Some(false) {
            causes.invalid(&at, except, "must be a strict subset of `cidr`");
        }
    }
}

/// Validates the Endpoints of a service.
pub(super) fn endpoints(endpoints: &Fields, causes: &mut Causes) {
    let at = Path::Top("subsets");
    for (index, subset) in objects(list(endpoints, "subsets")) {
        let at = at.item(index);
        let known = ["addresses", "notReadyAddresses"];
        if known.iter().all(|member| list(subset, member).is_empty()) {
            causes.required(&at, "must specify `addresses` or `notReadyAddresses`");
        }
        for member in known {
            let at = at.member(member);
            for (index, address) in objects(list(subset, member)) {
                let ip = text(address, "ip");
                let at = at.item(index);
                let problems = match rules::ip(ip) {
                    none if none.is_empty() => rules::endpoint_ip(ip),
                    problems => problems,
                };
                causes.invalid_each(&at.member("ip"), ip, problems);
            }
        }
        let at = at.member("ports");
        let several = list(subset, "ports").len() > 1;
        for (index, port) in objects(list(subset, "ports")) {
            let at = at.item(index);
            match text(port, "name") {
                "" if several => causes.required(&at.member("name"), ""),
                "" => {}
                name => causes.invalid_each(&at.member("name"), name, rules::label(name)),
            }
            let given = number(port, "port").unwrap_or(0);
            numbered(&at.member("port"), given, rules::port(given), causes);
            required_one_of(port, "protocol", PROTOCOLS, &at, causes);
        }
    }
}
