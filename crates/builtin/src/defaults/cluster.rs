//! Defaults of cluster-level resources and autoscalers that depend on other fields.

use serde_json::json;

use watchet_registry::fields::{
    Fields, child, existing, is_unset, items, list, set, set_number, text,
};

pub(super) fn autoscaler(autoscaler: &mut Fields) {
    let Some(spec) = child(autoscaler, "spec") else {
        return;
    };
    set(spec, "minReplicas", 1);
    if list(spec, "metrics").is_empty() {
        let of_cpu = json!([{"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
        }}]);
        spec.insert("metrics".to_owned(), of_cpu);
    }
    let Some(behavior) = existing(spec, "behavior") else {
        return;
    };
    let up = json!([
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ]);
    let down = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
    for (direction, policies) in [("scaleUp", up), ("scaleDown", down)] {
        let Some(rules) = child(behavior, direction) else {
            continue;
        };
        set(rules, "selectPolicy", "Max");
        set(rules, "policies", policies);
        if direction == "scaleUp" {
            set(rules, "stabilizationWindowSeconds", 0);
        }
    }
}

/// Sets the defaults of the container limits of a LimitRange: `default` from `max`, and `defaultRequest` from `default`
/// or `min`.
pub(super) fn limit_range(range: &mut Fields) {
    let Some(spec) = child(range, "spec") else {
        return;
    };
    for limit in items(spec, "limits") {
        if text(limit, "type") != "Container" {
            continue;
        }
        for (from, to) in [
            ("max", "default"),
            ("default", "defaultRequest"),
            ("min", "defaultRequest"),
        ] {
            let Some(source) = existing(limit, from).cloned() else {
                continue;
            };
            if let Some(target) = child(limit, to) {
                for (name, quantity) in source {
                    target.entry(name).or_insert(quantity);
                }
            }
        }
    }
}

/// Sets the API group of subjects to that of their kind; service accounts have none.
pub(super) fn role_binding(binding: &mut Fields) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    for subject in items(binding, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            set(subject, "apiGroup", GROUP);
        }
    }
    if let Some(role) = child(binding, "roleRef") {
        set(role, "apiGroup", GROUP);
    }
}

/// Sets the defaults of an exempt or limited priority level.
pub(super) fn priority_level(level: &mut Fields) {
    let Some(spec) = child(level, "spec") else {
        return;
    };
    let kind = text(spec, "type").to_owned();
    if kind == "Exempt"
        && let Some(exempt) = child(spec, "exempt")
    {
        set(exempt, "nominalConcurrencyShares", 0);
        set(exempt, "lendablePercent", 0);
    }
    let Some(limited) = existing(spec, "limited") else {
        return;
    };
    set(limited, "nominalConcurrencyShares", 30);
    set(limited, "lendablePercent", 0);
    let response = existing(limited, "limitResponse").filter(|r| text(r, "type") == "Queue");
    if let Some(queuing) = response.and_then(|response| existing(response, "queuing")) {
        set_number(queuing, "handSize", 8);
        set_number(queuing, "queues", 64);
        set_number(queuing, "queueLengthLimit", 50);
    }
}

pub(super) fn flow_schema(schema: &mut Fields) {
    if let Some(spec) = child(schema, "spec") {
        set_number(spec, "matchingPrecedence", 1000);
    }
}

/// The members of `nodeInfo`, all of which Go always encodes.
const NODE_INFO: &[&str] = &[
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
];

/// Sets `allocatable` of a node to its capacity if it is absent, and makes `podCIDR` and the first of `podCIDRs` equal. If both are set
/// and differ, `podCIDR` applies.
pub(super) fn node(node: &mut Fields) {
    if let Some(spec) = existing(node, "spec") {
        match (
            text(spec, "podCIDR").to_owned(),
            list(spec, "podCIDRs").first().cloned(),
        ) {
            (single, Some(first)) if single.is_empty() => {
                spec.insert("podCIDR".to_owned(), first);
            }
            (single, first) if !single.is_empty() && first != Some(json!(single)) => {
                spec.insert("podCIDRs".to_owned(), json!([single]));
            }
            _ => {}
        }
    }
    let Some(status) = child(node, "status") else {
        return;
    };
    if let Some(info) = child(status, "nodeInfo") {
        NODE_INFO.iter().for_each(|member| set(info, member, ""));
    }
    let endpoint = child(status, "daemonEndpoints").and_then(|all| child(all, "kubeletEndpoint"));
    if let Some(endpoint) = endpoint {
        set(endpoint, "Port", 0);
    }
    if is_unset(status, "allocatable")
        && let Some(capacity) = existing(status, "capacity").cloned()
    {
        status.insert("allocatable".to_owned(), capacity.into());
    }
}

/// Sets the count of device requests to one if it is absent.
pub(super) fn device_requests(spec: &mut Fields) {
    let Some(devices) = child(spec, "devices") else {
        return;
    };
    for request in items(devices, "requests") {
        existing(request, "exactly")
            .into_iter()
            .for_each(device_request);
        items(request, "firstAvailable").for_each(device_request);
    }
}

fn device_request(request: &mut Fields) {
    set(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        set_number(request, "count", 1);
    }
    for toleration in items(request, "tolerations") {
        set(toleration, "operator", "Equal");
    }
}
