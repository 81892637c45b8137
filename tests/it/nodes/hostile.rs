//! Attacks of a kubelet: it reads, moves and deletes objects that are not of its node.

use rcgen::{CertificateParams, DnType, KeyPair};

use super::*;

fn node_owner(uid: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true})
}

impl Cluster {
    async fn uid(&mut self, path: &str) -> Value {
        self.admin.get(path).await.json()["metadata"]["uid"].clone()
    }

    /// Returns a mirror pod of n1 with this specification.
    async fn mirror(&mut self, spec: Value) -> Value {
        let owner = node_owner(&self.uid(&format!("{NODES}/n1")).await);
        let mut pod = json!({
            "metadata": {
                "name": "mirror", "annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner],
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        });
        json_patch::merge(&mut pod["spec"], &spec);
        pod
    }
}

#[tokio::test]
async fn a_node_cannot_select_what_it_cannot_read() {
    let mut cluster = Cluster::start().await;
    let s1 = "fieldSelector=metadata.name%3Ds1";
    let n1 = "fieldSelector=spec.nodeName%3Dn1";
    for path in [
        format!("{SECRETS}?watch=1"),
        format!("{SECRETS}?labelSelector=a"),
        format!("{SECRETS}?fieldSelector=metadata.name!%3Dx"),
        format!("{SECRETS}?fieldSelector=metadata.name%3Ds2"),
        format!("{SECRETS}?fieldSelector=metadata.name%3Ds2,metadata.name%3Ds1"),
        format!("{SECRETS}?fieldSelector=&{s1}"),
        format!("{SECRETS}/s%32"),
        format!("{SECRETS}/s2?watch=1"),
        format!("/api/v1/secrets?{s1}"),
        "/api/v1/watch/secrets".to_owned(),
        "/api/v1/watch/namespaces/default/secrets/s2".to_owned(),
        format!("/api/v1/watch/namespaces/default/secrets?{s1}"),
        format!("{PODS}?fieldSelector=spec.nodeName!%3Dn2"),
        format!("{PODS}?fieldSelector=&{n1}"),
        format!("{PODS}/p2/log"),
        format!("{NODES}/n1/proxy"),
        format!("{NODES}?watch=1"),
        format!("{NODES}?fieldSelector=metadata.name%3Dn2"),
        format!("{LEASES}?fieldSelector=metadata.name%3Dn1"),
        CSI_NODES.to_owned(),
    ] {
        assert_eq!(cluster.get("n1", &path).await, 403, "{path}");
    }
    // Only the first selector counts, for the authorization as for the list.
    for (path, name) in [
        (format!("{SECRETS}?{s1}&fieldSelector="), "s1"),
        (format!("{PODS}?{n1}&fieldSelector="), "p1"),
        (
            format!("{PODS}?{n1}&fieldSelector=spec.nodeName%3Dn2"),
            "p1",
        ),
    ] {
        let (code, list) = cluster.send("n1", Method::GET, &path, &Value::Null).await;
        let items = list["items"].as_array().expect("a list").iter();
        let names: Vec<_> = items.map(|item| &item["metadata"]["name"]).collect();
        assert_eq!((code, names), (200, vec![&json!(name)]), "{path}");
    }
    cluster.server.stop().await;
}

/// The garbage collector would delete a node whose owner does not exist, and the kubelet could register it again with other
/// taints and labels (CVE-2025-5187).
#[tokio::test]
async fn a_node_cannot_change_its_owners() {
    let mut cluster = Cluster::start().await;
    // An owner that exists: the garbage collector deletes a node whose owner does not.
    let default = cluster.admin.get("/api/v1/namespaces/default").await.json();
    let uid = &default["metadata"]["uid"];
    let owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": uid});
    let owned = json!({"metadata": {"ownerReferences": [owner]}});
    let reason = r#"node "n1" is not allowed to modify ownerReferences"#;
    let own = format!("{NODES}/n1");
    for path in [own.clone(), format!("{own}/status")] {
        cluster
            .is_refused(Method::PATCH, &path, &owned, reason)
            .await;
    }
    let headers = [("content-type", "application/merge-patch+json")];
    let owned = owned.to_string();
    let patch = cluster.admin.send(Method::PATCH, &own, &headers, &owned);
    let patched = patch.await;
    assert_eq!(patched.status, 200);
    let none = json!({"metadata": {"ownerReferences": null}});
    cluster.is_refused(Method::PATCH, &own, &none, reason).await;
    cluster.server.stop().await;
}

#[tokio::test]
async fn mirror_pods_refer_to_nothing_and_stay_mirror_pods() {
    let mut cluster = Cluster::start().await;
    let certificate = json!({"podCertificate": {
        "signerName": "example.com/s", "keyType": "ED25519", "credentialBundlePath": "c",
    }});
    let claim = json!({"volumeClaimTemplate": {"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }}});
    for (volume, resource) in [
        (
            json!({"csi": {"driver": "d"}}),
            "csidrivers (via CSI volumes)",
        ),
        (
            json!({"glusterfs": {"endpoints": "e", "path": "p"}}),
            "endpoints (via glusterFS volumes)",
        ),
        (
            json!({"projected": {"sources": [certificate]}}),
            "podcertificates",
        ),
        (
            json!({"projected": {"sources": [{"clusterTrustBundle": {"name": "b", "path": "p"}}]}}),
            "clustertrustbundles",
        ),
        (
            json!({"ephemeral": claim}),
            "persistentvolumeclaims (via ephemeral volumes)",
        ),
    ] {
        let mut volume = volume;
        volume["name"] = json!("v");
        let pod = cluster.mirror(json!({"volumes": [volume]})).await;
        let reason = format!("node \"n1\" can not create pods that reference {resource}");
        cluster.is_refused(Method::POST, PODS, &pod, &reason).await;
    }
    let claims = json!({"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]});
    let pod = cluster.mirror(claims).await;
    let reason = r#"node "n1" can not create pods that reference resourceclaims"#;
    cluster.is_refused(Method::POST, PODS, &pod, reason).await;

    let volumes = json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]});
    let pod = cluster.mirror(volumes).await;
    cluster.is_done(Method::POST, PODS, &pod).await;
    let no_mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": null}}});
    let status = format!("{PODS}/mirror/status");
    let (code, response) = cluster.send("n1", Method::PATCH, &status, &no_mirror).await;
    assert_eq!(code, 422, "{response}");
    let message = response["message"].as_str().expect("a message");
    let end = "Forbidden: may not remove or update mirror pod annotation";
    assert!(message.ends_with(end), "{message}");
    cluster.server.stop().await;
}

#[tokio::test]
async fn the_status_of_a_pod_changes_neither_its_node_nor_its_owners_nor_its_claims() {
    let mut cluster = Cluster::start().await;
    let path = format!("{PODS}/p1/status");
    let owner = node_owner(&cluster.uid(&format!("{NODES}/n1")).await);
    let secret = json!({"name": "s", "secret": {"secretName": "s2"}});
    let before = cluster.admin.get(&format!("{PODS}/p1")).await.json();
    let change = json!({
        "metadata": {"ownerReferences": [owner]},
        "spec": {"nodeName": "n2", "volumes": [secret]},
        "status": {"phase": "Running"},
    });
    let after = cluster.is_done(Method::PATCH, &path, &change).await;
    assert_eq!(after["status"]["phase"], "Running");
    for member in ["/spec", "/metadata/ownerReferences"] {
        assert_eq!(after.pointer(member), before.pointer(member));
    }
    let claims =
        json!({"status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "b"}]}});
    let reason = r#"node "n1" cannot update resource claim statues"#;
    cluster
        .is_refused(Method::PATCH, &path, &claims, reason)
        .await;
    let extended = json!({"status": {"extendedResourceClaimStatus": {
        "resourceClaimName": "b", "requestMappings": [],
    }}});
    let reason = r#"node "n1" cannot update extended resource claim status"#;
    cluster
        .is_refused(Method::PATCH, &path, &extended, reason)
        .await;
    cluster.server.stop().await;
}

/// The user of a certificate is its last common name.
#[tokio::test]
async fn the_last_common_name_of_a_signing_request_is_the_node() {
    let mut cluster = Cluster::start().await;
    let request = |first: &str, last: &str| {
        let mut parameters = CertificateParams::default();
        let subject = &mut parameters.distinguished_name;
        subject.push(DnType::OrganizationName, "system:nodes");
        subject.push(DnType::CommonName, format!("system:node:{first}"));
        // The same attribute again, which the library would replace by that name.
        let common_name = DnType::CustomDnType(vec![2, 5, 4, 3]);
        subject.push(common_name, format!("system:node:{last}"));
        let key = KeyPair::generate().expect("a key");
        let request = parameters.serialize_request(&key).expect("a request");
        let pem = request.pem().expect("PEM");
        json!({"metadata": {"generateName": "csr-"}, "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"], "request": BASE64_STANDARD.encode(pem),
        }})
    };
    let reason = "can only create a node CSR with CN=system:node:n1";
    cluster
        .is_refused(Method::POST, REQUESTS, &request("n1", "n2"), reason)
        .await;
    cluster
        .is_done(Method::POST, REQUESTS, &request("n2", "n1"))
        .await;
    cluster.server.stop().await;
}

#[tokio::test]
async fn a_resource_slice_stays_on_its_node() {
    let mut cluster = Cluster::start().await;
    let slice = json!({"metadata": {"name": "s"}, "spec": {
        "nodeName": "n1", "driver": "gpu.example.com",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
    }});
    let with = |change: Value| {
        let mut changed = slice.clone();
        json_patch::merge(&mut changed["spec"], &change);
        changed
    };
    let one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let several = format!(
        "spec: Invalid value: \"{{`nodeName`, `allNodes`}}\": {one}, but multiple fields are set"
    );
    let both = with(json!({"allNodes": true}));
    let (code, response) = cluster.send("n1", Method::POST, SLICES, &both).await;
    let message = response["message"].as_str().expect("a message");
    assert!(code == 422 && message.ends_with(&several), "{message}");
    let created = cluster.is_done(Method::POST, SLICES, &slice).await;
    let path = format!("{SLICES}/s");
    cluster.until_allowed("n1", &path).await;
    for (change, cause) in [
        (
            json!({"nodeName": "n2"}),
            "spec.nodeName: Invalid value: \"n2\": field is immutable",
        ),
        (
            json!({"nodeName": null, "allNodes": true}),
            "spec.nodeName: Invalid value: null: field is immutable",
        ),
        (json!({"allNodes": true}), &several),
        (
            json!({"driver": "x.example.com"}),
            "spec.driver: Invalid value: \"x.example.com\": field is immutable",
        ),
        (
            json!({"pool": {"name": "q"}}),
            "spec.pool.name: Invalid value: \"q\": field is immutable",
        ),
    ] {
        let change = json!({"spec": change});
        let (code, response) = cluster.send("n1", Method::PATCH, &path, &change).await;
        let message = response["message"].as_str().expect("a message");
        assert!(code == 422 && message.ends_with(cause), "{message}");
    }
    let nowhere = with(json!({"nodeName": null}));
    let created_by_admin = cluster.admin.post(SLICES, &nowhere).await.json();
    let message = created_by_admin["message"].as_str().expect("a message");
    assert!(
        message.ends_with(&format!("spec: Required value: {one}")),
        "{message}"
    );
    let stored = cluster.admin.get(&path).await.json();
    assert_eq!(stored, created);
    cluster.server.stop().await;
}

/// Admission plugins cannot read an object that cannot be decoded, and so cannot check that it is of the node.
#[tokio::test]
async fn a_node_cannot_delete_what_cannot_be_decoded() {
    let mut cluster = Cluster::start().await;
    let path = format!("{PODS}/p1?ignoreStoreReadErrorWithClusterBreakingPotential=true");
    let reason = "not permitted to do \"unsafe-delete-ignore-read-errors\", reason: ";
    cluster
        .is_refused(Method::DELETE, &path, &Value::Null, reason)
        .await;
    let admin = cluster.admin.send(Method::DELETE, &path, &[], "").await;
    // The administrator is permitted, but the pod can be decoded.
    assert_eq!(admin.status, 422);
    cluster.server.stop().await;
}

/// The other node of a pod that was created again has what the pod needs, and the former one nothing.
#[tokio::test]
async fn a_node_loses_a_pod_that_is_created_again_on_another_one() {
    let mut cluster = Cluster::start().await;
    let path = format!("{PODS}/p1");
    let old = cluster.admin.get(&path).await.json();
    let delete = json!({"gracePeriodSeconds": 0}).to_string();
    let deleted = cluster
        .admin
        .send(Method::DELETE, &path, &[], &delete)
        .await;
    assert_eq!(deleted.status, 200);
    let secret = json!({"name": "s", "secret": {"secretName": "s1"}});
    let pod = json!({"metadata": {"name": "p1"}, "spec": {
        "nodeName": "n2", "containers": [{"name": "c", "image": "i"}], "volumes": [secret],
    }});
    let created = cluster.admin.post(PODS, &pod).await;
    assert_eq!(created.status, 201);
    cluster.until_allowed("n2", &format!("{SECRETS}/s1")).await;
    assert_eq!(cluster.get("n1", &format!("{SECRETS}/s1")).await, 403);
    let reason = r#"node "n1" can only delete pods with spec.nodeName set to itself"#;
    cluster
        .is_refused(Method::DELETE, &path, &Value::Null, reason)
        .await;
    let bound =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "p1", "uid": old["metadata"]["uid"]});
    let token = json!({"spec": {"boundObjectRef": bound}});
    let (code, response) = cluster.send("n1", Method::POST, TOKENS, &token).await;
    assert_eq!(code, 403, "{response}");
    cluster.server.stop().await;
}
