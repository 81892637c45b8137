//! Tests of single keys: get, put, delete and their conditions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tokio::time::timeout;
use watchet::api::ResourceVersion;
use watchet::storage::{Expect, KeyValue, Outcome, Put, Storage, StorageError};

use super::support::{bytes, create, delete, key, list, put, update};

pub(crate) async fn create_then_get(store: Arc<dyn Storage>) {
    let (absent, before) = store.get(&key("/pods/ns/a")).await.unwrap();
    assert_eq!(absent, None);
    assert!(!before.is_zero(), "an empty store has a revision");

    let revision = create(&store, "/pods/ns/a", "one").await;
    assert!(revision > before);
    let (found, at) = store.get(&key("/pods/ns/a")).await.unwrap();
    let expected = KeyValue {
        key: key("/pods/ns/a"),
        value: bytes("one"),
        create_revision: revision,
        mod_revision: revision,
        is_stale: false,
    };
    assert_eq!(found, Some(expected));
    assert!(at >= revision);
}

pub(crate) async fn create_refuses_an_existing_key(store: Arc<dyn Storage>) {
    let revision = create(&store, "/pods/ns/a", "one").await;
    let again = put(&store, "/pods/ns/a", "two", Expect::Absent)
        .await
        .unwrap();
    assert_eq!(again, Outcome::Refused(None));
    let (found, _) = store.get(&key("/pods/ns/a")).await.unwrap();
    let found = found.unwrap();
    assert_eq!((found.value, found.mod_revision), (bytes("one"), revision));
}

pub(crate) async fn update_compares_and_swaps(store: Arc<dyn Storage>) {
    let first = create(&store, "/pods/ns/a", "one").await;
    let second = update(&store, "/pods/ns/a", first, "two").await;
    assert!(second > first);
    let expected = KeyValue {
        key: key("/pods/ns/a"),
        value: bytes("two"),
        create_revision: first,
        mod_revision: second,
        is_stale: false,
    };
    for stale in [first, second.next(), ResourceVersion::new(u64::MAX >> 1)] {
        let refused = put(&store, "/pods/ns/a", "three", Expect::At(stale))
            .await
            .unwrap();
        assert_eq!(refused, Outcome::Refused(Some(expected.clone())));
    }
    let (found, _) = store.get(&key("/pods/ns/a")).await.unwrap();
    assert_eq!(found, Some(expected));
}

pub(crate) async fn delete_compares_and_swaps(store: Arc<dyn Storage>) {
    let first = create(&store, "/pods/ns/a", "one").await;
    let second = update(&store, "/pods/ns/a", first, "two").await;
    match store.delete(&key("/pods/ns/a"), first).await.unwrap() {
        Outcome::Refused(Some(current)) => {
            assert_eq!(current.value, bytes("two"));
            assert_eq!(current.mod_revision, second);
        }
        other => panic!("{other:?}"),
    }
    let third = delete(&store, "/pods/ns/a", second).await;
    assert!(third > second);
    assert_eq!(store.get(&key("/pods/ns/a")).await.unwrap().0, None);
    assert!(list(&store, "/pods/", None).await.unwrap().items.is_empty());
}

pub(crate) async fn recreated_key_has_a_new_create_revision(store: Arc<dyn Storage>) {
    let first = create(&store, "/pods/ns/a", "one").await;
    let deleted = delete(&store, "/pods/ns/a", first).await;
    let reborn = create(&store, "/pods/ns/a", "again").await;
    assert!(reborn > deleted);
    let (found, _) = store.get(&key("/pods/ns/a")).await.unwrap();
    let found = found.unwrap();
    assert_eq!(
        (found.create_revision, found.mod_revision),
        (reborn, reborn)
    );
    // A revision from before the deletion does not match.
    let stale = put(&store, "/pods/ns/a", "no", Expect::At(first)).await;
    assert!(matches!(stale.unwrap(), Outcome::Refused(Some(_))));
}

pub(crate) async fn missing_keys_refuse_updates_and_deletes(store: Arc<dyn Storage>) {
    let first = create(&store, "/pods/ns/a", "one").await;
    let deleted = delete(&store, "/pods/ns/a", first).await;
    for at in [first, deleted] {
        for missing in ["/pods/ns/a", "/pods/ns/never"] {
            let refused = put(&store, missing, "x", Expect::At(at)).await.unwrap();
            assert_eq!(refused, Outcome::Refused(None), "{missing} {at:?}");
            let refused = store.delete(&key(missing), at).await.unwrap();
            assert_eq!(refused, Outcome::Refused(None), "{missing} {at:?}");
        }
    }
    let after = store.current_revision().await.unwrap();
    assert_eq!(after, deleted, "a refusal makes no revision");
}

pub(crate) async fn values_are_opaque_bytes(store: Arc<dyn Storage>) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let megabyte = vec![0xa5; 1 << 20];
    for (name, value) in [
        ("empty", Vec::new()),
        ("binary", every_byte),
        ("megabyte", megabyte),
    ] {
        let at = format!("/blobs/{name}");
        let put = Put {
            key: key(&at),
            value: Bytes::from(value.clone()),
            expect: Expect::Absent,
            ttl: None,
        };
        assert!(matches!(store.put(put).await.unwrap(), Outcome::Done(_)));
        let (found, _) = store.get(&key(&at)).await.unwrap();
        assert_eq!(found.unwrap().value, value, "{name}");
    }
    let listed = list(&store, "/blobs/", None).await.unwrap();
    assert_eq!(listed.items.len(), 3);
    assert_eq!(listed.items[1].value.len(), 0, "{}", listed.items[1].key);
}

pub(crate) async fn current_revision_follows_writes(store: Arc<dyn Storage>) {
    let mut last = store.current_revision().await.unwrap();
    for number in 0..5 {
        let revision = create(&store, &format!("/pods/ns/{number}"), "x").await;
        assert!(revision > last);
        last = store.current_revision().await.unwrap();
        assert_eq!(last, revision);
        let listed = list(&store, "/nothing/", None).await.unwrap();
        assert_eq!(listed.revision, revision, "revisions are global");
    }
}

/// 16 writers increment a counter by compare-and-swap: no increment is lost, and each has its own revision.
pub(crate) async fn concurrent_increments_lose_nothing(store: Arc<dyn Storage>) {
    const WRITERS: usize = 16;
    const EACH: usize = 8;
    create(&store, "/counters/c", "0").await;
    let writer = || async {
        let mut made = Vec::new();
        let (found, _) = store.get(&key("/counters/c")).await.unwrap();
        let mut current = found.unwrap();
        while made.len() < EACH {
            let count: usize = std::str::from_utf8(&current.value)
                .unwrap()
                .parse()
                .unwrap();
            let next = (count + 1).to_string();
            let expect = Expect::At(current.mod_revision);
            match put(&store, "/counters/c", &next, expect).await.unwrap() {
                Outcome::Done(revision) => {
                    made.push(revision);
                    let (found, _) = store.get(&key("/counters/c")).await.unwrap();
                    current = found.unwrap();
                }
                Outcome::Refused(now) => current = now.expect("no writer deletes it"),
            }
        }
        made
    };
    let writers = join_all((0..WRITERS).map(|_| writer()));
    let made = timeout(Duration::from_secs(120), writers)
        .await
        .expect("compare-and-swap makes progress");
    let mut made: Vec<_> = made.into_iter().flatten().collect();
    made.sort();
    made.dedup();
    assert_eq!(made.len(), WRITERS * EACH);
    let (found, _) = store.get(&key("/counters/c")).await.unwrap();
    assert_eq!(found.unwrap().value, (WRITERS * EACH).to_string());
}

pub(crate) async fn too_large_value_is_too_large_error(store: Arc<dyn Storage>) {
    let before = store.current_revision().await.unwrap();
    let huge = Put {
        key: key("/blobs/huge"),
        value: Bytes::from(vec![1; 16 << 20]),
        expect: Expect::Absent,
        ttl: None,
    };
    match store.put(huge).await {
        Err(StorageError::TooLarge { key: refused, .. }) => assert_eq!(refused, key("/blobs/huge")),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.current_revision().await.unwrap(), before);
}
