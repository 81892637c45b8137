//! The times of revisions, and the retention of history by its age and size.

use super::*;
use crate::embedded::HistoryRetention;

const RETENTION: Duration = Duration::from_secs(60);

fn retaining(bytes_max: u64) -> EmbeddedConfig {
    EmbeddedConfig {
        retention: Some(HistoryRetention {
            time: RETENTION,
            bytes_max,
        }),
        ..EmbeddedConfig::default()
    }
}

/// Overwrites a key with `value_len` bytes each second.
async fn write_for(store: &Embedded, seconds: u64, value_len: usize) {
    for _ in 0..seconds {
        let key = StorageKey::new("/pods/ns/a").unwrap();
        let (found, _) = store.get(&key).await.unwrap();
        let put = Put {
            key,
            value: vec![b'x'; value_len].into(),
            expect: found.map_or(Expect::Absent, |found| Expect::At(found.mod_revision)),
            ttl: None,
        };
        assert!(matches!(store.put(put).await, Ok(Outcome::Done(_))));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Runs `work` while `store` is maintained.
async fn maintained(store: &Arc<Embedded>, work: impl Future<Output = ()>) {
    let cancel = CancellationToken::new();
    let maintain = store.maintain(cancel.clone());
    let work = async {
        work.await;
        cancel.cancel();
    };
    tokio::join!(maintain, work);
}

async fn retained(store: &Embedded) -> u64 {
    let newest = store.current_revision().await.unwrap().get();
    newest - store.compacted_revision().await.unwrap().get()
}

#[tokio::test(start_paused = true)]
async fn history_is_retained_by_its_age() {
    let store = Arc::new(Embedded::in_memory_with(retaining(1 << 30)).unwrap());
    maintained(&store, write_for(&store, 40, 10)).await;
    assert_eq!(store.compacted_revision().await.unwrap().get(), 1);
    maintained(&store, write_for(&store, 200, 10)).await;
    let retained = retained(&store).await;
    assert!((58..=66).contains(&retained), "{retained}");
    // The time of each state that can be read is known, to a second.
    let times = store.revision_times().unwrap();
    let newest = store.current_revision().await.unwrap();
    let at = times.of(ResourceVersion::new(newest.get() - 30)).unwrap();
    let last = times.of(newest).unwrap();
    assert!(
        (29_000..=31_000).contains(&(last.time_ms - at.time_ms)),
        "{at:?} {last:?}"
    );
    assert_eq!(times.at(at.time_ms), Some(at));
}

#[tokio::test(start_paused = true)]
async fn history_is_retained_by_its_size() {
    let store = Arc::new(Embedded::in_memory_with(retaining(100_000)).unwrap());
    maintained(&store, write_for(&store, 50, 10_000)).await;
    let retained = retained(&store).await;
    assert!((6..=14).contains(&retained), "{retained}");
}

/// Times are known after a restart, and the size of the history from before it counts.
#[tokio::test(start_paused = true)]
async fn times_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Embedded::open(directory.path(), retaining(100_000)).unwrap();
    let store = open();
    maintained(&store, write_for(&store, 5, 10_000)).await;
    let before = store.times.newest();
    let revision = store.current_revision().await.unwrap();
    assert_eq!(before.unwrap().revision, revision);
    drop(store);
    let store = open();
    assert_eq!(store.times.newest(), before);
    assert_eq!(store.times.at(before.unwrap().time_ms), before);
    maintained(&store, write_for(&store, 8, 10_000)).await;
    let retained = retained(&store).await;
    assert!((6..=12).contains(&retained), "{retained}");
}
