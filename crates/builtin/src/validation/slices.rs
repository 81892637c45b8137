//! Validates EndpointSlices.

use std::collections::HashSet;
use std::net::IpAddr;

use super::containers::PROTOCOLS;
use super::members::{objects, required_one_of};
use super::text as rules;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, text};

const ADDRESS_TYPES: &[&str] = &["FQDN", "IPv4", "IPv6"];
const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;

pub(super) fn slice(slice: &Fields, causes: &mut Causes) {
    let at = Path::Top("addressType");
    let kind = text(slice, "addressType");
    match kind {
        "" => causes.required(&at, ""),
        kind if !ADDRESS_TYPES.contains(&kind) => causes.not_supported(&at, kind, ADDRESS_TYPES),
        _ => {}
    }
    ports(list(slice, "ports"), causes);
    let at = Path::Top("endpoints");
    let endpoints = list(slice, "endpoints");
    if endpoints.len() > ENDPOINTS_MAX {
        return causes.too_many_items(&at, endpoints.len(), ENDPOINTS_MAX);
    }
    for (index, given) in objects(endpoints) {
        if causes.is_full() {
            return;
        }
        endpoint(given, kind, &at.item(index), causes);
    }
}

fn ports(ports: &[serde_json::Value], causes: &mut Causes) {
    let at = Path::Top("ports");
    if ports.len() > PORTS_MAX {
        return causes.too_many_items(&at, ports.len(), PORTS_MAX);
    }
    let mut names = HashSet::new();
    for (index, port) in objects(ports) {
        if causes.is_full() {
            return;
        }
        let at = at.item(index);
        let name = text(port, "name");
        if !name.is_empty() {
            causes.invalid_each(&at.member("name"), name, rules::label(name));
        }
        if !names.insert(name) {
            causes.duplicate(&at.member("name"), name);
        }
        required_one_of(port, "protocol", PROTOCOLS, &at, causes);
        let protocol = text(port, "appProtocol");
        if !protocol.is_empty() {
            let problems = rules::qualified(protocol);
            causes.invalid_each(&at.member("appProtocol"), protocol, problems);
        }
    }
}

/// Validates an endpoint; the addresses of an unknown type are not validated.
fn endpoint(endpoint: &Fields, kind: &str, at: &Path<'_>, causes: &mut Causes) {
    let at_addresses = at.member("addresses");
    let addresses = list(endpoint, "addresses");
    if addresses.is_empty() {
        causes.required(&at_addresses, "must contain at least 1 address");
    } else if addresses.len() > ADDRESSES_MAX {
        causes.too_many_items(&at_addresses, addresses.len(), ADDRESSES_MAX);
    }
    for (index, address) in addresses.iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        let at_address = at_addresses.item(index);
        match kind {
            "FQDN" => domain(address, &at_address, causes),
            "IPv4" | "IPv6" => ip(address, kind, &at_addresses, &at_address, causes),
            _ => {}
        }
    }
    for (member, rule) in [
        ("nodeName", rules::subdomain as fn(&str) -> Vec<String>),
        ("hostname", rules::label),
    ] {
        if let Some(name) = endpoint.get(member).and_then(|name| name.as_str()) {
            causes.invalid_each(&at.member(member), name, rule(name));
        }
    }
}

/// Validates an IP address of the family `kind`; an address of the other family is a problem of the list.
fn ip(address: &str, kind: &str, at_list: &Path<'_>, at: &Path<'_>, causes: &mut Causes) {
    let problems = rules::ip(address);
    if !problems.is_empty() {
        return causes.invalid_each(at, address, problems);
    }
    let is_of_family = match rules::parse_ip(address) {
        Some(IpAddr::V4(_)) => kind == "IPv4",
        _ => kind == "IPv6",
    };
    if !is_of_family {
        causes.invalid(at_list, address, &format!("must be an {kind} address"));
    }
    causes.invalid_each(at, address, rules::endpoint_ip(address));
}

/// Validates a fully qualified domain name.
fn domain(name: &str, at: &Path<'_>, causes: &mut Causes) {
    if name.is_empty() {
        return causes.required(at, "");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let problems = rules::subdomain(name);
    if !problems.is_empty() {
        return causes.invalid(at, name, &problems.join(","));
    }
    if !name.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        return causes.invalid(at, name, why);
    }
    let labels = name.split('.').map(|label| (label, rules::label(label)));
    if let Some((label, problems)) = labels.into_iter().find(|(_, all)| !all.is_empty()) {
        causes.invalid(at, label, &problems.join(","));
    }
}
