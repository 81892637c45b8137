//! The audiences of tokens that a kubelet requests: those that a volume of the pod uses, and those that it is permitted.

use super::*;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";
const VOLUMES: &str = "/api/v1/persistentvolumes";

impl Cluster {
    async fn create(&mut self, path: &str, object: Value) -> Value {
        let created = self.admin.post(path, &object).await;
        assert_eq!(created.status, 201, "{}", created.json());
        created.json()
    }

    /// Creates a pod of n1 with these volumes, and returns a function that requests a token for it.
    async fn pod(&mut self, name: &str, volumes: Value) -> impl Fn(&[&str]) -> Value + use<> {
        let pod = json!({"metadata": {"name": name}, "spec": {
            "nodeName": "n1", "containers": [{"name": "c", "image": "i"}], "volumes": volumes,
        }});
        let uid = self.create(PODS, pod).await["metadata"]["uid"].clone();
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
        move |audiences| json!({"spec": {"audiences": audiences, "boundObjectRef": bound}})
    }

    /// Creates a CSI driver that uses tokens for the audience `csi`.
    async fn driver(&mut self, name: &str) {
        let spec = json!({"tokenRequests": [{"audience": "csi"}], "volumeLifecycleModes": ["Persistent", "Ephemeral"]});
        self.create(DRIVERS, json!({"metadata": {"name": name}, "spec": spec}))
            .await;
    }

    /// Creates a claim that is bound to a volume of this type.
    async fn bound_claim(&mut self, name: &str, volume: Value) {
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": name},
        });
        json_patch::merge(&mut spec, &volume);
        self.create(VOLUMES, json!({"metadata": {"name": name}, "spec": spec}))
            .await;
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        });
        self.create(CLAIMS, json!({"metadata": {"name": name}, "spec": spec}))
            .await;
    }

    /// Requests tokens until one is issued: the watch cache of admission may be behind.
    async fn until_issued(&mut self, request: &Value) {
        let issued = async {
            while self.send("n1", Method::POST, TOKENS, request).await.0 != 201 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, issued).await.expect("a token");
    }

    async fn is_unused(&mut self, request: &Value, audience: &str) {
        let reason = format!(
            "audience {audience:?} not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience"
        );
        self.is_refused(Method::POST, TOKENS, request, &reason)
            .await;
    }
}

#[tokio::test]
async fn audiences_are_those_of_projected_volumes_or_permitted() {
    let mut cluster = Cluster::start().await;
    let source = json!({"serviceAccountToken": {"path": "t", "audience": "vault"}});
    let volumes = json!([{"name": "t", "projected": {"sources": [source]}}]);
    let request = cluster.pod("projected", volumes).await;
    // ServiceAccount has added the volume with the default audience.
    for audiences in [&[] as &[&str], &["vault"]] {
        cluster
            .is_done(Method::POST, TOKENS, &request(audiences))
            .await;
    }
    cluster.is_unused(&request(&["other"]), "other").await;
    let reason = "node may only request 0 or 1 audiences";
    cluster
        .is_refused(Method::POST, TOKENS, &request(&["vault", "other"]), reason)
        .await;

    let rule = json!({
        "apiGroups": [""], "resources": ["other"], "resourceNames": ["default"],
        "verbs": ["request-serviceaccounts-token-audience"],
    });
    cluster
        .create(ROLES, json!({"metadata": {"name": "r"}, "rules": [rule]}))
        .await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let nodes =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"});
    let binding = json!({"metadata": {"name": "r"}, "roleRef": role, "subjects": [nodes]});
    cluster.create(BINDINGS, binding).await;
    cluster.until_issued(&request(&["other"])).await;
    cluster.is_unused(&request(&["third"]), "third").await;
    cluster.server.stop().await;
}

#[tokio::test]
async fn audiences_are_those_of_csi_drivers() {
    let mut cluster = Cluster::start().await;
    cluster.driver("csi.example.com").await;
    cluster.driver("pd.csi.storage.gke.io").await;
    let csi = json!({"driver": "csi.example.com", "volumeHandle": "v"});
    cluster.bound_claim("bound", json!({"csi": csi})).await;
    let disk = json!({"gcePersistentDisk": {"pdName": "d"}});
    cluster.bound_claim("migrated", disk.clone()).await;
    cluster
        .bound_claim("ephemeral-v", json!({"csi": csi}))
        .await;
    let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
    let template = json!({"volumeClaimTemplate": {"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }}});
    for (pod, mut volume) in [
        ("inline", json!({"csi": {"driver": "csi.example.com"}})),
        ("claim", claim("bound")),
        ("old", claim("migrated")),
        ("inline-old", disk),
        ("ephemeral", json!({"ephemeral": template})),
    ] {
        volume["name"] = json!("v");
        let request = cluster.pod(pod, json!([volume])).await;
        cluster.until_issued(&request(&["csi"])).await;
        cluster.is_unused(&request(&["other"]), "other").await;
    }
    // What a volume uses is not known without the objects that it refers to.
    for (volume, absent) in [
        (
            json!({"csi": {"driver": "absent"}}),
            r#"csidriver.storage.k8s.io "absent" not found"#,
        ),
        (
            claim("absent"),
            r#"persistentvolumeclaim "absent" not found"#,
        ),
        (claim("c1"), r#"persistentvolume "" not found"#),
    ] {
        let mut volume = volume;
        volume["name"] = json!("v");
        let name = format!("absent-{}", absent.len());
        let request = cluster.pod(&name, json!([volume])).await;
        let reason = format!("error validating audience \"csi\": {absent}");
        cluster
            .is_refused(Method::POST, TOKENS, &request(&["csi"]), &reason)
            .await;
    }
    cluster.server.stop().await;
}
