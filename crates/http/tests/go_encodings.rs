//! The protobuf encoding of every built-in kind, compared byte by byte with that of Go: `scripts/type-tables --encodings`
//! prints objects with random members in the JSON and the protobuf of Kubernetes' generated code. The JSON is put into
//! storage, and the router's responses must be Go's bytes: of a get, as an item of a list, in the frame of a watch.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking; helpers are not marked as tests"
)]

use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower_service::Service as _;

use watchet_api::StorageKey;
use watchet_builtin::new_registry;
use watchet_http::{HttpConfig, router};
use watchet_registry::{CacherConfig, Resource};
use watchet_storage::memory::Memory;
use watchet_storage::{Expect, Outcome, Put, Storage as _};
use watchet_tasks::Tasks;

/// What Go encodes as the resourceVersion. Storage is advanced until its versions have as many digits.
const VERSION_PLACEHOLDER: &[u8] = b"RRRR";

/// Objects of each kind: the first one has all members.
const OBJECTS_PER_KIND: usize = 12;

struct Encoding {
    api_version: String,
    kind: String,
    json: Vec<u8>,
    protobuf: Vec<u8>,
}

/// Returns the output of the program of Go types.
fn encodings(seed: u64) -> Vec<Encoding> {
    let arguments = [seed.to_string(), OBJECTS_PER_KIND.to_string()];
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/type-tables");
    let output = Command::new(script)
        .arg("--encodings")
        .args(arguments)
        .output()
        .expect("this test needs bash");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "scripts/type-tables: {errors}");
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let encodings = lines.filter(|line| !line.is_empty()).map(|line| {
        let line: Value = serde_json::from_slice(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        Encoding {
            api_version: text("apiVersion"),
            kind: text("kind"),
            json: STANDARD.decode(text("json")).unwrap(),
            protobuf: STANDARD.decode(text("protobuf")).unwrap(),
        }
    });
    encodings.collect()
}

/// Replaces each `from` in `bytes` with `to`.
fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some(at) = memchr::memmem::find(rest, from) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// Returns the message in a body, without the envelope.
fn message_of<'a>(body: &'a [u8], encoding: &Encoding) -> &'a [u8] {
    let head = memchr::memmem::find(body, encoding.kind.as_bytes()).unwrap() + encoding.kind.len();
    // The key of the field, and its length as a varint.
    let mut at = head + 1;
    while body[at] >= 0x80 {
        at += 1;
    }
    &body[at + 1..body.len() - b"\x1a\x00\x22\x00".len()]
}

struct Server {
    router: axum::Router,
    storage: std::sync::Arc<Memory>,
}

impl Server {
    async fn get(&self, path: &str, accept: &str) -> (u16, axum::body::Body) {
        let request = axum::http::Request::get(path)
            .header("accept", accept)
            .body(axum::body::Body::empty())
            .unwrap();
        let response = self.router.clone().call(request).await.unwrap();
        (response.status().as_u16(), response.into_body())
    }

    async fn body(&self, path: &str) -> Bytes {
        let (code, body) = self.get(path, "application/vnd.kubernetes.protobuf").await;
        let body = body.collect().await.unwrap().to_bytes();
        assert_eq!(code, 200, "{path}: {body:?}");
        body
    }

    /// Writes a value to storage; returns its version.
    async fn put(&self, key: &str, value: Vec<u8>) -> String {
        let put = Put {
            key: StorageKey::new(key).unwrap(),
            value: value.into(),
            expect: Expect::Absent,
            ttl: None,
        };
        match self.storage.put(put).await.unwrap() {
            Outcome::Done(revision) => revision.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_has_the_bytes_of_go() {
    let seed = watchet_test_util::seeds::seed();
    let tasks = Tasks::new();
    let storage = Memory::new(Duration::from_secs(300)).unwrap();
    let config = HttpConfig::default();
    let (caches, metrics) = (CacherConfig::default(), config.metrics.clone());
    let registry = new_registry(storage.clone(), &tasks, caches, metrics);
    let server = Server {
        router: router(registry.clone(), config),
        storage,
    };
    let mut writes = 0;
    while server
        .put(&format!("/writes/{writes}"), Vec::new())
        .await
        .len()
        < VERSION_PLACEHOLDER.len()
    {
        writes += 1;
    }

    let mut kinds = std::collections::BTreeSet::new();
    for encoding in encodings(seed) {
        let Some(resource) = registry.served_kind(&encoding.api_version, &encoding.kind) else {
            continue;
        };
        // Reviews are not stored, and objects of another stored version are converted first.
        if !resource.is_stored() || registry.converts(&resource) {
            continue;
        }
        check(&server, &resource, &encoding).await;
        kinds.insert((encoding.api_version, encoding.kind));
    }
    assert!(kinds.len() >= 50, "{}: {kinds:?}", kinds.len());
}

/// Compares the responses for one object with Go's encoding.
async fn check(server: &Server, resource: &Resource, encoding: &Encoding) {
    let object: Value = serde_json::from_slice(&encoding.json).unwrap();
    let name = object["metadata"]["name"].as_str().unwrap();
    let what = format!("{} {name}: {object}", encoding.kind);
    let (group, version) = (&resource.group, &resource.version);
    let root = match group.is_empty() {
        true => format!("/api/{version}"),
        false => format!("/apis/{group}/{version}"),
    };
    let (key, namespace) = match resource.namespaced {
        true => (format!("default/{name}"), "/namespaces/default"),
        false => (name.to_owned(), ""),
    };
    let list = format!("{root}{namespace}/{}", resource.plural);
    let key = format!("/{}/{key}", resource.storage_prefix);
    let at = server.put(&key, encoding.json.clone()).await;
    let expected = replace(&encoding.protobuf, VERSION_PLACEHOLDER, at.as_bytes());

    let body = server.body(&format!("{list}/{name}")).await;
    assert_bytes(&body, &expected, &what);
    let listed = server
        .body(&format!("{list}?fieldSelector=metadata.name%3D{name}"))
        .await;
    let message = message_of(&expected, encoding);
    assert!(
        memchr::memmem::find(&listed, message).is_some(),
        "list: {what}"
    );
    let watch =
        format!("{list}?watch=true&resourceVersion=0&fieldSelector=metadata.name%3D{name}",);
    let accept = "application/vnd.kubernetes.protobuf;stream=watch";
    let (code, mut frames) = server.get(&watch, accept).await;
    assert_eq!(code, 200, "watch: {what}");
    let frame = frames.frame().await.unwrap().unwrap().into_data().unwrap();
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap());
    assert_eq!(length as usize, frame.len() - 4, "watch: {what}");
    assert!(frame[4..].starts_with(b"\x0a\x05ADDED"), "watch: {what}");
    assert!(frame.ends_with(&expected), "watch: {what}");
}

fn assert_bytes(actual: &[u8], expected: &[u8], what: &str) {
    if actual == expected {
        return;
    }
    let differ = actual.iter().zip(expected).position(|(a, b)| a != b);
    let at = differ.unwrap_or(actual.len().min(expected.len()));
    let near = |bytes: &[u8]| {
        let part = &bytes[at.saturating_sub(30)..bytes.len().min(at + 30)];
        format!("{:?}", Bytes::copy_from_slice(part))
    };
    panic!(
        "{what}: {} bytes instead of {}; they differ at {at}: {} instead of {}",
        actual.len(),
        expected.len(),
        near(actual),
        near(expected)
    );
}
