//! Watches of the simulated cluster: catching up, compaction, progress, fragments, slow readers and lagging members.

use std::time::Duration;

use etcd_client::proto::PbWatchResponse;
use etcd_client::{Client, WatchOptions, WatchStream};
use tokio::time::{Instant, timeout};
use watchet_simulation::etcd::Config;

use crate::harness::{Simulated, seconds};

pub(crate) async fn put(client: &mut Client, key: &str, value: impl Into<Vec<u8>>) -> i64 {
    let answer = client.put(key, value, None).await.unwrap();
    answer.header().unwrap().revision()
}

/// Opens a watch of one key and reads the first response.
pub(crate) async fn open(client: &mut Client, options: WatchOptions) -> (WatchStream, i64) {
    let mut watch = client.watch("a", Some(options)).await.unwrap();
    let created = watch.message().await.unwrap().unwrap();
    assert!(created.created() && !created.canceled(), "{created:?}");
    (watch, created.header().unwrap().revision())
}

pub(crate) async fn next(watch: &mut WatchStream) -> PbWatchResponse {
    let response = timeout(Duration::from_secs(60), watch.message()).await;
    response.expect("a response").unwrap().expect("open").0
}

/// Returns true if the watch has no response within a minute.
pub(crate) async fn is_silent(watch: &mut WatchStream) -> bool {
    timeout(Duration::from_secs(60), watch.message())
        .await
        .is_err()
}

pub(crate) fn revisions(response: &PbWatchResponse) -> Vec<i64> {
    let kvs = response.events.iter().filter_map(|event| event.kv.as_ref());
    kvs.map(|kv| kv.mod_revision).collect()
}

pub(crate) fn from(revision: i64) -> WatchOptions {
    WatchOptions::new().with_start_revision(revision)
}

fn header_revision(response: &PbWatchResponse) -> i64 {
    response.header.as_ref().unwrap().revision
}

#[tokio::test(start_paused = true)]
async fn watch_below_the_compacted_revision_is_canceled() {
    let simulated = Simulated::start(Config::default(), 1);
    let mut client = simulated.client(0).await;
    for _ in 0..5 {
        put(&mut client, "a", "v").await;
    }
    let last = simulated.cluster.revision();
    assert!(simulated.cluster.compact(last - 1));
    assert!(!simulated.cluster.compact(last - 1), "compacted already");
    seconds(1).await;
    let (mut watch, _) = open(&mut client, from(last - 2)).await;
    let canceled = next(&mut watch).await;
    assert_eq!(
        (canceled.canceled, canceled.compact_revision),
        (true, last - 1)
    );
    let (mut watch, _) = open(&mut client, from(last - 1).with_prev_key()).await;
    let events = next(&mut watch).await;
    assert_eq!(revisions(&events), [last - 1, last]);
    assert!(events.events[0].prev_kv.is_none(), "compacted");
    assert!(events.events[1].prev_kv.is_some());
}

/// A member that receives a snapshot loses the events in between, so its watches catch up from the new state.
#[tokio::test(start_paused = true)]
async fn snapshot_of_a_member_cancels_watches_below_the_compacted_revision() {
    for (compacts, seed) in [(true, 2), (false, 3)] {
        let config = Config {
            snapshot_entries: 10,
            ..Config::default()
        };
        let simulated = Simulated::start(config, seed);
        let (leader, member) = (simulated.cluster.leader().unwrap(), simulated.follower());
        let mut writer = simulated.client(leader).await;
        let first = put(&mut writer, "a", "v").await;
        let mut reader = simulated.client(member).await;
        reader.get("a", None).await.unwrap();
        let (mut watch, _) = open(&mut reader, from(0)).await;
        simulated.cluster.isolate(member);
        for _ in 0..30 {
            put(&mut writer, "a", "v").await;
        }
        if compacts {
            simulated.cluster.compact(first + 20);
        }
        simulated.cluster.heal();
        let response = next(&mut watch).await;
        if compacts {
            assert_eq!(
                (response.canceled, response.compact_revision),
                (true, first + 20)
            );
        } else {
            let expected: Vec<i64> = (first + 1..=first + 30).collect();
            assert_eq!(revisions(&response), expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn progress_is_reported_at_the_interval_unless_events_were_sent() {
    let config = Config {
        progress_notify_interval: Duration::from_secs(5),
        ..Config::default()
    };
    let simulated = Simulated::start(config, 4);
    let mut client = simulated.client(0).await;
    let (mut watch, revision) = open(&mut client, from(0).with_progress_notify()).await;
    let began = Instant::now();
    for _ in 0..3 {
        let progress = next(&mut watch).await;
        assert!(progress.events.is_empty() && progress.watch_id == 0);
        assert_eq!(header_revision(&progress), revision);
    }
    assert!(
        (15..=17).contains(&began.elapsed().as_secs()),
        "{:?}",
        began.elapsed()
    );
    put(&mut client, "a", "v").await;
    assert_eq!(next(&mut watch).await.events.len(), 1);
    let began = Instant::now();
    assert_eq!(header_revision(&next(&mut watch).await), revision + 1);
    assert!(
        began.elapsed().as_secs() >= 9,
        "{:?}: the next interval has none",
        began.elapsed()
    );
    let (mut without, _) = open(&mut client, from(0)).await;
    assert!(is_silent(&mut without).await);
}

#[tokio::test(start_paused = true)]
async fn requested_progress_waits_until_the_watch_is_synced() {
    let simulated = Simulated::start(Config::default(), 5);
    let mut client = simulated.client(0).await;
    let last = put(&mut client, "a", "v").await;
    let (mut watch, _) = open(&mut client, from(1)).await;
    watch.request_progress().await.unwrap();
    assert_eq!(revisions(&next(&mut watch).await), [last]);
    assert!(is_silent(&mut watch).await, "the request is dropped");
    watch.request_progress().await.unwrap();
    let progress = next(&mut watch).await;
    assert_eq!((progress.watch_id, header_revision(&progress)), (-1, last));
}

#[tokio::test(start_paused = true)]
async fn large_response_is_fragmented_if_the_client_asks() {
    let simulated = Simulated::start(Config::default(), 6);
    let mut client = simulated.client(0).await;
    for _ in 0..8 {
        put(&mut client, "a", vec![b'v'; 900 << 10]).await;
    }
    let (mut watch, last) = open(&mut client, from(1).with_fragment()).await;
    let mut parts = Vec::new();
    while parts
        .last()
        .is_none_or(|part: &PbWatchResponse| part.fragment)
    {
        parts.push(next(&mut watch).await);
    }
    assert_eq!(parts.len(), 4, "two events of 900 KiB fit into 2 MiB");
    let all: Vec<i64> = parts.iter().flat_map(revisions).collect();
    assert_eq!(all, (last - 7..=last).collect::<Vec<_>>());
    let mut whole = simulated
        .client(0)
        .await
        .watch_client()
        .max_decoding_message_size(64 << 20);
    let mut watch = whole.watch("a", Some(from(1))).await.unwrap();
    assert!(next(&mut watch).await.created);
    assert_eq!(next(&mut watch).await.events.len(), 8);
}

/// The stream of a client that does not read fills up: 128 responses and the flow-control windows.
#[tokio::test(start_paused = true)]
async fn slow_reader_misses_nothing() {
    let simulated = Simulated::start(Config::default(), 7);
    let mut client = simulated.client(0).await;
    let (mut watch, start) = open(&mut client, from(0).with_fragment()).await;
    let mut writer = simulated.client(0).await;
    for _ in 0..600 {
        put(&mut writer, "a", vec![b'v'; 20 << 10]).await;
    }
    let mut seen = Vec::new();
    let mut largest = 0;
    while seen.len() < 600 {
        let events = revisions(&next(&mut watch).await);
        largest = largest.max(events.len());
        seen.extend(events);
    }
    assert_eq!(seen, (start + 1..=start + 600).collect::<Vec<_>>());
    assert!(largest > 1, "it caught up in larger steps");
}

#[tokio::test(start_paused = true)]
async fn watch_of_a_lagging_member_lags() {
    let simulated = Simulated::start(Config::default(), 8);
    let (leader, member) = (simulated.cluster.leader().unwrap(), simulated.follower());
    simulated.cluster.set_lag(member, Duration::from_secs(3));
    let mut reader = simulated.client(member).await;
    let (mut watch, start) = open(&mut reader, from(0)).await;
    let mut writer = simulated.client(leader).await;
    let last = put(&mut writer, "a", "v").await;
    let began = Instant::now();
    let (_, created_at) = open(&mut reader, from(0)).await;
    assert_eq!(created_at, start, "the member's revision");
    assert_eq!(revisions(&next(&mut watch).await), [last]);
    assert!(began.elapsed().as_millis() >= 2900, "{:?}", began.elapsed());
}
