//! Pods, their containers and volumes.

use super::*;

#[test]
fn pods() {
    let expected = json!({"enableServiceLinks": true});
    check(
        "pods",
        json!({"spec": {"containers": [{"name": "c", "image": "i:1"}]}}),
        json!({"spec": with(pod_spec(), expected)}),
    );
    // The deprecated field with the service account is used.
    let sent = json!({
        "containers": [{"name": "c", "image": "i:1"}], "serviceAccount": "robot",
        "tolerations": [{"operator": "Exists"}], "restartPolicy": "Never", "dnsPolicy": null,
        "enableServiceLinks": false, "terminationGracePeriodSeconds": 0,
    });
    let expected = json!({
        "serviceAccount": "robot", "serviceAccountName": "robot", "enableServiceLinks": false,
        "tolerations": [{"operator": "Exists"}], "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
    });
    check(
        "pods",
        json!({"spec": sent}),
        json!({"spec": with(pod_spec(), expected)}),
    );
}

#[test]
fn containers() {
    let sent = json!({"hostNetwork": true, "containers": [{
        "name": "c", "image": "i",
        "ports": [{"containerPort": 80}, {"containerPort": 53, "hostPort": 54, "protocol": "UDP"}],
        "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
        "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 0},
        "readinessProbe": {"grpc": {"port": 80}, "timeoutSeconds": 7},
        "lifecycle": {"preStop": {"httpGet": {"port": 1, "path": "/bye"}}},
    }]});
    let found = defaulted("pods", json!({"spec": sent}));
    let expected = json!({
        "name": "c", "image": "i", "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "ports": [
            {"containerPort": 80, "hostPort": 80, "protocol": "TCP"},
            {"containerPort": 53, "hostPort": 54, "protocol": "UDP"},
        ],
        "env": [{"name": "N", "valueFrom": {
            "fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"},
        }}],
        "resources": {
            "limits": {"cpu": "1", "memory": "1Gi"},
            "requests": {"cpu": "100m", "memory": "1Gi"},
        },
        "livenessProbe": {
            "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "periodSeconds": 10,
            "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3,
        },
        "readinessProbe": {
            "grpc": {"port": 80, "service": ""}, "periodSeconds": 10,
            "timeoutSeconds": 7, "successThreshold": 1, "failureThreshold": 3,
        },
        "lifecycle": {"preStop": {"httpGet": {"port": 1, "path": "/bye", "scheme": "HTTP"}}},
    });
    assert_eq!(found["spec"]["containers"][0], expected);
}

#[test]
fn an_image_without_a_tag_is_the_latest() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.2", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:00", "IfNotPresent"),
        ("nginx:latest@sha256:00", "Always"),
        ("", "IfNotPresent"),
    ] {
        let pod = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        let found = defaulted("pods", pod);
        assert_eq!(
            found["spec"]["containers"][0]["imagePullPolicy"], policy,
            "{image}"
        );
    }
}

#[test]
fn volumes() {
    let field = json!({"path": "p", "fieldRef": {"fieldPath": "metadata.name"}});
    let filled =
        json!({"path": "p", "fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}});
    let sent = json!({"volumes": [
        {"name": "a"},
        {"name": "b", "configMap": {"name": "m"}},
        {"name": "c", "secret": {"secretName": "s", "defaultMode": 0}},
        {"name": "d", "hostPath": {"path": "/"}},
        {"name": "e", "downwardAPI": {"items": [field]}},
        {"name": "f", "projected": {"sources": [
            {"serviceAccountToken": {"path": "t"}}, {"downwardAPI": {"items": [field]}},
        ]}},
        {"name": "g", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
    ]});
    let found = defaulted("pods", json!({"spec": sent}));
    let expected = json!([
        {"name": "a", "emptyDir": {}},
        {"name": "b", "configMap": {"name": "m", "defaultMode": 420}},
        {"name": "c", "secret": {"secretName": "s", "defaultMode": 0}},
        {"name": "d", "hostPath": {"path": "/", "type": ""}},
        {"name": "e", "downwardAPI": {"items": [filled], "defaultMode": 420}},
        {"name": "f", "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
            {"downwardAPI": {"items": [filled]}},
        ]}},
        {"name": "g", "ephemeral": {"volumeClaimTemplate": {
            "spec": {"volumeMode": "Filesystem"},
        }}},
    ]);
    assert_eq!(found["spec"]["volumes"], expected);
}
