//! The hottest paths, each as a fixed amount of work, whose instructions scripts/instructions counts under valgrind. This
//! program itself counts and times nothing.
//!
//! `instructions PATH` runs one path; without a PATH, as `cargo bench` starts it, the program runs all.

#[allow(dead_code, reason = "no bench uses all of it")]
#[path = "../fixture/mod.rs"]
mod fixture;

use bytes::Bytes;
use k8s_pb::api::core::v1::Pod;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_pb::apimachinery::pkg::runtime::{TypeMeta, Unknown};
use prost::Message as _;
use serde_json::json;
use watchet::api::StorageKey;
use watchet::storage::embedded::{Embedded, EmbeddedConfig};
use watchet::storage::{Expect, Outcome, Put, Storage as _};

use fixture::pods::{self, Changes, FIRST_LIST};
use fixture::{JSON, PROTOBUF, Server};

const ALL_PODS: &str = "/api/v1/pods?resourceVersion=0";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Runs the work. scripts/instructions counts the instructions of this function, by its name, on this thread. Of `log` it
/// counts another function.
#[inline(never)]
fn counted_work(work: &mut dyn FnMut()) {
    work();
}

/// Decodes 1,024 events of storage in batches of 64 and applies them to a cache of 2,000 pods.
fn apply() {
    let (server, mut changes) = (Server::with(2_000), Changes::of(2_000));
    let mut batches: Vec<_> = (0..17).map(|_| changes.batch(64)).collect();
    server.apply(batches.remove(0));
    let mut batches = batches.into_iter();
    counted_work(&mut || batches.by_ref().for_each(|batch| server.apply(batch)));
}

/// Sends eight events, one after another, each to 1,000 watchers.
fn dispatch() {
    const WATCHERS: usize = 1_000;
    let (server, mut changes) = (Server::with(100), Changes::of(100));
    let uri = format!("/api/v1/pods?watch=1&resourceVersion={FIRST_LIST}");
    let crowd = server.crowd(WATCHERS, |_| uri.clone());
    crowd.take(changes.batch(1), WATCHERS);
    let mut events = (0..8)
        .map(|_| changes.batch(1))
        .collect::<Vec<_>>()
        .into_iter();
    counted_work(&mut || {
        events
            .by_ref()
            .for_each(|event| crowd.take(event, WATCHERS))
    });
}

/// Reads the body of a list of 2,000 pods.
fn list() {
    let server = Server::with(2_000);
    let length = server.get(ALL_PODS);
    counted_work(&mut || assert_eq!(server.get(ALL_PODS), length));
}

/// Reads the first list in protobuf of 2,000 pods, which encodes each of them.
fn encode_protobuf() {
    let server = Server::with(2_000);
    counted_work(&mut || assert!(server.get_encoded(ALL_PODS, PROTOBUF) > 0));
}

/// Reads a later list in protobuf of 2,000 pods, whose encodings the server has.
fn list_protobuf() {
    repeat_get(ALL_PODS, PROTOBUF);
}

/// Reads a page of 500 pods as a Table, as kubectl does.
fn table() {
    // With `resourceVersion=0` the limit would not apply.
    repeat_get("/api/v1/pods?limit=500", TABLE);
}

/// Reads the metadata of 2,000 pods.
fn metadata() {
    repeat_get(ALL_PODS, METADATA);
}

/// Counts the second of two equal requests, with 2,000 pods.
fn repeat_get(uri: &str, accept: &str) {
    let server = Server::with(2_000);
    let length = server.get_encoded(uri, accept);
    counted_work(&mut || assert_eq!(server.get_encoded(uri, accept), length));
}

/// Creates 64 pods from protobuf.
fn create_protobuf() {
    let server = Server::with(1);
    let uri = format!("/api/v1/namespaces/default/pods/{}", pods::name(0));
    let stored = Unknown::decode(&server.body(&uri, PROTOBUF)[PROTOBUF_PREFIX.len()..]);
    let stored = stored.expect("the envelope of a pod").raw.expect("a pod");
    let pod = Pod::decode(&*stored).expect("a pod");
    let body = |number: usize| {
        let metadata = ObjectMeta {
            name: Some(format!("pod-{number}")),
            labels: pod.metadata.clone().unwrap_or_default().labels,
            ..ObjectMeta::default()
        };
        let pod = Pod {
            metadata: Some(metadata),
            spec: pod.spec.clone(),
            status: None,
        };
        in_envelope("Pod", &pod)
    };
    create(&server, "pods", PROTOBUF, body);
}

/// The first bytes of each object in protobuf.
const PROTOBUF_PREFIX: &[u8] = b"k8s\0";

/// Encodes an object of the core group as clients send it.
fn in_envelope(kind: &str, object: &impl prost::Message) -> Bytes {
    let envelope = Unknown {
        type_meta: Some(TypeMeta {
            api_version: Some("v1".to_owned()),
            kind: Some(kind.to_owned()),
        }),
        raw: Some(object.encode_to_vec()),
        ..Unknown::default()
    };
    [PROTOBUF_PREFIX, &envelope.encode_to_vec()].concat().into()
}

/// Creates 64 config maps of 1 KB from JSON.
fn create_json() {
    let body = |number: usize| {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": format!("map-{number}")},
            "data": {"content": "x".repeat(1_000)},
        });
        Bytes::from(object.to_string())
    };
    create(&Server::with(1), "configmaps", JSON, body);
}

/// Creates 64 objects, after one that is not counted. Counts everything from the request to the response, without transport
/// and storage.
fn create(server: &Server, resource: &str, content_type: &str, body: impl Fn(usize) -> Bytes) {
    let uri = format!("/api/v1/namespaces/default/{resource}");
    server.create(&uri, content_type, body(0));
    let bodies: Vec<_> = (1..=64).map(body).collect();
    let mut bodies = bodies.into_iter();
    counted_work(&mut || {
        bodies
            .by_ref()
            .for_each(|body| assert!(server.create(&uri, content_type, body) > 0));
    });
}

/// Writes 256 objects of 1 KB to the embedded store, one after another: each is a batch of the writer and a frame of the
/// log. scripts/instructions counts the batches, which are on the writer's thread.
fn log() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Embedded::open(directory.path(), EmbeddedConfig::default()).expect("a new store");
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime");
    let value = Bytes::from(vec![b'x'; 1_000]);
    for number in 0..256 {
        let put = Put {
            key: StorageKey::new(&format!("/configmaps/default/map-{number}")).expect("a path"),
            value: value.clone(),
            expect: Expect::Absent,
            ttl: None,
        };
        let outcome = runtime.block_on(store.put(put)).expect("a write");
        assert!(matches!(outcome, Outcome::Done(_)));
    }
}

const PATHS: [(&str, fn()); 10] = [
    ("apply", apply),
    ("dispatch", dispatch),
    ("list", list),
    ("list_protobuf", list_protobuf),
    ("encode_protobuf", encode_protobuf),
    ("table", table),
    ("metadata", metadata),
    ("create_protobuf", create_protobuf),
    ("create_json", create_json),
    ("log", log),
];

fn main() {
    // `cargo bench` passes `--bench`.
    let named = std::env::args()
        .skip(1)
        .find(|name| !name.starts_with("--"));
    let selected = |(path, _): &&(&str, fn())| named.as_deref().is_none_or(|name| name == *path);
    let selected: Vec<_> = PATHS.iter().filter(selected).collect();
    assert!(!selected.is_empty(), "no path is called {named:?}");
    for (path, work) in selected {
        eprintln!("instructions: {path} works; scripts/instructions counts");
        work();
    }
}
