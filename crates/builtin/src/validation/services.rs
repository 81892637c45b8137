//! Validates services and updates of services.

use std::collections::HashSet;

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
use watchet_services::spec::{has_cluster_ip, is_external};

const SPEC: Path<'static> = Path::Top("spec");
const FAMILIES: &[&str] = &["IPv4", "IPv6"];
const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const AFFINITY_SECONDS_MAX: i64 = 86_400;
/// The port of the kubelet, which a service must not shadow.
const KUBELET_PORT: i64 = 10250;

pub(super) fn service(service: &Fields, causes: &mut Causes) {
    let Some(spec) = object(service, "spec") else {
        return;
    };
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    if list(spec, "ports").is_empty() && !headless && kind != "ExternalName" {
        causes.required(&SPEC.member("ports"), "");
    }
    of_type(spec, kind, headless, causes);
    ports(spec, kind, causes);
    if let Some(selector) = object(spec, "selector") {
        selectors::labels(selector, &SPEC.member("selector"), causes);
    }
    required_one_of(
        spec,
        "sessionAffinity",
        &["ClientIP", "None"],
        &SPEC,
        causes,
    );
    affinity(spec, causes);
    cluster_ips(spec, causes);
    let at = SPEC.member("externalIPs");
    for (index, ip) in list(spec, "externalIPs").iter().enumerate() {
        let ip = ip.as_str().unwrap_or_default();
        let problems = match rules::ip(ip) {
            none if none.is_empty() => rules::endpoint_ip(ip),
            problems => problems,
        };
        causes.invalid_each(&at.item(index), ip, problems);
    }
    required_one_of(spec, "type", TYPES, &SPEC, causes);
    traffic(spec, kind, causes);
}

fn of_type(spec: &Fields, kind: &str, headless: bool, causes: &mut Causes) {
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let why = format!("may not be set to 'None' for {kind} services");
            causes.invalid(&SPEC.member("clusterIPs").item(0), "None", &why);
        }
        "LoadBalancer" => {
            let at = SPEC.member("ports");
            for (index, port) in objects(list(spec, "ports")) {
                if number(port, "port") == Some(KUBELET_PORT) {
                    let why = "may not expose port 10250 externally since it is used by kubelet";
                    causes.invalid(&at.item(index).member("port"), KUBELET_PORT, why);
                }
            }
        }
        "ExternalName" => {
            if !list(spec, "clusterIPs").is_empty() || !is_unset(spec, "clusterIP") {
                let why = "may not be set for ExternalName services";
                causes.forbidden(&SPEC.member("clusterIPs"), why);
            }
            match text(spec, "externalName").trim_end_matches('.') {
                "" => causes.required(&SPEC.member("externalName"), ""),
                name => {
                    causes.invalid_each(&SPEC.member("externalName"), name, rules::subdomain(name));
                }
            }
        }
        _ => {}
    }
}

fn ports(spec: &Fields, kind: &str, causes: &mut Causes) {
    let at = SPEC.member("ports");
    let all = list(spec, "ports");
    let (mut names, mut numbers, mut on_nodes) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (index, port) in objects(all) {
        if causes.is_full() {
            return;
        }
        let at = at.item(index);
        match text(port, "name") {
            "" if all.len() > 1 => causes.required(&at.member("name"), ""),
            "" => {}
            name => {
                causes.invalid_each(&at.member("name"), name, rules::label(name));
                if !names.insert(name) {
                    causes.duplicate(&at.member("name"), name);
                }
            }
        }
        let given = number(port, "port").unwrap_or(0);
        numbered(&at.member("port"), given, rules::port(given), causes);
        required_one_of(port, "protocol", PROTOCOLS, &at, causes);
        port_or_name(port.get("targetPort"), &at.member("targetPort"), causes);
        if let Some(Value::String(protocol)) = port.get("appProtocol") {
            causes.invalid_each(
                &at.member("appProtocol"),
                protocol,
                rules::qualified(protocol),
            );
        }
        let protocol = text(port, "protocol");
        let shown = |name: &str, number: i64| {
            let mut shown = Fields::new();
            shown.insert("protocol".to_owned(), protocol.into());
            shown.insert(name.to_owned(), number.into());
            Value::Object(shown)
        };
        if !numbers.insert((protocol, given)) {
            causes.duplicate(&at, shown("port", given));
        }
        let on_node = number(port, "nodePort").unwrap_or(0);
        if on_node != 0 {
            if matches!(kind, "ClusterIP" | "ExternalName") {
                let why = format!("may not be used when `type` is '{kind}'");
                causes.forbidden(&at.member("nodePort"), &why);
            }
            if !on_nodes.insert((protocol, on_node)) {
                causes.duplicate(&at.member("nodePort"), shown("nodePort", on_node));
            }
        }
    }
}

fn affinity(spec: &Fields, causes: &mut Causes) {
    let at = SPEC.member("sessionAffinityConfig");
    let config = object(spec, "sessionAffinityConfig");
    match (text(spec, "sessionAffinity"), config) {
        ("None", Some(_)) => {
            let why = "must not be set when session affinity is None";
            causes.forbidden(&at, why);
        }
        ("ClientIP", Some(config)) => {
            let client = object(config, "clientIP");
            let seconds = client.and_then(|client| number(client, "timeoutSeconds"));
            if let Some(bad) = seconds.filter(|s| !(1..=AFFINITY_SECONDS_MAX).contains(s)) {
                let at = at.member("clientIP");
                let why = format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}");
                causes.invalid(&at.member("timeoutSeconds"), bad, &why);
            }
        }
        _ => {}
    }
}

/// Validates the addresses and families of a service as far as its spec alone allows; the allocation checks them
/// against the ranges of the cluster.
fn cluster_ips(spec: &Fields, causes: &mut Causes) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let at = SPEC.member("clusterIPs");
    let ips: Vec<&str> = list(spec, "clusterIPs")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let shown = || list(spec, "clusterIPs").to_vec();
    match (text(spec, "clusterIP"), ips.first()) {
        ("", Some(_)) => {
            causes.invalid(
                &at,
                shown(),
                "must be empty when `clusterIP` is not specified",
            );
        }
        ("", None) => {}
        (_, None) => causes.required(&at, ""),
        (single, Some(first)) if single != *first => {
            causes.invalid(&at, shown(), "first value must match `clusterIP`");
        }
        _ => {}
    }
    families(spec, causes);
    let mut well_formed = true;
    for (index, ip) in ips.iter().enumerate() {
        if index == 0 && *ip == "None" {
            if ips.len() > 1 {
                well_formed = false;
                causes.invalid(&at, shown(), "'None' must be the first and only value");
            }
            continue;
        }
        let problems = rules::ip(ip);
        well_formed &= problems.is_empty();
        causes.invalid_each(&at.item(index), ip, problems);
    }
    if ips.len() > 2 {
        causes.invalid(&at, shown(), "may only hold up to 2 values");
    }
    if well_formed && ips != ["None"] {
        of_families(&ips, spec, causes);
    }
}

fn families(spec: &Fields, causes: &mut Causes) {
    let at = SPEC.member("ipFamilies");
    let mut seen = HashSet::new();
    for (index, family) in list(spec, "ipFamilies").iter().enumerate() {
        let family = family.as_str().unwrap_or_default();
        if !FAMILIES.contains(&family) {
            causes.not_supported(&at.item(index), family, FAMILIES);
        }
        if !seen.insert(family) {
            causes.duplicate(&at.item(index), family);
        }
    }
    let policies = &["PreferDualStack", "RequireDualStack", "SingleStack"];
    one_of(spec, "ipFamilyPolicy", policies, &SPEC, causes);
}

/// Validates that there is at most one address of each family, in the order of the families.
fn of_families(ips: &[&str], spec: &Fields, causes: &mut Causes) {
    let at = SPEC.member("clusterIPs");
    let is_v6 = |ip: &&str| ip.contains(':');
    if ips.len() > 1 && ips.iter().filter(|ip| is_v6(ip)).count() != 1 {
        let why = "may specify no more than one IP for each IP family";
        causes.invalid(&at, list(spec, "clusterIPs").to_vec(), why);
    }
    for (index, (ip, family)) in ips.iter().zip(list(spec, "ipFamilies")).enumerate() {
        let family = family.as_str().unwrap_or_default();
        if FAMILIES.contains(&family) && is_v6(ip) != (family == "IPv6") {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            causes.invalid(&at.item(index), *ip, &why);
        }
    }
}

fn traffic(spec: &Fields, kind: &str, causes: &mut Causes) {
    if kind != "LoadBalancer" {
        for member in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if !is_unset(spec, member) {
                let why = "may only be used when `type` is 'LoadBalancer'";
                causes.forbidden(&SPEC.member(member), why);
            }
        }
    }
    let policy = text(spec, "externalTrafficPolicy");
    if is_external(spec) {
        required_one_of(
            spec,
            "externalTrafficPolicy",
            &["Cluster", "Local"],
            &SPEC,
            causes,
        );
    } else if !policy.is_empty() {
        let why = "may only be set for externally-accessible services";
        causes.invalid(&SPEC.member("externalTrafficPolicy"), policy, why);
    }
    let checked = kind == "LoadBalancer" && policy == "Local";
    if let Some(port) = number(spec, "healthCheckNodePort").filter(|p| *p != 0 && !checked) {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is \
                   'Local'";
        causes.invalid(&SPEC.member("healthCheckNodePort"), port, why);
    }
    one_of(
        spec,
        "internalTrafficPolicy",
        &["Cluster", "Local"],
        &SPEC,
        causes,
    );
    let distributions = &["PreferClose", "PreferSameNode", "PreferSameZone"];
    one_of(spec, "trafficDistribution", distributions, &SPEC, causes);
}

/// Validates that the address of a service does not change once set.
pub(super) fn update(old: &Fields, new: &Fields, causes: &mut Causes) {
    let (Some(old), Some(new)) = (object(old, "spec"), object(new, "spec")) else {
        return;
    };
    if !has_cluster_ip(old) || !has_cluster_ip(new) {
        return;
    }
    addresses_stay(old, new, causes);
    families_stay(old, new, causes);
    let class = (
        text(old, "loadBalancerClass"),
        text(new, "loadBalancerClass"),
    );
    let balanced = [old, new]
        .iter()
        .all(|spec| text(spec, "type") == "LoadBalancer");
    if balanced && class.0 != class.1 {
        causes.invalid(
            &SPEC.member("loadBalancerClass"),
            class.1,
            "may not change once set",
        );
    }
}

/// Validates that the first address does not change; `ipFamilyPolicy` adds and removes the second one.
fn addresses_stay(old: &Fields, new: &Fields, causes: &mut Causes) {
    let at = SPEC.member("clusterIPs");
    let (before, now) = (list(old, "clusterIPs"), list(new, "clusterIPs"));
    let once = "may not change once set";
    // If the number of addresses changes, only the first one is compared.
    let compared = match before.len() == now.len() {
        true => before.len(),
        false => 1,
    };
    for index in 0..compared.min(before.len()).min(now.len()) {
        if before[index] != now[index] {
            causes.invalid(&at.item(index), now.to_vec(), once);
        }
    }
    if now.is_empty() && !before.is_empty() {
        causes.invalid(
            &at.item(0),
            Vec::<Value>::new(),
            "primary clusterIP can not be unset",
        );
    }
}

/// Validates the same of the IP families, except for headless services.
fn families_stay(old: &Fields, new: &Fields, causes: &mut Causes) {
    let headless = |spec| text(spec, "clusterIP") == "None";
    let (before, now) = (list(old, "ipFamilies"), list(new, "ipFamilies"));
    if headless(old) || headless(new) || now.is_empty() {
        return;
    }
    let compared = match before.len() == now.len() {
        true => before.len(),
        false => 1,
    };
    if before
        .iter()
        .zip(now)
        .take(compared)
        .any(|(before, now)| before != now)
    {
        let at = SPEC.member("ipFamilies");
        causes.invalid(&at.item(0), now.to_vec(), "may not change once set");
    }
}
