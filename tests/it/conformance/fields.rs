//! Tests of the selectable fields: each field of each type selects by its value, in lists and watches. `selections`
//! tests the syntax of selectors.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::site::{Site, names};

/// A collection, an object and its status in it, and the selectors that select only this object.
type Row = (&'static str, Value, Value, &'static [&'static str]);

/// Returns the required members of an object in a collection, without selectable fields.
fn least(collection: &str) -> Value {
    let labels = json!({"a": "b"});
    let pod = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
    let lasting = json!({"containers": [{"name": "c", "image": "i"}]});
    let of = |spec: &Value| json!({"metadata": {"labels": labels}, "spec": spec});
    let spec = match collection.rsplit('/').next().unwrap_or_default() {
        "pods" => lasting,
        "services" => json!({"ports": [{"port": 80}]}),
        "replicationcontrollers" => json!({"selector": labels, "template": of(&lasting)}),
        "replicasets" => {
            json!({"selector": {"matchLabels": labels}, "template": of(&lasting)})
        }
        "jobs" => json!({"template": of(&pod)}),
        "certificatesigningrequests" => request("example.com/other"),
        "resourceslices" => {
            json!({"allNodes": true, "driver": "other", "pool": {"name": "p", "resourceSliceCount": 1}})
        }
        _ => return json!({}),
    };
    json!({ "spec": spec })
}

/// Returns the `spec.request` of a CertificateSigningRequest.
fn request(signer: &str) -> Value {
    // The strongest key, which every signer accepts.
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512).expect("a key");
    let parameters = rcgen::CertificateParams::new(vec!["a.example".to_owned()]);
    let request = parameters.expect("a name").serialize_request(&key);
    let pem = request
        .and_then(|request| request.pem())
        .expect("a request");
    json!({"signerName": signer, "request": BASE64_STANDARD.encode(pem), "usages": ["any"]})
}

fn table() -> Vec<Row> {
    let event = json!({
        "involvedObject": {
            "kind": "Pod", "namespace": "default", "name": "p", "uid": "u", "apiVersion": "v1",
            "resourceVersion": "7", "fieldPath": "spec.containers{c}",
        },
        "reason": "Killed", "reportingComponent": "kubelet", "source": {"component": "node"},
        "type": "Warning",
    });
    let pod = json!({"spec": {
        "nodeName": "n", "restartPolicy": "Never", "schedulerName": "mine",
        "serviceAccountName": "robot", "hostNetwork": true,
        "containers": [{"name": "c", "image": "i"}],
    }});
    let pod_status = json!({"phase": "Failed", "podIP": "10.1.2.3", "nominatedNodeName": "m"});
    let replicas = json!({"replicas": 3});
    let none = Value::Null;
    vec![
        (
            "api/v1/namespaces/default/pods",
            pod,
            pod_status,
            &[
                "spec.nodeName=n",
                "spec.host=n",
                "spec.restartPolicy=Never",
                "spec.schedulerName=mine",
                "spec.serviceAccountName=robot",
                "spec.hostNetwork=true",
                "status.phase=Failed",
                "status.podIP=10.1.2.3",
                "status.nominatedNodeName=m",
            ],
        ),
        (
            "api/v1/nodes",
            json!({"spec": {"unschedulable": true}}),
            none.clone(),
            &["spec.unschedulable=true"],
        ),
        (
            "api/v1/namespaces/default/events",
            event,
            none.clone(),
            &[
                "involvedObject.kind=Pod",
                "involvedObject.namespace=default",
                "involvedObject.name=p",
                "involvedObject.uid=u",
                "involvedObject.apiVersion=v1",
                "involvedObject.resourceVersion=7",
                "involvedObject.fieldPath=spec.containers{c}",
                "reason=Killed",
                "reportingComponent=kubelet",
                "source=node",
                "type=Warning",
            ],
        ),
        (
            "api/v1/namespaces/default/secrets",
            json!({"type": "my/type"}),
            none.clone(),
            &["type=my/type"],
        ),
        (
            "api/v1/namespaces/default/services",
            json!({"spec": {
                "clusterIP": "10.96.0.9", "type": "NodePort", "ports": [{"port": 80}],
            }}),
            none.clone(),
            &["spec.clusterIP=10.96.0.9", "spec.type=NodePort"],
        ),
        (
            "api/v1/namespaces/default/replicationcontrollers",
            least("replicationcontrollers"),
            replicas.clone(),
            &["status.replicas=3"],
        ),
        (
            "apis/apps/v1/namespaces/default/replicasets",
            least("replicasets"),
            replicas,
            &["status.replicas=3"],
        ),
        (
            "apis/batch/v1/namespaces/default/jobs",
            least("jobs"),
            json!({"succeeded": 2}),
            &["status.successful=2"],
        ),
        (
            "apis/certificates.k8s.io/v1/certificatesigningrequests",
            json!({"spec": request("example.com/s")}),
            none.clone(),
            &["spec.signerName=example.com/s"],
        ),
        (
            "apis/resource.k8s.io/v1/resourceslices",
            json!({"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p", "resourceSliceCount": 1}}}),
            none,
            &["spec.nodeName=n", "spec.driver=d"],
        ),
    ]
}

pub(crate) async fn every_selectable_field_selects(site: &Site) {
    for (collection, object, status, selectors) in table() {
        let path = format!("/{collection}");
        let mut other = least(collection);
        other["metadata"] = json!({"name": "other"});
        site.post(&path, &other).await.ok(201);
        let mut object = object;
        object["metadata"] = json!({"name": "x"});
        let mut made = site.post(&path, &object).await.ok(201);
        if !status.is_null() {
            made["status"] = status;
            site.put(&format!("{path}/x/status"), &made).await.ok(200);
        }
        for selector in selectors {
            let (field, value) = selector.split_once('=').unwrap();
            let escaped = value.replace('{', "%7B").replace('}', "%7D");
            let is = format!("{path}?fieldSelector={field}%3D{escaped}");
            assert_eq!(
                names(&site.get(&is).await.ok(200)),
                ["x"],
                "{collection} {selector}"
            );
            let mut watch = site.watch(&format!("{is}&resourceVersion=0")).await;
            assert_eq!(watch.words(1).await, ["ADDED x"], "{collection} {selector}");
            let is_not = format!("{path}?fieldSelector={field}%21%3D{escaped}");
            let others = site.get(&is_not).await.ok(200);
            assert!(
                !names(&others).contains(&"x"),
                "{collection} {field}!={value}"
            );
            assert!(
                names(&others).contains(&"other"),
                "{collection} {field}!={value}"
            );
        }
    }
    let phase = "/api/v1/namespaces?fieldSelector=status.phase%3DActive";
    assert!(names(&site.get(phase).await.ok(200)).contains(&"default"));
}
