//! Tests of the history backfill: order, limits, and waiting watches.

use std::sync::Arc;
use std::time::Duration;

use super::super::tests::{FakeStorage, Silent, garbage, pod, resource, rv};
use super::*;
use watchet_api::StorageKey;
use watchet_storage::KeyValue;

/// Returns a store at revision 300 that has written ten pods in turn.
fn busy() -> Arc<FakeStorage> {
    let storage = FakeStorage::new();
    for n in 2..=300 {
        let key = format!("ns/p{}", n % 10);
        storage.write(&format!("/pods/{key}"), Some(pod(&key, "web", "n1", n)));
    }
    storage
}

/// Like [`busy`], but watches from before `version` do not respond.
fn silent_before(version: u64) -> Arc<Silent> {
    Arc::new(Silent {
        watches_before: rv(version),
        ..Silent::over(busy())
    })
}

/// Reads `storage` back in spans of 20, 80, 320… revisions, until the timeout.
fn read(storage: Arc<dyn Storage>) -> (Arc<Backfill>, impl Future<Output = ()>) {
    read_to(ObjectMap::new(), storage)
}

/// Like [`read`], into a cache with these objects.
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

/// A read from the beginning with a timeout discarded everything on timeout, so that clients of
/// busy stores got a 410 after each restart.
#[tokio::test(start_paused = true)]
async fn timeout_retains_what_was_read() {
    let (backfill, run) = read(silent_before(200));
    let started = Instant::now();
    let waits = async {
        backfill.wait_for(rv(250)).await;
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "history is known"
        );
        let found = backfill.events_after(rv(250), 0, rv(300));
        assert_eq!(versions(found), Ok((251..=300).collect()));
        backfill.wait_for(rv(199)).await;
        assert_eq!(started.elapsed(), Duration::from_secs(30));
        assert_eq!(
            versions(backfill.events_after(rv(199), 0, rv(300))),
            Err(200)
        );
        let all = backfill.events_after(rv(200), 0, rv(300));
        assert_eq!(versions(all), Ok((201..=300).collect()));
        // A storage that went back in time has another history after version 300.
        let other = backfill.events_after(rv(250), 1, rv(300));
        assert_eq!(versions(other), Err(300));
    };
    tokio::join!(run, waits);
    assert_eq!(
        versions(backfill.events_after(rv(250), 0, rv(300))),
        Err(300),
        "dropped after the window"
    );
}

#[tokio::test(start_paused = true)]
async fn spans_are_contiguous_and_have_previous_states() {
    let storage = busy();
    let (backfill, run) = read(storage.clone());
    tokio::select! {
        biased;
        () = run => unreachable!("history is retained for the window"),
        () = backfill.wait_for(rv(1)) => {}
    }
    let found = backfill.events_after(rv(1), 0, rv(300)).unwrap();
    assert_eq!(found.0.iter().count(), 299);
    for event in found.0.iter() {
        // The previous version is unknown at the start of a span; an earlier one stands for it.
        let previous = event.previous().map(|object| object.resource_version());
        let version = event.resource_version();
        assert_eq!(previous.is_none(), version.get() <= 11, "{version}");
        assert!(previous.is_none_or(|previous| previous < version));
    }
}

#[tokio::test(start_paused = true)]
async fn backfill_ends_at_compaction() {
    // Undecodable values are skipped. A change after one has no previous state in the remaining history, so it
    // is unknown too.
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
            () = run => unreachable!("history is retained for the window"),
            () = backfill.wait_for(rv(0)) => {}
        }
        let before = backfill.events_after(rv(expect - 1), 0, rv(300));
        assert_eq!(versions(before), Err(expect));
        let all = backfill.events_after(rv(expect), 0, rv(300));
        let readable = (expect + 1..=300).filter(|at| Some(*at) != garbage_at);
        assert_eq!(versions(all), Ok(readable.collect()));
    }
}

/// If a span starts after an unreadable value, the object's previous state is read at an older revision, 279.
/// History ended at such a value.
#[tokio::test(start_paused = true)]
async fn state_before_an_unreadable_value_is_found() {
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
        () = run => unreachable!("history is retained for the window"),
        () = backfill.wait_for(rv(200)) => {}
    }
    let (events, _) = backfill.events_after(rv(281), 0, rv(300)).unwrap();
    let first = events.iter().next().unwrap();
    assert_eq!(first.resource_version(), rv(282));
    let previous = first.previous().expect("the object existed before");
    assert_eq!(previous.resource_version(), rv(279));
}

/// A watch that waits for older history must not delay shutdown.
#[tokio::test(start_paused = true)]
async fn stop_finishes_the_backfill() {
    use super::super::Cacher;
    use watchet_api::{ListOptions, SelectionPredicate};
    use watchet_tasks::Tasks;
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
    let (_watch, ()) = both.expect("watches do not wait after the stop");
}

/// The backfill decoded objects of its own, which doubled a cache's memory after a restart.
#[tokio::test(start_paused = true)]
async fn unchanged_objects_are_shared_with_the_cache() {
    let storage = busy();
    let state: ObjectMap = (291..=300)
        .map(|n| {
            let key = format!("ns/p{}", n % 10);
            let item = KeyValue {
                key: StorageKey::new(&format!("/pods/{key}")).unwrap(),
                value: pod(&key, "web", "n1", n).into(),
                create_revision: rv(2),
                mod_revision: rv(n),
                is_stale: false,
            };
            let object = resource().decode(&item).unwrap();
            (object.key().clone(), object)
        })
        .collect();
    let (backfill, run) = read_to(state.clone(), storage);
    tokio::select! {
        biased;
        () = run => unreachable!("history is retained for the window"),
        () = backfill.wait_for(rv(1)) => {}
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
