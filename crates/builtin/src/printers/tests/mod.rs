//! Tests of the printers: each row is compared with the output of kubectl.

use serde_json::{Value, json};

use super::*;

mod rows;

const NOW: &str = "2026-01-01T00:10:00Z";

fn print(printer: &Printer, object: Value) -> Vec<String> {
    let now = NOW.parse().unwrap();
    let cells = (printer.cells)(&object, now);
    assert_eq!(cells.len(), printer.columns.len());
    let read =
        watchet_registry::PrintedFields::from(printer.fields).decode(object.to_string().as_bytes());
    assert_eq!(
        cells,
        (printer.cells)(&read.unwrap(), now),
        "{:?}",
        printer.fields
    );
    let text = |cell: &Value| cell.as_str().map_or(cell.to_string(), str::to_owned);
    cells.iter().map(text).collect()
}

fn created(mut object: Value) -> Value {
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["name"] = json!("x");
    object
}

fn check_pod(object: Value, ready: &str, status: &str, restarts: &str) {
    let cells = print(&workloads::PODS, created(object));
    assert_eq!(cells[..5], ["x", ready, status, restarts, "10m"]);
}

#[test]
fn pod_shows_the_most_specific_status() {
    let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    check_pod(
        json!({"spec": spec, "status": {"phase": "Pending"}}),
        "0/2",
        "Pending",
        "0",
    );
    check_pod(
        json!({"spec": spec, "status": {"phase": "Running", "containerStatuses": [
            {"name": "a", "ready": true, "state": {"running": {}}, "restartCount": 1,
             "lastState": {"terminated": {"finishedAt": "2026-01-01T00:09:00Z"}}},
            {"name": "b", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3}]}}),
        "1/2",
        "CrashLoopBackOff",
        "4 (60s ago)",
    );
    check_pod(
        json!({"spec": spec, "status": {"phase": "Running", "containerStatuses": [
            {"ready": true, "state": {"running": {}}},
            {"state": {"terminated": {"reason": "Completed"}}}]}}),
        "1/2",
        "NotReady",
        "0",
    );
    check_pod(
        json!({"spec": spec, "status": {"containerStatuses": [
            {"state": {"terminated": {"signal": 9, "exitCode": 137}}}]}}),
        "0/2",
        "Signal:9",
        "0",
    );
    check_pod(
        json!({"metadata": {"deletionTimestamp": NOW}, "status": {"phase": "Running"}}),
        "0/0",
        "Terminating",
        "0",
    );
    check_pod(
        json!({"status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "reason": "SchedulingGated"}]}}),
        "0/0",
        "SchedulingGated",
        "0",
    );
}

#[test]
fn initializing_pod_shows_its_progress() {
    let spec = json!({"containers": [{"name": "a"}],
        "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]});
    let sidecar = json!({"name": "s", "started": true, "ready": true, "restartCount": 2,
        "state": {"running": {}}});
    check_pod(
        json!({"spec": spec, "status": {"initContainerStatuses": [sidecar,
            {"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}}]}}),
        "1/2",
        "Init:1/2",
        "2",
    );
    check_pod(
        json!({"spec": spec, "status": {"initContainerStatuses": [sidecar,
            {"name": "i", "state": {"terminated": {"exitCode": 3}}}]}}),
        "1/2",
        "Init:ExitCode:3",
        "2",
    );
    check_pod(
        json!({"spec": spec, "status": {"phase": "Running", "initContainerStatuses": [sidecar,
            {"name": "i", "state": {"terminated": {"exitCode": 0}}, "restartCount": 7}],
            "containerStatuses": [{"ready": true, "state": {"running": {}}}]}}),
        "2/2",
        "Running",
        "2",
    );
}

#[test]
fn wide_pod_columns() {
    let cells = print(
        &workloads::PODS,
        created(
            json!({"spec": {"nodeName": "n1", "readinessGates": [{"conditionType": "g"}]},
            "status": {"podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "g", "status": "True"}]}}),
        ),
    );
    assert_eq!(cells[5..], ["10.0.0.1", "n1", "<none>", "1/1"]);
}

#[test]
fn deployments_and_jobs() {
    let template = json!({"spec": {"containers": [
        {"name": "a", "image": "i:1"}, {"name": "b", "image": "i:2"}]}});
    let cells = print(
        &workloads::DEPLOYMENTS,
        created(json!({"spec": {"replicas": 3, "template": template,
                "selector": {"matchLabels": {"app": "web"},
                    "matchExpressions": [{"key": "t", "operator": "In", "values": ["b", "a"]}]}},
            "status": {"readyReplicas": 1, "updatedReplicas": 2}})),
    );
    let expected = [
        "x",
        "1/3",
        "2",
        "0",
        "10m",
        "a,b",
        "i:1,i:2",
        "app=web,t in (a,b)",
    ];
    assert_eq!(cells, expected);

    let cells = print(
        &workloads::JOBS,
        created(json!({"spec": {"parallelism": 2, "template": template},
            "status": {"succeeded": 1, "startTime": "2026-01-01T00:08:57Z"}})),
    );
    assert_eq!(cells[..5], ["x", "Running", "1/1 of 2", "63s", "10m"]);
    let cells = print(
        &workloads::JOBS,
        created(
            json!({"spec": {"completions": 4}, "status": {"succeeded": 4,
            "conditions": [{"type": "Complete", "status": "True"}],
            "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:09Z"}}),
        ),
    );
    assert_eq!(cells[1..4], ["Complete", "4/4", "9s"]);
}

#[test]
fn nodes_and_services() {
    let cells = print(
        &core::NODES,
        created(
            json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": "",
                "node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "edge"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.1.1.1"}],
                "nodeInfo": {"kubeletVersion": "v1.36.0", "kernelVersion": "6.12",
                    "architecture": "arm64"}}}),
        ),
    );
    let expected = [
        "x",
        "Ready,SchedulingDisabled",
        "control-plane,edge,worker",
        "10m",
        "v1.36.0",
    ];
    assert_eq!(cells[..5], expected);
    assert_eq!(
        cells[5..9],
        ["10.1.1.1", "<none>", "<unknown>", "6.12 (arm64)"]
    );

    let cells = print(
        &core::SERVICES,
        created(
            json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1",
                "ports": [{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}],
                "selector": {"app": "web"}}}),
        ),
    );
    let expected = [
        "x",
        "LoadBalancer",
        "10.0.0.1",
        "<pending>",
        "80:30080/TCP,53/UDP",
        "10m",
        "app=web",
    ];
    assert_eq!(cells, expected);
    let balanced = json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [
        {"ip": "192.168.100.100"}, {"hostname": "a.example"}]}}});
    assert_eq!(
        print(&core::SERVICES, created(balanced))[3],
        "192.168.100.1..."
    );
}

#[test]
fn rows_of_config_maps_secrets_and_namespaces() {
    let data = json!({"data": {"a": "1"}, "binaryData": {"b": ""}, "type": "Opaque",
        "status": {"phase": "Active"}});
    assert_eq!(
        print(&core::CONFIG_MAPS, created(data.clone())),
        ["x", "2", "10m"]
    );
    assert_eq!(
        print(&core::SECRETS, created(data.clone())),
        ["x", "Opaque", "1", "10m"]
    );
    assert_eq!(
        print(&core::NAMESPACES, created(data.clone())),
        ["x", "Active", "10m"]
    );
    assert_eq!(print(&GENERIC, created(data)), ["x", "10m"]);
    assert_eq!(
        print(&GENERIC, json!({"metadata": {"name": "y"}})),
        ["y", "<unknown>"]
    );
}

#[test]
fn an_event_shows_the_same_in_both_groups() {
    let core = created(
        json!({"type": "Normal", "reason": "Started", "message": " up \n",
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{a}"},
        "source": {"component": "kubelet", "host": "n1"}, "count": 3,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:09:55Z"}),
    );
    let newer = created(
        json!({"type": "Normal", "reason": "Started", "note": " up \n",
        "regarding": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{a}"},
        "deprecatedSource": {"component": "kubelet", "host": "n1"}, "deprecatedCount": 3,
        "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z",
        "deprecatedLastTimestamp": "2026-01-01T00:09:55Z"}),
    );
    let expected = [
        "5s",
        "Normal",
        "Started",
        "pod/p",
        "spec.containers{a}",
        "kubelet, n1",
        "up",
        "10m",
        "3",
        "x",
    ];
    assert_eq!(print(&core::EVENTS, core), expected);
    assert_eq!(print(&core::EVENTS, newer), expected);
    let series = json!({"eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c",
        "series": {"count": 8, "lastObservedTime": "2026-01-01T00:09:59.500000Z"}});
    let cells = print(&core::EVENTS, series);
    assert_eq!(
        [&*cells[0], &*cells[5], &*cells[7], &*cells[8]],
        ["0s", "c", "10m", "8"]
    );
}
