//! The times of revisions, and the retention of history by its age and size. In real time: while the
//! writer's thread works, a paused clock would run ahead.

use super::*;
use crate::embedded::HistoryRetention;

/// The age and the size that are retained in these tests.
const AGE: Duration = Duration::from_secs(3);
const BYTES: u64 = 100_000;

/// Longer than a test of the size takes, and short enough that it is checked each second.
const LONG: Duration = Duration::from_secs(20);

/// The time limit of a compaction, which is due every second.
const PATIENCE: Duration = Duration::from_secs(30);

/// More than the precision of times.
const PRECISION: Duration = Duration::from_millis(1200);

fn retaining(time: Duration, bytes_max: u64) -> EmbeddedConfig {
    EmbeddedConfig {
        retention: Some(HistoryRetention { time, bytes_max }),
        ..EmbeddedConfig::default()
    }
}

/// Overwrites a key `count` times with `value_len` bytes, and returns the revisions and their times.
async fn write(store: &Embedded, count: usize, value_len: usize) -> Vec<(u64, Instant)> {
    let mut written = Vec::new();
    for _ in 0..count {
        let key = key("/pods/ns/a");
        let (found, _) = store.get(&key).await.unwrap();
        let put = Put {
            key,
            value: vec![b'x'; value_len].into(),
            expect: found.map_or(Expect::Absent, |found| Expect::At(found.mod_revision)),
            ttl: None,
        };
        let Ok(Outcome::Done(revision)) = store.put(put).await else {
            panic!("it is the only writer");
        };
        written.push((revision.get(), Instant::now()));
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    written
}

/// Runs `work` while `store` is maintained.
async fn maintained(store: &Embedded, work: impl Future<Output = ()>) {
    let cancel = CancellationToken::new();
    let work = async {
        work.await;
        cancel.cancel();
    };
    tokio::join!(store.maintain(cancel.clone()), work);
}

async fn compacted(store: &Embedded) -> u64 {
    store.compacted_revision().await.unwrap().get()
}

/// Waits until at most `max` revisions are retained.
async fn until_retained(store: &Embedded, max: u64) {
    let start = Instant::now();
    let newest = store.current_revision().await.unwrap().get();
    while newest - compacted(store).await > max {
        assert!(start.elapsed() < PATIENCE, "{}", compacted(store).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn history_is_retained_by_its_age() {
    let store = Embedded::in_memory_with(retaining(AGE, 1 << 30)).unwrap();
    maintained(&store, async {
        let written = write(&store, 8, 10).await;
        let (last, _) = written[7];
        loop {
            let compacted = compacted(&store).await;
            // The state before a revision is retained until that one is old.
            let removed = written.iter().rfind(|(revision, _)| *revision <= compacted);
            if let Some((_, at)) = removed {
                assert!(at.elapsed() >= AGE - PRECISION, "{:?}", at.elapsed());
            }
            if compacted == last {
                break;
            }
            let (_, since) = written[7];
            assert!(since.elapsed() < PATIENCE, "{compacted}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn history_is_retained_by_its_size() {
    let store = Embedded::in_memory_with(retaining(LONG, BYTES)).unwrap();
    maintained(&store, async {
        write(&store, 3, 10_000).await;
        tokio::time::sleep(PRECISION * 2).await;
        assert!(compacted(&store).await <= 1, "all of it is small enough");
        write(&store, 20, 10_000).await;
        until_retained(&store, 10).await;
        let newest = store.current_revision().await.unwrap().get();
        assert!(compacted(&store).await < newest, "some is retained");
    })
    .await;
}

/// Times are known after a restart, and the size of the history from before it counts.
#[tokio::test]
async fn times_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Embedded::open(directory.path(), retaining(LONG, BYTES)).unwrap();
    let store = open();
    maintained(&store, async { drop(write(&store, 5, 10_000).await) }).await;
    let before = store.times.newest().unwrap();
    assert_eq!(before.revision, store.current_revision().await.unwrap());
    assert!(before.written_bytes > 50_000, "{before:?}");
    drop(store);
    let store = open();
    assert_eq!(store.times.newest(), Some(before));
    assert_eq!(store.times.at(before.time_ms), Some(before));
    assert_eq!(store.times.of(before.revision), Some(before));
    maintained(&store, async {
        write(&store, 7, 10_000).await;
        until_retained(&store, 10).await;
    })
    .await;
}
