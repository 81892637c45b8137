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
