//! Each planted bug has the symptom of its issue, and the cluster without it has not.

use std::time::Duration;

use etcd_client::Client;
use watchet_simulation::etcd::{Config, PlantedBug};

use crate::harness::{Simulated, seconds};
use crate::watches::{from, is_silent, next, open, put, revisions};

fn start(bug: Option<PlantedBug>, members: usize) -> Simulated {
    let config = Config {
        members,
        snapshot_entries: 10,
        bugs: bug.into_iter().collect(),
        ..Config::default()
    };
    Simulated::start(config, 1)
}

async fn delete(client: &mut Client, key: &str) -> i64 {
    let answer = client.delete(key, None).await.unwrap();
    answer.header().unwrap().revision()
}

#[tokio::test(start_paused = true)]
async fn progress_ahead_of_events() {
    for bug in [None, Some(PlantedBug::ProgressAheadOfEvents)] {
        let simulated = start(bug, 1);
        let mut client = simulated.client(0).await;
        let last = put(&mut client, "a", "v").await;
        let (mut watch, _) = open(&mut client, from(1)).await;
        watch.request_progress().await.unwrap();
        let first = next(&mut watch).await;
        if bug.is_none() {
            assert_eq!(revisions(&first), [last]);
            continue;
        }
        assert_eq!((first.watch_id, first.events.len()), (-1, 0));
        assert_eq!(
            first.header.unwrap().revision,
            last,
            "the client believes it has the event"
        );
        assert_eq!(revisions(&next(&mut watch).await), [last]);
    }
}

#[tokio::test(start_paused = true)]
async fn slow_watch_skips_events() {
    for bug in [None, Some(PlantedBug::SlowWatchSkipsEvents)] {
        let simulated = start(bug, 3);
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
        simulated.cluster.compact(first + 20);
        simulated.cluster.heal();
        let response = next(&mut watch).await;
        if bug.is_none() {
            assert!(response.canceled);
            continue;
        }
        assert!(!response.canceled);
        let found = revisions(&response);
        assert_eq!(found.first(), Some(&(first + 20)), "19 events are missing");
    }
}

#[tokio::test(start_paused = true)]
async fn deletion_lost_by_compaction() {
    for bug in [None, Some(PlantedBug::DeletionLostByCompaction)] {
        let simulated = start(bug, 1);
        let mut client = simulated.client(0).await;
        put(&mut client, "a", "v").await;
        let deleted = delete(&mut client, "a").await;
        let last = put(&mut client, "a", "v").await;
        client.compact(deleted, None).await.unwrap();
        let (mut watch, _) = open(&mut client, from(deleted)).await;
        let expected = if bug.is_none() {
            vec![deleted, last]
        } else {
            vec![last]
        };
        assert_eq!(revisions(&next(&mut watch).await), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn deletion_lost_by_restart() {
    let bug = Some(PlantedBug::DeletionLostByRestart);
    for (bug, restarts, is_lost) in [(None, true, false), (bug, false, false), (bug, true, true)] {
        let simulated = start(bug, 1);
        let mut client = simulated.client(0).await;
        put(&mut client, "a", "v").await;
        let deleted = delete(&mut client, "a").await;
        client.compact(deleted, None).await.unwrap();
        if restarts {
            simulated.cluster.stop(0);
            simulated.cluster.restart(0);
            seconds(4).await;
        }
        let mut client = simulated.client(0).await;
        let (mut watch, _) = open(&mut client, from(deleted)).await;
        if is_lost {
            assert!(is_silent(&mut watch).await);
        } else {
            assert_eq!(revisions(&next(&mut watch).await), [deleted]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn progress_before_start() {
    for bug in [None, Some(PlantedBug::ProgressBeforeStart)] {
        let simulated = start(bug, 3);
        let (leader, member) = (simulated.cluster.leader().unwrap(), simulated.follower());
        simulated.cluster.set_lag(member, Duration::from_secs(600));
        let mut writer = simulated.client(leader).await;
        let last = put(&mut writer, "a", "v").await;
        let mut reader = simulated.client(member).await;
        let (mut watch, created_at) = open(&mut reader, from(last + 1)).await;
        assert!(created_at < last);
        watch.request_progress().await.unwrap();
        if bug.is_none() {
            assert!(is_silent(&mut watch).await);
        } else {
            let progress = next(&mut watch).await;
            assert_eq!((progress.watch_id, progress.events.len()), (-1, 0));
            assert_eq!(progress.header.unwrap().revision, created_at);
        }
    }
}
