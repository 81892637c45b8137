//! Clients that read slowly while things happen to the cache, and storage that answers slowly or not.

use super::*;

/// The next items of a watch, in words.
async fn next(watch: &mut CacheWatcher) -> Vec<String> {
    let items = tokio::time::timeout(Duration::from_secs(1), watch.next()).await;
    let items = items.expect("there is more").expect("it goes on");
    items.iter().map(word).collect()
}

/// Storage is cut off, `during` happens, and its history is gone when it is back.
async fn relist(f: &Fixture, during: impl FnOnce()) {
    f.storage.set_down(true);
    during();
    f.storage.compact_to(f.storage.revision());
    tokio::time::sleep(Duration::from_secs(2)).await;
    f.storage.set_down(false);
    tokio::time::sleep(Duration::from_secs(20)).await;
}

/// WC-160: 2,000 objects are read slowly while all of them are written again.
#[tokio::test(start_paused = true)]
async fn objects_that_change_during_initial_events_follow_them() {
    let f = Fixture::start();
    let keys: Vec<String> = (0..2000).map(|n| format!("ns/p{n:04}")).collect();
    for key in &keys {
        f.put(key, "web", "n1");
    }
    f.settle().await;
    let mut watch = f.watch(everything(), watch_list()).await;
    let mut words = Vec::new();
    for part in keys.chunks(500) {
        words.extend(next(&mut watch).await);
        for key in part {
            f.put(key, "db", "n1");
        }
        f.settle().await;
    }
    words.extend(said(&mut watch).await);
    let told = |kind: &str, first: usize| -> Vec<String> {
        let words = keys.iter().enumerate();
        words
            .map(|(n, key)| format!("{kind} {key}@{}", first + n))
            .collect()
    };
    let end = vec!["BOOKMARK @2001 end".to_owned()];
    let expected = [told("ADDED", 2), end, told("MODIFIED", 2002)].concat();
    assert!(
        words == expected,
        "{:?}",
        words.iter().zip(&expected).find(|(a, b)| a != b)
    );
}

/// WC-185: who is in the middle of the initial state, or parked, goes on over a relist that is told.
#[tokio::test(start_paused = true)]
async fn wc_184_185_a_relist_meets_watches_that_are_behind() {
    let f = Fixture::start();
    f.settle().await;
    for n in 0..600 {
        f.put(&format!("ns/p{n:03}"), "web", "n1");
    }
    f.settle().await;
    let start = f.storage.revision();
    let mut initial = f.watch(everything(), watch_list()).await;
    assert_eq!(next(&mut initial).await.len(), 500);
    let mut parked = f.watch(everything(), from(start)).await;
    assert!(said(&mut parked).await.is_empty());
    relist(&f, || {
        f.delete("ns/p000");
        f.put("ns/p001", "db", "n1");
    })
    .await;
    let told = ["DELETED ns/p000@602", "MODIFIED ns/p001@603"];
    let words = said(&mut initial).await;
    assert_eq!(words.len(), 103);
    assert_eq!(words[100], format!("BOOKMARK @{start} end"));
    assert_eq!(words[101..], told);
    assert_eq!(said(&mut parked).await, told);
}

/// WC-185 again: storage went back, so that nothing can be told.
#[tokio::test(start_paused = true)]
async fn a_relist_that_cannot_be_told_ends_watches_that_are_behind() {
    let f = Fixture::start();
    for n in 0..600 {
        f.put(&format!("ns/p{n:03}"), "web", "n1");
    }
    f.settle().await;
    let mut initial = f.watch(everything(), watch_list()).await;
    assert_eq!(next(&mut initial).await.len(), 500);
    let mut live = f.watch(everything(), from(rv(601))).await;
    assert!(said(&mut live).await.is_empty());
    f.storage.restore(rv(300));
    tokio::time::sleep(Duration::from_secs(30)).await;
    let gone = ["ERROR too old resource version: 601 (300)", "END"];
    assert_eq!(said(&mut live).await, gone);
    let words = said(&mut initial).await;
    assert_eq!(words[100], "BOOKMARK @601 end", "the state that was begun");
    assert_eq!(words[101..], gone);
}

/// WC-187: what was told before history was overrun is a prefix, and the end is told.
#[tokio::test(start_paused = true)]
async fn history_that_is_overrun_while_it_is_read_ends_with_one_410() {
    let config = CacherConfig {
        history_bytes_max: 400_000,
        ..CacherConfig::default()
    };
    let f = Fixture::over(FakeStorage::new(), config);
    f.settle().await;
    for n in 0..600 {
        f.put(&format!("ns/p{}", n % 50), "web", "n1");
    }
    f.settle().await;
    let mut watch = f.watch(everything(), from(rv(1))).await;
    let first = next(&mut watch).await;
    for n in 0..2000 {
        f.put(&format!("ns/p{}", n % 50), "web", "n1");
        if n % 100 == 0 {
            f.settle().await;
        }
    }
    f.settle().await;
    for (index, word) in first.iter().enumerate() {
        assert!(
            word.ends_with(&format!("@{}", index + 2)),
            "{word} is {index}"
        );
    }
    let words = said(&mut watch).await;
    assert_eq!(words.len(), 2, "{words:?}");
    let position = first.len() + 1;
    let expected = format!("ERROR too old resource version: {position} (");
    assert!(words[0].starts_with(&expected), "{words:?}");
}

/// WC-191: the watch of storage is open and says nothing.
#[tokio::test(start_paused = true)]
async fn wc_191_a_silent_watch_costs_a_read_three_seconds_and_no_truth() {
    let f = Fixture::start();
    f.put("ns/a", "web", "n1");
    f.settle().await;
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

/// WC-192: questions are asked while somebody waits, together, and else each 30 s of a watch.
#[tokio::test(start_paused = true)]
async fn wc_192_progress_is_asked_for_only_while_somebody_waits() {
    let config = CacherConfig {
        consistency_check_period: Some(Duration::from_secs(100_000)),
        ..CacherConfig::default()
    };
    let f = Fixture::over(FakeStorage::new(), config);
    f.put("ns/a", "web", "n1");
    f.settle().await;
    let asked = || *f.storage.questions.lock();
    let before = asked();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(asked(), before, "nobody waits, nobody watches");
    f.storage
        .write("/configmaps/ns/x", Some(pod("ns/x", "", "", 0)));
    futures::future::join_all((0..100).map(|_| f.list(ListOptions::default()))).await;
    assert!(
        (before + 1..=before + 2).contains(&asked()),
        "{before} and {}",
        asked()
    );
    let before = asked();
    let mut watch = f.watch(everything(), from(rv(3))).await;
    let silence = tokio::time::timeout(Duration::from_secs(295), watch.next());
    assert!(
        silence.await.is_err(),
        "WC-193: without bookmarks nothing is told"
    );
    assert!(
        (9..=10).contains(&(asked() - before)),
        "{}",
        asked() - before
    );
}

/// WC-198: a start that neither succeeds nor fails.
#[tokio::test(start_paused = true)]
async fn wc_180_198_a_start_that_hangs_is_told_after_half_a_minute() {
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
