//! Tests of bodies that take far more memory than their size, with the real program: each is rejected, or stored within
//! the memory limit, and the server stays available. The tests print the memory of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::future::join_all;
use http::Method;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;

use crate::harness::{PATIENCE, Protocol, Reply, Server, Webhook, request};

/// The maximum memory that a body may add to the process.
const ADDED_KIB_MAX: u64 = 128 << 10;

const BODY_BYTES_MAX: usize = 3 << 20;
const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

const POD: &str = r#"{"metadata":{"name":"a"},"spec":{"containers":["#;
const REVISION: &str = r#"{"metadata":{"name":"a"},"revision":1,"data":{"a":["#;
const MAP: &str = r#"{"metadata":{"name":"a"},"data":{"#;

/// Returns a text of at most `count` items between `start` and `end` that is no longer than a body may be.
fn filled(start: &str, count: usize, item: impl Fn(usize) -> String, end: &str) -> Vec<u8> {
    let mut body = start.to_owned();
    for n in 0..count {
        let item = item(n);
        if body.len() + item.len() + 1 + end.len() > BODY_BYTES_MAX {
            break;
        }
        body.push_str(&item);
        body.push(',');
    }
    body.pop();
    (body + end).into_bytes()
}

/// Returns a text that is as long as a body may be.
fn full(start: &str, item: impl Fn(usize) -> String, end: &str) -> Vec<u8> {
    filled(start, usize::MAX, item, end)
}

/// Returns a field of protobuf that contains `content`.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length > 0x7f {
        bytes.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(content);
    bytes
}

/// Returns a pod in protobuf with empty containers, of two bytes each.
fn protobuf_pod() -> Vec<u8> {
    let containers = field(2, b"").repeat(BODY_BYTES_MAX / 2 - 100);
    let pod = [field(1, &field(1, b"a")), field(2, &containers)].concat();
    let types = [field(1, b"v1"), field(2, b"Pod")].concat();
    [b"k8s\0".to_vec(), field(1, &types), field(2, &pod)].concat()
}

/// Sends a body to a new server, and checks the code of the response and the added memory.
async fn check(
    what: &str,
    (method, path, content_type): (Method, &str, &str),
    body: Vec<u8>,
    code: u16,
) {
    let server = Server::start(&[]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let map = r#"{"metadata": {"name": "base"}}"#;
    let created = wire.send(Method::POST, MAPS, &[], map).await;
    assert_eq!(created.status, 201);
    let before = peak_kib(&server);
    let length = body.len();
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
    let hostile = request(
        method,
        path,
        &[("content-type", content_type)],
        body.boxed(),
    );
    let response = wire.open(hostile).await.expect("a response");
    let status = response.status();
    let text = response.into_body().collect().await.expect("a body");
    let added = peak_kib(&server) - before;
    println!("{what}: {length} bytes, {status}, {} MiB more", added >> 10);
    assert_eq!(status, code, "{what}: {:?}", text.to_bytes());
    assert!(added <= ADDED_KIB_MAX, "{what}: {added} KiB");
    let mut other = server.plain(Protocol::Http1).await;
    assert_eq!(other.get("/healthz").await.status, 200);
    server.stop().await;
}

/// Returns the peak memory of the process in KiB.
fn peak_kib(server: &Server) -> u64 {
    let path = format!("/proc/{}/status", server.pid());
    let status = std::fs::read_to_string(path).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|n| n.parse().ok())
        .expect("a number of KiB")
}

fn empty(_: usize) -> String {
    "{}".to_owned()
}

fn named(n: usize) -> String {
    format!(r#"{{"name":"{n:x}"}}"#)
}

/// A pod of a million empty containers took 1,800 MiB for 12 s, and 2,000 MiB in protobuf.
#[tokio::test]
async fn many_empty_objects_are_rejected_before_they_are_decoded() {
    let create = |content_type| (Method::POST, PODS, content_type);
    let body = full(POD, empty, "]}}");
    check("JSON", create(JSON), body.clone(), 413).await;
    check("protobuf", create(PROTOBUF), protobuf_pod(), 413).await;
    check("YAML", create(YAML), body, 413).await;
}

/// Bodies at the limit: defaults, validation and managed fields multiply their memory.
#[tokio::test]
async fn bodies_at_the_limit_stay_within_the_memory() {
    let create = (Method::POST, PODS, JSON);
    check(
        "named",
        create.clone(),
        filled(POD, 55_000, named, "]}}"),
        413,
    )
    .await;
    check("empty", create, filled(POD, 60_000, empty, "]}}"), 413).await;
    let numbers = full(REVISION, |n| (n % 10).to_string(), "]}}");
    check("numbers", (Method::POST, REVISIONS, JSON), numbers, 413).await;
    let objects = filled(REVISION, 55_000, |_| r#"{"a":0}"#.to_owned(), "]}}");
    check("objects", (Method::POST, REVISIONS, JSON), objects, 201).await;
    let keys = filled(MAP, 100_000, |n| format!(r#""{n:x}":"""#), "}}");
    check("keys", (Method::POST, MAPS, JSON), keys, 201).await;
}

#[tokio::test]
async fn patches_stay_within_the_memory() {
    let base = format!("{MAPS}/base");
    let keys = full(r#"{"data":{"#, |n| format!(r#""{n:x}":"""#), "}}");
    check("merge", (Method::PATCH, &base, MERGE_PATCH), keys, 413).await;
    let start = r#"[{"op":"add","path":"/data","value":{"x":["#;
    let copy = |n: usize| format!(r#"{{"op":"copy","from":"/data/x","path":"/data/x{n}"}}"#);
    let copies = (0..9).map(copy).collect::<Vec<_>>().join(",");
    let doubled = filled(
        start,
        15_000,
        |_| r#"{"a":0}"#.to_owned(),
        &format!("]}}}},{copies}]"),
    );
    check("copies", (Method::PATCH, &base, JSON_PATCH), doubled, 413).await;
    let pod = format!("{PODS}/a?fieldManager=m");
    let start = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":["#;
    let applied = filled(start, 55_000, named, "]}}");
    check("apply", (Method::PATCH, &pod, APPLY), applied, 413).await;
    let options = full(r#"{"preconditions":{"a":["#, empty, "]}}");
    check("options", (Method::DELETE, &base, JSON), options, 413).await;
}

/// What a conversion webhook may respond with: more than it was asked for, or what no parser accepts.
fn hostile_conversions(uid: &str) -> Vec<(&'static str, Vec<u8>)> {
    let response = |objects: &str| {
        format!(
            r#"{{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{{"uid":{uid},"result":{{"status":"Success"}},"convertedObjects":[{objects}]}}}}"#
        )
        .into_bytes()
    };
    let object = |spec: &str| {
        response(&format!(
            r#"{{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{{"name":"a","namespace":"default"}},"spec":{spec}}}"#
        ))
    };
    let many = |item: &str| {
        item.repeat((15 << 20) / item.len())
            .trim_end_matches(',')
            .to_owned()
    };
    let nested = |start: &str, end: &str| start.repeat(100_000) + "1" + &end.repeat(100_000);
    vec![
        ("17 MiB", vec![b' '; 17 << 20]),
        ("empty objects", response(&many("{},"))),
        (
            "empty objects in a field",
            object(&format!(r#"{{"a":[{}]}}"#, many("{},"))),
        ),
        (
            "numbers in a field",
            object(&format!(r#"{{"a":[{}]}}"#, many("1,"))),
        ),
        (
            "nested lists",
            object(&format!(r#"{{"a":{}}}"#, nested("[", "]"))),
        ),
        ("nested objects", object(&nested(r#"{"a":"#, "}"))),
        (
            "no UTF-8",
            object("{\"a\":\"\u{1}")
                .into_iter()
                .chain([0xff, 0xfe])
                .collect(),
        ),
        ("an incomplete object", object("{")),
        ("no object", response("null")),
        ("a list", b"[]".to_vec()),
        ("nothing", Vec::new()),
    ]
}

/// A response of five million empty objects took 176 MiB.
#[tokio::test]
async fn conversion_webhooks_cannot_exhaust_the_memory() {
    let turn = Arc::new(AtomicUsize::new(usize::MAX));
    let turns = Arc::clone(&turn);
    let webhook = Webhook::answering(move |call| {
        let uid = call.body["request"]["uid"].to_string();
        let mut all = hostile_conversions(&uid);
        let (_, body) = all.swap_remove(turns.load(Ordering::SeqCst));
        Reply { code: 200, body }
    })
    .await;
    let server = Server::start(&[]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    let definition = json!({
        "metadata": {"name": "gadgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [version("v1", true), version("v2", false)],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": webhook.client_config("/"),
            }}},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(wire.post(definitions, &definition).await.status, 201);
    let gadget =
        json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}});
    let stored = "/apis/example.com/v1/namespaces/default/gadgets";
    let created = async {
        while wire.post(stored, &gadget).await.status != 201 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, created)
        .await
        .expect("it is served");

    let converted = "/apis/example.com/v2/namespaces/default/gadgets/a";
    for (number, (what, body)) in hostile_conversions("\"\"").into_iter().enumerate() {
        turn.store(number, Ordering::SeqCst);
        let before = peak_kib(&server);
        let mut readers = Vec::new();
        for _ in 0..4 {
            readers.push(server.plain(Protocol::Http1).await);
        }
        let reads = join_all(readers.iter_mut().map(|wire| wire.get(converted)));
        for read in reads.await {
            assert_eq!(read.status, 500, "{what}: {}", read.text());
        }
        let added = peak_kib(&server) - before;
        println!("{what}: {} bytes, {} MiB more", body.len(), added >> 10);
        assert!(added <= ADDED_KIB_MAX, "{what}: {added} KiB");
        assert_eq!(wire.get("/healthz").await.status, 200);
    }
    server.stop().await;
}
