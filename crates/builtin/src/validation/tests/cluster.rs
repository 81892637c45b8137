//! Tests of the validation of security contexts, pod-level resources and nodes.

use super::messages::check_members;
use super::*;

fn pod_with(context: Value, of_pod: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"securityContext": of_pod,
        "containers": [{"name": "c", "image": "i", "securityContext": context}]}})
}

#[test]
fn security_contexts_are_validated() {
    let context = json!({"runAsUser": -1, "procMount": "Odd", "allowPrivilegeEscalation": false,
        "capabilities": {"add": ["CAP_SYS_ADMIN"]}});
    check(
        "pods",
        pod_with(context.clone(), json!({})),
        &[
            "spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and \
             2147483647, inclusive",
            "spec.containers[0].securityContext.procMount: Unsupported value: \"Odd\": supported \
             values: \"Default\", \"Unmasked\"",
            &format!(
                "spec.containers[0].securityContext: Invalid value: {context}: cannot set \
                 `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            ),
        ],
    );
}

#[test]
fn seccomp_and_app_armor_profiles_are_validated() {
    let at = "spec.containers[0].securityContext";
    for (profile, expected) in [
        (
            json!({"seccompProfile": {"type": "Localhost"}}),
            "seccompProfile.localhostProfile: Required value: must be set when seccomp type is \
             Localhost",
        ),
        (
            json!({"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "a"}}),
            "seccompProfile.localhostProfile: Invalid value: \"a\": can only be set when seccomp \
             type is Localhost",
        ),
        (
            json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "../a"}}),
            "seccompProfile.localhostProfile: Invalid value: \"../a\": must not contain '..'",
        ),
        (
            json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": " a"}}),
            "appArmorProfile.localhostProfile: Invalid value: \" a\": must not be padded with \
             whitespace",
        ),
        (
            json!({"appArmorProfile": {"type": "Odd"}}),
            "appArmorProfile.type: Unsupported value: \"Odd\": supported values: \"Localhost\", \
             \"RuntimeDefault\", \"Unconfined\"",
        ),
    ] {
        check(
            "pods",
            pod_with(profile, json!({})),
            &[&format!("{at}.{expected}")],
        );
    }
    let fine = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "a/b"},
        "appArmorProfile": {"type": "RuntimeDefault"}});
    check("pods", pod_with(fine.clone(), fine), &[]);
}

#[test]
fn pod_resources_cover_its_containers() {
    let container = |name: &str| {
        json!({"name": name, "image": "i", "resources": {"requests": {"cpu": "600m"},
            "limits": {"cpu": "2"}}})
    };
    let pod = |resources: Value| {
        json!({"metadata": {"name": "p"}, "spec": {"resources": resources,
            "containers": [container("a"), container("b")]}})
    };
    check(
        "pods",
        pod(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1500m"}})),
        &[
            "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to \
             aggregate container requests of 1200m",
            "spec.resources.limits[cpu]: Invalid value: \"1500m\": must be greater than or equal to \
             container limits of 2",
        ],
    );
    let fine = json!({"requests": {"cpu": "1200m"}, "limits": {"cpu": "2"}});
    check("pods", pod(fine), &[]);
}

#[test]
fn pod_cidr_and_provider_id_of_a_node_are_immutable() {
    let node = json!({"metadata": {"name": "n"},
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": "cloud://a"}});
    let fresh = json!({"metadata": {"name": "n"}, "spec": {}});
    check_update(
        "nodes",
        fresh,
        json!({"spec": {"podCIDR": "10.1.0.0/24"}}),
        &[],
    );
    check_update(
        "nodes",
        node.clone(),
        json!({"spec": {"unschedulable": true}}),
        &[],
    );
    check_update(
        "nodes",
        node,
        json!({"spec": {"podCIDR": "10.2.0.0/24", "podCIDRs": ["10.2.0.0/24"],
            "providerID": "cloud://b"}}),
        &[
            "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
            "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to \
             valid",
        ],
    );
    let twice = json!({"metadata": {"name": "n"},
        "spec": {"podCIDRs": ["10.1.0.0/24", "10.2.0.0/24"]}});
    check(
        "nodes",
        twice,
        &[
            "spec.podCIDRs: Invalid value: [\"10.1.0.0/24\",\"10.2.0.0/24\"]: may specify no more than \
           one CIDR for each IP family",
        ],
    );
}

#[test]
fn taints_and_capacity_of_a_node_are_validated() {
    let taint = json!({"key": "k", "effect": "NoSchedule"});
    let status = json!({"capacity": {"memory": "-1", "pods": "1500m"}, "allocatable": {}});
    check_members(
        "nodes",
        json!({"spec": {"taints": [taint, taint]}, "status": status}),
        &[
            "metadata.taints[1]: Duplicate value: {\"effect\":\"NoSchedule\",\"key\":\"k\"}: taints must be unique by \
             key and effect pair",
            "status.capacity.memory: Invalid value: \"-1\": must be greater than or equal to 0",
            "status.capacity.pods: Invalid value: \"1500m\": must be an integer",
        ],
    );
}
