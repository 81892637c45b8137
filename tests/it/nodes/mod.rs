//! Kubelets under the authorization mode Node and the admission plugin NodeRestriction, against the real binary: what a node
//! may do because of its pods, what it may write, and that its watch of a secret ends with the pod that needs it.

mod audiences;
mod hostile;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use http_body_util::BodyExt as _;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep, timeout};

use crate::harness::{Kubectl, PATIENCE, Protocol, Server, Wire, full, request};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A server with the nodes n1 and n2, and on each the pod p1 or p2, which needs the secret s1 or s2.
struct Cluster {
    server: Server,
    admin: Wire,
}

impl Cluster {
    async fn start() -> Self {
        let flags = [
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
        ];
        let server = Server::start(&flags).await;
        let mut admin = server.plain(Protocol::Http1).await;
        for n in ["1", "2"] {
            let name = |prefix: &str| json!({"name": format!("{prefix}{n}")});
            let pod = json!({"metadata": name("p"), "spec": {
                "nodeName": format!("n{n}"),
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [
                    {"name": "s", "secret": {"secretName": format!("s{n}")}},
                    {"name": "c", "persistentVolumeClaim": {"claimName": format!("c{n}")}},
                ],
            }});
            let claim = json!({"metadata": name("c"), "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            }});
            for (path, object) in [
                (NODES, json!({"metadata": name("n")})),
                (SECRETS, json!({"metadata": name("s")})),
                (CLAIMS, claim),
                (PODS, pod),
            ] {
                let created = admin.post(path, &object).await;
                assert_eq!(created.status, 201, "{}", created.json());
            }
        }
        let mut cluster = Self { server, admin };
        cluster.until_allowed("n1", &format!("{SECRETS}/s1")).await;
        cluster.until_allowed("n2", &format!("{SECRETS}/s2")).await;
        cluster
    }

    /// Sends a request as a node.
    async fn send(&mut self, node: &str, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let user = format!("system:node:{node}");
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let headers = [
            ("impersonate-user", &*user),
            ("impersonate-group", "system:nodes"),
            ("content-type", kind),
        ];
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let response = self.admin.send(method, path, &headers, &body).await;
        (response.status.as_u16(), response.json())
    }

    async fn get(&mut self, node: &str, path: &str) -> u16 {
        self.send(node, Method::GET, path, &Value::Null).await.0
    }

    /// Waits until the authorizer has the pod that allows it.
    async fn until_allowed(&mut self, node: &str, path: &str) {
        let allowed = async {
            while self.get(node, path).await == 403 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, allowed)
            .await
            .expect("the node gets access");
    }

    /// Checks that a write of n1 is refused with this reason.
    async fn is_refused(&mut self, method: Method, path: &str, body: &Value, reason: &str) {
        let (code, response) = self.send("n1", method, path, body).await;
        let message = response["message"].as_str().unwrap_or_default();
        assert!(
            code == 403 && message.ends_with(reason),
            "{path} {body}: {code} {response}"
        );
    }

    async fn is_done(&mut self, method: Method, path: &str, body: &Value) -> Value {
        let (code, response) = self.send("n1", method, path, body).await;
        assert!(
            (200..300).contains(&code),
            "{path} {body}: {code} {response}"
        );
        response
    }
}

#[tokio::test]
async fn a_node_reads_what_its_pods_need_and_its_own_objects() {
    let mut cluster = Cluster::start().await;
    for (own, other) in [
        (format!("{SECRETS}/s1"), format!("{SECRETS}/s2")),
        (format!("{PODS}/p1"), format!("{PODS}/p2")),
        (format!("{CLAIMS}/c1"), format!("{CLAIMS}/c2")),
        (format!("{NODES}/n1"), format!("{NODES}/n2")),
        (
            format!("{PODS}?fieldSelector=spec.nodeName=n1"),
            format!("{PODS}?fieldSelector=spec.nodeName=n2"),
        ),
        (
            format!("{SECRETS}?fieldSelector=metadata.name=s1"),
            SECRETS.to_owned(),
        ),
        (
            format!("{SLICES}?fieldSelector=spec.nodeName=n1"),
            SLICES.to_owned(),
        ),
        (
            "/api/v1/services".to_owned(),
            "/apis/apps/v1/deployments".to_owned(),
        ),
    ] {
        assert_eq!(cluster.get("n1", &own).await, 200, "{own}");
        assert_eq!(cluster.get("n1", &other).await, 403, "{other}");
    }
    let (_, response) = cluster
        .send("n1", Method::GET, &format!("{SECRETS}/s2"), &Value::Null)
        .await;
    assert_eq!(
        response["message"],
        r#"secrets "s2" is forbidden: User "system:node:n1" cannot get resource "secrets" in API group "" in the namespace "default": no relationship found between node 'n1' and this object"#
    );
    let kubectl = Kubectl::new(&cluster.server.kubeconfig());
    let can = |node: &'static str, name: &'static str| {
        let user = format!("--as=system:node:{node}");
        let kubectl = &kubectl;
        async move {
            let args = [
                "auth",
                "can-i",
                "get",
                &format!("secrets/{name}"),
                &user,
                "--as-group=system:nodes",
            ];
            kubectl.try_run(&args).await.is_ok()
        }
    };
    assert!(can("n1", "s1").await);
    assert!(!can("n1", "s2").await);
    cluster.server.stop().await;
}

/// A kubelet watches each secret of its pods. The watch ends when no pod of the node needs the secret any more.
#[tokio::test]
async fn a_watch_of_a_secret_ends_with_the_pod() {
    let mut cluster = Cluster::start().await;
    let path = format!("{SECRETS}?watch=true&fieldSelector=metadata.name=s1");
    let headers = [
        ("impersonate-user", "system:node:n1"),
        ("impersonate-group", "system:nodes"),
    ];
    let mut watcher = cluster.server.plain(Protocol::Http1).await;
    let watch = watcher
        .open(request(Method::GET, &path, &headers, full("")))
        .await;
    let watch = watch.expect("a response");
    assert_eq!(watch.status(), 200);
    let delete = json!({"gracePeriodSeconds": 0});
    cluster
        .admin
        .send(
            Method::DELETE,
            &format!("{PODS}/p1"),
            &[],
            &delete.to_string(),
        )
        .await;
    let rest = timeout(PATIENCE, watch.into_body().collect())
        .await
        .expect("the watch ends");
    let rest = rest.expect("in order").to_bytes();
    let last = rest
        .split(|byte| *byte == b'\n')
        .rfind(|line| !line.is_empty());
    let last: Value = serde_json::from_slice(last.expect("an event")).expect("JSON");
    assert_eq!(
        (&last["type"], &last["object"]["code"]),
        (&json!("ERROR"), &json!(403))
    );
    assert_eq!(cluster.get("n1", &format!("{SECRETS}/s1")).await, 403);
    cluster.server.stop().await;
}

#[tokio::test]
async fn a_node_changes_its_own_node_within_limits() {
    let mut cluster = Cluster::start().await;
    let own = format!("{NODES}/n1");
    let labels = |label: &str| json!({"metadata": {"labels": {label: "x"}}});
    for label in [
        "anything",
        "example.com/x",
        "kubernetes.io/hostname",
        "node.kubernetes.io/x",
        "a.kubelet.kubernetes.io/x",
    ] {
        cluster.is_done(Method::PATCH, &own, &labels(label)).await;
    }
    for label in [
        "node-restriction.kubernetes.io/x",
        "a.node-restriction.kubernetes.io/x",
        "kubernetes.io/x",
        "x.k8s.io/y",
        "node-role.kubernetes.io/control-plane",
    ] {
        let reason = format!("is not allowed to modify labels: {label}");
        cluster
            .is_refused(Method::PATCH, &own, &labels(label), &reason)
            .await;
    }
    let taint = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    let reason = r#"node "n1" is not allowed to modify taints"#;
    cluster
        .is_refused(Method::PATCH, &own, &taint, reason)
        .await;
    let status = json!({"status": {"phase": "Running"}});
    cluster
        .is_done(Method::PATCH, &format!("{own}/status"), &status)
        .await;
    let other = r#"node "n1" is not allowed to modify node "n2""#;
    for path in [format!("{NODES}/n2"), format!("{NODES}/n2/status")] {
        cluster
            .is_refused(Method::PATCH, &path, &status, other)
            .await;
    }
    let other = json!({"metadata": {"name": "n3"}});
    let reason = r#"node "n1" is not allowed to modify node "n3""#;
    cluster
        .is_refused(Method::POST, NODES, &other, reason)
        .await;
    // A kubelet registers its node, with its taints.
    let node = json!({"metadata": {"name": "n3", "labels": {"kubernetes.io/os": "linux"}}, "spec": taint["spec"]});
    let (code, response) = cluster.send("n3", Method::POST, NODES, &node).await;
    assert_eq!(code, 201, "{response}");
    let node = json!({"metadata": {"name": "n4", "labels": {"kubernetes.io/x": "y"}}});
    let (code, response) = cluster.send("n4", Method::POST, NODES, &node).await;
    let reason = r#"nodes "n4" is forbidden: node "n4" is not allowed to set the following labels: kubernetes.io/x"#;
    assert_eq!((code, &response["message"]), (403, &json!(reason)));
    cluster.server.stop().await;
}

#[tokio::test]
async fn a_node_writes_only_its_own_pods() {
    let mut cluster = Cluster::start().await;
    let uid = |object: &Value| object["metadata"]["uid"].clone();
    let node = cluster.admin.get(&format!("{NODES}/n1")).await.json();
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid(&node), "controller": true});
    let mirror = json!({
        "metadata": {"name": "mirror", "annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    });
    let with = |pointer: &str, value: Value| {
        let mut pod = mirror.clone();
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[member] = value;
        pod
    };
    let owned = |change: Value| {
        let mut changed = owner.clone();
        changed
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        with("/metadata/ownerReferences", json!([changed]))
    };
    for (pod, reason) in [
        (
            with("/metadata/annotations", json!({})),
            r#"pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods"#,
        ),
        (
            with("/spec/nodeName", json!("n2")),
            r#"node "n1" can only create pods with spec.nodeName set to itself"#,
        ),
        (
            with("/metadata/ownerReferences", json!([])),
            r#"node "n1" can only create pods with an owner reference set to itself"#,
        ),
        (
            owned(json!({"name": "n2"})),
            r#"node "n1" can only create pods with an owner reference set to itself"#,
        ),
        (
            owned(json!({"controller": false})),
            r#"node "n1" can only create pods with a controller owner reference set to itself"#,
        ),
        (
            owned(json!({"blockOwnerDeletion": true})),
            r#"node "n1" must not set blockOwnerDeletion on an owner reference"#,
        ),
        (
            with("/spec/serviceAccountName", json!("default")),
            // ServiceAccount runs before.
            "a mirror pod may not reference service accounts",
        ),
        (
            with(
                "/spec/volumes",
                json!([{"name": "v", "secret": {"secretName": "s2"}}]),
            ),
            "a mirror pod may not reference secrets",
        ),
        (
            with(
                "/spec/volumes",
                json!([{"name": "v", "configMap": {"name": "s2"}}]),
            ),
            r#"node "n1" can not create pods that reference configmaps"#,
        ),
        (
            with(
                "/spec/volumes",
                json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c2"}}]),
            ),
            r#"node "n1" can not create pods that reference persistentvolumeclaims"#,
        ),
    ] {
        cluster.is_refused(Method::POST, PODS, &pod, reason).await;
    }
    let wrong = owned(json!({"uid": "other"}));
    let reason = format!(
        "node n1 UID mismatch: expected other got {}",
        uid(&node).as_str().unwrap()
    );
    cluster
        .is_refused(Method::POST, PODS, &wrong, &reason)
        .await;
    cluster.is_done(Method::POST, PODS, &mirror).await;

    let status = json!({"status": {"phase": "Running"}});
    cluster
        .is_done(Method::PATCH, &format!("{PODS}/p1/status"), &status)
        .await;
    let reason =
        r#"node "n1" can only update pod status for pods with spec.nodeName set to itself"#;
    cluster
        .is_refused(Method::PATCH, &format!("{PODS}/p2/status"), &status, reason)
        .await;
    let relabel = json!({"metadata": {"labels": {"a": "b"}}});
    let reason = r#"node "n1" cannot update labels through pod status"#;
    cluster
        .is_refused(
            Method::PATCH,
            &format!("{PODS}/p1/status"),
            &relabel,
            reason,
        )
        .await;
    let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let reason = "node n1 can only evict pods with spec.nodeName set to itself";
    cluster
        .is_refused(
            Method::POST,
            &format!("{PODS}/p2/eviction"),
            &eviction("p2"),
            reason,
        )
        .await;
    cluster
        .is_done(
            Method::POST,
            &format!("{PODS}/p1/eviction"),
            &eviction("p1"),
        )
        .await;
    let reason = r#"node "n1" can only delete pods with spec.nodeName set to itself"#;
    cluster
        .is_refused(Method::DELETE, &format!("{PODS}/p2"), &Value::Null, reason)
        .await;
    cluster
        .is_done(Method::DELETE, &format!("{PODS}/mirror"), &Value::Null)
        .await;
    cluster.server.stop().await;
}

#[tokio::test]
async fn a_node_gets_tokens_for_its_pods_only() {
    let mut cluster = Cluster::start().await;
    let mut uids = Vec::new();
    for pod in ["p1", "p2"] {
        let pod = cluster.admin.get(&format!("{PODS}/{pod}")).await.json();
        uids.push(pod["metadata"]["uid"].clone());
    }
    let token = |bound: Value| json!({"spec": {"boundObjectRef": bound}});
    let of_pod = |name: &str, uid: &Value| {
        token(json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}))
    };
    cluster
        .is_done(Method::POST, TOKENS, &of_pod("p1", &uids[0]))
        .await;
    let mismatch =
        "does not match the UID in record. The object might have been deleted and then recreated";
    for (body, reason) in [
        (
            token(Value::Null),
            "node requested token not bound to a pod",
        ),
        (
            token(json!({"apiVersion": "v1", "kind": "Secret", "name": "s1", "uid": "x"})),
            "node requested token not bound to a pod",
        ),
        (
            of_pod("p1", &Value::Null),
            "node requested token with a pod binding without a uid",
        ),
        (of_pod("p1", &uids[1]), mismatch),
        (
            of_pod("p2", &uids[1]),
            "node requested token bound to a pod scheduled on a different node",
        ),
    ] {
        cluster
            .is_refused(Method::POST, TOKENS, &body, reason)
            .await;
    }
    let absent = of_pod("absent", &uids[1]);
    let (code, response) = cluster.send("n1", Method::POST, TOKENS, &absent).await;
    let message = &response["message"];
    assert_eq!((code, message), (404, &json!(r#"pods "absent" not found"#)));
    cluster.server.stop().await;
}

#[tokio::test]
async fn leases_slices_claims_and_certificates_are_of_the_node() {
    let mut cluster = Cluster::start().await;
    let named = |name: &str| json!({"metadata": {"name": name}, "spec": {}});
    let lease = "can only access node lease with the same name as the requesting node";
    cluster.is_done(Method::POST, LEASES, &named("n1")).await;
    cluster
        .is_refused(Method::POST, LEASES, &named("n2"), lease)
        .await;
    let csi_node = |name: &str| json!({"metadata": {"name": name}, "spec": {"drivers": []}});
    let reason = "can only access CSINode with the same name as the requesting node";
    cluster
        .is_done(Method::POST, CSI_NODES, &csi_node("n1"))
        .await;
    cluster
        .is_refused(Method::POST, CSI_NODES, &csi_node("n2"), reason)
        .await;
    let slice = |node: &str| {
        json!({"metadata": {"name": format!("slice-{node}")}, "spec": {
            "nodeName": node, "driver": "gpu.example.com",
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        }})
    };
    let reason = "can only create ResourceSlice with the same NodeName as the requesting node";
    cluster.is_done(Method::POST, SLICES, &slice("n1")).await;
    cluster
        .is_refused(Method::POST, SLICES, &slice("n2"), reason)
        .await;
    cluster
        .until_allowed("n1", &format!("{SLICES}/slice-n1"))
        .await;
    assert_eq!(cluster.get("n2", &format!("{SLICES}/slice-n1")).await, 403);

    let capacity = json!({"status": {"capacity": {"storage": "2Gi"}}});
    cluster
        .is_done(Method::PATCH, &format!("{CLAIMS}/c1/status"), &capacity)
        .await;
    let phase = json!({"status": {"phase": "Lost"}});
    let reason = r#"node "n1" is not allowed to update fields other than status.capacity and status.conditions"#;
    cluster
        .is_refused(
            Method::PATCH,
            &format!("{CLAIMS}/c1/status"),
            &phase,
            reason,
        )
        .await;

    let signing_request = |node: &str| {
        let mut parameters = CertificateParams::default();
        let subject = &mut parameters.distinguished_name;
        subject.push(DnType::OrganizationName, "system:nodes");
        subject.push(DnType::CommonName, format!("system:node:{node}"));
        let key = KeyPair::generate().expect("a key");
        let pem = parameters
            .serialize_request(&key)
            .expect("a request")
            .pem()
            .expect("PEM");
        json!({"metadata": {"generateName": "csr-"}, "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"], "request": BASE64_STANDARD.encode(pem),
        }})
    };
    cluster
        .is_done(Method::POST, REQUESTS, &signing_request("n1"))
        .await;
    let reason = "can only create a node CSR with CN=system:node:n1";
    cluster
        .is_refused(Method::POST, REQUESTS, &signing_request("n2"), reason)
        .await;
    cluster.server.stop().await;
}
