//! Tests of the garbage collector with real caches, one per rule.

use super::*;

/// Returns an owner reference to `owner`.
pub(super) fn reference(owner: &Value, blocks: bool) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    })
}

fn owned(name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

impl Started {
    async fn map(&self, name: &str, owners: &[Value]) -> Value {
        self.create("configmaps", owned(name, owners)).await
    }

    pub(super) async fn delete_as(&self, path: &str, policy: &str) {
        let options = json!({"propagationPolicy": policy});
        self.try_delete(path, options).await.unwrap();
    }

    async fn is_there(&self, name: &str) -> bool {
        let key = format!("/configmaps/default/{name}");
        self.stored(&key).await.is_some()
    }

    async fn map_deleted(&self, name: &str) {
        self.wait_until_deleted(&format!("/configmaps/default/{name}"))
            .await;
    }

    async fn owners_of(&self, name: &str) -> Vec<String> {
        let stored = self.stored(&format!("/configmaps/default/{name}")).await;
        let stored = stored.unwrap_or_else(|| panic!("{name} is gone"));
        let owners = stored["metadata"]["ownerReferences"].as_array();
        let names = owners.into_iter().flatten().map(|o| o["name"].as_str());
        names.map(|name| name.unwrap().to_owned()).collect()
    }
}

/// The collector's name in metrics.
pub(super) const COLLECTOR: &str = "garbage-collector-controller";

impl Started {
    /// Waits until the collector has processed all earlier writes of config maps: until it has collected garbage that
    /// this function creates, and its queue is empty. It will not act on those writes later.
    pub(super) async fn collector_follows(&self) {
        let absent = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "absent",
            "uid": "7f1c0000-0000-0000-0000-000000000000",
        });
        self.map("garbage", &[absent]).await;
        self.map_deleted("garbage").await;
        self.queues.wait_until_idle(COLLECTOR).await;
    }
}

#[tokio::test]
async fn background_deletion_deletes_dependents_after_the_owner() {
    let fixture = started().await;
    let a = fixture.map("a", &[]).await;
    let b = fixture.map("b", &[reference(&a, true)]).await;
    fixture.map("c", &[reference(&b, false)]).await;
    fixture.map("other", &[]).await;
    fixture.delete_as("configmaps/a", "Background").await;
    assert!(!fixture.is_there("a").await, "it does not wait");
    fixture.map_deleted("b").await;
    fixture.map_deleted("c").await;
    assert!(fixture.is_there("other").await);
}

#[tokio::test]
async fn foreground_deletion_waits_for_blocking_dependents() {
    let fixture = started().await;
    let a = fixture.map("a", &[]).await;
    let mut finalized = owned("b", &[reference(&a, true)]);
    finalized["metadata"]["finalizers"] = json!(["x.y/z"]);
    fixture.create("configmaps", finalized).await;
    fixture.map("c", &[reference(&a, false)]).await;
    fixture.delete_as("configmaps/a", "Foreground").await;
    fixture.map_deleted("c").await;
    let marked = |b: &Value| b["metadata"]["deletionTimestamp"].is_string();
    fixture.wait_until("/configmaps/default/b", marked).await;
    fixture.collector_follows().await;
    let a = fixture.stored("/configmaps/default/a").await.unwrap();
    assert_eq!(a["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    fixture.remove_finalizers("default", "configmaps/b").await;
    fixture.map_deleted("b").await;
    fixture.map_deleted("a").await;
}

#[tokio::test]
async fn orphans_remain() {
    let fixture = started().await;
    let (a, x) = (fixture.map("a", &[]).await, fixture.map("x", &[]).await);
    fixture.map("b", &[reference(&a, true)]).await;
    fixture
        .map("c", &[reference(&x, true), reference(&a, true)])
        .await;
    fixture.delete_as("configmaps/a", "Orphan").await;
    fixture.map_deleted("a").await;
    assert!(fixture.owners_of("b").await.is_empty());
    assert_eq!(fixture.owners_of("c").await, ["x"]);
    fixture.collector_follows().await;
    assert!(fixture.is_there("b").await && fixture.is_there("c").await);
}

#[tokio::test]
async fn a_dependent_remains_while_one_owner_exists() {
    let fixture = started().await;
    let (a, b) = (fixture.map("a", &[]).await, fixture.map("b", &[]).await);
    let owners = [reference(&a, true), reference(&b, true)];
    fixture.map("c", &owners).await;
    // The owner that is deleted in the foreground does not block: the other owner retains the
    // dependent, whose reference to the former is removed.
    fixture.delete_as("configmaps/a", "Foreground").await;
    fixture.map_deleted("a").await;
    assert_eq!(fixture.owners_of("c").await, ["b"]);
    fixture.delete_as("configmaps/b", "Background").await;
    fixture.map_deleted("c").await;
}

#[tokio::test]
async fn cycles_in_the_foreground_are_deleted() {
    let fixture = started().await;
    let a = fixture.map("a", &[]).await;
    let b = fixture.map("b", &[reference(&a, true)]).await;
    let c = fixture.map("c", &[reference(&b, true)]).await;
    let own = |owner| json!({"metadata": {"ownerReferences": [reference(owner, true)]}});
    fixture.merge_patch("configmaps/a", own(&c)).await;
    let itself = fixture.map("self", &[]).await;
    fixture.merge_patch("configmaps/self", own(&itself)).await;
    for first in ["a", "self"] {
        let path = format!("configmaps/{first}");
        fixture.delete_as(&path, "Foreground").await;
    }
    for name in ["a", "b", "c", "self"] {
        fixture.map_deleted(name).await;
    }
}

#[tokio::test]
async fn an_object_with_an_absent_owner_is_garbage() {
    let fixture = started().await;
    let a = fixture.map("a", &[]).await;
    let mut never = reference(&a, true);
    never["uid"] = json!("7f1c0000-0000-0000-0000-000000000000");
    let mut elsewhere = reference(&a, true);
    elsewhere["kind"] = json!("Secret");
    fixture.map("never", std::slice::from_ref(&never)).await;
    fixture.map("elsewhere", &[elsewhere]).await;
    fixture.map("half", &[never, reference(&a, false)]).await;
    fixture.create("namespaces", named("n")).await;
    let strange = owned("strange", &[reference(&a, true)]);
    let strange = fixture.create_in("n", "configmaps", strange).await;
    strange.expect("owners are not validated at creation");
    fixture.map_deleted("never").await;
    fixture.map_deleted("elsewhere").await;
    fixture.wait_until_deleted("/configmaps/n/strange").await;
    let one = |half: &Value| {
        half["metadata"]["ownerReferences"]
            .as_array()
            .unwrap()
            .len()
            == 1
    };
    fixture.wait_until("/configmaps/default/half", one).await;
    assert_eq!(fixture.owners_of("half").await, ["a"]);
    assert!(fixture.is_there("a").await);
}

/// The reference is ambiguous, so the dependent must not be deleted.
#[tokio::test]
async fn a_cluster_scoped_dependent_of_a_namespaced_owner_remains() {
    let fixture = started().await;
    let a = fixture.map("a", &[]).await;
    let role = owned("r", &[reference(&a, true)]);
    fixture.create("clusterroles", role).await;
    let uid = a["metadata"]["uid"].as_str().unwrap();
    let event = format!("/events/default/r.{}", &uid[..8]);
    let event = fixture.wait_until(&event, |_| true).await;
    assert_eq!(event["reason"], "OwnerRefInvalidNamespace");
    fixture.delete_as("configmaps/a", "Background").await;
    fixture.collector_follows().await;
    assert!(fixture.stored("/clusterroles/r").await.is_some());

    let owner = fixture.create("clusterroles", named("owner")).await;
    fixture.map("b", &[reference(&owner, true)]).await;
    fixture.collector_follows().await;
    assert!(fixture.is_there("b").await);
    fixture.delete_as("clusterroles/owner", "Background").await;
    fixture.map_deleted("b").await;
}

#[tokio::test]
async fn dependents_of_an_unserved_kind_remain() {
    let fixture = started().await;
    let strange = json!({"apiVersion": "x.y/v1", "kind": "Z", "name": "z", "uid": "z"});
    fixture.map("a", &[strange]).await;
    let b = fixture.map("b", &[]).await;
    fixture.map("c", &[reference(&b, true)]).await;
    fixture.delete_as("configmaps/b", "Background").await;
    fixture.map_deleted("c").await;
    assert!(fixture.is_there("a").await);
}

#[tokio::test]
async fn garbage_of_an_earlier_run_is_found_at_the_start() {
    let fixture = started().await;
    let (a, x) = (fixture.map("a", &[]).await, fixture.map("x", &[]).await);
    fixture.map("b", &[reference(&a, true)]).await;
    fixture.map("y", &[reference(&x, true)]).await;
    fixture.stop().await;
    fixture.delete_as("configmaps/a", "Background").await;
    fixture.delete_as("configmaps/x", "Foreground").await;
    assert!(fixture.is_there("b").await && fixture.is_there("x").await);
    let _next = fixture.another();
    for name in ["b", "y", "x"] {
        fixture.map_deleted(name).await;
    }
}

/// An owner that waits for its dependents also waits for delayed watches, whose events may contain
/// more dependents.
#[tokio::test]
async fn an_owner_waits_for_delayed_watches() {
    let fixture = started().await;
    for policy in ["Orphan", "Foreground"] {
        let name = policy.to_lowercase();
        let owner = fixture.create("clusterroles", named(&name)).await;
        fixture.storage.freeze_below("/configmaps/");
        let mut finalized = owned(&name, &[reference(&owner, true)]);
        finalized["metadata"]["finalizers"] = json!(["x.y/z"]);
        fixture.create("configmaps", finalized).await;
        let path = format!("clusterroles/{name}");
        let retries = fixture.queues.retries(COLLECTOR);
        fixture.delete_as(&path, policy).await;
        fixture.queues.wait_until_retried(COLLECTOR, retries).await;
        assert!(fixture.stored(&format!("/{path}")).await.is_some());
        fixture.storage.freeze(false);
        if policy == "Foreground" {
            let marked = |map: &Value| map["metadata"]["deletionTimestamp"].is_string();
            let map = format!("/configmaps/default/{name}");
            fixture.wait_until(&map, marked).await;
            assert!(fixture.stored(&format!("/{path}")).await.is_some());
            fixture
                .remove_finalizers("default", &format!("configmaps/{name}"))
                .await;
        }
        fixture.wait_until_deleted(&format!("/{path}")).await;
    }
    assert!(fixture.owners_of("orphan").await.is_empty());
}

/// Dependents of a kind so new that it was not watched yet used to be deleted instead of orphaned,
/// and owners did not wait for them.
#[tokio::test]
async fn dependents_of_a_new_kind_count() {
    let fixture = started().await;
    for round in 0..12 {
        let policy = ["Orphan", "Foreground"][round % 2];
        let plural = format!("things{round}");
        let kind = format!("Thing{round}");
        let owner = fixture.map(&plural, &[]).await;
        fixture
            .create("customresourcedefinitions", definition(&plural, &kind))
            .await;
        let served = || fixture.registry.resource("example.com", "v1", &plural);
        while served().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut finalized = owned("finalized", &[reference(&owner, true)]);
        finalized["metadata"]["finalizers"] = json!(["x.y/z"]);
        finalized["apiVersion"] = json!("example.com/v1");
        finalized["kind"] = json!(kind);
        fixture.create(&plural, finalized).await;
        fixture
            .delete_as(&format!("configmaps/{plural}"), policy)
            .await;
        let stored = format!("/example.com/{plural}/default/finalized");
        if policy == "Foreground" {
            let marked = |thing: &Value| thing["metadata"]["deletionTimestamp"].is_string();
            fixture.wait_until(&stored, marked).await;
            assert!(fixture.is_there(&plural).await, "round {round}");
            fixture
                .remove_finalizers("default", &format!("{plural}/finalized"))
                .await;
            fixture.wait_until_deleted(&stored).await;
        }
        fixture.map_deleted(&plural).await;
        if policy == "Orphan" {
            let thing = fixture.stored(&stored).await.expect("the object remains");
            let metadata = thing["metadata"].as_object().unwrap();
            let owners = metadata
                .get("ownerReferences")
                .and_then(Value::as_array)
                .is_none_or(Vec::is_empty);
            assert!(
                owners && !metadata.contains_key("deletionTimestamp"),
                "round {round}: {thing}"
            );
        }
    }
}

/// There is no leader election: two servers decide the same, and each finds the work of the other
/// done.
#[tokio::test]
async fn two_servers_do_not_interfere() {
    let fixture = started().await;
    let other = fixture.another();
    let (a, b) = (fixture.map("a", &[]).await, fixture.map("b", &[]).await);
    let both = [reference(&a, true), reference(&b, true)];
    for i in 0..30 {
        fixture
            .map(&format!("of-a-{i}"), &[reference(&a, true)])
            .await;
        fixture.map(&format!("of-both-{i}"), &both).await;
    }
    fixture.delete_as("configmaps/a", "Foreground").await;
    fixture.map_deleted("a").await;
    for i in 0..30 {
        assert!(!fixture.is_there(&format!("of-a-{i}")).await);
        assert_eq!(fixture.owners_of(&format!("of-both-{i}")).await, ["b"]);
    }
    let versions = async || {
        let mut versions = Vec::new();
        for i in 0..30 {
            let map = fixture.get(&format!("configmaps/of-both-{i}")).await;
            versions.push(map["metadata"]["resourceVersion"].clone());
        }
        versions
    };
    let before = versions().await;
    fixture.collector_follows().await;
    other.queues.wait_until_idle(COLLECTOR).await;
    assert_eq!(versions().await, before, "no more writes");
}
