//! Tests of unreadable values that another writer left in storage: errors, continued service, and
//! repair.

use super::*;

pub(crate) fn garbage() -> Option<String> {
    Some("garbage".into())
}

fn current() -> ListOptions {
    from(ResourceVersion::ZERO)
}

#[tokio::test(start_paused = true)]
async fn unreadable_value_is_reported_once_and_repaired_by_deletion() {
    // WC-132. The watch received the same event repeatedly until storage compacted it.
    let f = Fixture::start();
    let first = f.put("ns/a", "web", "n1");
    let mut watch = f.watch(everything(), from(first)).await;
    assert!(drain(&mut watch).await.is_empty());
    let before = f.put("ns/b", "web", "n1");
    f.storage.write("/pods/ns/bad", garbage());
    f.put("ns/c", "web", "n1");
    let words = drain(&mut watch).await;
    assert_eq!(words.len(), 3, "{words:?}");
    assert_eq!(words[0], "ADDED ns/b@3", "earlier events arrive");
    assert!(
        words[1].starts_with("ERROR ") && words[1].contains("/pods/ns/bad"),
        "{words:?}"
    );
    assert_eq!(words[2], "END");

    // The cache cannot list, so it retains its state and reports the reason.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let reason = f.cacher.readiness().unwrap_err();
    assert!(reason.contains("/pods/ns/bad"), "{reason}");
    assert_eq!(f.keys(current()).await, ["ns/a", "ns/b"]);
    let error = f.list(ListOptions::default()).await.unwrap_err();
    assert!(matches!(error, ReadError::Corrupt(_)), "{error}");
    // Storage answers reads of other objects, without a wait for the cache.
    let started = tokio::time::Instant::now();
    let key = ObjectKey::from("ns/c");
    let got = f.cacher.get(&key, GetOptions::default()).await.unwrap();
    assert_eq!(got.unwrap().resource_version(), rv(5));
    assert!(
        started.elapsed() < Duration::from_millis(50),
        "{:?}",
        started.elapsed()
    );
    // A client that reconnects does not fail at each attempt.
    let mut back = f.watch(everything(), from(before)).await;
    assert!(drain(&mut back).await.is_empty());

    f.storage.write("/pods/ns/bad", None);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(f.cacher.readiness(), Ok(()));
    assert_eq!(
        f.keys(ListOptions::default()).await,
        ["ns/a", "ns/b", "ns/c"]
    );
    assert_eq!(drain(&mut back).await, ["ADDED ns/c@5"]);
    f.put("ns/a", "db", "n1");
    assert_eq!(drain(&mut back).await, ["MODIFIED ns/a@7"]);
}

#[tokio::test(start_paused = true)]
async fn value_repaired_immediately_costs_a_list() {
    let f = Fixture::start();
    let first = f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    let mut watch = f.watch(everything(), from(first)).await;
    assert!(drain(&mut watch).await.is_empty());
    let lists = *f.storage.lists.lock();
    f.storage.write("/pods/ns/bad", garbage());
    f.put("ns/bad", "web", "n1");
    let words = drain(&mut watch).await;
    assert_eq!((words.len(), &*words[1]), (2, "END"), "{words:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(f.keys(current()).await, ["ns/a", "ns/bad"]);
    assert_eq!(*f.storage.lists.lock(), lists + 1);
    let mut back = f.watch(everything(), from(first)).await;
    assert_eq!(drain(&mut back).await, ["ADDED ns/bad@4"]);
}

#[tokio::test(start_paused = true)]
async fn cache_without_a_state_reports_the_unreadable_key() {
    let storage = FakeStorage::new();
    for n in 0..25 {
        storage.write(&format!("/pods/ns/bad{n:02}"), garbage());
    }
    storage.write("/pods/ns/good", Some(pod("ns/good", "web", "n1", 0)));
    let f = Fixture::over(storage, CacherConfig::default());
    let error = f.list(ListOptions::default()).await.unwrap_err();
    let ReadError::NotReady { detail, .. } = error else {
        panic!("{error}");
    };
    assert!(detail.contains("/pods/ns/bad00"), "{detail}");
    assert!(detail.contains("/pods/ns/bad09"), "{detail}");
    assert!(detail.ends_with("; and 15 more"), "{detail}");
    for n in 0..25 {
        f.storage.write(&format!("/pods/ns/bad{n:02}"), None);
    }
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(f.keys(current()).await, ["ns/good"]);
}

/// After a leader change every cache lost its watch, and a quiet one was not ready for minutes
/// although its new watch was open, because readiness waited for an event.
#[tokio::test(start_paused = true)]
async fn quiet_resource_is_ready_when_its_watch_is_open() {
    let f = Fixture::start();
    f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    f.storage.set_down(true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(f.cacher.readiness().is_err());
    f.storage.set_down(false);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(f.cacher.readiness(), Ok(()));
}
