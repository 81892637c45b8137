//! Tests of single watches.

use super::*;

#[tokio::test(start_paused = true)]
async fn watch_at_a_future_version_waits_for_it_or_is_rejected() {
    // WC-156, WC-157, and the last row of the table of watches.
    let f = Fixture::start();
    f.put("ns/a", "web", "n1");
    let at_three = ListOptions {
        resource_version: Some(rv(3)),
        ..watch_list()
    };
    let mut late = f.watch(everything(), at_three.clone()).await;
    assert_eq!(
        drain(&mut late).await,
        ["ERROR Too large resource version: 3, current: 2", "END"]
    );
    let waiting = f.watch(everything(), at_three);
    let writing = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        f.put("ns/b", "web", "n1")
    };
    let (mut watch, _) = tokio::join!(waiting, writing);
    assert_eq!(
        drain(&mut watch).await,
        ["ADDED ns/a@2", "ADDED ns/b@3", "BOOKMARK @3 end"]
    );

    let mut future = f.watch(everything(), from(rv(5))).await;
    for key in ["ns/c", "ns/d", "ns/e"] {
        f.put(key, "web", "n1");
    }
    assert_eq!(drain(&mut future).await, ["ADDED ns/e@6"]);
}

#[tokio::test(start_paused = true)]
async fn wc_165_169_193_bookmarks_each_minute_with_progress() {
    // WC-162, WC-164, WC-165, WC-169
    let f = Fixture::start();
    f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    let options = ListOptions {
        allow_watch_bookmarks: true,
        timeout: Some(Duration::from_secs(100)),
        ..from(rv(2))
    };
    let started = tokio::time::Instant::now();
    let mut watch = f.watch(everything(), options).await;
    // Another resource advances the store, which only a progress notification reports.
    f.storage
        .write("/configmaps/ns/x", Some(pod("ns/x", "", "", 0)));
    let mut bookmarks = Vec::new();
    while let Some(items) = watch.next().await {
        let second = started.elapsed().as_secs();
        bookmarks.extend(
            items
                .iter()
                .map(|item| format!("{second} s: {}", describe(item))),
        );
    }
    assert_eq!(bookmarks, ["60 s: BOOKMARK @3", "98 s: BOOKMARK @3"]);
    assert_eq!(started.elapsed().as_secs(), 100);
}

/// A bookmark that became due as an event arrived was postponed by a minute, and the last one
/// before the deadline was lost.
#[tokio::test(start_paused = true)]
async fn due_bookmark_follows_waiting_events() {
    let f = Fixture::start();
    let options = ListOptions {
        allow_watch_bookmarks: true,
        timeout: Some(Duration::from_secs(10)),
        ..from(rv(1))
    };
    let mut watch = f.watch(everything(), options).await;
    assert!(drain(&mut watch).await.is_empty());
    // The event arrives between the timer and the check of the inbox.
    tokio::time::sleep(Duration::from_millis(7500)).await;
    f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    assert!(watch.timer_fired().is_empty(), "events come first");
    assert_eq!(drain(&mut watch).await, ["ADDED ns/a@2", "BOOKMARK @2"]);
}

/// A watch from a future version received a bookmark with that version after a minute.
#[tokio::test(start_paused = true)]
async fn no_bookmark_at_a_future_version() {
    let f = Fixture::start();
    let options = ListOptions {
        allow_watch_bookmarks: true,
        timeout: Some(Duration::from_secs(200)),
        ..from(rv(5))
    };
    let mut watch = f.watch(everything(), options).await;
    let quiet = tokio::time::timeout(Duration::from_secs(100), watch.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    for key in ["ns/a", "ns/b", "ns/c", "ns/d", "ns/e"] {
        f.put(key, "web", "n1");
    }
    let mut words = Vec::new();
    while let Some(items) = watch.next().await {
        words.extend(items.iter().map(describe));
    }
    assert_eq!(
        words,
        ["ADDED ns/e@6", "BOOKMARK @6", "BOOKMARK @6", "BOOKMARK @6"]
    );
}

#[tokio::test(start_paused = true)]
async fn without_bookmarks_only_the_deadline_ends_it() {
    let f = Fixture::start();
    let options = ListOptions {
        timeout: Some(Duration::from_secs(3)),
        ..from(rv(1))
    };
    let mut watch = f.watch(everything(), options).await;
    let started = tokio::time::Instant::now();
    assert!(watch.next().await.is_none());
    assert_eq!(started.elapsed().as_secs(), 3, "WC-202");
}

/// 5,000 changes exceed an inbox. Time is paused and advances only while tasks wait, so it measures
/// the delay that slow watches cause.
#[tokio::test(start_paused = true)]
async fn wc_134_fifty_stalled_watches_delay_no_other_and_miss_nothing() {
    const SLOW: usize = 50;
    let f = Fixture::start();
    let mut slow = Vec::new();
    for _ in 0..SLOW {
        let mut watch = f.watch(everything(), from(rv(1))).await;
        assert!(
            drain(&mut watch).await.is_empty(),
            "the watch is live first"
        );
        slow.push(watch);
    }
    let mut quick = f.watch(everything(), from(rv(1))).await;
    assert!(drain(&mut quick).await.is_empty());
    let mut delays = Vec::new();
    for change in 0..5000 {
        let written = f.put(&format!("ns/p{}", change % 50), "web", "n1");
        let begun = tokio::time::Instant::now();
        let bookmarks = quick.next().await.expect("the watch is open");
        delays.push(begun.elapsed());
        let words: Vec<_> = bookmarks.iter().map(describe).collect();
        assert_eq!(words.len(), 1, "{words:?}");
        assert!(words[0].ends_with(&format!("@{written}")), "{words:?}");
    }
    delays.sort();
    let p99 = delays[delays.len() * 99 / 100];
    assert!(p99 < Duration::from_millis(10), "{p99:?}");
    // A parked watch has no inbox, only a position.
    assert_eq!(f.cacher.dispatcher.members(), 1, "the slow ones are parked");
    for watch in &mut slow {
        let words = drain(watch).await;
        assert_eq!(words.len(), 5000);
        for (index, describe) in words.iter().enumerate() {
            assert!(
                describe.ends_with(&format!("@{}", index + 2)),
                "{describe} is event {index}"
            );
        }
    }
    let live = f.cacher.dispatcher.members();
    assert_eq!(live, SLOW + 1, "all are live again");
}

#[tokio::test(start_paused = true)]
async fn wc_187_a_parked_watch_whose_history_is_gone_gets_one_410() {
    let config = CacherConfig {
        history_bytes_max: 100_000,
        ..CacherConfig::default()
    };
    let f = Fixture::over(FakeStorage::new(), config);
    let mut slow = f.watch(everything(), from(rv(1))).await;
    assert!(drain(&mut slow).await.is_empty());
    for change in 0..3000 {
        f.put(&format!("ns/p{}", change % 50), "web", "n1");
        if change % 100 == 0 {
            f.wait_until_synced().await;
        }
    }
    f.wait_until_synced().await;
    let words = drain(&mut slow).await;
    assert_eq!(words.len(), 2, "{words:?}");
    assert!(
        words[0].starts_with("ERROR too old resource version: 1 ("),
        "{words:?}"
    );
    assert_eq!(words[1], "END");
}

#[tokio::test(start_paused = true)]
async fn wc_199_many_short_watches_leave_nothing_behind() {
    // WC-199
    let f = Fixture::start();
    for n in 0..2000 {
        let selection = predicate(None, &format!("app=x{}", n % 7), "");
        let mut watch = f.watch(selection, from(rv(1))).await;
        let next = tokio::time::timeout(Duration::from_millis(1), watch.next()).await;
        assert!(next.is_err(), "nothing happened");
        assert_eq!(f.cacher.dispatcher.members(), 1);
    }
    assert_eq!(f.cacher.dispatcher.members(), 0);
}

/// Draining ends watches as their deadline does: without an error.
#[tokio::test(start_paused = true)]
async fn end_with_ends_the_watch_without_an_error() {
    let f = Fixture::start();
    let token = tokio_util::sync::CancellationToken::new();
    let mut idle = f.watch(everything(), from(rv(1))).await;
    let mut behind = f.watch(everything(), from(rv(1))).await;
    for watch in [&mut idle, &mut behind] {
        watch.end_with(token.clone());
        assert!(drain(watch).await.is_empty());
    }
    f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    assert_eq!(drain(&mut idle).await, ["ADDED ns/a@2"]);
    let ended = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        token.cancel();
    };
    let (next, ()) = tokio::join!(idle.next(), ended);
    assert!(next.is_none());
    assert!(behind.next().await.is_none(), "also with waiting events");
}
