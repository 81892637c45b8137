//! Defaults of services and network policies.

use serde_json::json;

use watchet_registry::fields::{Fields, child, is_unset, items, list, set, text};

/// The default timeout of the session affinity to a client IP, in seconds.
const AFFINITY_SECONDS: i64 = 10_800;

pub(super) fn service(service: &mut Fields) {
    let Some(spec) = child(service, "spec") else {
        return;
    };
    set(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => drop(spec.remove("sessionAffinityConfig")),
        "ClientIP" => {
            let config = child(spec, "sessionAffinityConfig");
            if let Some(client) = config.and_then(|config| child(config, "clientIP")) {
                set(client, "timeoutSeconds", AFFINITY_SECONDS);
            }
        }
        _ => {}
    }
    set(spec, "type", "ClusterIP");
    for port in items(spec, "ports") {
        set(port, "protocol", "TCP");
        let unset = is_unset(port, "targetPort") || port["targetPort"] == 0;
        if let Some(number) = port.get("port").filter(|_| unset).cloned() {
            port.insert("targetPort".to_owned(), number);
        }
    }
    let kind = text(spec, "type").to_owned();
    let external = matches!(&*kind, "NodePort" | "LoadBalancer")
        || kind == "ClusterIP" && !list(spec, "externalIPs").is_empty();
    if external {
        set(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
    }
}

pub(super) fn network_policy(policy: &mut Fields) {
    let Some(spec) = child(policy, "spec") else {
        return;
    };
    child(spec, "podSelector");
    for direction in ["ingress", "egress"] {
        for rule in items(spec, direction) {
            for port in items(rule, "ports") {
                set(port, "protocol", "TCP");
            }
        }
    }
    if list(spec, "policyTypes").is_empty() {
        let types = match list(spec, "egress").is_empty() {
            true => json!(["Ingress"]),
            false => json!(["Ingress", "Egress"]),
        };
        spec.insert("policyTypes".to_owned(), types);
    }
}
