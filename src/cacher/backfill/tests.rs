//! The reading of older history alone: in which order, how far, and who waits for it.

use std::sync::Arc;
use std::time::Duration;

use super::super::tests::{FakeStorage, Silent, garbage, pod, resource, rv};
use super::*;
use crate::api::StorageKey;
use crate::storage::KeyValue;

/// A store at revision 300 that has written ten pods in turn.
fn busy() -> Arc<FakeStorage> {
    let storage = FakeStorage::new();
    for n in 2..=300 {
        let key = format!("ns/p{}", n % 10);
        storage.write(&format!("/pods/{key}"), Some(pod(&key, "web", "n1", n)));
    }
    storage
}

/// The same, but what it did before `version` it does not tell.
fn silent_before(version: u64) -> Arc<Silent> {
    Arc::new(Silent {
        watches_before: rv(version),
        ..Silent::over(busy())
    })
}

/// Reads `storage` back in parts of 20, 80, 320… revisions, until time is over.
fn read(storage: Arc<dyn Storage>) -> (Arc<Backfill>, impl Future<Output = ()>) {
    read_to(ObjectMap::new(), storage)
}

/// The same, into a cache of these objects.
fn read_to(
    objects: ObjectMap,
    storage: Arc<dyn Storage>,
) -> (Arc<Backfill>, impl Future<Output = ()>) {
    let backfill = Arc::new(Backfill::reading_first(20));
    let first = Arc::new(Snapshot::new(0, objects, &[], rv(300)));
    let resource = Arc::new(resource());
    let run = backfill
        .clone()
        .run(resource, storage, CacherConfig::default(), first);
    (backfill, run)
}

fn versions(found: Result<(OlderEvents, ResourceVersion), TooOld>) -> Result<Vec<u64>, u64> {
    let (events, up_to) = found.map_err(|TooOld(oldest)| oldest.get())?;
    assert_eq!(up_to, rv(300));
    Ok(events.iter().map(|e| e.resource_version().get()).collect())
}

/// All of history was once read from its beginning against a clock, and thrown away when that struck:
/// just on the busiest stores each client got a 410 after a restart, and each after half a minute.
#[tokio::test(start_paused = true)]
async fn what_was_read_is_kept_when_time_is_over() {
    let (backfill, run) = read(silent_before(200));
    let started = Instant::now();
    let waits = async {
        backfill.settled_for(rv(250)).await;
        assert!(started.elapsed() < Duration::from_secs(1), "it is known");
        let found = backfill.events_after(rv(250), 0, rv(300));
        assert_eq!(versions(found), Ok((251..=300).collect()));
        backfill.settled_for(rv(199)).await;
        assert_eq!(started.elapsed(), Duration::from_secs(30));
        assert_eq!(
            versions(backfill.events_after(rv(199), 0, rv(300))),
            Err(200)
        );
        let all = backfill.events_after(rv(200), 0, rv(300));
        assert_eq!(versions(all), Ok((201..=300).collect()));
        // A storage that went back in time since has another history after its version 300.
        let other = backfill.events_after(rv(250), 1, rv(300));
        assert_eq!(versions(other), Err(300));
    };
    tokio::join!(run, waits);
    assert_eq!(
        versions(backfill.events_after(rv(250), 0, rv(300))),
        Err(300),
        "let go"
    );
}

#[tokio::test(start_paused = true)]
async fn parts_join_up_and_know_what_was_before() {
    let storage = busy();
    let (backfill, run) = read(storage.clone());
    tokio::select! {
        biased;
        () = run => unreachable!("it is kept for a while"),
        () = backfill.settled_for(rv(1)) => {}
    }
    let found = backfill.events_after(rv(1), 0, rv(300)).unwrap();
    assert_eq!(found.0.iter().count(), 299);
    for event in found.0.iter() {
        // Its own version is not told where a part begins, but it is one of before.
        let previous = event.previous().map(|object| object.resource_version());
        let version = event.resource_version();
        assert_eq!(previous.is_none(), version.get() <= 11, "{version}");
        assert!(previous.is_none_or(|previous| previous < version));
    }
}

#[tokio::test(start_paused = true)]
async fn it_ends_where_storage_has_nothing_or_nothing_to_read() {
    // What cannot be read counts for nothing. What follows on it and what is left of history has no state before
    // it, so that it is unknown too.
    let cases = [
        (150, None, 150),
        (100, Some(260), 100),
        (100, Some(281), 100),
        (281, Some(281), 282),
        (300, None, 300),
    ];
    for (compacted, garbage_at, expect) in cases {
        let storage = FakeStorage::new();
        for n in 2..=300 {
            let value = match garbage_at {
                Some(at) if at == n => garbage(),
                _ => Some(pod("ns/a", "web", "n1", n)),
            };
            storage.write("/pods/ns/a", value);
        }
        storage.compact_to(rv(compacted));
        let (backfill, run) = read(storage);
        tokio::select! {
            biased;
            () = run => unreachable!("it is kept for a while"),
            () = backfill.settled_for(rv(0)) => {}
        }
        let before = backfill.events_after(rv(expect - 1), 0, rv(300));
        assert_eq!(versions(before), Err(expect));
        let all = backfill.events_after(rv(expect), 0, rv(300));
        let readable = (expect + 1..=300).filter(|at| Some(*at) != garbage_at);
        assert_eq!(versions(all), Ok(readable.collect()));
    }
}

/// Where a part begins behind an unreadable value, what the object was before comes from an older revision: the
/// 279th. Up to it there was no history after a restart.
#[tokio::test(start_paused = true)]
async fn what_was_before_an_unreadable_value_is_found() {
    let storage = FakeStorage::new();
    for n in 2..=300 {
        let value = match n {
            280..=281 => garbage(),
            _ => Some(pod("ns/a", "web", "n1", n)),
        };
        storage.write("/pods/ns/a", value);
    }
    let (backfill, run) = read(storage);
    tokio::select! {
        biased;
        () = run => unreachable!("it is kept for a while"),
        () = backfill.settled_for(rv(200)) => {}
    }
    let (events, _) = backfill.events_after(rv(281), 0, rv(300)).unwrap();
    let first = events.iter().next().unwrap();
    assert_eq!(first.resource_version(), rv(282));
    let previous = first.previous().expect("it was not created then");
    assert_eq!(previous.resource_version(), rv(279));
}

/// A watch that waits for older history must not hold up the server's end.
#[tokio::test(start_paused = true)]
async fn a_stop_settles_it() {
    use super::super::{Cacher, Tasks};
    use crate::api::{ListOptions, SelectionPredicate};
    let storage = silent_before(300);
    let tasks = Tasks::new();
    let cacher = Cacher::start(resource(), storage, &tasks, CacherConfig::default());
    let options = ListOptions {
        resource_version: Some(rv(250)),
        ..ListOptions::default()
    };
    let watch = cacher.watch(SelectionPredicate::default(), &options);
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tasks.drain(Duration::from_secs(1)).await.unwrap();
    };
    let both = async { tokio::join!(watch, stop) };
    let both = tokio::time::timeout(Duration::from_secs(3), both).await;
    let (_watch, ()) = both.expect("nobody waits for what will not come");
}

/// History was once read into objects of its own: after a restart a cache took twice its memory.
#[tokio::test(start_paused = true)]
async fn what_the_cache_holds_is_shared() {
    let storage = busy();
    let state: ObjectMap = (291..=300)
        .map(|n| {
            let key = format!("ns/p{}", n % 10);
            let item = KeyValue {
                key: StorageKey::new(&format!("/pods/{key}")).unwrap(),
                value: pod(&key, "web", "n1", n).into(),
                create_revision: rv(2),
                mod_revision: rv(n),
            };
            let object = resource().decode(&item).unwrap();
            (object.key().clone(), object)
        })
        .collect();
    let (backfill, run) = read_to(state.clone(), storage);
    tokio::select! {
        biased;
        () = run => unreachable!("it is kept for a while"),
        () = backfill.settled_for(rv(1)) => {}
    }
    let (events, _) = backfill.events_after(rv(1), 0, rv(300)).unwrap();
    let shared = events.iter().filter(|event| {
        let now = &state[event.object().key()];
        let same = Arc::ptr_eq(now, event.object());
        assert_eq!(same, now.resource_version() == event.resource_version());
        same
    });
    assert_eq!(shared.count(), 10);
}
