//! Tests of the `etcd` back end when etcd crashes, hangs or is unreachable: calls fail in bounded time with the correct
//! error, and acknowledged writes are stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::{Instant, timeout};
use watchet::api::ResourceVersion;
use watchet::storage::etcd3::{ConnectError, Etcd3, Etcd3Config};
use watchet::storage::{Expect, Outcome, Storage, StorageError, StorageWatch};
use watchet::tasks::Tasks;

use super::etcd::EtcdProcess;
use super::support::{Follow, Maintained, PATIENCE, create, describe, key, put};

/// Reads until the watch fails and returns the error.
async fn end_of(watch: &mut StorageWatch) -> StorageError {
    loop {
        let item = timeout(PATIENCE, watch.batches.next()).await;
        match item
            .expect("the watch notices")
            .expect("an error comes before the end")
        {
            Ok(batch) => assert!(batch.events.is_empty(), "{batch:?}"),
            Err(error) => {
                assert!(
                    watch.batches.next().await.is_none(),
                    "nothing follows an error"
                );
                return error;
            }
        }
    }
}

#[tokio::test]
async fn a_crash_ends_the_watch_and_a_new_one_has_no_gap() {
    let mut process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let start = store.current_revision().await.unwrap();
    let mut watch = Follow::open(&store, "/pods/", start).await;
    for number in 0..3 {
        create(&store, &format!("/pods/ns/{number}"), "before").await;
    }
    let last = watch.events(3).await[2].revision;
    let missed = create(&store, "/pods/ns/missed", "x").await;
    // The event may or may not have arrived; the resumed watch must have it in both cases.
    process.kill();
    loop {
        match watch.batch().await {
            Ok(batch) => assert!(batch.revision <= missed),
            Err(error) => {
                assert!(matches!(error, StorageError::Unavailable(_)), "{error}");
                break;
            }
        }
    }
    let refused = store.get(&key("/pods/ns/0")).await.unwrap_err();
    assert!(matches!(&refused, StorageError::Unavailable(text) if text.contains(process.url())));
    process.restart().await;
    revision(&store).await;
    let mut resumed = Follow::open(&store, "/pods/", last).await;
    create(&store, "/pods/ns/after", "x").await;
    assert_eq!(
        describe(&resumed.events(2).await),
        ["/pods/ns/missed=x was -", "/pods/ns/after=x was -"]
    );
}

/// Writers continue through three crashes: acknowledged writes are stored, unacknowledged ones may be, and no write is
/// executed twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_crashes() {
    let mut process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let tasks = Tasks::new();
    let made = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (store, token, made) = (store.clone(), tasks.token(), made.clone());
            tasks.spawn("writer", async move {
                let mut acknowledged = Vec::new();
                let mut unknown = 0;
                let mut number = 0;
                while !token.is_cancelled() {
                    let at = format!("/pods/{writer}/{number}");
                    number += 1;
                    match put(&store, &at, "x", Expect::Absent).await {
                        Ok(Outcome::Done(revision)) => {
                            acknowledged.push((at, revision));
                            made.fetch_add(1, Ordering::Relaxed);
                        }
                        // A repeated write would be refused.
                        Ok(refused) => panic!("{at} was made twice: {refused:?}"),
                        Err(StorageError::Unavailable(_) | StorageError::OutcomeUnknown(_)) => {
                            unknown += 1;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                (acknowledged, unknown)
            })
        })
        .collect();
    // Writes before, between and after the crashes.
    for crash in 1..=4 {
        let written = async {
            while made.load(Ordering::Relaxed) < 100 * crash {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, written).await.expect("they write");
        if crash < 4 {
            process.kill();
            process.restart().await;
        }
    }
    tasks.cancel();
    let mut total = 0;
    for writer in writers {
        let (acknowledged, unknown) = timeout(PATIENCE, writer).await.unwrap().unwrap();
        println!("{} acknowledged, {unknown} unknown", acknowledged.len());
        for (at, revision) in &acknowledged {
            let (found, _) = store.get(&key(at)).await.unwrap();
            assert_eq!(found.unwrap().create_revision, *revision, "{at}");
        }
        total += acknowledged.len();
    }
    assert!(total >= 400, "writers wrote: {total}");
}

/// A stopped process does not close its connections: only keepalive detects it.
#[tokio::test]
async fn hanging_connection_is_detected() {
    let process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let start = store.current_revision().await.unwrap();
    let mut watch = store.watch(&key("/pods/"), start).await.unwrap();
    process.pause();
    let at = key("/pods/ns/a");
    let write = put(&store, "/pods/ns/a", "x", Expect::Absent);
    let all = async { tokio::join!(end_of(&mut watch), write, store.get(&at)) };
    let noticed = timeout(PATIENCE, all).await;
    let (ended, written, read) = noticed.expect("the failure is noticed in time");
    for error in [ended, read.unwrap_err()] {
        assert!(matches!(error, StorageError::Unavailable(_)), "{error}");
    }
    // The process received the creation, and may execute it when it continues.
    let error = written.unwrap_err();
    assert!(matches!(error, StorageError::OutcomeUnknown(_)), "{error}");
    process.resume();
    // The outcome of the write in flight is unknown: it is stored once or not at all.
    let deadline = Instant::now() + PATIENCE;
    let found = loop {
        match store.get(&key("/pods/ns/a")).await {
            Ok((found, _)) => break found,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    if let Some(found) = found {
        assert_eq!(found.create_revision, found.mod_revision);
    }
    let mut resumed = Follow::open(&store, "/pods/", start).await;
    create(&store, "/pods/ns/z", "x").await;
    loop {
        let batch = resumed.batch().await.unwrap();
        if batch
            .events
            .iter()
            .any(|event| event.key == key("/pods/ns/z"))
        {
            break;
        }
    }
}

/// etcd closes connections of clients that ping too often. An idle watch must not be closed.
#[tokio::test]
async fn idle_watch_is_not_restarted() {
    let process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let start = store.current_revision().await.unwrap();
    let mut watch = store.watch(&key("/pods/"), start).await.unwrap();
    // Four keepalive intervals; etcd tolerates two pings without data.
    let ended = timeout(Duration::from_secs(25), watch.batches.next()).await;
    assert!(ended.is_err(), "{ended:?}");
    create(&store, "/pods/ns/a", "x").await;
    let batch = timeout(PATIENCE, watch.batches.next()).await.unwrap();
    assert_eq!(batch.unwrap().unwrap().events.len(), 1);
}

#[tokio::test]
async fn unreachable_endpoint_is_skipped() {
    let process = EtcdProcess::start(&[]).await;
    let config = Etcd3Config {
        endpoints: vec!["http://127.0.0.1:1".into(), process.url().into()],
        ..process.config()
    };
    let store: Arc<dyn Storage> = Etcd3::connect(config).await.unwrap();
    assert!(!store.progress_supported(), "a member is unknown");
    let start = store.current_revision().await.unwrap();
    let mut watch = Follow::open(&store, "/pods/", start).await;
    for number in 0..20 {
        create(&store, &format!("/pods/ns/{number}"), "x").await;
    }
    assert_eq!(watch.events(20).await.len(), 20);
}

/// Returns the revision once etcd, which has been started again, has a leader.
pub(super) async fn revision(store: &Arc<dyn Storage>) -> ResourceVersion {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match store.current_revision().await {
            Ok(revision) => return revision,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

/// A member that failed may run another version afterwards, so its version is requested again before its progress
/// responses are used. A watch that was opened in between uses the result.
#[tokio::test]
async fn progress_is_reported_again_after_a_crash() {
    let mut process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    process.kill();
    store.get(&key("/pods/ns/a")).await.unwrap_err();
    assert!(
        store.progress_supported(),
        "silence is no sign of another version"
    );
    process.restart().await;
    let start = revision(&store).await;
    let mut watch = Follow::open(&store, "/pods/", start).await;
    let _maintained = Maintained::start(&store);
    let noise = create(&store, "/noise/ns/a", "x").await;
    assert!(watch.until(noise).await.is_empty());
}

#[tokio::test]
async fn unreachable_members_are_named() {
    let config = Etcd3Config {
        endpoints: vec!["127.0.0.1:1".into(), "http://127.0.0.1:2".into()],
        ..Etcd3Config::default()
    };
    let connecting = timeout(PATIENCE, Etcd3::connect(config)).await;
    let error = connecting.expect("it gives up").unwrap_err();
    assert!(matches!(&error, ConnectError::Unreachable { failures } if failures.len() == 2));
    let text = error.to_string();
    assert!(
        text.contains("127.0.0.1:1") && text.contains("127.0.0.1:2"),
        "{text}"
    );
    assert!(text.contains("refused"), "{text}");
}
