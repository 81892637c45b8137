//! Tests of concurrent writes, and of a cache that is behind storage.

use super::*;
use std::collections::BTreeMap;
use std::time::Duration;

const KEY: &str = "/configmaps/default/c";

/// Creates the config map `c`, waits until the cache has it, and freezes the cache.
async fn frozen_fixture() -> (Fixture, Value) {
    let fixture = fixture().await;
    let created = fixture.create("configmaps", named("c")).await;
    let configmaps = fixture.resource("configmaps");
    // A list waits for the cache.
    let all = ListOptions::default();
    let list = fixture.registry.list(&configmaps, None, &all).await;
    assert_eq!(list.unwrap().items.len(), 1);
    let key = ObjectKey::from("default/c");
    assert!(fixture.registry.peek(&configmaps, &key).is_some());
    fixture.storage.freeze(true);
    (fixture, created)
}

fn with(object: &Value, data: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    object["data"] = json!({ data: "1" });
    object
}

/// WC-045, WC-052
#[tokio::test]
async fn conflicting_patch_is_applied_to_the_newer_object() {
    let fixture = fixture().await;
    let created = fixture.create("configmaps", named("c")).await;
    for winner in ["w1", "w2", "w3"] {
        let mut wrote = fixture.stored(KEY).await.unwrap();
        wrote["data"][winner] = json!("1");
        let before = Before::Put(KEY, wrote);
        fixture.storage.before_writes.lock().push_back(before);
    }
    let patched = fixture
        .merge_patch("configmaps/c", json!({"data": {"mine": "1"}}))
        .await;
    assert_eq!(patched["data"], json!({"w3": "1", "mine": "1"}));
    assert_eq!(patched["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(fixture.stored(KEY).await.unwrap()["data"], patched["data"]);
}

/// WC-045, WC-052, with concurrent writers: the final state contains every patch, and every acknowledged conditional
/// update exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost() {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 10;
    let fixture = fixture().await;
    fixture.create("configmaps", named("c")).await;
    fixture
        .create(
            "configmaps",
            json!({"metadata": {"name": "n"}, "data": {"n": "0"}}),
        )
        .await;
    let writer = async |writer: usize| {
        for round in 0..ROUNDS {
            let patch = json!({"data": {format!("w{writer}"): round.to_string()}});
            fixture.merge_patch("configmaps/c", patch).await;
            loop {
                let mut body = fixture.get("configmaps/n").await;
                let count: usize = body["data"]["n"].as_str().unwrap().parse().unwrap();
                body["data"]["n"] = json!((count + 1).to_string());
                match fixture.try_update("configmaps/n", body).await {
                    Ok(_) => break,
                    Err(error) => assert!(conflict(error).contains("has been modified")),
                }
            }
        }
    };
    futures::future::join_all((0..WRITERS).map(writer)).await;
    let last = (ROUNDS - 1).to_string();
    let all: BTreeMap<String, &str> = (0..WRITERS).map(|w| (format!("w{w}"), &*last)).collect();
    assert_eq!(fixture.stored(KEY).await.unwrap()["data"], json!(all));
    let count = fixture.stored("/configmaps/default/n").await.unwrap()["data"].clone();
    assert_eq!(count, json!({"n": (WRITERS * ROUNDS).to_string()}));
}

/// WC-046
#[tokio::test]
async fn a_stale_suggestion_does_not_undo_a_write() {
    let (fixture, created) = frozen_fixture().await;
    fixture
        .storage
        .write_concurrently(Before::Put(KEY, with(&created, "theirs")))
        .await;
    let patched = fixture
        .merge_patch("configmaps/c", json!({"data": {"mine": "1"}}))
        .await;
    assert_eq!(patched["data"], json!({"theirs": "1", "mine": "1"}));
}

/// If the object in the cache is current, the write needs no read from storage.
#[tokio::test]
async fn write_with_a_current_cache_does_not_read_storage() {
    let (fixture, _) = frozen_fixture().await;
    let gets = *fixture.storage.gets.lock();
    fixture
        .merge_patch("configmaps/c", json!({"data": {"mine": "1"}}))
        .await;
    assert_eq!(*fixture.storage.gets.lock(), gets);
}

/// WC-047
#[tokio::test]
async fn rejection_on_a_stale_suggestion_is_decided_again() {
    let (fixture, created) = frozen_fixture().await;
    fixture
        .storage
        .write_concurrently(Before::Put(KEY, with(&created, "theirs")))
        .await;
    let latest = {
        let key = StorageKey::new(KEY).unwrap();
        fixture
            .storage
            .get(&key)
            .await
            .unwrap()
            .0
            .unwrap()
            .mod_revision
    };
    // The cache does not know this version; in storage it is the latest.
    let mut body = with(&created, "mine");
    body["metadata"]["resourceVersion"] = json!(latest.to_string());
    let updated = fixture.update("configmaps/c", body).await;
    assert_eq!(updated["data"], json!({"mine": "1"}));
    // A version that is current only in the cache is refused.
    let late = fixture.try_update("configmaps/c", created.clone()).await;
    let mut changed = created;
    changed["data"] = json!({"late": "1"});
    assert!(conflict(late.unwrap_err()).starts_with("the object has been modified"));
    let late = fixture
        .try_update("configmaps/c", changed)
        .await
        .unwrap_err();
    assert!(conflict(late).starts_with("the object has been modified"));
}

/// WC-048
#[tokio::test]
async fn an_update_equal_to_a_stale_cache_is_still_written() {
    let (fixture, created) = frozen_fixture().await;
    fixture
        .storage
        .write_concurrently(Before::Put(KEY, with(&created, "theirs")))
        .await;
    let mut body = created.clone();
    body["metadata"]["resourceVersion"] = json!("");
    let updated = fixture.update("configmaps/c", body).await;
    assert!(
        updated["data"].is_null(),
        "back to what the cache believed: {updated}"
    );
    assert!(fixture.stored(KEY).await.unwrap()["data"].is_null());
}

/// WC-063, WC-064, WC-066
#[tokio::test]
async fn delete_with_a_stale_cache_deletes_the_current_object() {
    let (fixture, created) = frozen_fixture().await;
    fixture
        .storage
        .write_concurrently(Before::Put(KEY, with(&created, "theirs")))
        .await;
    match fixture.delete("configmaps/c").await {
        Deleted::Immediately(object) => assert_eq!(value(&object)["data"], json!({"theirs": "1"})),
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.stored(KEY).await, None);
}

/// WC-065
#[tokio::test]
async fn deleting_an_object_that_only_the_stale_cache_has_is_not_found() {
    let (fixture, _) = frozen_fixture().await;
    fixture
        .storage
        .write_concurrently(Before::Delete(KEY))
        .await;
    let error = fixture
        .try_delete("configmaps/c", json!({}))
        .await
        .unwrap_err();
    assert!(error.is_not_found(), "{error}");
    let error = fixture
        .try_patch("configmaps/c", Patch::Merge(json!({"data": {}})))
        .await;
    assert!(error.unwrap_err().is_not_found());
}

/// WC-067
#[tokio::test]
async fn precondition_is_not_checked_against_a_stale_suggestion() {
    let (fixture, created) = frozen_fixture().await;
    let mut other = with(&created, "theirs");
    other["metadata"]["uid"] = json!("another");
    fixture
        .storage
        .write_concurrently(Before::Delete(KEY))
        .await;
    fixture
        .storage
        .write_concurrently(Before::Put(KEY, other))
        .await;
    let options = json!({"preconditions": {"uid": created["metadata"]["uid"]}});
    let error = fixture
        .try_delete("configmaps/c", options)
        .await
        .unwrap_err();
    assert!(conflict(error).contains("(another)"));
    assert!(fixture.stored(KEY).await.is_some());
}

/// A client that finalized a namespace got a 404 if a concurrent request finalized it first, and a 409 after any other
/// concurrent write, because the decision was repeated on the new state. Upstream deletes the present object, so each
/// of several clients that finalize concurrently gets a 200.
#[tokio::test]
async fn removal_of_the_last_finalizer_ignores_concurrent_writes() {
    const KEY: &str = "/namespaces/n";
    let fixture = fixture().await;
    let relabeled = |namespace: &Value| {
        let mut theirs = namespace.clone();
        theirs["metadata"]["labels"]["theirs"] = json!("1");
        Before::Put(KEY, theirs)
    };
    for deletes in [false, true] {
        fixture.create("namespaces", named("n")).await;
        fixture.delete("namespaces/n").await;
        let mut body = fixture.get("namespaces/n").await;
        let stored = fixture.stored(KEY).await.unwrap();
        let mut before = vec![relabeled(&stored)];
        before.extend(deletes.then_some(Before::Delete(KEY)));
        for before in before {
            fixture.storage.before_writes.lock().push_back(before);
        }
        body["spec"]["finalizers"] = json!([]);
        let last = fixture.update("namespaces/n/finalize", body).await;
        assert_eq!(last["spec"], json!({"finalizers": []}));
        assert_eq!(fixture.stored(KEY).await, None);
    }
    // A new namespace of the same name is not deleted.
    fixture.create("namespaces", named("n")).await;
    fixture.delete("namespaces/n").await;
    let mut body = fixture.get("namespaces/n").await;
    let mut other = fixture.stored(KEY).await.unwrap();
    other["metadata"]["uid"] = json!("another");
    fixture
        .storage
        .before_writes
        .lock()
        .push_back(Before::Put(KEY, other));
    body["spec"]["finalizers"] = json!([]);
    fixture.update("namespaces/n/finalize", body.clone()).await;
    let stored = fixture.stored(KEY).await.unwrap();
    assert_eq!(stored["metadata"]["uid"], "another");
    // A change before the request arrived is a conflict, as for every write.
    let late = fixture.try_update("namespaces/n/finalize", body).await;
    conflict(late.unwrap_err());
}

#[tokio::test(start_paused = true)]
async fn write_that_always_conflicts_fails_in_time() {
    let memory = Memory::new(Duration::from_secs(300)).unwrap();
    let storage = Arc::new(ConcurrentWriter::new(memory));
    let tasks = Tasks::new();
    let registry = new_registry(
        storage.clone(),
        &tasks,
        CacherConfig::default(),
        Metrics::new(),
    );
    // Only this test may have timers: the paused clock would advance to others.
    tasks.cancel();
    let nodes = registry.resource("", "v1", "nodes").unwrap();
    let location = ObjectLocation::new(&nodes, None, "n").unwrap();
    storage
        .write_concurrently(Before::Put("/minions/n", named("n")))
        .await;
    let mut loser = AlwaysConflicting { storage, calls: 0 };
    let lost = registry
        .guaranteed_write(&location, false, &mut loser)
        .await;
    assert!(matches!(lost, Err(ApiError::Timeout(_))), "{lost:?}");
    assert_eq!(loser.calls, WRITE_DEADLINE.as_secs());
}

/// A write that takes a second and then conflicts, every time.
struct AlwaysConflicting {
    storage: Arc<ConcurrentWriter>,
    calls: u64,
}

impl Decide for AlwaysConflicting {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        self.calls += 1;
        let current = &current.expect("the node is there").value;
        let mut theirs = current.clone();
        theirs["spec"] = json!({ "theirs": self.calls });
        let before = Before::Put("/minions/n", theirs);
        self.storage.before_writes.lock().push_back(before);
        let mut mine = current.clone();
        mine["spec"] = json!({ "mine": self.calls });
        tokio::time::advance(Duration::from_secs(1)).await;
        Ok(Change::Put(mine))
    }
}
