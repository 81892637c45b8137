//! A row of each built-in resource with columns of its own, compared with the output of kubectl for the same object on
//! upstream's server; and a test that every other resource is listed as having none.

use serde_json::Value;
use std::sync::Arc;

use super::*;
use crate::table;
use watchet_registry::Resource;

fn resource(group: &str, plural: &str) -> Arc<Resource> {
    let all = table::all();
    let found = all.into_iter().find(|r| r.is(group, plural));
    found.unwrap_or_else(|| panic!("{plural}.{group} is built in"))
}

/// Returns the cells of an object named `x` that is ten minutes old, joined by `|`.
fn check(group: &str, plural: &str, object: Value, expected: &str) {
    let resource = resource(group, plural);
    let object = created(object);
    let now = NOW.parse().unwrap();
    let cells = resource.table_cells(&object, now);
    let read = resource
        .strategy
        .printed_fields()
        .decode(object.to_string().as_bytes());
    assert_eq!(cells, resource.table_cells(&read.unwrap(), now), "{plural}");
    let columns = resource.table_columns();
    assert_eq!(cells.len(), columns.len(), "{plural}");
    for (cell, column) in cells.iter().zip(columns) {
        // The value of a column of type `string` may be a number, as upstream; the value of a number column is never a
        // string.
        let fits = match &*column.r#type {
            "integer" => cell.is_i64() || cell.is_u64(),
            "boolean" => cell.is_boolean() || cell.is_string(),
            _ => true,
        };
        assert!(fits, "{plural}: {}: {cell}", column.name);
    }
    let text = |cell: &Value| cell.as_str().map_or(cell.to_string(), str::to_owned);
    let shown: Vec<String> = cells.iter().map(text).collect();
    assert_eq!(shown.join("|"), expected, "{plural}");
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "c", "image": "i"}]}})
}

#[test]
fn rows_of_workloads() {
    let set = json!({"spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": template()}, "status": {"replicas": 2, "readyReplicas": 1}});
    check(
        "apps",
        "replicasets",
        set.clone(),
        "x|3|2|1|10m|c|i|app=web",
    );
    check("apps", "statefulsets", set, "x|1/3|10m|c|i");
    let controller = json!({"spec": {"replicas": 1, "selector": {"app": "web"}}});
    let expected = "x|1|0|0|10m|<none>|<none>|app=web";
    check("", "replicationcontrollers", controller, expected);
    let set = json!({"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template()},
        "status": {"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3,
            "updatedNumberScheduled": 2, "numberAvailable": 1}});
    check(
        "apps",
        "daemonsets",
        set,
        "x|5|4|3|2|1|disk=ssd|10m|c|i|app=web",
    );
    let job = json!({"spec": {"schedule": "* * * * *", "suspend": false,
        "jobTemplate": {"spec": {"template": template()}}},
        "status": {"active": [{}], "lastScheduleTime": "2026-01-01T00:09:00Z"}});
    let expected = "x|* * * * *|<none>|False|1|60s|10m|c|i|<none>";
    check("batch", "cronjobs", job, expected);
    let bare = json!({"spec": {"timeZone": "Etc/UTC"}});
    let expected = "x||Etc/UTC|<unset>|0|<none>|10m|<none>|<none>|<none>";
    check("batch", "cronjobs", bare, expected);
    check(
        "",
        "podtemplates",
        json!({"template": template()}),
        "x|c|i|app=web",
    );
    let revision = json!({"revision": 3, "metadata": {"ownerReferences": [
        {"kind": "Pod", "apiVersion": "v1", "name": "p"},
        {"kind": "DaemonSet", "apiVersion": "apps/v1", "name": "d", "controller": true}]}});
    check(
        "apps",
        "controllerrevisions",
        revision,
        "x|daemonset.apps/d|3|10m",
    );
    check("apps", "controllerrevisions", json!({}), "x|<none>|0|10m");
    let budget = json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 2}});
    check("policy", "poddisruptionbudgets", budget, "x|50%|N/A|2|10m");
    let budget = json!({"spec": {"maxUnavailable": 1}});
    check("policy", "poddisruptionbudgets", budget, "x|N/A|1|0|10m");
}

#[test]
fn autoscalers_show_their_metrics() {
    let of = |specs: Value, current: Value| {
        json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 5, "metrics": specs},
            "status": {"currentReplicas": 3, "currentMetrics": current}})
    };
    let checked = |specs: Value, current: Value, targets: &str| {
        let expected = format!("x|Deployment/web|{targets}|2|5|3|10m");
        let plural = "horizontalpodautoscalers";
        check("autoscaling", plural, of(specs, current), &expected);
    };
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 80}}});
    let memory = json!({"type": "ContainerResource", "containerResource": {"name": "memory",
        "target": {"averageValue": "1Gi"}}});
    let queue = json!({"type": "External", "external": {"target": {"averageValue": "30"}}});
    let hits = json!({"type": "Object", "object": {"target": {"value": "2k"}}});
    let pods = json!({"type": "Pods", "pods": {"target": {"averageValue": "10"}}});
    checked(json!([]), json!([]), "<none>");
    checked(json!([cpu]), json!([]), "cpu: <unknown>/80%");
    let current = json!([{"resource": {"current": {"averageUtilization": 7}}}]);
    checked(
        json!([cpu, memory]),
        current,
        "cpu: 7%/80%, memory: <unknown>/1Gi",
    );
    checked(
        json!([queue, hits]),
        json!([]),
        "<unknown>/30 (avg), <unknown>/2k",
    );
    let current = json!([{"pods": {"current": {"averageValue": "4"}}}]);
    checked(
        json!([pods, cpu, hits]),
        current,
        "4/10, cpu: <unknown>/80% + 1 more...",
    );
    let odd = json!({"type": "Gut"});
    checked(json!([odd]), json!([]), "<unknown type>");
}

#[test]
fn rows_of_network_resources() {
    let rules = |hosts: &[&str]| {
        let rules: Vec<Value> = hosts.iter().map(|host| json!({"host": host})).collect();
        json!({"spec": {"rules": rules}})
    };
    let plural = "ingresses";
    let group = "networking.k8s.io";
    check(group, plural, rules(&[]), "x|<none>|*||80|10m");
    check(
        group,
        plural,
        rules(&["a", "b", "c"]),
        "x|<none>|a,b,c||80|10m",
    );
    let more = "x|<none>|a,b,c + 2 more...||80|10m";
    check(group, plural, rules(&["a", "b", "c", "d", "e"]), more);
    let balanced = json!({"spec": {"ingressClassName": "nginx", "tls": [{}]},
        "status": {"loadBalancer": {"ingress": [{"hostname": "long.name.example"}]}}});
    check(
        group,
        plural,
        balanced,
        "x|nginx|*|long.name.exa...|80, 443|10m",
    );
    let class = json!({"spec": {"controller": "c/d", "parameters": {"kind": "K", "name": "n"}}});
    check(group, "ingressclasses", class, "x|c/d|K/n|10m");
    let class = json!({"spec": {"parameters": {"kind": "K", "apiGroup": "g", "name": "n"}}});
    check(group, "ingressclasses", class, "x||K.g/n|10m");
    let default = json!({"metadata": {"annotations": {
        "ingressclass.kubernetes.io/is-default-class": "true"}}, "spec": {"controller": "c/d"}});
    check(
        group,
        "ingressclasses",
        default,
        "x (default)|c/d|<none>|10m",
    );
    let endpoints = json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}, {"ip": "::1"}],
        "ports": [{"port": 80}, {"port": 81}]}]});
    let expected = "x|1.1.1.1:80,[::1]:80,1.1.1.1:81 + 1 more...|10m";
    check("", "endpoints", endpoints, expected);
    check("", "endpoints", json!({}), "x|<none>|10m");
    let headless = json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}]}]});
    check("", "endpoints", headless, "x|1.1.1.1|10m");
    let slice = json!({"addressType": "IPv4", "ports": [{"port": 80}, {"name": "n"}, {}],
        "endpoints": [{"addresses": ["1.1.1.1"]}, {"addresses": ["2.2.2.2"]}]});
    let expected = "x|IPv4|80,n,*|1.1.1.1,2.2.2.2|10m";
    check("discovery.k8s.io", "endpointslices", slice, expected);
    check(
        "discovery.k8s.io",
        "endpointslices",
        json!({}),
        "x||<unset>|<unset>|10m",
    );
    let policy = json!({"spec": {"podSelector": {"matchLabels": {"app": "web"}}}});
    check(group, "networkpolicies", policy, "x|app=web|10m");
    let cidr = json!({"spec": {"cidrs": ["10.0.0.0/8", "fd00::/8"]}});
    check(group, "servicecidrs", cidr, "x|10.0.0.0/8,fd00::/8|10m");
    let address = json!({"spec": {"parentRef": {"resource": "services", "namespace": "n",
        "name": "s"}}});
    check(group, "ipaddresses", address, "x|services/n/s");
}

#[test]
fn rows_of_storage_resources() {
    let volume = json!({"spec": {"capacity": {"storage": "1Gi"}, "claimRef": {"namespace": "n",
        "name": "c"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "fast",
        "volumeMode": "Block"}, "status": {"phase": "Bound"}});
    let expected = "x|1Gi|RWO,RWX|Retain|Bound|n/c|fast|<unset>||10m|Block";
    check("", "persistentvolumes", volume, expected);
    let claim = json!({"spec": {"volumeName": "v", "volumeAttributesClassName": "gold"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOncePod"]},
        "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}});
    let expected = "x|Bound|v|1Gi|RWOP|old|gold|10m|<unset>";
    check("", "persistentvolumeclaims", claim, expected);
    let going = json!({"metadata": {"deletionTimestamp": NOW}, "status": {"phase": "Bound"}});
    let expected = "x|Terminating|||||<unset>|10m|<unset>";
    check("", "persistentvolumeclaims", going, expected);
    let group = "storage.k8s.io";
    let class = json!({"provisioner": "p", "allowVolumeExpansion": true, "metadata":
        {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    check(
        group,
        "storageclasses",
        class,
        "x (default)|p|Delete|Immediate|true|10m",
    );
    check(
        group,
        "volumeattributesclasses",
        json!({"driverName": "d"}),
        "x|d|10m",
    );
    let attachment = json!({"spec": {"attacher": "a", "nodeName": "n",
        "source": {"persistentVolumeName": "v"}}, "status": {"attached": true}});
    check(group, "volumeattachments", attachment, "x|a|v|n|true|10m");
    check(
        group,
        "csinodes",
        json!({"spec": {"drivers": [{}, {}]}}),
        "x|2|10m",
    );
    let driver = json!({"spec": {"podInfoOnMount": true, "tokenRequests": [{"audience": "a"}],
        "volumeLifecycleModes": ["Persistent", "Ephemeral"]}});
    let expected = "x|true|true|false|a|false|Persistent,Ephemeral|10m";
    check(group, "csidrivers", driver, expected);
    let capacity = json!({"storageClassName": "fast", "capacity": "1Ti"});
    check(group, "csistoragecapacities", capacity, "x|fast|1Ti");
    let group = "resource.k8s.io";
    check(group, "resourceclaims", json!({}), "x|pending|10m");
    let reserved = json!({"status": {"allocation": {}, "reservedFor": [{}]}});
    check(
        group,
        "resourceclaims",
        reserved,
        "x|allocated,reserved|10m",
    );
    let slice = json!({"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}});
    check(group, "resourceslices", slice, "x|n|d|p|10m");
    check(group, "deviceclasses", json!({}), "x|10m");
}

#[test]
fn rows_of_rbac_resources() {
    let binding = json!({"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [
        {"kind": "User", "name": "jane"}, {"kind": "Group", "name": "dev"},
        {"kind": "User", "name": "joe"},
        {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]});
    let expected = "x|ClusterRole/view|10m|jane, joe|dev|n/s";
    let group = "rbac.authorization.k8s.io";
    check(group, "rolebindings", binding.clone(), expected);
    check(group, "clusterrolebindings", binding, expected);
    check(group, "roles", json!({}), "x|2026-01-01T00:00:00Z");
    check("", "serviceaccounts", json!({"secrets": [{}]}), "x|1|10m");
    let quota = json!({"status": {"hard": {"pods": "4", "limits.cpu": "2", "cpu": "1"},
        "used": {"pods": "1"}}});
    check(
        "",
        "resourcequotas",
        quota,
        "x|cpu: 0/1, pods: 1/4|limits.cpu: 0/2|10m",
    );
    check("", "limitranges", json!({}), "x|2026-01-01T00:00:00Z");
    let request = json!({"spec": {"signerName": "s/t", "username": "jane",
        "expirationSeconds": 3600}, "status": {"certificate": "YQ==",
        "conditions": [{"type": "Approved"}]}});
    let (group, plural) = ("certificates.k8s.io", "certificatesigningrequests");
    check(group, plural, request, "x|10m|s/t|jane|60m|Approved,Issued");
    check(group, plural, json!({}), "x|10m|<none>||<none>|Pending");
    let lease = json!({"spec": {"holderIdentity": "h"}});
    check("coordination.k8s.io", "leases", lease, "x|h|10m");
    let class = json!({"value": 7, "preemptionPolicy": "Never"});
    check(
        "scheduling.k8s.io",
        "priorityclasses",
        class,
        "x|7|false|10m|Never",
    );
    check(
        "node.k8s.io",
        "runtimeclasses",
        json!({"handler": "gvisor"}),
        "x|gvisor|10m",
    );
}

#[test]
fn rows_of_admission_and_flow_control_resources() {
    let group = "admissionregistration.k8s.io";
    for plural in [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ] {
        check(group, plural, json!({"webhooks": [{}, {}]}), "x|2|10m");
    }
    let policy = json!({"spec": {"validations": [{}],
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}});
    let plural = "validatingadmissionpolicies";
    check(group, plural, policy, "x|1|v1/ConfigMap|10m");
    check(group, plural, json!({}), "x|0|<unset>|10m");
    let plural = "mutatingadmissionpolicies";
    let policy = json!({"spec": {"mutations": [{}, {}]}});
    check(group, plural, policy, "x|2|<unset>|10m");
    let plural = "mutatingadmissionpolicybindings";
    let bound = json!({"spec": {"policyName": "p", "paramRef": {"name": "m"}}});
    check(group, plural, bound, "x|p|*/m|10m");
    let plural = "validatingadmissionpolicybindings";
    check(
        group,
        plural,
        json!({"spec": {"policyName": "p"}}),
        "x|p|<unset>|10m",
    );
    let bound = json!({"spec": {"policyName": "p", "paramRef": {"namespace": "n", "name": "m"}}});
    check(group, plural, bound, "x|p|n/m|10m");
    let bound = json!({"spec": {"policyName": "p",
        "paramRef": {"selector": {"matchLabels": {"a": "b"}}}}});
    check(group, plural, bound, "x|p|a=b|10m");
    let group = "flowcontrol.apiserver.k8s.io";
    let schema = json!({"spec": {"priorityLevelConfiguration": {"name": "p"},
        "matchingPrecedence": 9, "distinguisherMethod": {"type": "ByUser"}},
        "status": {"conditions": [{"type": "Dangling", "status": "False"}]}});
    check(group, "flowschemas", schema, "x|p|9|ByUser|10m|False");
    let level = json!({"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 5,
        "limitResponse": {"queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}}}}});
    let plural = "prioritylevelconfigurations";
    check(group, plural, level, "x|Limited|5|64|6|50|10m");
    let exempt = json!({"spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0}}});
    check(group, plural, exempt, "x|Exempt|0|<none>|<none>|<none>|10m");
    let group = "apiregistration.k8s.io";
    let service = json!({"spec": {"service": {"namespace": "n", "name": "s"}}, "status":
        {"conditions": [{"type": "Available", "status": "False", "reason": "Gone"}]}});
    check(group, "apiservices", service, "x|n/s|False (Gone)|10m");
    check(group, "apiservices", json!({}), "x|Local|Unknown|10m");
    let group = "apiextensions.k8s.io";
    check(
        group,
        "customresourcedefinitions",
        json!({}),
        "x|2026-01-01T00:00:00Z",
    );
}

/// A field of the wrong type, or an absent one, must not make a printer fail; only the listed resources print just
/// their age.
#[test]
fn every_built_in_has_a_printer() {
    let odd = json!({"metadata": 1, "spec": [], "status": "x", "subsets": {}, "roleRef": 7});
    let mut plain = Vec::new();
    for resource in table::all() {
        let columns = resource.table_columns().len();
        for object in [json!({}), odd.clone()] {
            let cells = resource.table_cells(&object, NOW.parse().unwrap());
            assert_eq!(cells.len(), columns, "{}", resource.plural);
        }
        if printer(&resource.group, &resource.plural).columns == GENERIC.columns {
            plain.push(resource.plural.clone());
        }
    }
    assert_eq!(plain, ["deviceclasses", "resourceclaimtemplates"]);
}
