//! Tests of the defaults and the validation of built-in types, with kubectl and the real program, on the embedded store
//! and on etcd.

use serde_json::{Value, json};

use crate::harness::{Kubectl, PATIENCE, on_both};

on_both!(|server| (&Kubectl::new(&server.kubeconfig())) => [
    defaults_are_set,
    kubectl_prints_validation_errors,
    updates_of_immutable_fields_are_rejected,
    services_get_addresses,
    default_classes_are_set,
    quantities_are_normalized,
    invalid_base64_is_rejected,
]);

async fn get(kubectl: &Kubectl, what: &[&str]) -> Value {
    let output = kubectl.run(&[&["get", "-o", "json"], what].concat()).await;
    serde_json::from_str(&output).expect("JSON")
}

async fn defaults_are_set(kubectl: &Kubectl) {
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

    // An update with the object that was read changes nothing.
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

async fn kubectl_prints_validation_errors(kubectl: &Kubectl) {
    let refused = async |object: Value| {
        let object = object.to_string();
        kubectl
            .run_failing_with(&["create", "-f", "-"], &object)
            .await
    };
    let message = refused(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "A", "image": "i"}, {"name": "b"}]},
    }))
    .await;
    assert!(message.starts_with("The Pod \"p\" is invalid: \n* spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label"), "{message}");
    assert!(
        message.contains("* spec.containers[1].image: Required value"),
        "{message}"
    );
    let context = json!({"seccompProfile": {"type": "Localhost"}, "runAsUser": -1});
    let message = refused(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "a", "image": "i", "securityContext": context}]},
    }))
    .await;
    for expected in [
        "runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        "localhostProfile: Required value: must be set when seccomp type is Localhost",
    ] {
        assert!(message.contains(expected), "{message}");
    }
    let message = refused(json!({
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
    let expected = "The Deployment \"d\" is invalid: spec.template.metadata.labels: Invalid value: \
                  {\"a\":\"c\"}: `selector` does not match template `labels`\n";
    assert_eq!(message, expected);
    let message = refused(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": ["bare"]},
    }))
    .await;
    assert!(
        message.contains("neither a standard finalizer name nor is it fully qualified"),
        "{message}"
    );
    let owner =
        json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true});
    let mut other = owner.clone();
    other["name"] = "m".into();
    let message = refused(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "c", "ownerReferences": [owner, other]},
    }))
    .await;
    assert!(
        message.contains("Only one reference can have Controller set to true"),
        "{message}"
    );
}

async fn updates_of_immutable_fields_are_rejected(kubectl: &Kubectl) {
    kubectl
        .run(&["create", "deployment", "web", "--image=nginx:1"])
        .await;
    let patch = json!({"spec": {
        "selector": {"matchLabels": {"app": "other"}},
        "template": {"metadata": {"labels": {"app": "other"}}},
    }});
    let patch = patch.to_string();
    let output = kubectl
        .run_failing(&["patch", "deployment", "web", "-p", &patch])
        .await;
    let expected = "The Deployment \"web\" is invalid: spec.selector: Invalid value: \
                  {\"matchLabels\":{\"app\":\"other\"}}: field is immutable\n";
    assert_eq!(output, expected);
    kubectl.run(&["run", "one", "--image=nginx"]).await;
    let output = kubectl
        .run_failing(&["patch", "pod", "one", "-p", r#"{"spec":{"hostname":"h"}}"#])
        .await;
    assert!(
        output.contains("spec: Forbidden: pod updates may not change fields other than"),
        "{output}"
    );
    kubectl
        .run(&["set", "image", "pod/one", "one=nginx:2"])
        .await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    kubectl
        .run_with(&["create", "-f", "-"], &node.to_string())
        .await;
    let given = |cidr: &str| json!({"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}}).to_string();
    let patch = ["patch", "node", "n", "--type=merge", "-p"];
    kubectl
        .run(&[&patch[..], &[&given("10.1.0.0/24")]].concat())
        .await;
    let output = kubectl
        .run_failing(&[&patch[..], &[&given("10.2.0.0/24")]].concat())
        .await;
    let expected =
        "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid";
    assert!(output.contains(expected), "{output}");
    kubectl
        .run(&["create", "configmap", "c", "--from-literal=a=b"])
        .await;
    kubectl
        .run(&["patch", "configmap", "c", "-p", r#"{"immutable":true}"#])
        .await;
    let output = kubectl
        .run_failing(&["patch", "configmap", "c", "-p", r#"{"data":{"a":"c"}}"#])
        .await;
    assert!(
        output.contains("data: Forbidden: field is immutable when `immutable` is set"),
        "{output}"
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
    let output = kubectl
        .run_failing(&["create", "service", "nodeport", "np2", "--tcp=80:80", &flag])
        .await;
    assert!(
        output.contains("provided port is already allocated"),
        "{output}"
    );
    let output = kubectl
        .run_failing(&[
            "patch",
            "service",
            "web",
            "-p",
            r#"{"spec":{"clusterIP":"10.96.0.9"}}"#,
        ])
        .await;
    assert!(
        output.contains(
            "spec.clusterIPs[0]: Invalid value: [\"10.96.0.9\"]: may not change once set"
        ),
        "{output}"
    );
    kubectl.run(&["delete", "service", "web", "np"]).await;
    let claims = kubectl.run(&["get", "ipaddresses", "-o", "name"]).await;
    assert!(!claims.contains(ip), "{claims}");
    kubectl
        .run(&["create", "service", "nodeport", "np2", "--tcp=80:80", &flag])
        .await;
}

/// Creates objects until one has the expected fields: the server notices new classes with a short delay.
async fn until(what: &str, made: impl AsyncFn(usize) -> bool) {
    let begun = tokio::time::Instant::now();
    let mut turn = 0;
    while !made(turn).await {
        assert!(begun.elapsed() < PATIENCE, "{what} is never chosen");
        turn += 1;
    }
}

async fn default_classes_are_set(kubectl: &Kubectl) {
    let create = async |object: Value| {
        kubectl
            .run_with(&["create", "-f", "-"], &object.to_string())
            .await
    };
    let class = |api: &str, kind: &str, name: &str, mark: &str, more: Value| {
        let mut class = more;
        class["apiVersion"] = api.into();
        class["kind"] = kind.into();
        class["metadata"] = json!({"name": name, "annotations": {mark: "true"}});
        class
    };
    let mark = "storageclass.kubernetes.io/is-default-class";
    let disks = json!({"provisioner": "example.com/disks"});
    create(class(
        "storage.k8s.io/v1",
        "StorageClass",
        "disks",
        mark,
        disks,
    ))
    .await;
    let mark = "ingressclass.kubernetes.io/is-default-class";
    let doors = json!({"spec": {"controller": "example.com/doors"}});
    create(class(
        "networking.k8s.io/v1",
        "IngressClass",
        "doors",
        mark,
        doors,
    ))
    .await;
    kubectl
        .run(&[
            "create",
            "priorityclass",
            "usual",
            "--value=5",
            "--global-default",
        ])
        .await;
    let second = [
        "create",
        "priorityclass",
        "other",
        "--value=6",
        "--global-default",
    ];
    let output = kubectl.run_failing(&second).await;
    assert!(
        output.contains("PriorityClass usual is already marked as default"),
        "{output}"
    );

    let claim = |name: String, class: Value| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}}}})
    };
    until("the class of storage", async |turn| {
        let name = format!("c{turn}");
        create(claim(name.clone(), Value::Null)).await;
        let made = get(kubectl, &["pvc", &name]).await;
        made["spec"]["storageClassName"] == "disks"
    })
    .await;
    // A claim that names the empty class gets no class.
    create(claim("none".to_owned(), "".into())).await;
    assert_eq!(
        get(kubectl, &["pvc", "none"]).await["spec"]["storageClassName"],
        ""
    );
    until("the class of ingresses", async |turn| {
        let name = format!("i{turn}");
        kubectl
            .run(&["create", "ingress", &name, "--rule=a.example/*=web:80"])
            .await;
        get(kubectl, &["ingress", &name]).await["spec"]["ingressClassName"] == "doors"
    })
    .await;
    until("the class of priority", async |turn| {
        let name = format!("p{turn}");
        kubectl.run(&["run", &name, "--image=nginx"]).await;
        let spec = &get(kubectl, &["pod", &name]).await["spec"];
        spec["priorityClassName"] == "usual" && spec["priority"] == 5
    })
    .await;
}

async fn quantities_are_normalized(kubectl: &Kubectl) {
    let resources = json!({"requests": {"cpu": "1000m", "memory": "1024Mi"},
        "limits": {"cpu": 2, "memory": "1.5Gi", "ephemeral-storage": "0.5G"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sized"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "2048Ki"}}]}});
    let made = ["create", "-f", "-"];
    kubectl.run_with(&made, &pod.to_string()).await;
    let sized = get(kubectl, &["pod", "sized"]).await;
    assert_eq!(
        sized["spec"]["containers"][0]["resources"],
        json!({"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "500M"},
            "limits": {"cpu": "2", "memory": "1536Mi", "ephemeral-storage": "500M"}})
    );
    assert_eq!(sized["spec"]["volumes"][0]["emptyDir"]["sizeLimit"], "2Mi");
    // The same amount in another notation changes nothing, with every kind of write.
    let quota = |cpu: &str| {
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
            "spec": {"hard": {"cpu": cpu}}})
    };
    kubectl.run_with(&made, &quota("3").to_string()).await;
    for (how, expected) in [
        (
            &["apply", "--server-side", "--force-conflicts", "-f", "-"][..],
            "few serverside-applied",
        ),
        (&["replace", "-f", "-"][..], "few replaced"),
    ] {
        let output = kubectl.run_with(how, &quota("3000m").to_string()).await;
        assert!(output.contains(expected), "{output}");
        let few = get(kubectl, &["quota", "few"]).await;
        assert_eq!(few["spec"]["hard"]["cpu"], "3");
    }
    for (sent, read) in [("0.003k", "3"), ("3e0", "3e0")] {
        // A suffix is normalized; the notation with an exponent is preserved.
        let patch = json!({"spec": {"hard": {"cpu": sent}}}).to_string();
        kubectl.run(&["patch", "quota", "few", "-p", &patch]).await;
        let few = get(kubectl, &["quota", "few"]).await;
        assert_eq!(few["spec"]["hard"]["cpu"], read, "{sent}");
    }
    let bad = kubectl
        .run_failing_with(&made, &quota("3x").to_string())
        .await;
    assert!(
        bad.contains("quantities must match the regular expression"),
        "{bad}"
    );
}

async fn invalid_base64_is_rejected(kubectl: &Kubectl) {
    for (kind, member) in [("Secret", "data"), ("ConfigMap", "binaryData")] {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"},
            member: {"k": "no base64!"}});
        let output = kubectl
            .run_failing_with(
                &["create", "-f", "-", "--validate=false"],
                &object.to_string(),
            )
            .await;
        assert!(
            output.contains("illegal base64 data at input byte 2"),
            "{output}"
        );
    }
}
