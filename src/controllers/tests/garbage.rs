//! The garbage collector over real caches: each rule once.

use std::time::Duration;

use super::*;

/// `kind/name` as an owner.
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

    async fn map_gone(&self, name: &str) {
        self.eventually_gone(&format!("/configmaps/default/{name}"))
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

/// Long enough for what should not happen.
const QUIET: Duration = Duration::from_millis(400);

#[tokio::test]
async fn background_dependents_go_after_their_owner() {
    let fixture = started().await;
    let a = fixture.map("a", &[]).await;
    let b = fixture.map("b", &[reference(&a, true)]).await;
    fixture.map("c", &[reference(&b, false)]).await;
    fixture.map("other", &[]).await;
    fixture.delete_as("configmaps/a", "Background").await;
    assert!(!fixture.is_there("a").await, "it does not wait");
    fixture.map_gone("b").await;
    fixture.map_gone("c").await;
    assert!(fixture.is_there("other").await);
}

#[tokio::test]
async fn foreground_the_owner_waits_for_those_that_block_it() {
    let fixture = started().await;
    let a = fixture.map("a", &[]).await;
    let mut held = owned("b", &[reference(&a, true)]);
    held["metadata"]["finalizers"] = json!(["x.y/z"]);
    fixture.create("configmaps", held).await;
    fixture.map("c", &[reference(&a, false)]).await;
    fixture.delete_as("configmaps/a", "Foreground").await;
    fixture.map_gone("c").await;
    let marked = |b: &Value| b["metadata"]["deletionTimestamp"].is_string();
    fixture.until("/configmaps/default/b", marked).await;
    tokio::time::sleep(QUIET).await;
    let a = fixture.stored("/configmaps/default/a").await.unwrap();
    assert_eq!(a["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    fixture.release("default", "configmaps/b").await;
    fixture.map_gone("b").await;
    fixture.map_gone("a").await;
}

#[tokio::test]
async fn orphans_stay() {
    let fixture = started().await;
    let (a, x) = (fixture.map("a", &[]).await, fixture.map("x", &[]).await);
    fixture.map("b", &[reference(&a, true)]).await;
    fixture
        .map("c", &[reference(&x, true), reference(&a, true)])
        .await;
    fixture.delete_as("configmaps/a", "Orphan").await;
    fixture.map_gone("a").await;
    assert!(fixture.owners_of("b").await.is_empty());
    assert_eq!(fixture.owners_of("c").await, ["x"]);
    tokio::time::sleep(QUIET).await;
    assert!(fixture.is_there("b").await && fixture.is_there("c").await);
}

#[tokio::test]
async fn several_owners_have_to_go_all() {
    let fixture = started().await;
    let (a, b) = (fixture.map("a", &[]).await, fixture.map("b", &[]).await);
    let owners = [reference(&a, true), reference(&b, true)];
    fixture.map("c", &owners).await;
    // One of the two in the foreground: the other keeps the dependent, which lets go of the one.
    fixture.delete_as("configmaps/a", "Foreground").await;
    fixture.map_gone("a").await;
    assert_eq!(fixture.owners_of("c").await, ["b"]);
    fixture.delete_as("configmaps/b", "Background").await;
    fixture.map_gone("c").await;
}

#[tokio::test]
async fn circles_in_the_foreground_do_not_wait_for_ever() {
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
        fixture.map_gone(name).await;
    }
}

#[tokio::test]
async fn who_names_an_absent_owner_is_garbage() {
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
    strange.expect("names are looked at later");
    fixture.map_gone("never").await;
    fixture.map_gone("elsewhere").await;
    fixture.eventually_gone("/configmaps/n/strange").await;
    let one = |half: &Value| {
        half["metadata"]["ownerReferences"]
            .as_array()
            .unwrap()
            .len()
            == 1
    };
    fixture.until("/configmaps/default/half", one).await;
    assert_eq!(fixture.owners_of("half").await, ["a"]);
    assert!(fixture.is_there("a").await);
}

/// It is not clear which owner it means, so nobody may delete it.
#[tokio::test]
async fn a_cluster_scoped_dependent_of_a_namespaced_owner_is_left_alone() {
    let fixture = started().await;
    let a = fixture.map("a", &[]).await;
    let role = owned("r", &[reference(&a, true)]);
    fixture.create("clusterroles", role).await;
    let uid = a["metadata"]["uid"].as_str().unwrap();
    let event = format!("/events/default/r.{}", &uid[..8]);
    let event = fixture.until(&event, |_| true).await;
    assert_eq!(event["reason"], "OwnerRefInvalidNamespace");
    fixture.delete_as("configmaps/a", "Background").await;
    tokio::time::sleep(QUIET).await;
    assert!(fixture.stored("/clusterroles/r").await.is_some());

    let owner = fixture.create("clusterroles", named("owner")).await;
    fixture.map("b", &[reference(&owner, true)]).await;
    tokio::time::sleep(QUIET).await;
    assert!(fixture.is_there("b").await);
    fixture.delete_as("clusterroles/owner", "Background").await;
    fixture.map_gone("b").await;
}

#[tokio::test]
async fn a_kind_that_is_not_served_keeps_its_dependents() {
    let fixture = started().await;
    let strange = json!({"apiVersion": "x.y/v1", "kind": "Z", "name": "z", "uid": "z"});
    fixture.map("a", &[strange]).await;
    let b = fixture.map("b", &[]).await;
    fixture.map("c", &[reference(&b, true)]).await;
    fixture.delete_as("configmaps/b", "Background").await;
    fixture.map_gone("c").await;
    assert!(fixture.is_there("a").await);
}

#[tokio::test]
async fn what_was_left_by_an_earlier_run_is_found_at_the_start() {
    let fixture = started().await;
    let (a, x) = (fixture.map("a", &[]).await, fixture.map("x", &[]).await);
    fixture.map("b", &[reference(&a, true)]).await;
    fixture.map("y", &[reference(&x, true)]).await;
    fixture.stop().await;
    fixture.delete_as("configmaps/a", "Background").await;
    fixture.delete_as("configmaps/x", "Foreground").await;
    tokio::time::sleep(QUIET).await;
    assert!(fixture.is_there("b").await && fixture.is_there("x").await);
    let _next = fixture.another();
    for name in ["b", "y", "x"] {
        fixture.map_gone(name).await;
    }
}

/// An owner that waits for its dependents waits for news of them too, however long they take: what a slow
/// watch has not told may be one.
#[tokio::test]
async fn an_owner_waits_until_all_is_told() {
    let fixture = started().await;
    for policy in ["Orphan", "Foreground"] {
        let name = policy.to_lowercase();
        let owner = fixture.create("clusterroles", named(&name)).await;
        fixture.storage.freeze_below("/configmaps/");
        let mut held = owned(&name, &[reference(&owner, true)]);
        held["metadata"]["finalizers"] = json!(["x.y/z"]);
        fixture.create("configmaps", held).await;
        let path = format!("clusterroles/{name}");
        fixture.delete_as(&path, policy).await;
        tokio::time::sleep(QUIET).await;
        assert!(fixture.stored(&format!("/{path}")).await.is_some());
        fixture.storage.freeze(false);
        if policy == "Foreground" {
            let marked = |map: &Value| map["metadata"]["deletionTimestamp"].is_string();
            let map = format!("/configmaps/default/{name}");
            fixture.until(&map, marked).await;
            assert!(fixture.stored(&format!("/{path}")).await.is_some());
            fixture
                .release("default", &format!("configmaps/{name}"))
                .await;
        }
        fixture.eventually_gone(&format!("/{path}")).await;
    }
    assert!(fixture.owners_of("orphan").await.is_empty());
}

/// Dependents were once deleted that should have been orphaned, and owners let go that should have
/// waited, when the kind of the dependents was so new that nobody followed it yet.
#[tokio::test]
async fn dependents_of_a_kind_that_was_defined_just_now_count() {
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
        let mut held = owned("held", &[reference(&owner, true)]);
        held["metadata"]["finalizers"] = json!(["x.y/z"]);
        held["apiVersion"] = json!("example.com/v1");
        held["kind"] = json!(kind);
        fixture.create(&plural, held).await;
        fixture
            .delete_as(&format!("configmaps/{plural}"), policy)
            .await;
        let stored = format!("/example.com/{plural}/default/held");
        if policy == "Foreground" {
            let marked = |thing: &Value| thing["metadata"]["deletionTimestamp"].is_string();
            fixture.until(&stored, marked).await;
            assert!(fixture.is_there(&plural).await, "round {round}");
            fixture.release("default", &format!("{plural}/held")).await;
            fixture.eventually_gone(&stored).await;
        }
        fixture.map_gone(&plural).await;
        if policy == "Orphan" {
            let thing = fixture.stored(&stored).await.expect("it stays");
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

/// There is no leader, and none is needed: what two decide is the same, and what one has done the other
/// finds done.
#[tokio::test]
async fn two_servers_do_not_fight() {
    let fixture = started().await;
    let _other = fixture.another();
    let (a, b) = (fixture.map("a", &[]).await, fixture.map("b", &[]).await);
    let both = [reference(&a, true), reference(&b, true)];
    for i in 0..30 {
        fixture
            .map(&format!("of-a-{i}"), &[reference(&a, true)])
            .await;
        fixture.map(&format!("of-both-{i}"), &both).await;
    }
    fixture.delete_as("configmaps/a", "Foreground").await;
    fixture.map_gone("a").await;
    for i in 0..30 {
        assert!(!fixture.is_there(&format!("of-a-{i}")).await);
        assert_eq!(fixture.owners_of(&format!("of-both-{i}")).await, ["b"]);
    }
    let writes = *fixture.storage.writes.lock();
    tokio::time::sleep(QUIET).await;
    assert_eq!(*fixture.storage.writes.lock(), writes, "they are done");
}
