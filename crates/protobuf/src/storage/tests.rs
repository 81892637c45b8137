//! Tests of transcoding, over the storage in memory.

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use watchet_schema::Types;
use watchet_storage::memory::Memory;
use watchet_storage::{Expect, unreadable_reason};

use super::*;

fn messages() -> Arc<Messages> {
    Arc::new(Messages::new(Types::builtins()))
}

fn key(path: &str) -> StorageKey {
    StorageKey::new(path).unwrap()
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "metadata": {"name": name}})
}

fn put(path: &str, value: impl Into<Bytes>) -> Put {
    Put {
        key: key(path),
        value: value.into(),
        expect: Expect::Absent,
        ttl: None,
    }
}

fn parsed(value: &[u8]) -> Value {
    serde_json::from_slice(value).unwrap()
}

/// Returns a storage in memory, and one of each media type over it.
fn storages() -> (Arc<dyn Storage>, Arc<dyn Storage>, Arc<dyn Storage>) {
    let raw: Arc<dyn Storage> = Memory::new(Duration::from_secs(300)).unwrap();
    let over = |media_type| -> Arc<dyn Storage> {
        TranscodingStorage::new(messages(), media_type, None, Arc::clone(&raw))
    };
    let (json, protobuf) = (StorageMediaType::Json, StorageMediaType::Protobuf);
    (Arc::clone(&raw), over(json), over(protobuf))
}

/// Each media type is written as it says, and read by a storage of either; a value in the other one is stale.
#[tokio::test]
async fn values_are_written_in_the_media_type_and_read_in_both() {
    let (raw, json, protobuf) = storages();
    json.put(put("/configmaps/ns/a", config_map("a").to_string()))
        .await
        .unwrap();
    protobuf
        .put(put("/configmaps/ns/b", config_map("b").to_string()))
        .await
        .unwrap();
    for (name, magic) in [("a", &b"{\"api"[..]), ("b", MAGIC)] {
        let path = key(&format!("/configmaps/ns/{name}"));
        let stored = raw.get(&path).await.unwrap().0.unwrap();
        assert!(
            stored.value.starts_with(magic),
            "{name}: {:?}",
            stored.value
        );
        for (by, storage, is_stale) in [
            ("JSON", &json, name == "b"),
            ("protobuf", &protobuf, name == "a"),
        ] {
            let read = storage.get(&path).await.unwrap().0.unwrap();
            assert_eq!(parsed(&read.value), config_map(name));
            assert_eq!(read.is_stale, is_stale, "{name} by {by}");
        }
    }
}

/// What kube-apiserver stores as JSON, and values that are no objects, are written as they are.
#[tokio::test]
async fn other_values_stay_json() {
    let (raw, _, protobuf) = storages();
    let custom = json!({"apiVersion": "e.com/v1", "kind": "Foo", "metadata": {"name": "a"}});
    let definition =
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"});
    let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"});
    let objects = [
        custom,
        definition,
        service,
        json!({"metadata": {}}),
        json!("x"),
    ];
    for (at, value) in objects.iter().map(Value::to_string).enumerate() {
        let path = format!("/e.com/foos/{at}");
        protobuf.put(put(&path, value.clone())).await.unwrap();
        let stored = raw.get(&key(&path)).await.unwrap().0.unwrap();
        assert_eq!(stored.value, value);
        let read = protobuf.get(&key(&path)).await.unwrap().0.unwrap();
        assert_eq!((read.value, read.is_stale), (stored.value, false));
    }
}

/// A value that does not fit its type would be lost by the encoding.
#[tokio::test]
async fn a_value_that_does_not_fit_its_type_is_not_written() {
    let (raw, _, protobuf) = storages();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"priority": "high"}});
    let refused = protobuf.put(put("/pods/ns/a", pod.to_string())).await;
    let error = refused.unwrap_err().to_string();
    assert!(
        error.contains("/pods/ns/a") && error.contains("priority"),
        "{error}"
    );
    assert_eq!(raw.get(&key("/pods/ns/a")).await.unwrap().0, None);
}

/// A refused write and a deletion that is refused return the present value as JSON.
#[tokio::test]
async fn present_values_of_refused_writes_are_json() {
    let (_, json, protobuf) = storages();
    let path = "/configmaps/ns/a";
    protobuf
        .put(put(path, config_map("a").to_string()))
        .await
        .unwrap();
    let late = ResourceVersion::new(1_000);
    let refused = Put {
        expect: Expect::At(late),
        ..put(path, "{}")
    };
    for outcome in [json.put(refused).await, json.delete(&key(path), late).await] {
        let Outcome::Refused(Some(present)) = outcome.unwrap() else {
            panic!("the revision is not that of the value");
        };
        assert_eq!(parsed(&present.value), config_map("a"));
    }
}

/// The values and previous values of events are JSON, whatever the media type of either.
#[tokio::test]
async fn events_are_json() {
    let (_, json, protobuf) = storages();
    let path = "/configmaps/ns/a";
    let begin = json.current_revision().await.unwrap();
    let mut watch = json.watch(&key("/configmaps/"), begin).await.unwrap();
    let created = protobuf
        .put(put(path, config_map("a").to_string()))
        .await
        .unwrap();
    let Outcome::Done(created) = created else {
        panic!("the key did not exist");
    };
    let changed = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let update = Put {
        expect: Expect::At(created),
        ..put(path, changed.to_string())
    };
    json.put(update).await.unwrap();
    let mut events = Vec::new();
    while events.len() < 2 {
        events.extend(watch.batches.next().await.unwrap().unwrap().events);
    }
    let json_of = |value: &Option<Bytes>| value.as_deref().map(parsed);
    let actual: Vec<_> = events
        .iter()
        .map(|event| (json_of(&event.previous), json_of(&event.value)))
        .collect();
    let first = Some(config_map("a"));
    assert_eq!(actual, [(None, first.clone()), (first, Some(changed))]);
}

#[derive(Default)]
struct Collected(Mutex<Vec<(usize, Vec<Bytes>)>>);

impl ListVisitor for Collected {
    fn visit(&self, index: usize, values: &[VisitedValue<'_>]) {
        let values = values
            .iter()
            .map(|value| Bytes::copy_from_slice(value.value));
        self.0.lock().push((index, values.collect()));
    }
}

/// A list and a visit return the same values, of which some are JSON, some protobuf, and one is damaged.
#[tokio::test]
async fn lists_and_visits_are_json() {
    let (raw, json, protobuf) = storages();
    for number in 0..300 {
        let storage = [&json, &protobuf][number % 2];
        let object = config_map(&number.to_string()).to_string();
        let path = format!("/configmaps/ns/{number:03}");
        storage.put(put(&path, object)).await.unwrap();
    }
    raw.put(put("/configmaps/ns/150x", &b"k8s\0\x0a\x0f\xff"[..]))
        .await
        .unwrap();
    let prefix = key("/configmaps/");
    let request = ListRequest {
        prefix: prefix.clone(),
        start: String::new(),
        at: None,
        limit: 0,
        count: false,
    };
    let listed: Vec<_> = json.list(request).await.unwrap().items;
    let collected = Arc::new(Collected::default());
    let visited = json.visit(&prefix, collected.clone()).await;
    visited
        .expect("the storage in memory can be visited")
        .unwrap();
    let mut parts = std::mem::take(&mut *collected.0.lock());
    parts.sort();
    let visited = parts.into_iter().flat_map(|(_, values)| values);
    let values = listed.iter().map(|item| item.value.clone());
    assert!(values.eq(visited), "a list and a visit differ");
    assert_eq!(listed.len(), 301);
    for (number, item) in listed
        .iter()
        .filter(|item| !item.key.as_str().ends_with('x'))
        .enumerate()
    {
        assert_eq!(parsed(&item.value), config_map(&number.to_string()));
    }
    let reason = unreadable_reason(&listed[151].value).unwrap();
    assert_eq!(
        reason,
        "it is protobuf that cannot be decoded: it is truncated or not protobuf: restore the value from a backup, or \
         delete the key from storage"
    );
}

/// A kind that is not served, or a version of one, is reported with what to do.
#[tokio::test]
async fn unknown_kinds_are_reported() {
    let (raw, json, _) = storages();
    let mut value = MAGIC.to_vec();
    value.extend_from_slice(
        b"\x0a\x25\x0a\x0epolicy/v1beta1\x12\x13PodDisruptionBudget\x12\x00\x1a\x00\x22\x00",
    );
    raw.put(put("/poddisruptionbudgets/ns/a", value))
        .await
        .unwrap();
    let read = json
        .get(&key("/poddisruptionbudgets/ns/a"))
        .await
        .unwrap()
        .0
        .unwrap();
    assert_eq!(
        unreadable_reason(&read.value).unwrap(),
        "it is protobuf of kind \"PodDisruptionBudget\" of \"policy/v1beta1\", which this server does not serve: let a \
         kube-apiserver rewrite it in a version that this server serves, or delete the key from storage"
    );
}

#[test]
fn media_types_are_parsed() {
    for one in [StorageMediaType::Json, StorageMediaType::Protobuf] {
        assert_eq!(one.to_string().parse(), Ok(one));
    }
    let error = "application/yaml".parse::<StorageMediaType>().unwrap_err();
    assert!(error.to_string().contains("application/yaml"), "{error}");
}
