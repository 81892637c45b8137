//! Tests of new watches from versions at which the cache could not follow storage: they receive
//! every event since their version or a 410. The seed is printed; `WATCHET_SEED` repeats a run.

use std::collections::BTreeMap;

use super::*;

fn exactly(version: ResourceVersion) -> ListOptions {
    ListOptions {
        resource_version: Some(version),
        resource_version_match: Some(ResourceVersionMatch::Exact),
        ..ListOptions::default()
    }
}

/// Waits until the cache has listed again after a repair of its storage.
async fn wait_until_repaired(f: &Fixture) {
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(f.cacher.readiness(), Ok(()));
}

/// Asserts that a new watch from `after` gets a 410, because history begins after `oldest`.
async fn assert_rejected(f: &Fixture, after: ResourceVersion, oldest: ResourceVersion) {
    let mut watch = f.watch(everything(), from(after)).await;
    let expected = format!("ERROR too old resource version: {after} ({oldest})");
    assert_eq!(drain(&mut watch).await, [&*expected, "END"]);
}

/// While storage had an unreadable value, which was later deleted, a watch that resumed from before
/// the gap received only the last of five changes of another object, without a 410.
#[tokio::test(start_paused = true)]
async fn changes_during_an_unreadable_value_are_replayed() {
    let f = Fixture::start();
    let first = f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    f.storage.write("/pods/ns/bad", garbage());
    for _ in 0..5 {
        f.put("ns/a", "web", "n1");
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut stuck = f.watch(everything(), from(first)).await;
    assert!(drain(&mut stuck).await.is_empty());
    f.storage.write("/pods/ns/bad", None);
    wait_until_repaired(&f).await;
    let events: Vec<String> = (4..=8).map(|at| format!("MODIFIED ns/a@{at}")).collect();
    assert_eq!(drain(&mut stuck).await, events);
    for after in 2..=8 {
        let mut watch = f.watch(everything(), from(rv(after))).await;
        let expected = &events[(after as usize).saturating_sub(3)..];
        assert_eq!(drain(&mut watch).await, expected, "after {after}");
    }
    assert_eq!(f.keys(exactly(rv(5))).await, ["ns/a"]);
}

/// An object overwritten with an unreadable value remains as it was until it is deleted or
/// repaired.
#[tokio::test(start_paused = true)]
async fn unreadable_object_ends_with_its_deletion() {
    let f = Fixture::start();
    f.put("ns/a", "web", "n1");
    let last = f.put("ns/b", "web", "n1");
    f.wait_until_synced().await;
    f.storage.write("/pods/ns/a", garbage());
    f.storage.write("/pods/ns/b", garbage());
    f.storage.write("/pods/ns/a", None);
    f.put("ns/b", "db", "n1");
    wait_until_repaired(&f).await;
    let mut watch = f.watch(everything(), from(last)).await;
    assert_eq!(
        drain(&mut watch).await,
        ["DELETED ns/a@6", "MODIFIED ns/b@7"]
    );
}

/// Compacted history cannot be replayed: later watches are rejected.
#[tokio::test(start_paused = true)]
async fn compacted_gap_is_a_410() {
    let f = Fixture::start();
    let first = f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    f.storage.write("/pods/ns/bad", garbage());
    for _ in 0..5 {
        f.put("ns/a", "web", "n1");
    }
    let last = f.storage.write("/pods/ns/bad", None);
    f.storage.compact_to(last);
    wait_until_repaired(&f).await;
    for after in [1, first.get(), 3, last.get() - 1] {
        assert_rejected(&f, rv(after), last).await;
    }
    let mut watch = f.watch(everything(), from(last)).await;
    assert!(drain(&mut watch).await.is_empty());
}

/// Events that exceed the memory limit of history are not replayed.
#[tokio::test(start_paused = true)]
async fn events_over_the_memory_limit_are_a_gap() {
    let config = CacherConfig {
        history_bytes_max: 20_000,
        ..CacherConfig::default()
    };
    let f = Fixture::over(FakeStorage::new(), config);
    let first = f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    f.storage.write("/pods/ns/bad", garbage());
    for _ in 0..200 {
        f.put("ns/a", "web", "n1");
    }
    let last = f.storage.write("/pods/ns/bad", None);
    wait_until_repaired(&f).await;
    assert_rejected(&f, first, last).await;
    assert_eq!(f.keys(ListOptions::default()).await, ["ns/a"]);
}

const KEYS: [&str; 4] = ["ns/a", "ns/b", "ns/c", "ns/d"];

/// The writes, and the events that watches must return.
#[derive(Default)]
struct Log {
    /// The readable objects.
    state: BTreeMap<&'static str, ()>,
    /// The keys with unreadable values.
    unreadable: BTreeMap<&'static str, ()>,
    /// The description of each event, by version.
    events: Vec<(ResourceVersion, String)>,
    is_compacted: bool,
}

impl Log {
    fn push(&mut self, kind: &str, key: &str, at: ResourceVersion) {
        self.events.push((at, format!("{kind} {key}@{at}")));
    }

    fn put(&mut self, f: &Fixture, key: &'static str) {
        let at = f.put(key, "web", "n1");
        self.unreadable.remove(key);
        let kind = match self.state.insert(key, ()) {
            None => "ADDED",
            Some(()) => "MODIFIED",
        };
        self.push(kind, key, at);
    }

    fn put_unreadable(&mut self, f: &Fixture, key: &'static str) {
        f.storage.write(&format!("/pods/{key}"), garbage());
        self.unreadable.insert(key, ());
    }

    fn delete(&mut self, f: &Fixture, key: &'static str) {
        if !self.state.contains_key(key) && !self.unreadable.contains_key(key) {
            return;
        }
        let at = f.delete(key);
        self.unreadable.remove(key);
        if self.state.remove(key).is_some() {
            self.push("DELETED", key, at);
        }
    }

    fn after(&self, version: ResourceVersion) -> Vec<&str> {
        let later = self.events.iter().filter(|(at, _)| *at > version);
        later.map(|(_, event)| &**event).collect()
    }
}

/// Writes random readable and unreadable values and cuts the storage watch; then starts a watch from every
/// version, also in a restarted cache, whose older history ended at an unreadable value. Returns the numbers of
/// rejected and of all watches.
async fn run(seed: u64) -> (usize, usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let f = Fixture::start();
    f.wait_until_synced().await;
    let mut log = Log::default();
    for _ in 0..60 {
        let key = KEYS[random.usize(..KEYS.len())];
        match random.u32(..100) {
            0..8 => log.put_unreadable(&f, key),
            8..30 => log.delete(&f, key),
            30..40 => tokio::time::sleep(Duration::from_millis(random.u64(..3_000))).await,
            40..44 => {
                f.storage.set_down(true);
                f.storage.set_down(false);
            }
            44 => {
                log.is_compacted = true;
                f.storage.compact_to(f.storage.revision());
            }
            _ => log.put(&f, key),
        }
    }
    for key in log.unreadable.clone().into_keys() {
        match random.bool() {
            true => log.put(&f, key),
            false => log.delete(&f, key),
        }
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(f.cacher.readiness(), Ok(()), "seed {seed}");
    let config = CacherConfig {
        // As long as the watches below take.
        history_window: Duration::from_secs(3600),
        ..CacherConfig::default()
    };
    let restarted = Fixture::over(f.storage.clone(), config);
    let rejected = [
        rejected(&f, &log, seed).await,
        rejected(&restarted, &log, seed).await,
    ];
    (
        rejected.iter().sum(),
        2 * f.storage.revision().get() as usize,
    )
}

/// Starts a watch from every version. Returns the number of rejected watches.
async fn rejected(f: &Fixture, log: &Log, seed: u64) -> usize {
    let mut rejected = 0;
    for after in 1..=f.storage.revision().get() {
        let mut watch = f.watch(everything(), from(rv(after))).await;
        let events = drain(&mut watch).await;
        if events.last().is_some_and(|event| event == "END") {
            assert_eq!(events.len(), 2, "seed {seed}, after {after}: {events:?}");
            assert!(log.is_compacted, "seed {seed}, after {after}: {events:?}");
            rejected += 1;
            continue;
        }
        assert_eq!(events, log.after(rv(after)), "seed {seed}, after {after}");
    }
    rejected
}

#[tokio::test(start_paused = true)]
async fn watches_receive_every_event_or_a_410() {
    let (mut rejected, mut all) = (0, 0);
    for seed in watchet_test_util::seeds::seeds(60) {
        let (some, of) = run(seed).await;
        (rejected, all) = (rejected + some, all + of);
    }
    assert!(
        rejected * 4 < all * 3,
        "{rejected} of {all} watches were rejected"
    );
}
