//! Tests of slow readers and of slow or silent storage.

use super::*;

/// Describes the next items of a watch.
async fn next(watch: &mut CacheWatcher) -> Vec<String> {
    let items = tokio::time::timeout(Duration::from_secs(1), watch.next()).await;
    let items = items.expect("there is more").expect("the watch is open");
    items.iter().map(describe).collect()
}

/// Cuts storage off, runs `during`, and compacts history before storage is back.
async fn relist(f: &Fixture, during: impl FnOnce()) {
    f.storage.set_down(true);
    during();
    f.storage.compact_to(f.storage.revision());
    tokio::time::sleep(Duration::from_secs(2)).await;
    f.storage.set_down(false);
    tokio::time::sleep(Duration::from_secs(20)).await;
}

/// WC-160: reads 2,000 objects slowly while all of them change.
#[tokio::test(start_paused = true)]
async fn objects_that_change_during_initial_events_follow_them() {
    let f = Fixture::start();
    let keys: Vec<String> = (0..2000).map(|n| format!("ns/p{n:04}")).collect();
    for key in &keys {
        f.put(key, "web", "n1");
    }
    f.wait_until_synced().await;
    let mut watch = f.watch(everything(), watch_list()).await;
    let mut words = Vec::new();
    for part in keys.chunks(500) {
        words.extend(next(&mut watch).await);
        for key in part {
            f.put(key, "db", "n1");
        }
        f.wait_until_synced().await;
    }
    words.extend(drain(&mut watch).await);
    let events = |kind: &str, first: usize| -> Vec<String> {
        let words = keys.iter().enumerate();
        words
            .map(|(n, key)| format!("{kind} {key}@{}", first + n))
            .collect()
    };
    let end = vec!["BOOKMARK @2001 end".to_owned()];
    let expected = [events("ADDED", 2), end, events("MODIFIED", 2002)].concat();
    assert!(
        words == expected,
        "{:?}",
        words.iter().zip(&expected).find(|(a, b)| a != b)
    );
}

/// WC-184, WC-185: a watch in its initial state, or parked, ends if a relist cannot replay events.
#[tokio::test(start_paused = true)]
async fn wc_184_185_lagging_watches_end_after_lost_history() {
    let f = Fixture::start();
    f.wait_until_synced().await;
    for n in 0..600 {
        f.put(&format!("ns/p{n:03}"), "web", "n1");
    }
    f.wait_until_synced().await;
    let start = f.storage.revision();
    let mut initial = f.watch(everything(), watch_list()).await;
    assert_eq!(next(&mut initial).await.len(), 500);
    let mut parked = f.watch(everything(), from(start)).await;
    assert!(drain(&mut parked).await.is_empty());
    relist(&f, || {
        f.delete("ns/p000");
        f.put("ns/p001", "db", "n1");
    })
    .await;
    let expired = ["ERROR too old resource version: 601 (603)", "END"];
    let words = drain(&mut initial).await;
    assert_eq!(words[100], format!("BOOKMARK @{start} end"));
    assert_eq!(words[101..], expired);
    assert_eq!(drain(&mut parked).await, expired);
}

/// WC-185: storage went back in time, so that there are no events.
#[tokio::test(start_paused = true)]
async fn relist_after_going_back_in_time_ends_lagging_watches() {
    let f = Fixture::start();
    for n in 0..600 {
        f.put(&format!("ns/p{n:03}"), "web", "n1");
    }
    f.wait_until_synced().await;
    let mut initial = f.watch(everything(), watch_list()).await;
    assert_eq!(next(&mut initial).await.len(), 500);
    let mut live = f.watch(everything(), from(rv(601))).await;
    assert!(drain(&mut live).await.is_empty());
    f.storage.restore(rv(300));
    tokio::time::sleep(Duration::from_secs(30)).await;
    let expired = ["ERROR too old resource version: 601 (300)", "END"];
    assert_eq!(drain(&mut live).await, expired);
    let words = drain(&mut initial).await;
    assert_eq!(words[100], "BOOKMARK @601 end", "the initial state ends");
    assert_eq!(words[101..], expired);
}

/// WC-187: the events before history is trimmed are a prefix, and a 410 ends the watch.
#[tokio::test(start_paused = true)]
async fn trimmed_history_ends_a_reader_with_one_410() {
    let config = CacherConfig {
        history_bytes_max: 400_000,
        ..CacherConfig::default()
    };
    let f = Fixture::over(FakeStorage::new(), config);
    f.wait_until_synced().await;
    for n in 0..600 {
        f.put(&format!("ns/p{}", n % 50), "web", "n1");
    }
    f.wait_until_synced().await;
    let mut watch = f.watch(everything(), from(rv(1))).await;
    let first = next(&mut watch).await;
    for n in 0..2000 {
        f.put(&format!("ns/p{}", n % 50), "web", "n1");
        if n % 100 == 0 {
            f.wait_until_synced().await;
        }
    }
    f.wait_until_synced().await;
    for (index, describe) in first.iter().enumerate() {
        assert!(
            describe.ends_with(&format!("@{}", index + 2)),
            "{describe} is {index}"
        );
    }
    let words = drain(&mut watch).await;
    assert_eq!(words.len(), 2, "{words:?}");
    let position = first.len() + 1;
    let expected = format!("ERROR too old resource version: {position} (");
    assert!(words[0].starts_with(&expected), "{words:?}");
}

/// WC-191: the storage watch is open and sends nothing.
#[tokio::test(start_paused = true)]
async fn wc_191_silent_watch_delays_consistent_reads_by_three_seconds() {
    let f = Fixture::start();
    f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    f.storage.set_silent(true);
    let last = f.put("ns/b", "web", "n1");
    let started = tokio::time::Instant::now();
    assert_eq!(f.keys(ListOptions::default()).await, ["ns/a", "ns/b"]);
    let key = ObjectKey::from("ns/b");
    let got = f.cacher.get(&key, GetOptions::default()).await.unwrap();
    assert_eq!(got.unwrap().resource_version(), last);
    assert_eq!(started.elapsed().as_secs(), 6, "3 s each, then storage");
    let error = f.list(from(last)).await.unwrap_err();
    assert!(
        matches!(error, ReadError::TooLargeResourceVersion { .. }),
        "{error}"
    );
    f.storage.set_silent(false);
    assert_eq!(f.keys(from(last)).await, ["ns/a", "ns/b"]);
}

/// WC-192: progress requests are sent while a read waits, shared by all, and else every 30 s of a
/// watch.
#[tokio::test(start_paused = true)]
async fn wc_192_progress_is_requested_only_while_a_read_waits() {
    let config = CacherConfig {
        consistency_check_period: Some(Duration::from_secs(100_000)),
        ..CacherConfig::default()
    };
    let f = Fixture::over(FakeStorage::new(), config);
    f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    let requests = || *f.storage.progress_requests.lock();
    let before = requests();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(requests(), before, "no reads and no watches");
    f.storage
        .write("/configmaps/ns/x", Some(pod("ns/x", "", "", 0)));
    futures::future::join_all((0..100).map(|_| f.list(ListOptions::default()))).await;
    assert!(
        (before + 1..=before + 2).contains(&requests()),
        "{before} and {}",
        requests()
    );
    let before = requests();
    let mut watch = f.watch(everything(), from(rv(3))).await;
    let silence = tokio::time::timeout(Duration::from_secs(295), watch.next());
    assert!(
        silence.await.is_err(),
        "WC-193: without bookmarks there are no requests"
    );
    assert!(
        (9..=10).contains(&(requests() - before)),
        "{}",
        requests() - before
    );
}

/// WC-198: a start that neither succeeds nor fails.
#[tokio::test(start_paused = true)]
async fn wc_180_198_hanging_start_returns_429_after_half_a_minute() {
    let storage = FakeStorage::new();
    storage.set_hanging(true);
    let f = Fixture::over(storage, CacherConfig::default());
    let started = tokio::time::Instant::now();
    let error = f
        .cacher
        .watch(everything(), &watch_list())
        .await
        .unwrap_err();
    let ReadError::NotReady { retry_after, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(
        (started.elapsed().as_secs(), retry_after.as_secs()),
        (30, 6)
    );
    f.storage.set_hanging(false);
    f.put("ns/a", "web", "n1");
    assert_eq!(f.keys(ListOptions::default()).await, ["ns/a"]);
}
