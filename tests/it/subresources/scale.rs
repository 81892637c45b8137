//! Tests of `scale` with kubectl, kube-rs and HTTP requests.

use http::Method;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::Cluster;
use crate::harness::Protocol;

fn workload(api_version: &str, kind: &str, name: &str) -> Value {
    let labels = json!({"app": name});
    let selector = match kind {
        "ReplicationController" => labels.clone(),
        _ => json!({"matchLabels": labels}),
    };
    let mut spec = json!({
        "replicas": 2, "selector": selector,
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "nginx"}]},
        },
    });
    if kind == "StatefulSet" {
        spec["serviceName"] = name.into();
    }
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

pub(super) async fn kubectl_scales(cluster: &Cluster) {
    let kubectl = &cluster.kubectl;
    for (api_version, kind, resource) in [
        ("apps/v1", "Deployment", "deployment"),
        ("apps/v1", "ReplicaSet", "replicaset"),
        ("apps/v1", "StatefulSet", "statefulset"),
        ("v1", "ReplicationController", "rc"),
    ] {
        let name = kind.to_lowercase();
        cluster.create(&workload(api_version, kind, &name)).await;
        let object = cluster.get(&[resource, &name]).await;
        let scale = cluster.get(&[resource, &name, "--subresource=scale"]).await;
        assert_eq!(scale["kind"], "Scale");
        assert_eq!(scale["apiVersion"], "autoscaling/v1");
        assert_eq!(scale["spec"]["replicas"], 2);
        assert_eq!(scale["status"]["selector"], format!("app={name}"));
        for member in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "name",
            "namespace",
        ] {
            let (received, own) = (&scale["metadata"][member], &object["metadata"][member]);
            assert!(
                received.is_string() && received == own,
                "{kind} {member}: {received}"
            );
        }
        let output = kubectl
            .run(&["scale", resource, &name, "--replicas=5"])
            .await;
        assert!(output.ends_with("scaled\n"), "{output}");
        let now = cluster.get(&[resource, &name]).await;
        assert_eq!(now["spec"]["replicas"], 5, "{kind}");
        let generation = |object: &Value| object["metadata"]["generation"].as_i64();
        assert_eq!(
            generation(&now),
            generation(&object).map(|g| g + 1),
            "{kind}"
        );
        let current = [
            "scale",
            resource,
            &name,
            "--replicas=1",
            "--current-replicas=4",
        ];
        let output = kubectl.run_failing(&current).await;
        assert!(
            output.contains("Expected replicas to be 4, was 5"),
            "{output}"
        );
        let current = [
            "scale",
            resource,
            &name,
            "--replicas=0",
            "--current-replicas=5",
        ];
        kubectl.run(&current).await;
        assert_eq!(cluster.get(&[resource, &name]).await["spec"]["replicas"], 0);
    }
}

pub(super) async fn scale_updates_check_preconditions(cluster: &Cluster) {
    cluster
        .create(&workload("apps/v1", "Deployment", "d"))
        .await;
    let path = "/apis/apps/v1/namespaces/default/deployments/d/scale";
    let mut wire = cluster.server.admin(Protocol::Http2).await;
    let json = [("content-type", "application/json")];
    let first = wire.get(path).await.json();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut scale = first.clone();
        change(&mut scale);
        scale.to_string()
    };
    let three = with(&|scale| scale["spec"]["replicas"] = 3.into());
    let dry = format!("{path}?dryRun=All");
    let answer = wire.send(Method::PUT, &dry, &json, &three).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["spec"]["replicas"]),
        (200, &json!(3))
    );
    assert_eq!(
        wire.get(path).await.json(),
        first,
        "a dry run stores nothing"
    );
    let answer = wire.send(Method::PUT, path, &json, &three).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let second = answer.json();
    assert_eq!(
        (&second["kind"], &second["spec"]["replicas"]),
        (&json!("Scale"), &json!(3))
    );
    assert_ne!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );

    let answer = wire.send(Method::PUT, path, &json, &three).await;
    assert_eq!(answer.status, 409, "its version is old");
    let message = answer.json()["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(
        message.contains("the object has been modified"),
        "{message}"
    );
    let other = with(&|scale| {
        scale["metadata"]["resourceVersion"] = "".into();
        scale["metadata"]["uid"] = "another".into();
    });
    let answer = wire.send(Method::PUT, path, &json, &other).await;
    assert_eq!(answer.status, 409, "its uid is another's");
    let negative = with(&|scale| {
        scale["metadata"]["resourceVersion"] = "".into();
        scale["spec"]["replicas"] = (-1).into();
    });
    let answer = wire.send(Method::PUT, path, &json, &negative).await;
    assert_eq!(answer.status, 422);
    assert_eq!(
        answer.json()["message"],
        "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater than \
         or equal to 0"
    );
    for (kind, patch, replicas) in [
        ("merge-patch", r#"{"spec":{"replicas":4}}"#, 4),
        ("strategic-merge-patch", r#"{"spec":{"replicas":6}}"#, 6),
        (
            "json-patch",
            r#"[{"op":"replace","path":"/spec/replicas","value":7}]"#,
            7,
        ),
    ] {
        let kind = format!("application/{kind}+json");
        let header = [("content-type", kind.as_str())];
        let answer = wire.send(Method::PATCH, path, &header, patch).await;
        assert_eq!(answer.status, 200, "{kind}: {:?}", answer.body);
        assert_eq!(answer.json()["spec"]["replicas"], replicas, "{kind}");
    }
    let deployment = wire.get(path.trim_end_matches("/scale")).await.json();
    assert_eq!(deployment["spec"]["replicas"], 7);
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["image"],
        "nginx"
    );
    assert_eq!(
        wire.get("/apis/apps/v1/namespaces/default/deployments/e/scale")
            .await
            .status,
        404
    );
}

pub(super) async fn kube_scales(cluster: &Cluster) {
    let sets: Api<StatefulSet> = Api::default_namespaced(cluster.client().await);
    let set = serde_json::from_value(workload("apps/v1", "StatefulSet", "s")).expect("a set");
    sets.create(&PostParams::default(), &set)
        .await
        .expect("it is made");
    let mut scale = sets.get_scale("s").await.expect("a scale");
    assert_eq!(
        scale.status.expect("a status").selector.as_deref(),
        Some("app=s")
    );
    scale.status = None;
    scale.spec.as_mut().expect("a spec").replicas = Some(9);
    let scale = sets
        .replace_scale("s", &PostParams::default(), &scale)
        .await;
    assert_eq!(
        scale.expect("it is written").spec.expect("a spec").replicas,
        Some(9)
    );
    let patch = Patch::Merge(json!({"spec": {"replicas": 1}}));
    let scale = sets.patch_scale("s", &PatchParams::default(), &patch).await;
    assert_eq!(
        scale.expect("it is written").spec.expect("a spec").replicas,
        Some(1)
    );
    let set = sets.get("s").await.expect("it is there");
    assert_eq!(set.spec.expect("a spec").replicas, Some(1));
}

pub(super) async fn custom_resources_scale(cluster: &Cluster) {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let scale = json!({
        "specReplicasPath": ".spec.size.desired", "statusReplicasPath": ".status.size",
        "labelSelectorPath": ".status.selector",
    });
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": any, "status": any},
        }},
        "subresources": {"status": {}, "scale": scale},
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "herds.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "herds", "singular": "herd", "kind": "Herd"},
        },
    });
    cluster.create(&definition).await;
    let wait = [
        "wait",
        "--for=condition=Established",
        "crd/herds.example.com",
        "--timeout=20s",
    ];
    cluster.kubectl.run(&wait).await;
    let herd = |name: &str, spec: Value| {
        let metadata = json!({"name": name});
        json!({"apiVersion": "example.com/v1", "kind": "Herd", "metadata": metadata, "spec": spec})
    };
    cluster
        .create(&herd("h", json!({"size": {"desired": 3}})))
        .await;
    cluster
        .report("herd", "h", &json!({"size": 2, "selector": "app=h"}))
        .await;
    let scale = cluster.get(&["herd", "h", "--subresource=scale"]).await;
    assert_eq!(scale["spec"]["replicas"], 3);
    assert_eq!(scale["status"], json!({"replicas": 2, "selector": "app=h"}));
    cluster
        .kubectl
        .run(&["scale", "herd", "h", "--replicas=7"])
        .await;
    let now = cluster.get(&["herd", "h"]).await;
    assert_eq!(now["spec"], json!({"size": {"desired": 7}}));
    assert_eq!(now["metadata"]["generation"], 2);
    cluster.create(&herd("n", json!({}))).await;
    let output = cluster
        .kubectl
        .run_failing(&["get", "herd", "n", "--subresource=scale"])
        .await;
    assert!(
        output.contains("the spec replicas field \".spec.size.desired\" does not exist"),
        "{output}"
    );
}

pub(super) async fn kubectl_autoscales(cluster: &Cluster) {
    cluster
        .create(&workload("apps/v1", "Deployment", "d"))
        .await;
    let args = [
        "autoscale",
        "deployment",
        "d",
        "--max=4",
        "--cpu-percent=70",
    ];
    let output = cluster.kubectl.run(&args).await;
    assert!(output.contains("autoscaled"), "{output}");
    let newer = cluster.get(&["hpa", "d"]).await;
    assert_eq!(newer["apiVersion"], "autoscaling/v2");
    let metric = &newer["spec"]["metrics"][0]["resource"];
    let target = json!({"type": "Utilization", "averageUtilization": 70});
    assert_eq!(
        (&metric["name"], &metric["target"]),
        (&json!("cpu"), &target)
    );
    let older = cluster
        .get(&["horizontalpodautoscalers.v1.autoscaling", "d"])
        .await;
    assert_eq!(older["apiVersion"], "autoscaling/v1");
    assert_eq!(older["spec"]["targetCPUUtilizationPercentage"], 70);
    assert_eq!(older["spec"]["scaleTargetRef"]["name"], "d");
    let memory = json!({"type": "Resource", "resource": {
        "name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"},
    }});
    let patch = json!([{"op": "add", "path": "/spec/metrics/-", "value": memory}]).to_string();
    cluster
        .kubectl
        .run(&["patch", "hpa", "d", "--type=json", "-p", &patch])
        .await;
    let patch = r#"{"spec":{"targetCPUUtilizationPercentage":80}}"#;
    cluster
        .kubectl
        .run(&[
            "patch",
            "horizontalpodautoscalers.v1.autoscaling",
            "d",
            "--type=merge",
            "-p",
            patch,
        ])
        .await;
    let newer = cluster.get(&["hpa", "d"]).await;
    let metrics = newer["spec"]["metrics"].as_array().expect("metrics");
    let of = |name: &str| metrics.iter().find(|m| m["resource"]["name"] == name);
    let target = |name: &str| of(name).map(|m| m["resource"]["target"].clone());
    assert_eq!(target("memory"), Some(memory["resource"]["target"].clone()));
    let target = target("cpu").expect("it is kept");
    assert_eq!(target["averageUtilization"], 80);
    assert_eq!(newer["metadata"].get("annotations"), None, "{newer}");

    // As upstream, the annotation is ignored: otherwise the typed list of the newer version could not be decoded.
    let wrong = "autoscaling.alpha.kubernetes.io/behavior=\"x\"";
    let older = "horizontalpodautoscalers.v1.autoscaling/d";
    cluster.kubectl.run(&["annotate", older, wrong]).await;
    let all = Api::<HorizontalPodAutoscaler>::default_namespaced(cluster.client().await);
    let all = all.list(&ListParams::default()).await;
    let behavior = all.expect("it is typed").items.remove(0).spec;
    assert_eq!(behavior.behavior, None);
}
