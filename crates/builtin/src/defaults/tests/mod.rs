//! One case per type: what a client sent, and the members that defaulting must add to it. It must add no others.

mod pods;

use serde_json::{Value, json};

use super::*;
use crate::table;

/// Sets the defaults of an object of the first resource of this plural name.
fn defaulted(plural: &str, mut object: Value) -> Value {
    let all = table::all();
    let resource = all.iter().find(|r| r.plural == plural).unwrap();
    fill(resource, object.as_object_mut().unwrap());
    let once = object.clone();
    fill(resource, object.as_object_mut().unwrap());
    assert_eq!(object, once, "defaults of defaults");
    object
}

#[track_caller]
fn check(plural: &str, sent: Value, expected: Value) {
    let found = defaulted(plural, sent);
    assert_eq!(found, expected, "found {found:#}\nexpected {expected:#}");
}

/// Adds members to an object.
fn with(mut object: Value, more: Value) -> Value {
    let members = object.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    object
}

fn container() -> Value {
    json!({
        "name": "c", "image": "i:1", "imagePullPolicy": "IfNotPresent", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    })
}

fn pod_spec() -> Value {
    json!({
        "containers": [container()], "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
        "schedulerName": "default-scheduler", "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    })
}

/// Returns the pod template that a client sends, and the same template with defaults.
fn templates() -> (Value, Value) {
    (
        json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        }),
        json!({"metadata": {"labels": {"a": "b"}}, "spec": pod_spec()}),
    )
}

#[test]
fn apps() {
    let (sent, template) = templates();
    check(
        "deployments",
        json!({"spec": {"template": sent, "replicas": 0}}),
        json!({"spec": {
            "template": template, "replicas": 0, "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600, "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
            },
        }}),
    );
    let recreated = defaulted(
        "deployments",
        json!({"spec": {"strategy": {"type": "Recreate"}}}),
    );
    assert_eq!(recreated["spec"]["strategy"], json!({"type": "Recreate"}));
    check(
        "replicasets",
        json!({"spec": {"template": sent}}),
        json!({"spec": {"template": template, "replicas": 1}}),
    );
    check(
        "daemonsets",
        json!({"spec": {"template": sent}}),
        json!({"spec": {
            "template": template, "revisionHistoryLimit": 10, "updateStrategy": {
                "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
            },
        }}),
    );
    let claim = json!({"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    check(
        "statefulsets",
        json!({"spec": {"template": sent, "volumeClaimTemplates": [claim]}}),
        json!({"spec": {
            "template": template, "replicas": 1, "revisionHistoryLimit": 10,
            "podManagementPolicy": "OrderedReady", "serviceName": "",
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": "Retain", "whenScaled": "Retain",
            },
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "volumeClaimTemplates": [{
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": "d"}, "status": {"phase": "Pending"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {},
                    "volumeMode": "Filesystem",
                },
            }],
        }}),
    );
    check(
        "replicationcontrollers",
        json!({"metadata": {"name": "r"}, "spec": {"template": sent}}),
        json!({
            "metadata": {"name": "r", "labels": {"a": "b"}},
            "spec": {"template": template, "replicas": 1, "selector": {"a": "b"}},
        }),
    );
}

#[test]
fn batch() {
    let (sent, template) = templates();
    let expected = json!({
        "template": template, "completions": 1, "parallelism": 1, "backoffLimit": 6,
        "completionMode": "NonIndexed", "suspend": false, "manualSelector": false,
        "podReplacementPolicy": "TerminatingOrFailed",
    });
    check(
        "jobs",
        json!({"metadata": {}, "spec": {"template": sent}}),
        json!({"metadata": {"labels": {"a": "b"}}, "spec": expected}),
    );
    let parallel = defaulted("jobs", json!({"spec": {"parallelism": 2}}));
    assert_eq!(parallel["spec"].get("completions"), None);
    let indexed = json!({"spec": {
        "completions": 3, "backoffLimitPerIndex": 1,
        "podFailurePolicy": {"rules": [{"onPodConditions": [{"type": "t"}]}]},
    }});
    let found = defaulted("jobs", indexed);
    assert_eq!(found["spec"]["backoffLimit"], i32::MAX);
    assert_eq!(found["spec"]["podReplacementPolicy"], "Failed");
    let rule = &found["spec"]["podFailurePolicy"]["rules"][0];
    assert_eq!(
        rule["onPodConditions"][0],
        json!({"type": "t", "status": "True"})
    );
    check(
        "cronjobs",
        json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": sent}}}}),
        json!({"spec": {
            "schedule": "* * * * *", "concurrencyPolicy": "Allow", "suspend": false,
            "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {}, "spec": {"template": template}},
        }}),
    );
}

#[test]
fn services() {
    check(
        "services",
        json!({"spec": {"ports": [{"port": 80}]}}),
        json!({"spec": {
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
        }}),
    );
    check(
        "services",
        json!({"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP"}}),
        json!({"spec": {
            "type": "LoadBalancer", "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
            "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
            "allocateLoadBalancerNodePorts": true,
        }}),
    );
    check(
        "services",
        json!({"spec": {"type": "ExternalName", "externalName": "e"}}),
        json!({"spec": {"type": "ExternalName", "externalName": "e", "sessionAffinity": "None"}}),
    );
}

#[test]
fn storage() {
    let spec = json!({"resources": {}, "volumeMode": "Filesystem"});
    check(
        "persistentvolumeclaims",
        json!({"spec": {}}),
        json!({"spec": spec}),
    );
    let snapshot = json!({"apiGroup": "g", "kind": "VolumeSnapshot", "name": "n"});
    let found = defaulted(
        "persistentvolumeclaims",
        json!({"spec": {"dataSource": snapshot}}),
    );
    assert_eq!(found["spec"]["dataSourceRef"], snapshot);
    check(
        "persistentvolumes",
        json!({"spec": {"hostPath": {"path": "/"}}}),
        json!({"spec": {
            "hostPath": {"path": "/", "type": ""}, "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Retain",
        }}),
    );
    check(
        "storageclasses",
        json!({"provisioner": "p"}),
        json!({
            "provisioner": "p", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
        }),
    );
    check(
        "csidrivers",
        json!({"spec": {"attachRequired": false}}),
        json!({"spec": {
            "attachRequired": false, "podInfoOnMount": false, "storageCapacity": false,
            "fsGroupPolicy": "ReadWriteOnceWithFSType", "requiresRepublish": false,
            "seLinuxMount": false, "volumeLifecycleModes": ["Persistent"],
        }}),
    );
}

#[test]
fn network() {
    check(
        "networkpolicies",
        json!({"spec": {"egress": [{"ports": [{"port": 53}]}]}}),
        json!({"spec": {
            "egress": [{"ports": [{"port": 53, "protocol": "TCP"}]}], "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
        }}),
    );
    check(
        "endpointslices",
        json!({"ports": [{"port": 80}]}),
        json!({"ports": [{"port": 80, "name": "", "protocol": "TCP"}]}),
    );
    check(
        "endpoints",
        json!({"subsets": [{"ports": [{"port": 80}]}]}),
        json!({"subsets": [{"ports": [{"port": 80, "protocol": "TCP"}]}]}),
    );
    check(
        "ingressclasses",
        json!({"spec": {"parameters": {"kind": "K"}}}),
        json!({"spec": {"parameters": {"kind": "K", "scope": "Cluster"}}}),
    );
}

#[test]
fn admission() {
    let hook = json!({"name": "h", "clientConfig": {"service": {"name": "s"}}, "rules": [{}]});
    let filled = json!({
        "name": "h", "clientConfig": {"service": {"name": "s", "port": 443}},
        "rules": [{"scope": "*"}], "failurePolicy": "Fail", "matchPolicy": "Equivalent",
        "namespaceSelector": {}, "objectSelector": {}, "timeoutSeconds": 10,
    });
    check(
        "validatingwebhookconfigurations",
        json!({"webhooks": [hook]}),
        json!({"webhooks": [filled]}),
    );
    check(
        "mutatingwebhookconfigurations",
        json!({"webhooks": [hook]}),
        json!({"webhooks": [with(filled, json!({"reinvocationPolicy": "Never"}))]}),
    );
    for policies in ["mutatingadmissionpolicies", "validatingadmissionpolicies"] {
        check(
            policies,
            json!({"spec": {"matchConstraints": {"resourceRules": [{}]}}}),
            json!({"spec": {"failurePolicy": "Fail", "matchConstraints": {
                "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
                "resourceRules": [{"scope": "*"}],
            }}}),
        );
    }
}

#[test]
fn remaining_resources() {
    check(
        "secrets",
        json!({"data": {}}),
        json!({"data": {}, "type": "Opaque"}),
    );
    check(
        "configmaps",
        json!({"data": {"a": "b"}}),
        json!({"data": {"a": "b"}}),
    );
    check("leases", json!({"spec": {}}), json!({"spec": {}}));
    let subjects = json!([{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]);
    let group = "rbac.authorization.k8s.io";
    check(
        "rolebindings",
        json!({"subjects": subjects, "roleRef": {"kind": "Role"}}),
        json!({
            "subjects": [
                {"kind": "User", "name": "u", "apiGroup": group},
                {"kind": "ServiceAccount", "name": "s"},
            ],
            "roleRef": {"kind": "Role", "apiGroup": group},
        }),
    );
    check(
        "priorityclasses",
        json!({"value": 1}),
        json!({"value": 1, "preemptionPolicy": "PreemptLowerPriority"}),
    );
    check(
        "nodes",
        json!({"status": {"capacity": {"cpu": "1"}}}),
        json!({"status": {
            "capacity": {"cpu": "1"}, "allocatable": {"cpu": "1"},
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "",
                "osImage": "", "systemUUID": "",
            },
        }}),
    );
    check(
        "limitranges",
        json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}),
        json!({"spec": {"limits": [{
            "type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "2"},
            "defaultRequest": {"cpu": "2"},
        }]}}),
    );
    check(
        "resourceclaims",
        json!({"spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "d"}}]}}}),
        json!({"spec": {"devices": {"requests": [{"exactly": {
            "deviceClassName": "d", "allocationMode": "ExactCount", "count": 1,
        }}]}}}),
    );
    let found = defaulted(
        "horizontalpodautoscalers",
        json!({"spec": {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 9}}}}),
    );
    assert_eq!(found["spec"]["minReplicas"], 1);
    assert_eq!(found["spec"]["metrics"][0]["resource"]["name"], "cpu");
    let behavior = &found["spec"]["behavior"];
    assert_eq!(behavior["scaleUp"]["stabilizationWindowSeconds"], 9);
    assert_eq!(behavior["scaleUp"]["policies"].as_array().unwrap().len(), 2);
    assert_eq!(behavior["scaleDown"]["selectPolicy"], "Max");
}

/// Validation refuses a value of the wrong type; defaulting does not change it.
#[test]
fn values_of_the_wrong_type_are_not_defaulted() {
    let wrong = [
        json!(null),
        json!(1),
        json!("x"),
        json!([1]),
        json!({"a": {"b": []}}),
    ];
    for resource in table::all() {
        for wrong in &wrong {
            for member in [
                "spec", "status", "metadata", "webhooks", "subjects", "ports",
            ] {
                let mut object = json!({ member: wrong });
                fill(&resource, object.as_object_mut().unwrap());
            }
            for member in [
                "template",
                "containers",
                "volumes",
                "strategy",
                "ports",
                "behavior",
            ] {
                let mut object = json!({"spec": {member: wrong, "type": wrong}});
                fill(&resource, object.as_object_mut().unwrap());
                let mut object = json!({"spec": {member: [{"name": wrong, "ports": wrong}]}});
                fill(&resource, object.as_object_mut().unwrap());
            }
        }
    }
}

/// `podCIDR` has precedence over `podCIDRs`, and zero counts as absent in the numbers of flow control.
#[test]
fn pod_cidrs_and_zeros_of_flow_control() {
    let spec = |spec: Value| defaulted("nodes", json!({"spec": spec}))["spec"].clone();
    let ranges = |first: &str, all: &[&str]| json!({"podCIDR": first, "podCIDRs": all});
    let (a, b) = ("10.1.0.0/24", "10.2.0.0/24");
    assert_eq!(spec(ranges(a, &[b, "x"])), ranges(a, &[a]));
    assert_eq!(spec(ranges(a, &[a, "x"])), ranges(a, &[a, "x"]));
    assert_eq!(spec(ranges("", &[a, "x"])), ranges(a, &[a, "x"]));
    let queuing = json!({"handSize": 0, "queues": 0, "queueLengthLimit": 0});
    let level = json!({"spec": {"type": "Limited", "limited": {
        "limitResponse": {"type": "Queue", "queuing": queuing}}}});
    let level = defaulted("prioritylevelconfigurations", level);
    assert_eq!(
        level["spec"]["limited"]["limitResponse"]["queuing"],
        json!({"handSize": 8, "queues": 64, "queueLengthLimit": 50})
    );
    check(
        "flowschemas",
        json!({"spec": {"matchingPrecedence": 0}}),
        json!({"spec": {"matchingPrecedence": 1000}}),
    );
}
