//! Tests of a full disk: values are refused before anything fails, deletions succeed, and the store recovers.

use super::disk::Disk;
use super::*;

const MIB: u64 = 1 << 20;

async fn put_value(store: &Embedded, at: &str, len: usize) -> Result<Outcome, StorageError> {
    let (found, _) = store.get(&key(at)).await.unwrap();
    let expect = found.map_or(Expect::Absent, |found| Expect::At(found.mod_revision));
    let put = Put {
        key: key(at),
        value: vec![b'x'; len].into(),
        expect,
        ttl: None,
    };
    store.put(put).await
}

/// Creates objects until the disk is full, and returns their keys.
async fn fill(store: &Embedded, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for number in 0..100_000 {
        let at = format!("/pods/{prefix}/{number:05}");
        match put_value(store, &at, 5000).await {
            Ok(Outcome::Done(_)) => names.push(at),
            Err(StorageError::Failed(text)) => {
                assert!(text.contains("is almost full"), "{text}");
                assert!(text.contains("delete objects"), "{text}");
                return names;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the disk is never full");
}

async fn delete(store: &Embedded, at: &str) {
    let (found, _) = store.get(&key(at)).await.unwrap();
    let at_revision = found.unwrap().mod_revision;
    let deleted = store.delete(&key(at), at_revision).await;
    assert!(matches!(deleted, Ok(Outcome::Done(_))), "{deleted:?}");
}

/// A store that filled its disk cannot be left if deletions need space too.
#[tokio::test]
async fn a_full_disk_refuses_values_and_accepts_deletions() {
    let disk = Disk::default();
    disk.set_capacity(24 * MIB);
    let store = disk.open(Durability::Fsync, true);
    let mut watch = store
        .watch(&key("/pods/"), ResourceVersion::new(1))
        .await
        .unwrap();
    let names = fill(&store, "ns").await;
    assert!(names.len() > 500, "{} objects on 24 MiB", names.len());
    assert!(store.current_revision().await.is_ok(), "it is ready");
    assert!(store.get(&key(&names[0])).await.unwrap().0.is_some());
    assert!(watch.batches.next().await.unwrap().is_ok(), "watches go on");
    // A finalizer can be removed, and a deletion with a grace period can begin.
    for len in [4000, 4400] {
        let small = put_value(&store, &names[0], len).await;
        assert!(matches!(small, Ok(Outcome::Done(_))), "{small:?}");
    }
    let large = put_value(&store, &names[0], 9000).await;
    assert!(matches!(large, Err(StorageError::Failed(_))), "{large:?}");
    // A restart on the full disk.
    drop(store);
    let store = disk.open(Durability::Fsync, false);
    let more = fill(&store, "more").await;
    let refused = put_value(&store, "/pods/ns/new", 5000).await;
    assert!(
        matches!(refused, Err(StorageError::Failed(_))),
        "{refused:?}"
    );
    for at in names.iter().chain(&more) {
        delete(&store, at).await;
    }
    let now = store.current_revision().await.unwrap();
    store.compact(now).await.unwrap();
    sizes(&store).await;
    store.execute(Op::Reclaim).await.unwrap();
    let accepted = put_value(&store, "/pods/ns/new", 5000).await;
    assert!(
        matches!(accepted, Ok(Outcome::Done(_))),
        "{accepted:?}, {} free",
        disk.free()
    );
    drop(store);
    let store = disk.open(Durability::Fsync, false);
    assert!(store.get(&key("/pods/ns/new")).await.unwrap().0.is_some());
    assert!(store.get(&key(&names[0])).await.unwrap().0.is_none());
}

/// Another program fills the disk at any moment, also below the reserve that the store holds.
#[tokio::test]
async fn a_store_recovers_after_another_program_filled_the_disk() {
    let seed = watchet_test_util::seeds::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..6 {
        let disk = Disk::default();
        let store = disk.open(Durability::Fsync, true);
        let mut acknowledged = Vec::new();
        for number in 0..random.usize(1..300) {
            let at = format!("/pods/ns/{number:05}");
            put_value(&store, &at, random.usize(..20_000))
                .await
                .unwrap();
            acknowledged.push(at);
        }
        // Less is free than the changes in memory need in the data file.
        let used = 1024 * MIB - disk.free_of(1024 * MIB);
        disk.set_capacity(used + random.u64(..MIB));
        for number in 0..200 {
            let at = format!("/pods/other/{number:05}");
            if put_value(&store, &at, 9000).await.is_ok() {
                acknowledged.push(at);
            }
        }
        drop(store);
        let store = disk.open(Durability::Fsync, false);
        for at in &acknowledged {
            assert!(
                store.get(&key(at)).await.unwrap().0.is_some(),
                "round {round}: {at}"
            );
        }
        delete(&store, &acknowledged[0]).await;
        disk.set_capacity(1024 * MIB);
        store.execute(Op::Reopen).await.unwrap();
        store.execute(Op::Reclaim).await.unwrap();
        let accepted = put_value(&store, "/pods/ns/new", 5000).await;
        assert!(
            matches!(accepted, Ok(Outcome::Done(_))),
            "round {round}: {accepted:?}"
        );
        drop(store);
        let store = disk.open(Durability::Fsync, false);
        assert!(store.get(&key("/pods/ns/new")).await.unwrap().0.is_some());
    }
}

/// A failed checkpoint made every read fail until the next attempt, which failed too.
#[tokio::test]
async fn a_store_without_any_free_space_is_readable_after_a_restart() {
    let disk = Disk::default();
    disk.set_capacity(64 * MIB);
    let store = disk.open(Durability::Fsync, true);
    let mut names = Vec::new();
    for number in 0..200 {
        let at = format!("/pods/ns/{number:05}");
        put_value(&store, &at, 5000).await.unwrap();
        names.push(at);
    }
    store.execute(Op::Flush).await.unwrap();
    let now = store.current_revision().await.unwrap();
    // Only the log has these, and compacted records wait to be deleted.
    for at in &names[..100] {
        put_value(&store, at, 6000).await.unwrap();
    }
    let killed = disk.crash();
    drop(store);
    killed.fill();
    let store = killed.open(Durability::Fsync, false);
    // The reserve of a store in memory does not survive it, so this one has none.
    for _ in 0..3 {
        for at in &names {
            let (found, _) = store.get(&key(at)).await.unwrap();
            assert!(found.is_some(), "{at}");
        }
        let refused = put_value(&store, "/pods/ns/new", 5000).await;
        assert!(
            matches!(refused, Err(StorageError::Failed(_))),
            "{refused:?}"
        );
        store.execute(Op::Reclaim).await.unwrap();
        store.compact(now).await.unwrap();
    }
    assert!(store.current_revision().await.is_ok(), "it is ready");
    delete(&store, &names[0]).await;
    drop(store);
    let store = killed.open(Durability::Fsync, false);
    assert!(store.get(&key(&names[0])).await.unwrap().0.is_none());
    killed.set_capacity(64 * MIB);
    store.execute(Op::Reclaim).await.unwrap();
    let accepted = put_value(&store, "/pods/ns/new", 5000).await;
    assert!(matches!(accepted, Ok(Outcome::Done(_))), "{accepted:?}");
    store.execute(Op::Flush).await.unwrap();
}
