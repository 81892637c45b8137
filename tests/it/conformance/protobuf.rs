//! WC-201: responses and bodies in protobuf, decoded and encoded by types generated from upstream's definitions.

use http::Method;
use http_body_util::BodyExt as _;
use k8s_pb::api::apps::v1::Deployment;
use k8s_pb::api::core::v1::{
    ConfigMap, ConfigMapList, Container, Pod, PodSpec, ResourceRequirements,
};
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1::{
    ObjectMeta, PartialObjectMetadata, Status, WatchEvent,
};
use k8s_pb::apimachinery::pkg::runtime::{TypeMeta, Unknown};
use k8s_pb::apimachinery::pkg::util::intstr::IntOrString;
use prost::Message;
use serde_json::json;

use super::site::{MAPS, Site, version};
use crate::harness::{Protocol, full, request};

pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Returns the message in an envelope, which must be of this kind.
pub(crate) fn opened<M: Message + Default>(body: &[u8], api_version: &str, kind: &str) -> M {
    let envelope = body.strip_prefix(b"k8s\0").expect("the magic");
    let envelope = Unknown::decode(envelope).expect("an envelope");
    let of = envelope.type_meta.expect("its type");
    assert_eq!(of.api_version.as_deref(), Some(api_version));
    assert_eq!(of.kind.as_deref(), Some(kind));
    M::decode(&envelope.raw.expect("an object")[..]).expect("a message")
}

async fn get(site: &Site, path: &str) -> Vec<u8> {
    let answer = site
        .send(Method::GET, path, &[("accept", PROTOBUF)], "")
        .await;
    assert_eq!(answer.code, 200, "{answer:?}");
    assert_eq!(answer.headers["content-type"], PROTOBUF);
    answer.body.to_vec()
}

pub(crate) async fn wc_201_objects_and_lists_in_protobuf(site: &Site) {
    let made = site.make("a", json!({"k": "v"})).await;
    site.make("b", json!({})).await;
    let one: ConfigMap = opened(&get(site, &format!("{MAPS}/a")).await, "v1", "ConfigMap");
    let metadata = one.metadata.clone().unwrap();
    assert_eq!(metadata.name.as_deref(), Some("a"));
    assert_eq!(metadata.uid.as_deref(), made["metadata"]["uid"].as_str());
    assert_eq!(metadata.resource_version, Some(version(&made).to_string()));
    assert_eq!(metadata.labels["k"], "v");
    assert!(metadata.creation_timestamp.unwrap().seconds.unwrap() > 1_700_000_000);
    assert_eq!(one.data["of"], "a");

    let list = get(site, &format!("{MAPS}?limit=1")).await;
    let list: ConfigMapList = opened(&list, "v1", "ConfigMapList");
    assert_eq!(list.items, [one]);
    let metadata = list.metadata.unwrap();
    assert_eq!(metadata.remaining_item_count, Some(1));
    assert!(metadata.r#continue.is_some_and(|token| !token.is_empty()));
    let empty = get(site, &format!("{MAPS}?labelSelector=none")).await;
    let empty: ConfigMapList = opened(&empty, "v1", "ConfigMapList");
    assert!(empty.items.is_empty());

    let accept = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let path = format!("{MAPS}/a");
    let answer = site
        .send(Method::GET, &path, &[("accept", &accept)], "")
        .await;
    let kind = "PartialObjectMetadata";
    let partial: PartialObjectMetadata = opened(&answer.body, "meta.k8s.io/v1", kind);
    assert_eq!(partial.metadata.unwrap().name.as_deref(), Some("a"));
}

pub(crate) async fn wc_201_special_forms_in_protobuf(site: &Site) {
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{
                "name": "c", "image": "i",
                "resources": {"limits": {"cpu": "250m", "memory": "1Gi"}},
                "livenessProbe": {"httpGet": {"port": "http", "path": "/"}},
                "readinessProbe": {"tcpSocket": {"port": 80}},
            }],
            "volumes": [{"name": "v", "configMap": {"name": "m"}}],
            "terminationGracePeriodSeconds": 0,
        },
    });
    let pods = "/api/v1/namespaces/default/pods";
    site.post(pods, &pod).await.ok(201);
    let pod: Pod = opened(&get(site, &format!("{pods}/p")).await, "v1", "Pod");
    let spec = pod.spec.unwrap();
    assert_eq!(spec.termination_grace_period_seconds, Some(0));
    let source = spec.volumes[0]
        .volume_source
        .clone()
        .unwrap()
        .config_map
        .unwrap();
    assert_eq!(
        source.local_object_reference.unwrap().name.as_deref(),
        Some("m")
    );
    let container = &spec.containers[0];
    let limits = &container.resources.as_ref().unwrap().limits;
    assert_eq!(limits["cpu"].string.as_deref(), Some("250m"));
    // Go's generated code writes all three fields, also the empty one.
    let port = |is_string: bool, text: &str, number: i32| IntOrString {
        r#type: Some(i64::from(is_string)),
        int_val: Some(number),
        str_val: Some(text.to_owned()),
    };
    let live = container.liveness_probe.clone().unwrap().handler.unwrap();
    assert_eq!(live.http_get.unwrap().port, Some(port(true, "http", 0)));
    let ready = container.readiness_probe.clone().unwrap().handler.unwrap();
    assert_eq!(ready.tcp_socket.unwrap().port, Some(port(false, "", 80)));

    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "containers": [{"name": "c", "image": "i"}],
            }},
        },
    });
    site.post(deployments, &deployment).await.ok(201);
    let body = get(site, &format!("{deployments}/d")).await;
    let deployment: Deployment = opened(&body, "apps/v1", "Deployment");
    assert_eq!(deployment.spec.unwrap().replicas, Some(3));
}

/// Returns the next frame of a watch in protobuf; `None` at its end. Cancel safe.
pub(crate) async fn frame(
    body: &mut hyper::body::Incoming,
    buffer: &mut Vec<u8>,
) -> Option<WatchEvent> {
    loop {
        if let Some((length, rest)) = buffer.split_at_checked(4) {
            let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
            if let Some(event) = rest.get(..length) {
                let event = WatchEvent::decode(event).expect("an event");
                buffer.drain(..4 + length);
                return Some(event);
            }
        }
        let Some(data) = body.frame().await else {
            assert!(buffer.is_empty(), "a frame is cut: {buffer:?}");
            return None;
        };
        buffer.extend_from_slice(&data.unwrap().into_data().unwrap());
    }
}

pub(crate) async fn wc_201_watches_in_protobuf(site: &Site) {
    let made = site.make("a", json!({})).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                 &allowWatchBookmarks=1";
    let accept = [("accept", "application/vnd.kubernetes.protobuf;stream=watch")];
    let mut wire = site.connect(Protocol::Http1).await;
    let path = format!("{MAPS}?{query}");
    let response = wire
        .open(request(Method::GET, &path, &accept, full("")))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let media = "application/vnd.kubernetes.protobuf;stream=watch";
    assert_eq!(response.headers()["content-type"], media);
    let (mut body, mut buffer) = (response.into_body(), Vec::new());
    let mut received = Vec::new();
    site.change("a").await;
    site.remove("a").await;
    for _ in 0..4 {
        let event = frame(&mut body, &mut buffer).await.unwrap();
        let raw = event.object.expect("an object").raw.expect("its bytes");
        let map: ConfigMap = opened(&raw, "v1", "ConfigMap");
        received.push((event.r#type.unwrap(), map.metadata.unwrap()));
    }
    let kinds: Vec<_> = received.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["ADDED", "BOOKMARK", "MODIFIED", "DELETED"]);
    let first = &received[0].1;
    assert_eq!(first.name.as_deref(), Some("a"));
    assert_eq!(first.uid.as_deref(), made["metadata"]["uid"].as_str());
    assert_eq!(
        received[1].1.annotations["k8s.io/initial-events-end"],
        "true"
    );

    let ahead = site.revision().await + 1000;
    let path = format!(
        "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                        &resourceVersion={ahead}"
    );
    let response = wire_watch(site, &path).await;
    let (mut body, mut buffer) = (response.1, Vec::new());
    let event = frame(&mut body, &mut buffer).await.unwrap();
    assert_eq!(event.r#type.as_deref(), Some("ERROR"));
    let raw = event.object.unwrap().raw.unwrap();
    let status: Status = opened(&raw, "v1", "Status");
    assert_eq!(
        (status.code, status.reason.as_deref()),
        (Some(504), Some("Timeout"))
    );
    assert!(body.frame().await.is_none(), "it ends");
}

async fn wire_watch(site: &Site, path: &str) -> (crate::harness::Wire, hyper::body::Incoming) {
    let mut wire = site.connect(Protocol::Http1).await;
    let get = request(Method::GET, path, &[("accept", PROTOBUF)], full(""));
    let body = wire.open(get).await.unwrap().into_body();
    (wire, body)
}

/// One object with a value of a wrong type made every list and watch of the resource in protobuf fail.
pub(crate) async fn values_of_wrong_types_are_errors_with_the_field(site: &Site) {
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    for (spec, field) in [
        (json!({"replicas": "three"}), "replicas"),
        (json!({"paused": 1}), "paused"),
        (
            json!({"template": {"spec": {"containers": {}}}}),
            "containers",
        ),
        (
            json!({"selector": {"matchLabels": {"a": 5}}}),
            "matchLabels",
        ),
    ] {
        let body = json!({"metadata": {"name": "bad"}, "spec": spec});
        let status = site
            .post(deployments, &body)
            .await
            .failure(400, "BadRequest");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(field), "{message}");
        assert!(
            message.contains("cannot be handled as a Deployment"),
            "{message}"
        );
    }
    let mut made = site.make("a", json!({})).await;
    made["data"] = json!({"n": 5});
    site.put(&format!("{MAPS}/a"), &made)
        .await
        .failure(400, "BadRequest");
}

pub(crate) async fn wc_201_kinds_without_protobuf_are_json_and_errors_are_protobuf(site: &Site) {
    site.make("a", json!({})).await;
    let either = format!("{PROTOBUF},application/json");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let first = format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,{table}");
    let answer = site
        .send(Method::GET, MAPS, &[("accept", &first)], "")
        .await;
    assert_eq!(answer.ok(200)["kind"], "Table");
    let path = format!("{MAPS}/x");
    let accept = [("accept", either.as_str())];
    let missing = site.send(Method::GET, &path, &accept, "").await;
    assert_eq!(missing.code, 404, "{missing:?}");
    assert_eq!(missing.headers["content-type"], PROTOBUF);
    let status: Status = opened(&missing.body, "v1", "Status");
    assert_eq!(status.reason.as_deref(), Some("NotFound"));
    assert_eq!(status.details.unwrap().name.as_deref(), Some("x"));
}

/// Returns a body in protobuf: a message in an envelope.
fn enveloped(api_version: &str, kind: &str, raw: Vec<u8>, content_type: &str) -> String {
    let envelope = Unknown {
        type_meta: Some(TypeMeta {
            api_version: Some(api_version.to_owned()),
            kind: Some(kind.to_owned()),
        }),
        raw: Some(raw),
        content_type: Some(content_type.to_owned()),
        ..Unknown::default()
    };
    let body = [&b"k8s\0"[..], &envelope.encode_to_vec()].concat();
    String::from_utf8(body).expect("all lengths are short")
}

/// Bodies in protobuf were stored without decoding. An invalid quantity, or arbitrary JSON in an envelope of content
/// type JSON, then broke every Go client that listed the resource.
pub(crate) async fn wc_201_bodies_in_protobuf_are_read_by_their_type(site: &Site) {
    let pods = "/api/v1/namespaces/default/pods";
    let send = async |path: &str, body: String| {
        let headers = [("content-type", PROTOBUF)];
        site.send(Method::POST, path, &headers, &body).await
    };
    let pod = |name: &str, cpu: &str| {
        let cpu = Quantity {
            string: Some(cpu.to_owned()),
        };
        let container = Container {
            name: Some("c".to_owned()),
            image: Some("i".to_owned()),
            resources: Some(ResourceRequirements {
                limits: [("cpu".to_owned(), cpu)].into(),
                ..ResourceRequirements::default()
            }),
            ..Container::default()
        };
        let pod = Pod {
            metadata: Some(ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            }),
            spec: Some(PodSpec {
                containers: vec![container],
                ..PodSpec::default()
            }),
            ..Pod::default()
        };
        enveloped("v1", "Pod", pod.encode_to_vec(), "")
    };
    let refused = send(pods, pod("bad", "lots")).await;
    let status = refused.failure(400, "BadRequest");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("quantities must match"), "{message}");
    let made = send(pods, pod("good", "1000m")).await.ok(201);
    let limits = &made["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits["cpu"], "1");

    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let json = json!({"metadata": {"name": "d"}, "spec": {"paused": "yes"}, "no": 1});
    let json = json.to_string().into_bytes();
    let body = enveloped("apps/v1", "Deployment", json, "application/json");
    send(deployments, body).await.failure(400, "BadRequest");
}
