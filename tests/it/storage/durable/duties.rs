//! Tests of background tasks (compaction, flushing), and of watches that lag far behind.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, sleep};
use watchet::storage::embedded::Durability;
use watchet::storage::memory::Memory;
use watchet::storage::{Storage, StorageError};
use watchet::tasks::Tasks;

use super::super::support::{Follow, Maintained, PATIENCE, create, key, list, update};
use super::{Crashed, reopen, reopen_with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_one_to_two_intervals_long() {
    let interval = Duration::from_millis(500);
    let store: Arc<dyn Storage> = Memory::new(interval).unwrap();
    let _maintained = Maintained::start(&store);
    let first = create(&store, "/pods/ns/a", "one").await;
    sleep(interval / 5).await;
    let written = Instant::now();
    update(&store, "/pods/ns/a", first, "two").await;
    loop {
        match list(&store, "/pods/", Some(first)).await {
            Ok(_) => assert!(written.elapsed() < PATIENCE, "it is never compacted"),
            Err(StorageError::Compacted { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        sleep(Duration::from_millis(5)).await;
    }
    assert!(written.elapsed() >= interval, "{:?}", written.elapsed());
    let latest = list(&store, "/pods/", None).await.unwrap();
    assert_eq!(latest.items.len(), 1);
}

/// Returns true if the key `at` would survive a crash now.
async fn is_on_disk(directory: &std::path::Path, at: &str) -> bool {
    let crashed = Crashed::copy(directory);
    let store = reopen(crashed.path());
    store.get(&key(at)).await.unwrap().0.is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intervals_and_shutdown_flush() {
    for (durability, flushes_itself) in [
        (Durability::Interval(Duration::from_millis(50)), true),
        (Durability::None, false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let store = reopen_with(directory.path(), durability);
        create(&store, "/pods/ns/a", "one").await;
        assert!(
            !is_on_disk(directory.path(), "/pods/ns/a").await,
            "acknowledged before"
        );
        let tasks = Tasks::new();
        let (maintained, token) = (store.clone(), tasks.token());
        tasks.spawn("maintain", async move { maintained.maintain(token).await });
        if flushes_itself {
            let start = Instant::now();
            while !is_on_disk(directory.path(), "/pods/ns/a").await {
                assert!(start.elapsed() < PATIENCE, "it is never flushed");
                sleep(Duration::from_millis(10)).await;
            }
        }
        let made = create(&store, "/pods/ns/b", "two").await;
        tasks.drain(PATIENCE).await.unwrap();
        // The same for a process that ends without dropping the store.
        let crashed = Crashed::copy(directory.path());
        let copy = reopen(crashed.path());
        assert_eq!(
            copy.current_revision().await.unwrap(),
            made,
            "flushed at shutdown"
        );
        assert!(
            list(&copy, "/pods/", Some(made)).await.is_ok(),
            "history too"
        );
    }
}

/// A watch that lags by more than the events in memory reads the log, and then the events in memory again, while
/// writers continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_falls_far_behind_misses_nothing() {
    const WRITERS: usize = 32;
    const EACH: usize = 400;
    let store: Arc<dyn Storage> = Memory::new(Duration::ZERO).unwrap();
    let start = store.current_revision().await.unwrap();
    let mut slow = Follow::open(&store, "/pods/", start).await;
    let mut idle = Follow::open(&store, "/idle/", start).await;
    let tasks = Tasks::new();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tasks.spawn("writer", async move {
                for number in 0..EACH {
                    create(&store, &format!("/pods/{writer}/{number}"), "x").await;
                }
            })
        })
        .collect();
    let mut seen = slow.batch().await.unwrap().events.len();
    let mut writers = join_all(writers);
    let mut done = false;
    let end = (WRITERS * EACH) as u64 + start.get();
    while seen < WRITERS * EACH {
        tokio::select! {
            biased;
            _ = &mut writers, if !done => done = true,
            batch = slow.batch() => seen += batch.unwrap().events.len(),
        }
        // Slower than the writers: a batch has at most about a thousand events.
        if !done {
            sleep(Duration::from_millis(100)).await;
        }
    }
    assert_eq!(seen, WRITERS * EACH);
    let end = watchet::api::ResourceVersion::new(end);
    assert_eq!(store.current_revision().await.unwrap(), end);
    assert!(idle.until(end).await.is_empty());
    let mut replay = Follow::open(&store, "/pods/", start).await;
    assert_eq!(replay.until(end).await.len(), WRITERS * EACH);
}
