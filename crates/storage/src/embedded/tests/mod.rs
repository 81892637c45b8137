//! Tests of internals: the tables after compaction, layers, and disk failures. The integration tests
//! cover the behaviour that clients see.

mod checksums;
mod disk;
mod failures;
mod full;
mod offline;
mod replaced;
mod restored;
mod size;
mod times;
mod visit;

use futures_util::{FutureExt as _, StreamExt as _};
use redb::ReadableTableMetadata as _;
use tokio::time::Instant;

use super::batch::Batch;
use super::*;
use crate::Expect;

fn key(text: &str) -> StorageKey {
    StorageKey::new(text).unwrap()
}

async fn put(store: &Embedded, at: &str, expect: Expect) -> Result<Outcome, StorageError> {
    let put = Put {
        key: key(at),
        value: at.to_owned().into_bytes().into(),
        expect,
        ttl: None,
    };
    store.put(put).await
}

async fn done(store: &Embedded, at: &str, expect: Expect) -> ResourceVersion {
    match put(store, at, expect).await.unwrap() {
        Outcome::Done(revision) => revision,
        refused => panic!("{refused:?}"),
    }
}

/// Returns the numbers of records in the log and keys in the index after collection.
async fn sizes(store: &Embedded) -> (u64, u64) {
    store.execute(Op::Flush).await.unwrap();
    let start = Instant::now();
    loop {
        let sizes = store.data.read(|snapshot| {
            let collected = snapshot.base.numbers.collected == snapshot.position.compacted;
            let sizes = (snapshot.base.log.len()?, snapshot.base.current.len()?);
            Ok(collected.then_some(sizes))
        });
        if let Some(sizes) = sizes.unwrap() {
            return sizes;
        }
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "collection does not end"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn compaction_leaves_only_readable_records() {
    let store = Embedded::in_memory(Duration::ZERO).unwrap();
    for number in 0..5 {
        let at = format!("/pods/ns/{number}");
        let mut revision = done(&store, &at, Expect::Absent).await;
        // More records than one transaction collects.
        for _ in 0..300 {
            revision = done(&store, &at, Expect::At(revision)).await;
        }
        if number % 2 == 0 {
            store.delete(&key(&at), revision).await.unwrap();
        }
    }
    let end = store.current_revision().await.unwrap();
    assert_eq!(sizes(&store).await, (end.get() - 1, 5), "all of history");
    store.compact(end).await.unwrap();
    assert_eq!(sizes(&store).await, (2, 2), "the two that exist");
    let last = done(&store, "/pods/ns/0", Expect::Absent).await;
    store.delete(&key("/pods/ns/0"), last).await.unwrap();
    store.compact(last).await.unwrap();
    assert_eq!(
        sizes(&store).await,
        (4, 3),
        "it existed at the compacted revision"
    );
    store.compact(last.next()).await.unwrap();
    assert_eq!(sizes(&store).await, (2, 2));
}

/// A cache of few objects scanned the whole log after each restart.
#[tokio::test]
async fn history_of_few_keys_is_read_by_key() {
    let store = Embedded::in_memory(Duration::ZERO).unwrap();
    let seed = watchet_test_util::seeds::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut live = std::collections::HashMap::new();
    for _ in 0..2000 {
        let at = format!(
            "/{}/ns/{}",
            ["a", "b", "bc"][random.usize(..3)],
            random.u8(..6)
        );
        let expect = live.get(&at).copied().map_or(Expect::Absent, Expect::At);
        match expect {
            Expect::At(revision) if random.bool() => {
                store.delete(&key(&at), revision).await.unwrap();
                live.remove(&at);
            }
            expect => drop(live.insert(at.clone(), done(&store, &at, expect).await)),
        }
        if random.u8(..) == 0 {
            let at = store.current_revision().await.unwrap().get();
            let at = at - random.u64(..at.min(100));
            // A compacted revision returns an error.
            store.compact(ResourceVersion::new(at)).await.ok();
        }
        if random.u8(..) < 2 {
            store.execute(Op::Flush).await.unwrap();
        }
    }
    let compared = store.data.read(|snapshot| {
        let first = snapshot.position.compacted.max(1) + 1;
        for prefix in ["/a/", "/b/", "/bc/ns/", "/b/ns/3", "/none/"].map(key) {
            let from = random.u64(first..=snapshot.position.revision);
            let to = random.u64(from..=snapshot.position.revision);
            let (walked, read) = snapshot.history_of(|key| prefix.covers(key), from, to)?;
            let walked: Vec<_> = walked.iter().map(|event| event.revision.get()).collect();
            let found = snapshot.revisions_of_few(&prefix, from, read)?;
            assert_eq!(found, Some(walked), "{prefix} {from} {to}");
        }
        // The result is the same with both methods.
        let prefix = key("/b/");
        let all = snapshot.history(&prefix, first, snapshot.position.revision)?;
        let (walked, read) = snapshot.history_of(|key| prefix.covers(key), first, all.1)?;
        assert_eq!((&all.0, all.1), (&walked, read));
        Ok(())
    });
    compared.unwrap();
}

#[tokio::test]
async fn invalid_compactions_are_rejected() {
    let store = Embedded::in_memory(Duration::ZERO).unwrap();
    let first = done(&store, "/pods/ns/a", Expect::Absent).await;
    let last = done(&store, "/pods/ns/b", Expect::Absent).await;
    let ahead = store.compact(last.next()).await;
    assert!(
        matches!(ahead, Err(StorageError::Future { .. })),
        "{ahead:?}"
    );
    store.compact(last).await.unwrap();
    store.compact(last).await.unwrap();
    let behind = store.compact(first).await;
    assert!(
        matches!(behind, Err(StorageError::Compacted { .. })),
        "{behind:?}"
    );
}

#[tokio::test]
async fn maximum_ttl_never_expires() {
    let store = Embedded::in_memory(Duration::ZERO).unwrap();
    assert_eq!(store.clock.after_ms(Duration::MAX), u64::MAX - 1);
    assert!(store.clock.after_ms(Duration::from_secs(1)) > store.clock.now_ms());
}

/// Makes a change visible to readers without its publication, as the writer does at first.
fn commit(data: &Data, at: &str) -> (u64, Vec<crate::StorageEvent>) {
    let put = Put {
        key: key(at),
        value: Default::default(),
        expect: Expect::Absent,
        ttl: None,
    };
    let changes = data.with_snapshot(|snapshot| {
        let mut deadlines = Deadlines::default();
        let mut batch = Batch::begin(snapshot, &mut deadlines, 1, 0);
        batch.put(put, 0)?;
        Ok(batch.finish())
    });
    let mut changes = changes.unwrap().unwrap();
    changes.layer.push(changes.frame);
    data.publish(changes.layer, changes.position);
    (changes.position.revision, changes.events)
}

/// Readers see a commit before it is published. A progress response must not have a lower revision
/// than a reader has seen.
#[tokio::test]
async fn progress_includes_committed_unpublished_revisions() {
    let data = Arc::new(Data::on(Sparse::default()).unwrap());
    let hub = Arc::new(Hub::new(1));
    let cursor = Cursor::new(hub.clone(), &data, Tasks::new(), key("/idle/"), 1);
    let mut watch = cursor.into_watch();
    let (revision, events) = commit(&data, "/noise/ns/a");
    watch.progress.request();
    for _ in 0..3 {
        assert!(watch.batches.next().now_or_never().is_none(), "too early");
    }
    hub.publish(events);
    let batch = watch.batches.next().await.unwrap().unwrap();
    assert_eq!(batch.revision.get(), revision);
    assert!(batch.events.is_empty());
}

/// The newest revision is at least one that a reader has seen before its publication.
#[tokio::test]
async fn newest_revision_includes_what_readers_have_seen() {
    let store = Embedded::in_memory(Duration::ZERO).unwrap();
    let newest = || store.known_revision().unwrap().unwrap().get();
    let acknowledged = done(&store, "/pods/ns/a", Expect::Absent).await.get();
    assert_eq!(newest(), acknowledged);
    let (revision, _) = commit(&store.data, "/pods/ns/b");
    assert_eq!(revision, acknowledged + 1);
    assert_eq!(newest(), revision, "readers can see it");
    let (shown, at) = store.get(&key("/pods/ns/b")).await.unwrap();
    assert!(shown.is_some());
    assert_eq!((newest(), at.get()), (acknowledged + 1, acknowledged + 1));
}

/// A few large objects with many versions were read again for each part of their history: for
/// minutes, until resuming clients got errors.
#[tokio::test]
async fn history_of_few_large_objects_is_scanned() {
    let store = Embedded::in_memory(Duration::ZERO).unwrap();
    let mut expect = Expect::Absent;
    for _ in 0..8 {
        let put = Put {
            key: key("/a/ns/large"),
            value: vec![b'x'; 1 << 20].into(),
            expect,
            ttl: None,
        };
        let Outcome::Done(revision) = store.put(put).await.unwrap() else {
            panic!("there is no other writer")
        };
        expect = Expect::At(revision);
    }
    let found = store.data.read(|snapshot| {
        let to = snapshot.position.revision;
        let few = |from| snapshot.revisions_of_few(&key("/a/"), from, to);
        Ok((few(1)?.is_some(), few(to - 1)?.map(|found| found.len())))
    });
    assert_eq!(found.unwrap(), (false, Some(2)));
}

/// Returns the keys of the pods in the store.
async fn keys(store: &Embedded) -> Vec<String> {
    let request = ListRequest {
        prefix: key("/pods/"),
        start: String::new(),
        at: None,
        limit: 0,
        count: false,
    };
    let page = store.list(request).await.unwrap();
    let keys = page.items.iter().map(|item| item.key.as_str().to_owned());
    keys.collect()
}
