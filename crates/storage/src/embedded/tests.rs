//! Tests of internals: the tables after compaction, and disk failures. The integration tests cover
//! the behaviour that clients see.

use std::io;
use std::sync::atomic::AtomicBool;

use futures_util::{FutureExt as _, StreamExt as _};
use redb::ReadableTableMetadata as _;

use super::tables::Tables;
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
    let start = Instant::now();
    loop {
        let sizes = store.data.read(|snapshot| {
            let collected = snapshot.collected == snapshot.compacted;
            let sizes = (snapshot.log.len()?, snapshot.current.len()?);
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
    }
    let compared = store.data.read(|snapshot| {
        let first = snapshot.compacted.max(1) + 1;
        for prefix in ["/a/", "/b/", "/bc/ns/", "/b/ns/3", "/none/"].map(key) {
            let from = random.u64(first..=snapshot.revision);
            let to = random.u64(from..=snapshot.revision);
            let (walked, read) = snapshot.history_of(|key| prefix.covers(key), from, to)?;
            let walked: Vec<_> = walked.iter().map(|event| event.revision.get()).collect();
            let found = snapshot.revisions_of_few(&prefix, from, read)?;
            assert_eq!(found, Some(walked), "{prefix} {from} {to}");
        }
        // The result is the same with both methods.
        let prefix = key("/b/");
        let all = snapshot.history(&prefix, first, snapshot.revision)?;
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

/// Readers see a commit before it is published. A progress response must not have a lower revision
/// than a reader has seen.
#[tokio::test]
async fn progress_includes_committed_unpublished_revisions() {
    let data = Arc::new(Data::on(Sparse::default()).unwrap());
    let hub = Arc::new(Hub::new(1));
    let cursor = Cursor::new(hub.clone(), &data, Tasks::new(), key("/idle/"), 1);
    let mut watch = cursor.into_watch();
    let txn = data.begin_write(true).unwrap();
    let mut tables = Tables::open(&txn).unwrap();
    let put = Put {
        key: key("/noise/ns/a"),
        value: Default::default(),
        expect: Expect::Absent,
        ttl: None,
    };
    tables.put(put, 0).unwrap();
    let (numbers, events, _) = tables.finish().unwrap();
    txn.commit().unwrap();
    watch.progress.request();
    for _ in 0..3 {
        assert!(watch.batches.next().now_or_never().is_none(), "too early");
    }
    hub.publish(events);
    let batch = watch.batches.next().await.unwrap().unwrap();
    assert_eq!(batch.revision.get(), numbers.revision);
    assert!(batch.events.is_empty());
}

/// The newest revision is at least one that a reader has seen before its publication.
#[tokio::test]
async fn newest_revision_includes_what_readers_have_seen() {
    let store = Embedded::in_memory(Duration::ZERO).unwrap();
    let newest = || store.known_revision().unwrap().unwrap().get();
    let acknowledged = done(&store, "/pods/ns/a", Expect::Absent).await.get();
    assert_eq!(newest(), acknowledged);
    let txn = store.data.begin_write(true).unwrap();
    let mut tables = Tables::open(&txn).unwrap();
    let put = Put {
        key: key("/pods/ns/b"),
        value: Default::default(),
        expect: Expect::Absent,
        ttl: None,
    };
    tables.put(put, 0).unwrap();
    tables.finish().unwrap();
    txn.commit().unwrap();
    assert_eq!(newest(), acknowledged, "no reader has seen it");
    let (shown, at) = store.get(&key("/pods/ns/b")).await.unwrap();
    assert!(shown.is_some());
    assert_eq!((newest(), at.get()), (acknowledged + 1, acknowledged + 1));
}

/// A disk whose writes fail on request.
#[derive(Debug, Clone)]
struct FailingDisk {
    disk: Arc<Sparse>,
    failing: Arc<AtomicBool>,
}

impl FailingDisk {
    fn check(&self) -> io::Result<()> {
        if self.failing.load(Ordering::SeqCst) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }
}

impl StorageBackend for FailingDisk {
    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.disk.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        self.disk.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.disk.write(offset, data)
    }
}

#[tokio::test]
async fn a_failing_disk_acknowledges_nothing() {
    let failing = Arc::new(AtomicBool::new(false));
    let disk = FailingDisk {
        disk: Arc::default(),
        failing: failing.clone(),
    };
    let store = Embedded::on(disk, Duration::ZERO).unwrap();
    let first = done(&store, "/pods/ns/a", Expect::Absent).await;
    let mut watch = store.watch(&key("/pods/"), first).await.unwrap();

    failing.store(true, Ordering::SeqCst);
    let unsure = put(&store, "/pods/ns/b", Expect::Absent).await;
    assert!(
        matches!(unsure, Err(StorageError::Unavailable(_))),
        "{unsure:?}"
    );
    failing.store(false, Ordering::SeqCst);
    let refused = put(&store, "/pods/ns/c", Expect::Absent).await;
    match refused {
        Err(StorageError::Failed(text)) => assert!(text.contains("opened again"), "{text}"),
        other => panic!("{other:?}"),
    }
    let refused = store.delete(&key("/pods/ns/a"), first).await;
    assert!(
        matches!(refused, Err(StorageError::Failed(_))),
        "{refused:?}"
    );
    assert!(
        watch.batches.next().now_or_never().is_none(),
        "nothing happened"
    );
    drop(store);
    let end = watch.batches.next().await;
    assert!(
        matches!(end, Some(Err(StorageError::Unavailable(_)))),
        "{end:?}"
    );
    assert!(watch.batches.next().await.is_none());
}

/// Returns a store on a disk that fails on request.
fn on_a_failing_disk(durability: Durability) -> (Arc<Embedded>, Arc<AtomicBool>) {
    let failing = Arc::new(AtomicBool::new(false));
    let disk = FailingDisk {
        disk: Arc::default(),
        failing: failing.clone(),
    };
    let again = disk.clone();
    let opener = move || {
        let opened = redb::Builder::new().create_with_backend(again.clone());
        opened.map_err(|error| OpenError::io(Path::new("disk"), io::Error::other(error)))
    };
    let data = Data::on(disk).unwrap().with_opener(Box::new(opener));
    let config = EmbeddedConfig {
        durability,
        compaction_interval: Duration::ZERO,
    };
    let store = Embedded::start("test", config, data, None).unwrap();
    (Arc::new(store), failing)
}

fn maintain(store: &Arc<Embedded>) {
    let tasks = Tasks::new();
    let (maintained, stop) = (store.clone(), tasks.token());
    tasks.spawn("maintain", async move { maintained.maintain(stop).await });
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
        let to = snapshot.revision;
        let few = |from| snapshot.revisions_of_few(&key("/a/"), from, to);
        Ok((few(1)?.is_some(), few(to - 1)?.map(|found| found.len())))
    });
    assert_eq!(found.unwrap(), (false, Some(2)));
}

/// Advances the paused time until `done`, and lets the writer thread, which runs in real time,
/// work.
async fn until(done: impl AsyncFn() -> bool) {
    for _ in 0..5000 {
        if done().await {
            return;
        }
        tokio::time::sleep(writer::REOPEN_PAUSE).await;
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the condition is never met");
}

/// After a full disk the store recovers by itself, with or without the unacknowledged write, and
/// its watches report the outcome.
#[tokio::test(start_paused = true)]
async fn store_recovers_once_its_disk_works() {
    let (store, failing) = on_a_failing_disk(Durability::Fsync);
    maintain(&store);
    let first = done(&store, "/pods/ns/a", Expect::Absent).await;
    let mut watch = store.watch(&key("/pods/"), first).await.unwrap();

    failing.store(true, Ordering::SeqCst);
    put(&store, "/pods/ns/b", Expect::Absent).await.unwrap_err();
    put(&store, "/pods/ns/c", Expect::Absent).await.unwrap_err();
    // Attempts to open it fail.
    tokio::time::sleep(3 * writer::REOPEN_PAUSE).await;
    put(&store, "/pods/ns/c", Expect::Absent).await.unwrap_err();
    // The health check fails.
    store.current_revision().await.unwrap_err();
    failing.store(false, Ordering::SeqCst);
    until(async || store.get(&key("/pods/ns/a")).await.is_ok()).await;
    let (a, _) = store.get(&key("/pods/ns/a")).await.unwrap();
    assert_eq!(a.unwrap().mod_revision, first);
    let (b, _) = store.get(&key("/pods/ns/b")).await.unwrap();
    let c = done(&store, "/pods/ns/c", Expect::Absent).await;
    let mut events = Vec::new();
    while events.last() != Some(&c) {
        let batch = watch.batches.next().await.unwrap().unwrap();
        events.extend(batch.events.into_iter().map(|event| event.revision));
    }
    let expect: Vec<_> = b.map(|b| b.mod_revision).into_iter().chain([c]).collect();
    assert_eq!(events, expect, "each change, once, in order");
}

/// With interval durability, the flush each second prevented the store from being opened again.
/// Unflushed writes may be lost; their revisions are not reused.
#[tokio::test(start_paused = true)]
async fn store_with_interval_durability_recovers() {
    let (store, failing) = on_a_failing_disk(Durability::Interval(Duration::from_secs(1)));
    let flushed = done(&store, "/pods/ns/flushed", Expect::Absent).await;
    store.execute(Op::Flush).await.unwrap();
    let mut watch = store.watch(&key("/pods/"), flushed).await.unwrap();
    let lost = done(&store, "/pods/ns/lost", Expect::Absent).await;
    failing.store(true, Ordering::SeqCst);
    store.execute(Op::Flush).await.unwrap_err();
    failing.store(false, Ordering::SeqCst);
    maintain(&store);
    until(async || store.status.failed().is_none()).await;

    let (found, at) = store.get(&key("/pods/ns/flushed")).await.unwrap();
    assert_eq!(found.unwrap().mod_revision, flushed);
    assert!(at > lost, "{at} after {lost}");
    assert_eq!(store.get(&key("/pods/ns/lost")).await.unwrap().0, None);
    let mut revisions = Vec::new();
    let end = loop {
        match watch.batches.next().await.unwrap() {
            Ok(batch) => revisions.extend(batch.events.into_iter().map(|event| event.revision)),
            Err(error) => break error,
        }
    };
    assert!(revisions.is_empty() || revisions == [lost], "{revisions:?}");
    assert!(matches!(end, StorageError::Unavailable(_)), "{end}");
    let resumed = store.watch(&key("/pods/"), lost).await;
    assert!(
        matches!(resumed, Err(StorageError::Compacted { .. })),
        "{resumed:?}"
    );
    let mut watch = store.watch(&key("/pods/"), at).await.unwrap();
    let made = done(&store, "/pods/ns/new", Expect::Absent).await;
    assert_eq!(made, at.next());
    let batch = watch.batches.next().await.unwrap().unwrap();
    assert_eq!(batch.events[0].revision, made);
}
