//! Tests of the validation of network policies, ingresses and EndpointSlices.

use super::messages::{check_below, check_members};
use super::*;

#[test]
fn end_ports_of_a_network_policy_are_validated() {
    let ports: [(Value, &[&str]); 4] = [
        (json!({"port": 80, "endPort": 90}), &[]),
        (
            json!({"endPort": 90}),
            &["90: may not be specified when `port` is not specified"],
        ),
        (
            json!({"port": "a", "endPort": 90}),
            &["90: may not be specified when `port` is non-numeric"],
        ),
        (
            json!({"port": 80, "endPort": -1}),
            &[
                "80: must be greater than or equal to `port`",
                "-1: must be between 1 and 65535, inclusive",
            ],
        ),
    ];
    for (port, expected) in ports {
        let object = json!({"spec": {"ingress": [{"ports": [port]}]}});
        let at = "spec.ingress[0].ports[0].endPort: Invalid value: ";
        check_below("networkpolicies", object, at, expected);
    }
}

#[test]
fn a_range_excepts_smaller_ranges_only() {
    let outside = "must be a strict subset of `cidr`";
    for (cidr, except, is_subset) in [
        ("10.0.0.0/8", "10.1.0.0/16", true),
        ("0.0.0.0/0", "10.0.0.0/8", true),
        ("::/0", "2001:db8::/64", true),
        ("2001:db8::/32", "2001:db9::/64", false),
        ("10.0.0.0/8", "10.0.0.0/8", false),
        ("10.0.0.0/8", "11.0.0.0/16", false),
        ("10.0.0.0/8", "2001:db8::/64", false),
        // The range itself is invalid, and has a cause of its own.
        ("10.0.0.0/8", "x", true),
    ] {
        let block = json!({"cidr": cidr, "except": [except]});
        let object = json!({"spec": {"ingress": [{"from": [{"ipBlock": block}]}]}});
        let resource = resource("networkpolicies");
        let mut causes = Causes::default();
        problems_of_new(&resource, &made(&resource, object), &mut causes);
        let has_cause = texts_of(causes)
            .iter()
            .any(|cause| cause.ends_with(outside));
        assert_eq!(has_cause, !is_subset, "{cidr} {except}");
    }
}

#[test]
fn an_ingress_has_a_backend_or_rules() {
    check_members(
        "ingresses",
        json!({}),
        &["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"],
    );
    for (backend, expected) in [
        (
            json!({}),
            ": Invalid value: \"\": resource or service backend is required",
        ),
        (
            json!({"service": {"name": "s"}}),
            ": Required value: port name or number is required",
        ),
        (
            json!({"resource": {"kind": "K"}}),
            ".resource.name: Required value: name is required",
        ),
    ] {
        let object = json!({"spec": {"defaultBackend": backend}});
        check_below("ingresses", object, "spec.defaultBackend", &[expected]);
    }
    // Only a rule must not have an IP, and only a rule can have an empty host.
    let of_host = |host: &str| {
        let backend = json!({"service": {"name": "s", "port": {"number": 1}}});
        json!({"spec": {"defaultBackend": backend, "tls": [{"hosts": [host]}]}})
    };
    check_members("ingresses", of_host("1.2.3.4"), &[]);
    let empty = "[0].hosts[0]: Invalid value: \"\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
                 '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
                 is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    check_below("ingresses", of_host(""), "spec.tls", &[empty]);
}

#[test]
fn addresses_of_an_unknown_type_are_not_validated() {
    let slice = |kind: &str, address: &str| json!({"addressType": kind, "endpoints": [{"addresses": [address]}]});
    check_members(
        "endpointslices",
        slice("", "x"),
        &["addressType: Required value"],
    );
    check_below(
        "endpointslices",
        slice("IPv4", "::1"),
        "endpoints[0].addresses",
        &[
            ": Invalid value: \"::1\": must be an IPv4 address",
            "[0]: Invalid value: \"::1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ],
    );
    check_below(
        "endpointslices",
        slice("FQDN", "a"),
        "endpoints[0].addresses[0]: Invalid value: ",
        &["\"a\": should be a domain with at least two segments separated by dots"],
    );
}
