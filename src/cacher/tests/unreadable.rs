//! What another writer left in storage and nobody can read: who is told, what goes on, and that a
//! repair is enough.

use super::*;

pub(in crate::cacher) fn garbage() -> Option<String> {
    Some("garbage".into())
}

fn current() -> ListOptions {
    from(ResourceVersion::ZERO)
}

#[tokio::test(start_paused = true)]
async fn it_is_told_once_and_mended_by_a_deletion() {
    // WC-132. The watch met the same event again and again until storage had forgotten it.
    let f = Fixture::start();
    let first = f.put("ns/a", "web", "n1");
    let mut watch = f.watch(everything(), from(first)).await;
    assert!(said(&mut watch).await.is_empty());
    let before = f.put("ns/b", "web", "n1");
    f.storage.write("/pods/ns/bad", garbage());
    f.put("ns/c", "web", "n1");
    let words = said(&mut watch).await;
    assert_eq!(words.len(), 3, "{words:?}");
    assert_eq!(words[0], "ADDED ns/b@3", "what came before is told");
    assert!(
        words[1].starts_with("ERROR ") && words[1].contains("/pods/ns/bad"),
        "{words:?}"
    );
    assert_eq!(words[2], "END");

    // No list can be made of it, so the cache stays as it is, and says why.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let reason = f.cacher.readiness().unwrap_err();
    assert!(reason.contains("/pods/ns/bad"), "{reason}");
    assert_eq!(f.keys(current()).await, ["ns/a", "ns/b"]);
    let error = f.list(ListOptions::default()).await.unwrap_err();
    assert!(matches!(error, ReadError::Corrupt(_)), "{error}");
    // What can be read is, from storage, and without waiting for a cache that does not move.
    let asked = tokio::time::Instant::now();
    let key = ObjectKey::from("ns/c");
    let got = f.cacher.get(&key, GetOptions::default()).await.unwrap();
    assert_eq!(got.unwrap().resource_version(), rv(5));
    assert!(
        asked.elapsed() < Duration::from_millis(50),
        "{:?}",
        asked.elapsed()
    );
    // Who comes back is not sent away again at each try.
    let mut back = f.watch(everything(), from(before)).await;
    assert!(said(&mut back).await.is_empty());

    f.storage.write("/pods/ns/bad", None);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(f.cacher.readiness(), Ok(()));
    assert_eq!(
        f.keys(ListOptions::default()).await,
        ["ns/a", "ns/b", "ns/c"]
    );
    assert_eq!(said(&mut back).await, ["ADDED ns/c@5"]);
    f.put("ns/a", "db", "n1");
    assert_eq!(said(&mut back).await, ["MODIFIED ns/a@7"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_mended_at_once_costs_a_list() {
    let f = Fixture::start();
    let first = f.put("ns/a", "web", "n1");
    f.settle().await;
    let mut watch = f.watch(everything(), from(first)).await;
    assert!(said(&mut watch).await.is_empty());
    let lists = *f.storage.lists.lock();
    f.storage.write("/pods/ns/bad", garbage());
    f.put("ns/bad", "web", "n1");
    let words = said(&mut watch).await;
    assert_eq!((words.len(), &*words[1]), (2, "END"), "{words:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(f.keys(current()).await, ["ns/a", "ns/bad"]);
    assert_eq!(*f.storage.lists.lock(), lists + 1);
    let mut back = f.watch(everything(), from(first)).await;
    assert_eq!(said(&mut back).await, ["ADDED ns/bad@4"]);
}

#[tokio::test(start_paused = true)]
async fn a_cache_without_a_state_names_what_keeps_it_from_having_one() {
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

/// After a leader change every cache lost its watch, and a quiet one was not ready for minutes,
/// although it was followed again at once: nothing had changed that would have said so.
#[tokio::test(start_paused = true)]
async fn a_quiet_resource_is_ready_as_soon_as_it_is_watched_again() {
    let f = Fixture::start();
    f.put("ns/a", "web", "n1");
    f.settle().await;
    f.storage.set_down(true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(f.cacher.readiness().is_err());
    f.storage.set_down(false);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(f.cacher.readiness(), Ok(()));
}
