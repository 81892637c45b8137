//! Tests of the built-in admission plugins in the real program: the fields that they set, upstream's messages of
//! requests that they reject, and the flags that enable and disable them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::cluster::{Cluster, Response, pod};
use super::mutating_policies;
use super::policies::{bind, binding, policy};
use crate::harness::{Kubectl, Server, on_both};

on_both!(|server| (&Cluster(server), &Kubectl::new(&server.kubeconfig())) => [
    pods_get_an_account_a_token_and_defaults,
    plugins_set_fields_of_new_objects,
    plugins_reject_requests_with_upstreams_messages,
]);

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// `kubectl run` in a new namespace: the request waits until the controller has created the service account.
async fn pods_get_an_account_a_token_and_defaults(cluster: &Cluster<'_>, kubectl: &Kubectl) {
    kubectl.run(&["create", "namespace", "shop"]).await;
    kubectl
        .run(&["run", "web", "--image=nginx:1", "-n", "shop"])
        .await;
    let pod = cluster
        .get("/api/v1/namespaces/shop/pods/web")
        .await
        .ok(200);
    let spec = &pod["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["serviceAccount"], "default");
    assert_eq!(spec["priority"], 0);
    assert_eq!(spec["preemptionPolicy"], "PreemptLowerPriority");
    let volume = spec["volumes"][0]["name"].as_str().expect("a volume");
    assert!(volume.starts_with("kube-api-access-"), "{volume}");
    let sources = &spec["volumes"][0]["projected"]["sources"];
    let token = json!({"expirationSeconds": 3607, "path": "token"});
    assert_eq!(sources[0]["serviceAccountToken"], token);
    let mount = json!([{
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": volume, "readOnly": true,
    }]);
    assert_eq!(spec["containers"][0]["volumeMounts"], mount);
    let tolerations: Vec<_> = spec["tolerations"]
        .as_array()
        .expect("tolerations")
        .iter()
        .map(|toleration| toleration["key"].as_str().expect("a key"))
        .collect();
    let expected = [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ];
    assert_eq!(tolerations, expected);
    // As upstream, plugins are not field managers.
    let managed = pod["metadata"]["managedFields"].to_string();
    assert!(!managed.contains("volumeMounts"), "{managed}");
    let refused = kubectl
        .run_failing(&["run", "x", "--image=x", "--overrides", ROBOT])
        .await;
    let expected = "Error from server (Forbidden): pods \"x\" is forbidden: error looking up service \
                    account default/robot: serviceaccount \"robot\" not found";
    assert!(refused.contains(expected), "{refused}");
}

const ROBOT: &str = r#"{"spec": {"serviceAccountName": "robot"}}"#;

async fn plugins_set_fields_of_new_objects(cluster: &Cluster<'_>, _: &Kubectl) {
    let node = json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}}});
    let node = cluster.post("/api/v1/nodes", &node).await.ok(201);
    let taint = json!([{"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready"}]);
    assert_eq!(node["spec"]["taints"], taint);

    let class = json!({
        "metadata": {
            "name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "x",
    });
    cluster.post(CLASSES, &class).await.ok(201);
    cluster.get(CLASSES).await.ok(200);
    let claim = cluster.post(CLAIMS, &claim("c", Value::Null)).await.ok(201);
    assert_eq!(claim["spec"]["storageClassName"], "fast");
    let finalizers = json!(["kubernetes.io/pvc-protection"]);
    assert_eq!(claim["metadata"]["finalizers"], finalizers);

    let runtime = json!({
        "metadata": {"name": "sandbox"}, "handler": "runsc",
        "overhead": {"podFixed": {"memory": "1Gi"}},
        "scheduling": {"nodeSelector": {"sandbox": "yes"}},
    });
    let runtimes = "/apis/node.k8s.io/v1/runtimeclasses";
    cluster.post(runtimes, &runtime).await.ok(201);
    let mut sandboxed = pod("boxed");
    sandboxed["spec"]["runtimeClassName"] = json!("sandbox");
    let sandboxed = cluster.post(PODS, &sandboxed).await.ok(201);
    assert_eq!(sandboxed["spec"]["overhead"], json!({"memory": "1Gi"}));
    assert_eq!(sandboxed["spec"]["nodeSelector"], json!({"sandbox": "yes"}));

    cluster.get("/api/v1/nodes?resourceVersion=").await.ok(200);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "boxed"},
        "target": {"kind": "Node", "name": "n"},
    });
    let bind = format!("{PODS}/boxed/binding");
    cluster.post(&bind, &binding).await.ok(201);
    let bound = cluster.get(&format!("{PODS}/boxed")).await.ok(200);
    let zone = &bound["metadata"]["labels"]["topology.kubernetes.io/zone"];
    assert_eq!(*zone, "z");
}

fn claim(name: &str, class: Value) -> Value {
    let mut claim = json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    if !class.is_null() {
        claim["spec"]["storageClassName"] = class;
    }
    claim
}

/// Asserts a 403 with exactly this message.
fn check_forbidden(received: &Response, message: &str) {
    let status = received.refused(403, "Forbidden", "");
    assert_eq!(status["message"], message);
}

async fn plugins_reject_requests_with_upstreams_messages(cluster: &Cluster<'_>, _: &Kubectl) {
    let response = cluster.delete("/api/v1/namespaces/kube-system").await;
    check_forbidden(
        &response,
        "namespaces \"kube-system\" is forbidden: this namespace may not be deleted",
    );
    let response = cluster
        .post("/api/v1/namespaces/none/pods", &pod("p"))
        .await;
    response.refused(404, "NotFound", "namespaces \"none\" not found");

    let mut urgent = pod("p");
    urgent["spec"]["priorityClassName"] = json!("urgent");
    check_forbidden(
        &cluster.post(PODS, &urgent).await,
        "pods \"p\" is forbidden: no PriorityClass with name urgent was found",
    );
    let mut generated = pod("p");
    generated["metadata"] = json!({"generateName": "p-"});
    generated["spec"]["runtimeClassName"] = json!("none");
    check_forbidden(
        &cluster.post(PODS, &generated).await,
        "pods \"p-\" is forbidden: pod rejected: RuntimeClass \"none\" not found",
    );

    cluster.post(CLAIMS, &claim("c", json!(""))).await.ok(201);
    let bound = json!({"status": {"phase": "Bound"}});
    let status = format!("{CLAIMS}/c/status");
    cluster.patch(&status, &bound).await.ok(200);
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let response = cluster.patch(&format!("{CLAIMS}/c"), &more).await;
    check_forbidden(
        &response,
        "persistentvolumeclaims \"c\" is forbidden: only dynamically provisioned pvc can be resized and \
         the storageclass that provisions the pvc must support resize",
    );

    let request = json!({
        "metadata": {"name": "r"},
        "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
            "request": request_of("system:masters"),
        },
    });
    check_forbidden(
        &cluster.post(REQUESTS, &request).await,
        "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: use of \
         kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
    );
}

/// Returns a certificate request for this organization.
fn request_of(organization: &str) -> String {
    let mut parameters = rcgen::CertificateParams::default();
    let subject = &mut parameters.distinguished_name;
    subject.push(rcgen::DnType::OrganizationName, organization);
    let key = rcgen::KeyPair::generate().expect("a key");
    let request = parameters.serialize_request(&key).expect("a request");
    STANDARD.encode(request.pem().expect("PEM"))
}

/// As in envtest, where no controller creates service accounts.
#[tokio::test]
async fn disabled_plugins_do_nothing() {
    let server = Server::start(&[
        "--controllers=-namespace",
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,DefaultTolerationSeconds",
        "--disable-admission-plugins=StorageObjectInUseProtection,Priority,NamespaceLifecycle",
    ])
    .await;
    let cluster = Cluster(&server);
    let made = cluster.post(PODS, &pod("p")).await.ok(201);
    for member in [
        "serviceAccountName",
        "serviceAccount",
        "volumes",
        "tolerations",
        "priority",
    ] {
        assert_eq!(made["spec"].get(member), None, "{member}");
    }
    let node = json!({"metadata": {"name": "n"}});
    let node = cluster.post("/api/v1/nodes", &node).await.ok(201);
    assert_eq!(node["spec"]["taints"], Value::Null);
    let claim = cluster.post(CLAIMS, &claim("c", Value::Null)).await.ok(201);
    assert_eq!(claim["metadata"]["finalizers"], Value::Null);
    let elsewhere = "/api/v1/namespaces/none/configmaps";
    let map = json!({"metadata": {"name": "m"}});
    cluster.post(elsewhere, &map).await.ok(201);
    cluster
        .delete("/api/v1/namespaces/kube-public")
        .await
        .ok(200);
    server.stop().await;
}

/// Webhooks and policies are plugins, so they can be disabled too.
#[tokio::test]
async fn disabled_policies_do_nothing() {
    let disable = "--disable-admission-plugins=MutatingAdmissionPolicy,ValidatingAdmissionPolicy";
    let server = Server::start(&[disable]).await;
    let cluster = Cluster(&server);
    let never = policy("never", json!({"validations": [{"expression": "false"}]}));
    bind(&cluster, &never, &[binding("b", "never", json!({}))]).await;
    let change = mutating_policies::policy("change", &["Object{data: {'x': 'y'}}"], json!({}));
    mutating_policies::bind(&cluster, &change).await;
    let made = cluster.make("m").await.ok(201);
    assert_eq!(made["data"], json!({"a": "b"}));
    server.stop().await;
}

#[tokio::test]
async fn a_plugin_without_effect_is_logged() {
    let enable = "--enable-admission-plugins=AlwaysAdmit,OwnerReferencesPermissionEnforcement";
    let server = Server::start(&[enable]).await;
    let log = server.log();
    let expected = "an enabled admission plugin has no effect";
    assert_eq!(log.matches(expected).count(), 1, "{log}");
    assert!(log.contains("AlwaysAdmit"), "{log}");
    server.stop().await;
}
