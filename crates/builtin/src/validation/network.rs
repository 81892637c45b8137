//! Validates ingresses, network policies and endpoints. Services are in `services`.

use std::net::IpAddr;

use serde_json::Value;

use super::containers::{PROTOCOLS, port_or_name};
use super::members::numbered;
use super::members::objects;
use super::members::{one_of, required_one_of};
use super::selectors;
use super::text as rules;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, is_unset, list, number, object, text};

const SPEC: Path<'static> = Path::Top("spec");
const PATH_TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];

/// Validates the resources of the groups `networking.k8s.io` and `discovery.k8s.io`.
pub(super) fn any(plural: &str, object_: &Fields, causes: &mut Causes) {
    let spec = object(object_, "spec");
    match (plural, spec) {
        ("ingresses", Some(spec)) => ingress(spec, causes),
        ("ingressclasses", Some(spec)) => ingress_class(spec, causes),
        ("networkpolicies", Some(spec)) => network_policy(spec, causes),
        ("endpointslices", _) => slice(object_, causes),
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
        host(text(rule, "host"), &at.member("host"), causes);
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

/// Validates a host: empty (all hosts), a name, or a wildcard such as `*.example.com`.
fn host(host: &str, at: &Path<'_>, causes: &mut Causes) {
    if host.is_empty() {
        return;
    }
    if rules::parse_ip(host).is_some() {
        causes.invalid(at, host, "must be a DNS name, not an IP address");
    }
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
        "" => causes.required(&at.member("pathType"), "pathType must be specified"),
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
            (None, None) => causes.required(at, "resource or service backend is required"),
            _ => {}
        }
        return;
    };
    let at = at.member("service");
    match text(service, "name") {
        "" => causes.required(&at.member("name"), ""),
        name => causes.invalid_each(&at.member("name"), name, rules::label(name)),
    }
    let at = at.member("port");
    let port = object(service, "port");
    let name = port.map_or("", |port| text(port, "name"));
    let number = port.and_then(|port| number(port, "number")).unwrap_or(0);
    match (name, number) {
        ("", 0) => causes.required(&at, "port name or number is required"),
        ("", number) => numbered(&at.member("number"), number, rules::port(number), causes),
        (name, 0) => causes.invalid_each(&at.member("name"), name, rules::port_name(name)),
        _ => causes.invalid(&at, "", "cannot set both port name & port number"),
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
                let at = at_ports.item(index);
                one_of(port, "protocol", PROTOCOLS, &at, causes);
                if !is_unset(port, "port") {
                    port_or_name(port.get("port"), &at.member("port"), causes);
                }
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
            causes.not_supported(&at.item(index), given, &["Egress", "Ingress"]);
        }
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
        let at = at.member("ipBlock");
        match text(block, "cidr") {
            "" => causes.required(&at.member("cidr"), ""),
            cidr => causes.invalid_each(&at.member("cidr"), cidr, rules::cidr(cidr)),
        }
        let at = at.member("except");
        for (index, except) in list(block, "except").iter().enumerate() {
            let except = except.as_str().unwrap_or_default();
            causes.invalid_each(&at.item(index), except, rules::cidr(except));
        }
    }
    if given == 0 {
        causes.required(at, "must specify a peer");
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

fn slice(slice: &Fields, causes: &mut Causes) {
    let types = &["FQDN", "IPv4", "IPv6"];
    let kind = text(slice, "addressType");
    match kind {
        "" => causes.required(&Path::Top("addressType"), ""),
        kind if !types.contains(&kind) => {
            causes.not_supported(&Path::Top("addressType"), kind, types);
        }
        _ => {}
    }
    let at = Path::Top("endpoints");
    let all = list(slice, "endpoints");
    if all.len() > 1000 {
        return causes.too_many_items(&at, all.len(), 1000);
    }
    for (index, endpoint) in objects(all) {
        let at = at.item(index);
        let at = at.member("addresses");
        let addresses = list(endpoint, "addresses");
        if addresses.is_empty() {
            causes.required(&at, "must contain at least 1 address");
        }
        for (index, address) in addresses.iter().enumerate() {
            let address = address.as_str().unwrap_or_default();
            let problems = match (kind, rules::parse_ip(address)) {
                ("FQDN", _) => rules::subdomain(address),
                ("IPv4", Some(IpAddr::V4(_))) | ("IPv6", Some(IpAddr::V6(_))) => {
                    rules::endpoint_ip(address)
                }
                ("IPv4", Some(_)) => vec!["must be an IPv4 address".to_owned()],
                ("IPv6", Some(_)) => vec!["must be an IPv6 address".to_owned()],
                _ => rules::ip(address),
            };
            causes.invalid_each(&at.item(index), address, problems);
        }
    }
    let at = Path::Top("ports");
    let mut names = std::collections::HashSet::new();
    for (index, port) in objects(list(slice, "ports")) {
        let at = at.item(index);
        let name = text(port, "name");
        if !name.is_empty() {
            causes.invalid_each(&at.member("name"), name, rules::label(name));
        }
        if !names.insert(name) {
            causes.duplicate(&at.member("name"), name);
        }
        required_one_of(port, "protocol", PROTOCOLS, &at, causes);
    }
}
