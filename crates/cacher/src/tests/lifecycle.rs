//! Tests of starts, restarts, relists and unavailable storage.

use super::*;

fn exactly(version: ResourceVersion) -> ListOptions {
    ListOptions {
        resource_version_match: Some(ResourceVersionMatch::Exact),
        ..from(version)
    }
}

#[tokio::test(start_paused = true)]
async fn reads_are_consistent_and_probes_are_shared() {
    // WC-024, WC-080
    let f = Fixture::start();
    f.wait_until_synced().await;
    for n in 0..20 {
        f.put(&format!("ns/p{n:02}"), "web", "n1");
        assert_eq!(f.keys(ListOptions::default()).await.len(), n + 1);
        let key = ObjectKey::from(format!("ns/p{n:02}").as_str());
        let got = f
            .cacher
            .get(&key, GetOptions::default())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(got.resource_version(), f.storage.revision());
    }
    assert_eq!(
        *f.storage.lists.lock(),
        1,
        "the cache answered all but the first list"
    );
    let before = *f.storage.probes.lock();
    futures::future::join_all((0..100).map(|_| f.list(ListOptions::default()))).await;
    let probes = *f.storage.probes.lock() - before;
    assert!(probes <= 2, "{probes} probes for 100 concurrent lists");
}

#[tokio::test(start_paused = true)]
async fn pages_are_a_fixed_snapshot() {
    // WC-100 to WC-102, WC-105
    let f = Fixture::start();
    f.wait_until_synced().await;
    for key in ["ns/a", "ns/b", "ns/c"] {
        f.put(key, "web", "n1");
    }
    let first = ListOptions {
        limit: 1,
        ..ListOptions::default()
    };
    let page = f.list(first).await.unwrap();
    assert_eq!(
        (keys(&page), page.remaining),
        (vec!["ns/a".to_owned()], Some(2))
    );
    f.put("ns/aa", "web", "n1");
    f.delete("ns/b");
    f.wait_until_synced().await;
    let next = ListOptions {
        limit: 1,
        continue_token: page.continue_token,
        ..Default::default()
    };
    let page = f.list(next.clone()).await.unwrap();
    assert_eq!(
        (keys(&page), page.remaining),
        (vec!["ns/b".to_owned()], Some(1))
    );
    assert_eq!(page.resource_version, rv(4));
    let rest = ListOptions {
        limit: 0,
        continue_token: page.continue_token,
        ..Default::default()
    };
    let page = f.list(rest).await.unwrap();
    assert_eq!(
        (keys(&page), page.remaining),
        (vec!["ns/c".to_owned()], None)
    );
    assert_eq!(page.continue_token, None);
    assert_eq!(*f.storage.lists.lock(), 1, "the cache answered");

    // WC-108: the same token on a server that has just started.
    let restarted = Fixture::over(f.storage.clone(), CacherConfig::default());
    let page = restarted.list(next).await.unwrap();
    assert_eq!(keys(&page), ["ns/b"]);

    // WC-106, WC-107
    f.storage.compact_to(rv(6));
    let restarted = Fixture::over(f.storage.clone(), CacherConfig::default());
    let token = ContinueToken {
        resource_version: Some(rv(4)),
        start: "ns/a\0".into(),
        remaining: None,
    }
    .encode();
    let stale = ListOptions {
        continue_token: Some(token),
        ..Default::default()
    };
    let error = restarted.list(stale).await.unwrap_err();
    let ReadError::Expired {
        fresh_token: Some(fresh),
        ..
    } = error
    else {
        panic!("{error:?}")
    };
    let fresh = ListOptions {
        continue_token: Some(fresh),
        ..Default::default()
    };
    let page = restarted.list(fresh).await.unwrap();
    assert_eq!(
        (keys(&page), page.resource_version),
        (vec!["ns/aa".into(), "ns/c".into()], rv(6))
    );
}

#[tokio::test(start_paused = true)]
async fn exact_lists_return_each_past_state() {
    // WC-083 to WC-087, across checkpoints and a restart, after which storage answers.
    let f = Fixture::start();
    f.wait_until_synced().await;
    let mut states = vec![(rv(1), Vec::<String>::new())];
    let mut random = fastrand::Rng::with_seed(watchet_test_util::seeds::seed_or(7));
    for _ in 0..1500 {
        let key = format!("ns/p{}", random.u32(..30));
        let exists = states.last().is_some_and(|(_, keys)| keys.contains(&key));
        let at = if exists && random.bool() {
            f.delete(&key)
        } else {
            f.put(&key, "web", "n1")
        };
        let item = f.keys(exactly(at)).await;
        states.push((at, item));
    }
    let restarted = Fixture::over(f.storage.clone(), CacherConfig::default());
    for (at, keys) in &states {
        assert_eq!(&f.keys(exactly(*at)).await, keys, "at {at}");
        if at.get() % 100 == 0 {
            assert_eq!(
                &restarted.keys(exactly(*at)).await,
                keys,
                "at {at}, from storage"
            );
        }
    }
    assert_eq!(
        *f.storage.lists.lock(),
        1 + 1 + 15,
        "the first server answered all from its cache"
    );
    let future = f.list(exactly(rv(9999))).await.unwrap_err();
    assert!(
        matches!(future, ReadError::TooLargeResourceVersion { .. }),
        "{future}"
    );
}

#[tokio::test(start_paused = true)]
async fn clients_resume_after_a_restart() {
    let f = Fixture::start();
    for n in 0..300 {
        f.put(
            &format!("ns/p{}", n % 10),
            if n % 2 == 0 { "web" } else { "db" },
            "n1",
        );
    }
    f.delete("ns/p0");
    let f = Fixture::over(f.storage.clone(), CacherConfig::default());
    let mut watch = f.watch(everything(), from(rv(5))).await;
    let words = drain(&mut watch).await;
    assert_eq!(words.len(), 297, "{words:?}");
    assert_eq!(words[0], "ADDED ns/p4@6");
    assert_eq!(words[296], "DELETED ns/p0@302");
    f.put("ns/new", "web", "n1");
    assert_eq!(drain(&mut watch).await, ["ADDED ns/new@303"]);

    // Versions before storage's compaction return a 410.
    f.storage.compact_to(rv(200));
    let f = Fixture::over(f.storage.clone(), CacherConfig::default());
    let mut old = f.watch(everything(), from(rv(199))).await;
    let words = drain(&mut old).await;
    assert_eq!(
        words,
        ["ERROR too old resource version: 199 (200)", "END"],
        "WC-128, WC-129"
    );
    let mut oldest = f.watch(everything(), from(rv(200))).await;
    assert_eq!(drain(&mut oldest).await.len(), 103);
}

/// One lost connection during the backfill caused a 410 for all clients.
#[tokio::test(start_paused = true)]
async fn backfill_continues_after_a_lost_connection() {
    let f = Fixture::start();
    for n in 0..30 {
        f.put(&format!("ns/p{n}"), "web", "n1");
    }
    // The Reflector's watch and the backfill's, twice each.
    *f.storage.lost_watches.lock() = 4;
    let f = Fixture::over(f.storage.clone(), CacherConfig::default());
    let mut watch = f.watch(everything(), from(rv(5))).await;
    assert_eq!(drain(&mut watch).await.len(), 26);
    assert_eq!(*f.storage.lost_watches.lock(), 0);
}

/// A relist sent the differences of the two states as events and hid those of `ns/brief`, and a watch missed them without
/// a 410.
#[tokio::test(start_paused = true)]
async fn lost_history_ends_watches() {
    // The storage watch is lost, and storage compacts its history before the next watch.
    let f = Fixture::start();
    for key in ["ns/kept", "ns/gone", "ns/gone2", "ns/changed", "ns/again"] {
        f.put(key, "web", "n1");
    }
    let mut watch = f.watch(everything(), from(rv(6))).await;
    assert!(drain(&mut watch).await.is_empty());
    f.storage.set_down(true);
    f.delete("ns/gone");
    f.put("ns/changed", "db", "n1");
    f.delete("ns/gone2");
    f.put("ns/new", "web", "n1");
    f.put("ns/brief", "web", "n1");
    f.delete("ns/brief");
    f.delete("ns/again");
    let again = pod("ns/again", "web", "n1", 1).replace(r#""uid":"ns/again""#, r#""uid":"2""#);
    let last = f.storage.write("/pods/ns/again", Some(again));
    f.storage.compact_to(last);
    tokio::time::sleep(Duration::from_secs(2)).await;
    f.storage.set_down(false);
    tokio::time::sleep(Duration::from_secs(20)).await;

    for (mut watch, at) in [
        (watch, 6),
        (f.watch(everything(), from(rv(6))).await, 6),
        (f.watch(everything(), from(rv(10))).await, 10),
    ] {
        let expired = format!("ERROR too old resource version: {at} (14)");
        assert_eq!(drain(&mut watch).await, [expired.as_str(), "END"]);
    }
    let mut after = f.watch(everything(), from(last)).await;
    assert!(drain(&mut after).await.is_empty());
    // Earlier states are unknown.
    let error = f.list(exactly(rv(9))).await.unwrap_err();
    assert!(matches!(error, ReadError::Expired { .. }), "{error}");
    assert_eq!(
        f.keys(exactly(last)).await,
        ["ns/again", "ns/changed", "ns/kept", "ns/new"]
    );
}

#[tokio::test(start_paused = true)]
async fn storage_that_went_back_in_time_ends_watches_with_410() {
    let f = Fixture::start();
    f.put("ns/a", "web", "n1");
    f.put("ns/b", "web", "n1");
    f.wait_until_synced().await;
    let mut watch = f.watch(everything(), from(rv(3))).await;
    assert!(drain(&mut watch).await.is_empty());
    f.storage.restore(rv(2));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(f.keys(ListOptions::default()).await, ["ns/a"]);
    let words = drain(&mut watch).await;
    assert_eq!(words, ["ERROR too old resource version: 3 (2)", "END"]);
    f.put("ns/c", "web", "n1");
    assert_eq!(f.keys(ListOptions::default()).await, ["ns/a", "ns/c"]);
}

#[tokio::test(start_paused = true)]
async fn cold_cache_leaves_reads_to_storage() {
    // WC-180 to WC-182
    let storage = FakeStorage::new();
    storage.write("/pods/ns/a", Some(pod("ns/a", "web", "n1", 0)));
    storage.set_down(true);
    let f = Fixture::over(storage, CacherConfig::default());
    tokio::time::sleep(Duration::from_secs(14)).await;
    let error = f.list(ListOptions::default()).await.unwrap_err();
    let ReadError::NotReady { retry_after, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(retry_after.as_secs(), 2);
    let error = f
        .cacher
        .watch(everything(), &ListOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(error, ReadError::NotReady { .. }), "{error}");
    assert!(f.cacher.readiness().is_err());
    let key = ObjectKey::from("ns/a");
    let error = f.cacher.get(&key, GetOptions::default()).await.unwrap_err();
    assert!(matches!(error, ReadError::Storage(_)), "{error}");
    f.storage.set_down(false);
    // Until the Reflector retries, storage answers what it can.
    assert!(
        f.cacher
            .get(&key, GetOptions::default())
            .await
            .unwrap()
            .is_some()
    );
    let page = f
        .list(ListOptions {
            limit: 5,
            ..Default::default()
        })
        .await
        .unwrap();
    assert_eq!(keys(&page), ["ns/a"]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(f.keys(ListOptions::default()).await, ["ns/a"]);
    assert_eq!(f.cacher.readiness(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn storage_without_progress_answers_consistent_reads() {
    let f = Fixture::start();
    f.storage.set_progress_supported(false);
    f.put("ns/a", "web", "n1");
    assert_eq!(f.keys(ListOptions::default()).await, ["ns/a"]);
    f.storage
        .write("/configmaps/ns/x", Some(pod("ns/x", "", "", 0)));
    let before = *f.storage.lists.lock();
    let list = f.list(ListOptions::default()).await.unwrap();
    assert_eq!(
        (keys(&list), list.resource_version),
        (vec!["ns/a".to_owned()], rv(3))
    );
    assert_eq!(*f.storage.lists.lock(), before + 1);
    // A streaming list does not wait for a version that the cache cannot confirm.
    let mut watch = f.watch(everything(), watch_list()).await;
    assert_eq!(drain(&mut watch).await, ["ADDED ns/a@2", "BOOKMARK @3 end"]);
    f.put("ns/a", "web", "n2");
    assert_eq!(drain(&mut watch).await, ["MODIFIED ns/a@4"]);
    let filtered = predicate(Some("ns"), "app=web", "");
    let limited = ListOptions {
        limit: 1,
        ..Default::default()
    };
    for key in ["ns/b", "ns/c", "ns/d"] {
        f.put(key, "web", "n1");
    }
    let page = f.cacher.list(&filtered, &limited).await.unwrap();
    assert_eq!(
        (keys(&page), page.remaining),
        (vec!["ns/a".to_owned()], None)
    );
    let next = ListOptions {
        limit: 2,
        continue_token: page.continue_token,
        ..Default::default()
    };
    let page = f.cacher.list(&filtered, &next).await.unwrap();
    assert_eq!(keys(&page), ["ns/b", "ns/c"]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_watches_without_an_error() {
    // WC-183
    let f = Fixture::start();
    let mut watch = f.watch(everything(), from(rv(1))).await;
    assert!(drain(&mut watch).await.is_empty());
    f.tasks.drain(Duration::from_secs(1)).await.unwrap();
    assert_eq!(drain(&mut watch).await, ["END"]);
}
