//! What the server adds to built-in types and what it refuses, through kubectl on the real binary, on the
//! embedded store and on etcd.

use serde_json::{Value, json};

use crate::harness::{Kubectl, on_both};

on_both!(|server| (&Kubectl::new(&server.kubeconfig())) => [
    kubectl_makes_what_has_defaults,
    kubectl_is_told_what_is_wrong,
    what_is_immutable_stays,
    services_get_addresses,
]);

async fn get(kubectl: &Kubectl, what: &[&str]) -> Value {
    let output = kubectl.run(&[&["get", "-o", "json"], what].concat()).await;
    serde_json::from_str(&output).expect("JSON")
}

async fn kubectl_makes_what_has_defaults(kubectl: &Kubectl) {
    kubectl
        .run(&["create", "deployment", "web", "--image=nginx:1"])
        .await;
    let web = get(kubectl, &["deployment", "web"]).await;
    let spec = &web["spec"];
    assert_eq!(
        spec["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    );
    assert_eq!(
        (
            &spec["revisionHistoryLimit"],
            &spec["progressDeadlineSeconds"]
        ),
        (&json!(10), &json!(600))
    );
    let pod = &spec["template"]["spec"];
    assert_eq!(
        (&pod["restartPolicy"], &pod["dnsPolicy"]),
        (&json!("Always"), &json!("ClusterFirst"))
    );
    assert_eq!(pod["containers"][0]["imagePullPolicy"], "IfNotPresent");

    kubectl.run(&["run", "one", "--image=nginx"]).await;
    let one = get(kubectl, &["pod", "one"]).await;
    assert_eq!(
        (&one["spec"]["priority"], &one["spec"]["serviceAccountName"]),
        (&json!(0), &json!("default"))
    );
    assert_eq!(one["spec"]["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(
        one["status"],
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
    assert_eq!(one["spec"]["tolerations"].as_array().unwrap().len(), 2);

    kubectl
        .run(&["create", "job", "once", "--image=busybox"])
        .await;
    let once = get(kubectl, &["job", "once"]).await;
    let uid = &once["metadata"]["uid"];
    let selector = &once["spec"]["selector"]["matchLabels"];
    assert_eq!(&selector["batch.kubernetes.io/controller-uid"], uid);
    assert_eq!(
        (&once["spec"]["completions"], &once["spec"]["backoffLimit"]),
        (&json!(1), &json!(6))
    );
    let args = [
        "create",
        "cronjob",
        "often",
        "--image=busybox",
        "--schedule=*/5 * * * *",
    ];
    kubectl.run(&args).await;
    let often = get(kubectl, &["cronjob", "often"]).await;
    assert_eq!(often["spec"]["concurrencyPolicy"], "Allow");

    // What was read can be written again without writing anything.
    let unchanged = kubectl
        .run_with(&["replace", "-f", "-"], &web.to_string())
        .await;
    assert!(unchanged.contains("replaced"), "{unchanged}");
    let again = get(kubectl, &["deployment", "web"]).await;
    assert_eq!(
        again["metadata"]["resourceVersion"],
        web["metadata"]["resourceVersion"]
    );
}

async fn kubectl_is_told_what_is_wrong(kubectl: &Kubectl) {
    let refused = async |object: Value| {
        let object = object.to_string();
        kubectl
            .run_failing_with(&["create", "-f", "-"], &object)
            .await
    };
    let told = refused(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "A", "image": "i"}, {"name": "b"}]},
    }))
    .await;
    assert!(told.starts_with("The Pod \"p\" is invalid: \n* spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label"), "{told}");
    assert!(
        told.contains("* spec.containers[1].image: Required value"),
        "{told}"
    );
    let told = refused(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "c"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }))
    .await;
    let wanted = "The Deployment \"d\" is invalid: spec.template.metadata.labels: Invalid value: \
                  {\"a\":\"c\"}: `selector` does not match template `labels`\n";
    assert_eq!(told, wanted);
    let told = refused(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": ["bare"]},
    }))
    .await;
    assert!(
        told.contains("neither a standard finalizer name nor is it fully qualified"),
        "{told}"
    );
    let owner =
        json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true});
    let mut other = owner.clone();
    other["name"] = "m".into();
    let told = refused(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "c", "ownerReferences": [owner, other]},
    }))
    .await;
    assert!(
        told.contains("Only one reference can have Controller set to true"),
        "{told}"
    );
}

async fn what_is_immutable_stays(kubectl: &Kubectl) {
    kubectl
        .run(&["create", "deployment", "web", "--image=nginx:1"])
        .await;
    let patch = json!({"spec": {
        "selector": {"matchLabels": {"app": "other"}},
        "template": {"metadata": {"labels": {"app": "other"}}},
    }});
    let patch = patch.to_string();
    let told = kubectl
        .run_failing(&["patch", "deployment", "web", "-p", &patch])
        .await;
    let wanted = "The Deployment \"web\" is invalid: spec.selector: Invalid value: \
                  {\"matchLabels\":{\"app\":\"other\"}}: field is immutable\n";
    assert_eq!(told, wanted);
    kubectl.run(&["run", "one", "--image=nginx"]).await;
    let told = kubectl
        .run_failing(&["patch", "pod", "one", "-p", r#"{"spec":{"hostname":"h"}}"#])
        .await;
    assert!(
        told.contains("spec: Forbidden: pod updates may not change fields other than"),
        "{told}"
    );
    kubectl
        .run(&["set", "image", "pod/one", "one=nginx:2"])
        .await;
    kubectl
        .run(&["create", "configmap", "c", "--from-literal=a=b"])
        .await;
    kubectl
        .run(&["patch", "configmap", "c", "-p", r#"{"immutable":true}"#])
        .await;
    let told = kubectl
        .run_failing(&["patch", "configmap", "c", "-p", r#"{"data":{"a":"c"}}"#])
        .await;
    assert!(
        told.contains("data: Forbidden: field is immutable when `immutable` is set"),
        "{told}"
    );
}

async fn services_get_addresses(kubectl: &Kubectl) {
    kubectl
        .run(&["create", "deployment", "web", "--image=nginx:1"])
        .await;
    kubectl
        .run(&[
            "expose",
            "deployment",
            "web",
            "--port=80",
            "--target-port=8080",
        ])
        .await;
    let web = get(kubectl, &["service", "web"]).await;
    let spec = &web["spec"];
    let ip = spec["clusterIP"].as_str().unwrap();
    assert!(ip.starts_with("10."), "{ip}");
    assert_eq!(spec["selector"], json!({"app": "web"}));
    assert_eq!(
        (&spec["type"], &spec["sessionAffinity"]),
        (&json!("ClusterIP"), &json!("None"))
    );
    let claims = kubectl.run(&["get", "ipaddresses", "-o", "name"]).await;
    assert!(
        claims.contains(&format!("ipaddress.networking.k8s.io/{ip}")),
        "{claims}"
    );
    kubectl
        .run(&["create", "service", "nodeport", "np", "--tcp=80:80"])
        .await;
    let np = get(kubectl, &["service", "np"]).await;
    let port = np["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    assert!((30_000..=32_767).contains(&port), "{port}");
    let flag = format!("--node-port={port}");
    let told = kubectl
        .run_failing(&["create", "service", "nodeport", "np2", "--tcp=80:80", &flag])
        .await;
    assert!(
        told.contains("provided port is already allocated"),
        "{told}"
    );
    let told = kubectl
        .run_failing(&[
            "patch",
            "service",
            "web",
            "-p",
            r#"{"spec":{"clusterIP":"10.96.0.9"}}"#,
        ])
        .await;
    assert!(
        told.contains(
            "spec.clusterIPs[0]: Invalid value: [\"10.96.0.9\"]: may not change once set"
        ),
        "{told}"
    );
    kubectl.run(&["delete", "service", "web", "np"]).await;
    let claims = kubectl.run(&["get", "ipaddresses", "-o", "name"]).await;
    assert!(!claims.contains(ip), "{claims}");
    kubectl
        .run(&["create", "service", "nodeport", "np2", "--tcp=80:80", &flag])
        .await;
}
