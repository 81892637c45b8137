//! The JSON of the simulated objects: pods and their status, nodes, leases and config maps.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pod::{NODES, Pod, PodState, WorkloadKind};

/// The namespace of the pods and config maps.
pub(crate) const NAMESPACE: &str = "default";

/// The namespace of the leases of nodes.
pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The number of config maps that change continuously.
pub(crate) const REPORTS: u32 = 10;

/// The size of the content of each of these config maps in bytes.
const REPORT_BYTES: usize = 64 << 10;

/// The duration of a lease of a node in seconds.
const LEASE_S: u32 = 40;

/// Returns the name of a node.
pub(crate) fn node_name(number: u32) -> String {
    format!("node-{number}")
}

/// Returns the name of a config map that changes continuously.
pub(crate) fn report_name(number: u32) -> String {
    format!("report-{number}")
}

/// Returns a node without a status.
pub(crate) fn node(number: u32) -> Value {
    let name = node_name(number);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": format!("zone-{}", ["a", "b", "c"][number as usize % 3]),
        }},
    })
}

/// Returns the status of a node that is ready.
pub(crate) fn node_status(number: u32, now: Timestamp) -> Value {
    let now = seconds(now);
    let condition = |of: &str, status: &str, reason: &str| {
        json!({
            "type": of, "status": status, "reason": reason,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let resources = json!({"cpu": "16", "memory": "64Gi", "pods": "250"});
    json!({"status": {
        "capacity": resources,
        "allocatable": resources,
        "addresses": [
            {"type": "InternalIP", "address": node_address(number)},
            {"type": "Hostname", "address": node_name(number)},
        ],
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady"),
        ],
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "simulated",
            "kernelVersion": "6.12.0", "containerRuntimeVersion": "simulated://1.0",
            "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
            "machineID": "", "systemUUID": "", "bootID": "",
        },
    }})
}

/// Returns the lease of a node.
pub(crate) fn lease(number: u32, now: Timestamp) -> Value {
    let name = node_name(number);
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_S,
            "renewTime": microseconds(now),
        },
    })
}

/// Returns a merge patch that renews a lease.
pub(crate) fn renewed_lease(now: Timestamp) -> Value {
    json!({"spec": {"renewTime": microseconds(now)}})
}

/// Returns a config map that changes continuously.
pub(crate) fn report(number: u32, rng: &mut fastrand::Rng) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": report_name(number), "namespace": NAMESPACE},
        "data": report_data(rng),
    })
}

/// Returns a merge patch with new content for a config map of [`report`].
pub(crate) fn changed_report(rng: &mut fastrand::Rng) -> Value {
    json!({"data": report_data(rng)})
}

fn report_data(rng: &mut fastrand::Rng) -> Value {
    let mut lines = String::with_capacity(REPORT_BYTES + 64);
    while lines.len() < REPORT_BYTES {
        let (order, cents) = (rng.u32(..10_000_000), rng.u32(100..100_000));
        lines.push_str(&format!("order {order:07} total {cents:06}\n"));
    }
    json!({"orders": lines})
}

/// Returns the object of a new pod.
pub(crate) fn pod(pod: &Pod) -> Value {
    let workload = pod.workload;
    let restart_policy = match workload.kind {
        WorkloadKind::Job => "Never",
        WorkloadKind::Deployment | WorkloadKind::StatefulSet => "Always",
    };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": NAMESPACE,
            "labels": {"app": workload.name},
        },
        "spec": {
            "containers": [{
                "name": workload.name,
                "image": workload.image,
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            }],
            "restartPolicy": restart_policy,
            "automountServiceAccountToken": false,
        },
    })
}

/// Returns the binding of a pod to its node.
pub(crate) fn binding(pod: &Pod) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": NAMESPACE},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name(pod.node)},
    })
}

/// Returns a merge patch with the status of a pod in its current state.
pub(crate) fn pod_status(pod: &Pod, now: Timestamp) -> Value {
    let phase = match pod.state {
        PodState::Running | PodState::CrashLoopBackOff => "Running",
        PodState::Completed => "Succeeded",
        PodState::Error => "Failed",
        _ => "Pending",
    };
    let mut status = json!({
        "phase": phase,
        "conditions": conditions(pod, now),
        "containerStatuses": [container_status(pod)],
        "hostIP": node_address(pod.node),
        "hostIPs": [{"ip": node_address(pod.node)}],
        "startTime": seconds(pod.bound_at),
    });
    if phase != "Pending" {
        let address = pod_address(pod);
        status["podIP"] = json!(address);
        status["podIPs"] = json!([{"ip": address}]);
    }
    json!({"status": status})
}

fn conditions(pod: &Pod, now: Timestamp) -> Value {
    let is_ready = pod.state == PodState::Running;
    let reason = match pod.state {
        PodState::Running => None,
        PodState::Completed => Some("PodCompleted"),
        PodState::Error => Some("PodFailed"),
        _ => Some("ContainersNotReady"),
    };
    let condition = |of: &str, is_true: bool, since: Timestamp| {
        let status = if is_true { "True" } else { "False" };
        let mut condition =
            json!({"type": of, "status": status, "lastTransitionTime": seconds(since)});
        if let Some(reason) = reason.filter(|_| !is_true) {
            condition["reason"] = json!(reason);
        }
        condition
    };
    json!([
        condition("PodScheduled", true, pod.bound_at),
        condition("Initialized", true, pod.bound_at),
        condition("ContainersReady", is_ready, now),
        condition("Ready", is_ready, now),
    ])
}

fn container_status(pod: &Pod) -> Value {
    let (name, image) = (pod.workload.name, pod.workload.image);
    let is_running = pod.state == PodState::Running;
    let terminated = |reason: &str, exit_code: u8| {
        let (started_at, finished_at) = pod.last_run?;
        Some(json!({"terminated": {
            "reason": reason, "exitCode": exit_code,
            "startedAt": seconds(started_at), "finishedAt": seconds(finished_at),
        }}))
    };
    let waiting =
        |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
    let state = match pod.state {
        PodState::Running => json!({"running": {"startedAt": seconds(pod.container_started_at)}}),
        PodState::Completed => terminated("Completed", 0).unwrap_or_default(),
        PodState::Error => terminated("Error", 1).unwrap_or_default(),
        PodState::CrashLoopBackOff => {
            waiting("CrashLoopBackOff", "back-off restarting failed container")
        }
        PodState::ImagePullBackOff => waiting("ImagePullBackOff", "Back-off pulling image"),
        _ => json!({"waiting": {"reason": "ContainerCreating"}}),
    };
    let last_state = match pod.restarts {
        0 => None,
        _ => terminated("Error", 1),
    };
    let last_state = last_state.unwrap_or_else(|| json!({}));
    json!({
        "name": name, "image": image, "imageID": "",
        "ready": is_running, "started": is_running,
        "restartCount": pod.restarts,
        "state": state, "lastState": last_state,
    })
}

fn node_address(number: u32) -> String {
    format!("10.0.0.{}", 10 + number % NODES)
}

fn pod_address(pod: &Pod) -> String {
    format!("10.244.{}.{}", pod.number / 250, 1 + pod.number % 250)
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn microseconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn status_in(states: &[PodState]) -> Value {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut pod = Pod::new(0);
        for state in states {
            pod.enter(*state, NOW, &mut rng);
        }
        pod_status(&pod, NOW)["status"].clone()
    }

    #[test]
    fn the_status_is_what_kubectl_prints() {
        use PodState::{
            Completed, ContainerCreating, CrashLoopBackOff, Pending, Running, Scheduled,
        };
        let begin = [Pending, Scheduled, ContainerCreating];
        let creating = status_in(&begin);
        assert_eq!(creating["phase"], "Pending");
        let waiting = "/containerStatuses/0/state/waiting/reason";
        assert_eq!(creating.pointer(waiting), Some(&json!("ContainerCreating")));
        assert_eq!(creating["podIP"], Value::Null);
        let running = status_in(&[&begin[..], &[Running]].concat());
        assert_eq!(running["containerStatuses"][0]["ready"], true);
        assert_eq!(running["podIP"], "10.244.0.1");
        let failing = [&begin[..], &[Running, CrashLoopBackOff]].concat();
        let failing = status_in(&[&failing[..], &[Running, CrashLoopBackOff]].concat());
        assert_eq!(failing.pointer(waiting), Some(&json!("CrashLoopBackOff")));
        let container = &failing["containerStatuses"][0];
        assert_eq!(container["restartCount"], 2);
        assert_eq!(container["lastState"]["terminated"]["exitCode"], 1);
        let completed = status_in(&[&begin[..], &[Running, Completed]].concat());
        assert_eq!(completed["phase"], "Succeeded");
        assert_eq!(completed["conditions"][3]["reason"], "PodCompleted");
    }

    #[test]
    fn reports_are_large_and_differ() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (one, other) = (changed_report(&mut rng), changed_report(&mut rng));
        assert_ne!(one, other);
        let length = one["data"]["orders"].as_str().unwrap().len();
        assert!((REPORT_BYTES..REPORT_BYTES + 64).contains(&length));
    }
}
