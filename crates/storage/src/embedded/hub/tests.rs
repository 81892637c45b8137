//! Tests of the hub: which watches it wakes, what they read, and when they read the log.

use futures_util::FutureExt as _;

use super::*;
use watchet_api::ResourceVersion;

fn key(text: &str) -> StorageKey {
    StorageKey::new(text).unwrap()
}

fn event(at: &str, revision: u64, len: usize) -> StorageEvent {
    StorageEvent {
        key: key(at),
        revision: ResourceVersion::new(revision),
        value: Some(vec![0; len].into()),
        previous: None,
    }
}

fn revisions(step: Step) -> (Vec<u64>, u64) {
    match step {
        Step::Deliver { events, to } => (events.iter().map(|e| e.revision.get()).collect(), to),
        other => panic!("{other:?}"),
    }
}

#[test]
fn prefixes_are_the_parents_and_the_key() {
    let all: Vec<_> = prefixes("/pods/ns/a").collect();
    assert_eq!(all, ["/pods/", "/pods/ns/", "/pods/ns/a"]);
}

#[test]
fn matching_watches_are_woken_once() {
    let hub = Hub::new(1);
    let woken = |wake: &Arc<Notify>| wake.notified().now_or_never().is_some();
    let watches: Vec<_> = ["/pods/", "/pods/foo/", "/pods/foobar/", "/pods/foo/a"]
        .map(|prefix| {
            let wake = Arc::new(Notify::new());
            let id = hub.add(&key(prefix), 1, wake.clone());
            (prefix, id, wake)
        })
        .into();
    hub.publish(vec![event("/pods/foo/b", 2, 1), event("/pods/foo/c", 3, 1)]);
    let all: Vec<_> = watches
        .iter()
        .filter(|w| woken(&w.2))
        .map(|w| w.0)
        .collect();
    assert_eq!(all, ["/pods/", "/pods/foo/"]);
    hub.publish(vec![event("/pods/foo/d", 4, 1)]);
    assert!(!woken(&watches[0].2), "it has not read the first yet");

    let (events, to) = revisions(hub.step(watches[0].1, &key("/pods/"), 1));
    assert_eq!((events, to), (vec![2, 3, 4], 4));
    let idle = hub.step(watches[0].1, &key("/pods/"), 4);
    assert!(matches!(idle, Step::Idle { at: 4 }), "{idle:?}");
    let idle = hub.step(watches[2].1, &key("/pods/foobar/"), 1);
    assert!(matches!(idle, Step::Idle { at: 4 }), "{idle:?}");

    for (prefix, id, _) in &watches {
        hub.remove(*id, &key(prefix));
    }
    assert!(hub.0.lock().by_prefix.is_empty(), "no slots remain");
}

#[test]
fn idle_watch_does_not_read_the_log() {
    let hub = Hub::new(1);
    let wake = Arc::new(Notify::new());
    let id = hub.add(&key("/idle/"), 1, wake);
    let noise = |revision| event("/noise/a", revision, 64);
    let many = 2 + TAIL_EVENTS_MAX as u64;
    hub.publish((2..=many).map(noise).collect());
    hub.publish(vec![event("/idle/a", many + 1, 1)]);
    // The position of the watch is older than the tail, but the tail has all its events.
    let (events, to) = revisions(hub.step(id, &key("/idle/"), 1));
    assert_eq!((events, to), (vec![many + 1], many + 1));
}

#[test]
fn late_watch_reads_the_log_then_the_tail() {
    let hub = Hub::new(1);
    // A watch for which the hub retains the tail.
    hub.add(&key("/pods/"), 1, Arc::new(Notify::new()));
    let each = TAIL_BYTES_MAX / 4;
    hub.publish(
        (2..=9)
            .map(|revision| event("/pods/a", revision, each))
            .collect(),
    );
    let retained = hub.0.lock().tail.len() as u64;
    assert!((1..8).contains(&retained), "the tail is bounded in bytes");
    let id = hub.add(&key("/pods/"), 1, Arc::new(Notify::new()));
    let step = hub.step(id, &key("/pods/"), 1);
    assert!(matches!(step, Step::ReadLog { from: 2, to: 9 }), "{step:?}");
    hub.advance(id, 9 - retained);
    let (events, to) = revisions(hub.step(id, &key("/pods/"), 9 - retained));
    assert_eq!((events.len() as u64, to), (retained, 9));
}

/// The tail filled up to its limit without readers: 8 MiB of values in a store that was only
/// written.
#[test]
fn delivered_events_are_dropped() {
    let hub = Hub::new(1);
    let retained = || {
        let state = hub.0.lock();
        (state.tail.len(), state.tail_bytes > 0)
    };
    hub.publish(vec![event("/unwatched/a", 2, 64)]);
    assert_eq!(retained(), (0, false));

    let [fast, slow] = ["/pods/", "/pods/ns/"].map(key);
    let fast_id = hub.add(&fast, 2, Arc::new(Notify::new()));
    let slow_id = hub.add(&slow, 2, Arc::new(Notify::new()));
    hub.publish((3..=6).map(|at| event("/pods/ns/a", at, 64)).collect());
    assert_eq!(revisions(hub.step(fast_id, &fast, 2)).1, 6);
    hub.publish(vec![event("/pods/ns/a", 7, 64)]);
    assert_eq!(retained(), (5, true), "the slow one has not read");

    let (events, _) = revisions(hub.step(slow_id, &slow, 2));
    assert_eq!(events, [3, 4, 5, 6, 7]);
    hub.publish(vec![event("/pods/ns/a", 8, 64)]);
    assert_eq!(retained(), (2, true), "the fast one lacks 7 and 8");
    let (events, _) = revisions(hub.step(fast_id, &fast, 6));
    assert_eq!(events, [7, 8]);
}

/// Committed changes can be read, and watched from, before they are published.
#[test]
fn watch_from_an_unpublished_revision_skips_its_publication() {
    let hub = Hub::new(1);
    let id = hub.add(&key("/pods/"), 3, Arc::new(Notify::new()));
    hub.publish(vec![event("/pods/a", 2, 1), event("/pods/a", 3, 1)]);
    let (events, _) = revisions(hub.step(id, &key("/pods/"), 3));
    assert_eq!(events, Vec::<u64>::new());
    hub.publish(vec![event("/pods/a", 4, 1)]);
    let (events, to) = revisions(hub.step(id, &key("/pods/"), 3));
    assert_eq!((events, to), (vec![4], 4));
}
