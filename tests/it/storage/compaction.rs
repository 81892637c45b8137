//! Tests of compaction.

use std::sync::Arc;

use futures::StreamExt as _;
use tokio::time::timeout;
use watchet::api::ResourceVersion;
use watchet::storage::{Storage, StorageError};

use super::Backend;
use super::fixtures::{EmbeddedStore, MemoryStore};
use super::support::{Follow, PATIENCE, create, delete, describe, key, list, pairs, update};

/// Writes a history and returns its revisions.
async fn history(store: &Arc<dyn Storage>) -> [ResourceVersion; 6] {
    let first = create(store, "/pods/ns/a", "one").await;
    let second = create(store, "/pods/ns/b", "b").await;
    let third = update(store, "/pods/ns/a", first, "two").await;
    let fourth = delete(store, "/pods/ns/b", second).await;
    let fifth = update(store, "/pods/ns/a", third, "three").await;
    let sixth = create(store, "/pods/ns/b", "again").await;
    [first, second, third, fourth, fifth, sixth]
}

pub(crate) async fn compacted_revisions_cannot_be_listed(store: Arc<dyn Storage>) {
    let made = history(&store).await;
    store.compact(made[3]).await.unwrap();
    for compacted in &made[..3] {
        match list(&store, "/pods/", Some(*compacted)).await {
            Err(StorageError::Compacted { requested, .. }) => assert_eq!(requested, *compacted),
            other => panic!("{other:?}"),
        }
    }
    let states: [&[&str]; 3] = [
        &["/pods/ns/a=two"],
        &["/pods/ns/a=three"],
        &["/pods/ns/a=three", "/pods/ns/b=again"],
    ];
    for (revision, expected) in made[3..].iter().zip(states) {
        let listed = list(&store, "/pods/", Some(*revision)).await.unwrap();
        assert_eq!(pairs(&listed), expected, "at {revision}");
    }
    // A compaction at an earlier revision has no effect.
    if let Err(error) = store.compact(made[1]).await {
        assert!(matches!(error, StorageError::Compacted { .. }), "{error:?}");
    }
    assert!(list(&store, "/pods/", Some(made[2])).await.is_err());
}

pub(crate) async fn watch_from_a_compacted_revision_is_compacted_error(store: Arc<dyn Storage>) {
    let made = history(&store).await;
    store.compact(made[3]).await.unwrap();
    for compacted in &made[..3] {
        let error = match store.watch(&key("/pods/"), *compacted).await {
            Err(error) => error,
            Ok(mut watch) => timeout(PATIENCE, watch.batches.next())
                .await
                .expect("the watch fails soon")
                .expect("it says why")
                .expect_err("history is gone"),
        };
        assert!(matches!(error, StorageError::Compacted { .. }), "{error:?}");
    }
    let mut kept = Follow::open(&store, "/pods/", made[3]).await;
    assert_eq!(
        describe(&kept.events(2).await),
        ["/pods/ns/a=three was two", "/pods/ns/b=again was -"]
    );
}

pub(crate) async fn live_state_survives_compaction(store: Arc<dyn Storage>) {
    for number in 0..40 {
        let at = format!("/pods/ns/{number:02}");
        let mut revision = create(&store, &at, "0").await;
        for value in 1..=number % 4 {
            revision = update(&store, &at, revision, &value.to_string()).await;
        }
        if number % 5 == 0 {
            delete(&store, &at, revision).await;
        }
    }
    let before = list(&store, "/pods/", None).await.unwrap();
    store.compact(before.revision).await.unwrap();
    let marker = create(&store, "/noise/ns/a", "x").await;
    let after = list(&store, "/pods/", None).await.unwrap();
    assert_eq!(after.items, before.items);
    assert_eq!(after.revision, marker);
    let exact = list(&store, "/pods/", Some(before.revision)).await.unwrap();
    assert_eq!(exact.items, before.items);
    for item in &before.items {
        let (found, _) = store.get(&item.key).await.unwrap();
        assert_eq!(found.as_ref(), Some(item));
    }
    // Keys that have not changed since retain their revisions and can be updated with them.
    let item = &before.items[0];
    let mut watch = Follow::open(&store, "/pods/", marker).await;
    update(&store, item.key.as_str(), item.mod_revision, "z").await;
    let events = watch.events(1).await;
    assert_eq!(events[0].previous.as_ref(), Some(&item.value));
}

pub(crate) async fn deleted_keys_can_return_after_compaction(store: Arc<dyn Storage>) {
    let first = create(&store, "/pods/ns/a", "one").await;
    let deleted = delete(&store, "/pods/ns/a", first).await;
    let other = create(&store, "/pods/ns/b", "b").await;
    let reborn = create(&store, "/pods/ns/a", "again").await;
    store.compact(other).await.unwrap();
    let listed = list(&store, "/pods/", Some(other)).await.unwrap();
    assert_eq!(pairs(&listed), ["/pods/ns/b=b"], "a was dead at {other}");
    let mut watch = Follow::open(&store, "/pods/", other).await;
    assert_eq!(describe(&watch.events(1).await), ["/pods/ns/a=again was -"]);

    let deleted_again = delete(&store, "/pods/ns/a", reborn).await;
    store.compact(deleted_again).await.unwrap();
    let listed = list(&store, "/pods/", None).await.unwrap();
    assert_eq!(pairs(&listed), ["/pods/ns/b=b"]);
    let third_life = create(&store, "/pods/ns/a", "third").await;
    assert!(third_life > deleted_again && deleted_again > deleted);
    let (found, _) = store.get(&key("/pods/ns/a")).await.unwrap();
    assert_eq!(found.unwrap().create_revision, third_life);
}

/// A watch that has received all events continues when they are compacted.
pub(crate) async fn an_idle_watch_survives_compaction(store: Arc<dyn Storage>) {
    let start = store.current_revision().await.unwrap();
    let mut idle = Follow::open(&store, "/idle/", start).await;
    let mut up_to_date = Follow::open(&store, "/pods/", start).await;
    let made = history(&store).await;
    assert_eq!(up_to_date.events(6).await.len(), 6);
    assert!(idle.until(made[5]).await.is_empty());
    store.compact(made[5]).await.unwrap();
    create(&store, "/idle/ns/a", "x").await;
    delete(&store, "/pods/ns/b", made[5]).await;
    assert_eq!(describe(&idle.events(1).await), ["/idle/ns/a=x was -"]);
    assert_eq!(
        describe(&up_to_date.events(1).await),
        ["/pods/ns/b=- was again"]
    );
}

/// WC-195. (`etcd_only` has the test for etcd, where the servers share the revision.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wc_195_the_compacted_revision_is_reported() {
    async fn check(store: Arc<dyn Storage>) {
        assert_eq!(store.compacted_revision().await.unwrap().get(), 0);
        let made = history(&store).await;
        store.compact(made[3]).await.unwrap();
        assert_eq!(store.compacted_revision().await.unwrap(), made[3]);
    }
    check(MemoryStore::start().await.storage()).await;
    let embedded = EmbeddedStore::start().await;
    check(embedded.storage()).await;
}
