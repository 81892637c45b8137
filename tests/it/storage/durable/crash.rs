//! Tests of kill -9 at random moments: acknowledged writes are stored, and stored writes are complete.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use watchet::api::{ResourceVersion, StorageKey};
use watchet::storage::embedded::{Durability, OpenError};
use watchet::storage::{ListRequest, Storage, StorageError};

use super::super::support::{Follow, create, key, list, pairs};
use super::child::{Acknowledged, Writing};
use super::{Crashed, open, reopen, reopen_with};
use watchet_test_util::seeds::seed_or;

/// Checks the store against all acknowledged writes: those in the history are correct, the history is the difference
/// between its first and last state, and no key is older than its last acknowledged write.
async fn check(store: &Arc<dyn Storage>, acknowledged: &[Acknowledged]) {
    let start = match list(store, "/pods/", Some(ResourceVersion::new(1))).await {
        Ok(_) => ResourceVersion::new(1),
        Err(StorageError::Compacted { compacted, .. }) => compacted,
        Err(error) => panic!("{error}"),
    };
    let end = store.current_revision().await.unwrap();
    let state = |page: watchet::storage::ListPage| -> BTreeMap<StorageKey, _> {
        let entry = |item: watchet::storage::KeyValue| (item.key, (item.mod_revision, item.value));
        page.items.into_iter().map(entry).collect()
    };
    let mut replayed = state(list(store, "/pods/", Some(start)).await.unwrap());
    let mut events = BTreeMap::new();
    for event in Follow::open(store, "/pods/", start).await.until(end).await {
        let before = match event.value.clone() {
            Some(value) => replayed.insert(event.key.clone(), (event.revision, value)),
            None => replayed.remove(&event.key),
        };
        assert_eq!(before.map(|(_, value)| value), event.previous);
        events.insert(event.revision, event);
    }
    let latest = state(list(store, "/pods/", None).await.unwrap());
    assert_eq!(replayed, latest);
    let mut last = BTreeMap::new();
    for write in acknowledged {
        last.insert(&write.key, write);
        if write.revision > start {
            let event = &events[&write.revision];
            assert_eq!(event.key, key(&write.key));
            let value = event
                .value
                .as_ref()
                .map(|v| String::from_utf8_lossy(v).into_owned());
            assert_eq!(value, write.value, "{} @{}", write.key, write.revision);
        }
    }
    for (at, write) in last {
        match latest.get(&key(at)) {
            Some((revision, _)) => assert!(*revision >= write.revision, "{at}"),
            // Deleted by this write, or by a later one whose acknowledgement was lost.
            None => assert!(
                write.value.is_none()
                    || events.values().any(|event| {
                        event.key == key(at)
                            && event.value.is_none()
                            && event.revision > write.revision
                    }),
                "{at} is gone, though written at {}",
                write.revision
            ),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_no_acknowledged_write() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Rng::with_seed(seed_or(0x5eed_c4a5));
    let mut acknowledged = Vec::new();
    for round in 0.. {
        if round >= 12 && acknowledged.len() > 100 {
            return;
        }
        // On a slow disk a round has only a few writes.
        assert!(round < 60, "{} writes only", acknowledged.len());
        let mut writing = Writing::start(directory.path(), random.u64(..));
        acknowledged.push(writing.first());
        tokio::time::sleep(Duration::from_micros(random.u64(..) % 150_000)).await;
        acknowledged.extend(writing.kill());
        println!("round {round}: {} writes so far", acknowledged.len());
        let store = reopen(directory.path());
        check(&store, &acknowledged).await;
    }
}

/// A store that was killed during its creation opens too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_leaves_a_new_store_that_opens() {
    let mut random = Rng::with_seed(seed_or(0x5eed_00e3));
    for _ in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let writing = Writing::start(directory.path(), random.u64(..));
        tokio::time::sleep(Duration::from_micros(random.u64(..) % 30_000)).await;
        let acknowledged = writing.kill();
        let store = reopen(directory.path());
        check(&store, &acknowledged).await;
        create(&store, "/pods/new/a", "x").await;
    }
}

/// A store that does not sync its writes loses the last ones in a crash. It assigned their revisions to
/// the next writes: a resumed watch skipped those, and an update with a lost revision changed another version of the
/// object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_revisions_are_not_reused() {
    for durability in [
        Durability::Interval(Duration::from_secs(3600)),
        Durability::None,
    ] {
        let directory = tempfile::tempdir().unwrap();
        let store = reopen_with(directory.path(), durability);
        let kept = create(&store, "/pods/ns/kept", "x").await;
        drop(store);
        let store = reopen_with(directory.path(), durability);
        assert_eq!(
            store.current_revision().await.unwrap(),
            kept,
            "{durability:?}"
        );
        assert!(list(&store, "/pods/", Some(kept)).await.is_ok(), "no crash");
        let lost = create(&store, "/pods/ns/lost", "x").await;

        let crashed = Crashed::copy(directory.path());
        let after = reopen_with(crashed.path(), durability);
        let listed = list(&after, "/pods/", None).await.unwrap();
        assert_eq!(pairs(&listed), ["/pods/ns/kept=x"]);
        assert!(listed.revision > lost);
        for seen in [kept, lost] {
            match after.watch(&key("/pods/"), seen).await {
                Err(StorageError::Compacted { requested, .. }) => assert_eq!(requested, seen),
                other => panic!("{other:?}"),
            }
        }
        let mut watch = Follow::open(&after, "/pods/", listed.revision).await;
        let made = create(&after, "/pods/ns/other", "x").await;
        assert_eq!(made, listed.revision.next(), "dense again");
        assert_eq!(watch.events(1).await[0].revision, made);
        // The store opens with its history, also with another durability.
        drop(after);
        let again = reopen(crashed.path());
        assert_eq!(again.current_revision().await.unwrap(), made);
        let mut watch = Follow::open(&again, "/pods/", listed.revision).await;
        assert_eq!(watch.events(1).await[0].revision, made);
    }
}

fn assert_in_use(directory: &Path) {
    match open(directory) {
        Err(error @ OpenError::InUse { .. }) => {
            let text = error.to_string();
            assert!(text.contains(&directory.display().to_string()), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_process_is_an_in_use_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut writing = Writing::start(directory.path(), 1);
    writing.first();
    assert_in_use(directory.path());
    writing.kill();
    let store = reopen(directory.path());
    assert_in_use(directory.path());
    // Abandoned lists are still reading when the store is dropped.
    for _ in 0..50 {
        let listing = store.list(ListRequest {
            prefix: key("/pods/"),
            start: String::new(),
            at: None,
            limit: 0,
            count: false,
        });
        drop(futures::FutureExt::now_or_never(listing));
    }
    drop(store);
    drop(reopen(directory.path()));
}
