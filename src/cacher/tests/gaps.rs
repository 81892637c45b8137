//! What a new watch receives about the time in which the cache could not follow storage: every event since its
//! version, or a 410, never a part of them. The seed is printed; `WATCHET_SEED` repeats a run.

use std::collections::BTreeMap;

use super::*;

fn exactly(version: ResourceVersion) -> ListOptions {
    ListOptions {
        resource_version: Some(version),
        resource_version_match: Some(ResourceVersionMatch::Exact),
        ..ListOptions::default()
    }
}

/// Waits until the cache has listed again after its storage was repaired.
async fn repaired(f: &Fixture) {
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(f.cacher.readiness(), Ok(()));
}

/// Checks that a new watch from `after` is refused, because history begins after `oldest`.
async fn is_refused(f: &Fixture, after: ResourceVersion, oldest: ResourceVersion) {
    let mut watch = f.watch(everything(), from(after)).await;
    let expected = format!("ERROR too old resource version: {after} ({oldest})");
    assert_eq!(said(&mut watch).await, [&*expected, "END"]);
}

/// While an unreadable value lay in storage and was then deleted, a watch that resumed from just before the
/// gap got only the last of five changes of another object, without a 410.
#[tokio::test(start_paused = true)]
async fn what_happened_beside_an_unreadable_value_is_replayed() {
    let f = Fixture::start();
    let first = f.put("ns/a", "web", "n1");
    f.settle().await;
    f.storage.write("/pods/ns/bad", garbage());
    for _ in 0..5 {
        f.put("ns/a", "web", "n1");
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut stuck = f.watch(everything(), from(first)).await;
    assert!(said(&mut stuck).await.is_empty());
    f.storage.write("/pods/ns/bad", None);
    repaired(&f).await;
    let told: Vec<String> = (4..=8).map(|at| format!("MODIFIED ns/a@{at}")).collect();
    assert_eq!(said(&mut stuck).await, told);
    for after in 2..=8 {
        let mut watch = f.watch(everything(), from(rv(after))).await;
        let expected = &told[(after as usize).saturating_sub(3)..];
        assert_eq!(said(&mut watch).await, expected, "after {after}");
    }
    assert_eq!(f.keys(exactly(rv(5))).await, ["ns/a"]);
}

/// An object that was overwritten with what cannot be read stays as it was until it is deleted or repaired.
#[tokio::test(start_paused = true)]
async fn an_object_that_became_unreadable_ends_with_its_deletion() {
    let f = Fixture::start();
    f.put("ns/a", "web", "n1");
    let last = f.put("ns/b", "web", "n1");
    f.settle().await;
    f.storage.write("/pods/ns/a", garbage());
    f.storage.write("/pods/ns/b", garbage());
    f.storage.write("/pods/ns/a", None);
    f.put("ns/b", "db", "n1");
    repaired(&f).await;
    let mut watch = f.watch(everything(), from(last)).await;
    assert_eq!(
        said(&mut watch).await,
        ["DELETED ns/a@6", "MODIFIED ns/b@7"]
    );
}

/// History that storage has forgotten cannot be replayed: later watches are refused.
#[tokio::test(start_paused = true)]
async fn a_gap_that_storage_has_forgotten_is_a_410() {
    let f = Fixture::start();
    let first = f.put("ns/a", "web", "n1");
    f.settle().await;
    f.storage.write("/pods/ns/bad", garbage());
    for _ in 0..5 {
        f.put("ns/a", "web", "n1");
    }
    let last = f.storage.write("/pods/ns/bad", None);
    f.storage.compact_to(last);
    repaired(&f).await;
    for after in [1, first.get(), 3, last.get() - 1] {
        is_refused(&f, rv(after), last).await;
    }
    let mut watch = f.watch(everything(), from(last)).await;
    assert!(said(&mut watch).await.is_empty());
}

/// More than history may hold is not replayed.
#[tokio::test(start_paused = true)]
async fn what_takes_too_much_memory_is_a_gap() {
    let config = CacherConfig {
        history_bytes_max: 20_000,
        ..CacherConfig::default()
    };
    let f = Fixture::over(FakeStorage::new(), config);
    let first = f.put("ns/a", "web", "n1");
    f.settle().await;
    f.storage.write("/pods/ns/bad", garbage());
    for _ in 0..200 {
        f.put("ns/a", "web", "n1");
    }
    let last = f.storage.write("/pods/ns/bad", None);
    repaired(&f).await;
    is_refused(&f, first, last).await;
    assert_eq!(f.keys(ListOptions::default()).await, ["ns/a"]);
}

const KEYS: [&str; 4] = ["ns/a", "ns/b", "ns/c", "ns/d"];

/// What was written, and what watches are to tell of it.
#[derive(Default)]
struct Log {
    /// The readable objects.
    state: BTreeMap<&'static str, ()>,
    /// The keys under which there is garbage.
    spoilt: BTreeMap<&'static str, ()>,
    /// The word of each event, by version.
    words: Vec<(ResourceVersion, String)>,
    is_compacted: bool,
}

impl Log {
    fn tell(&mut self, kind: &str, key: &str, at: ResourceVersion) {
        self.words.push((at, format!("{kind} {key}@{at}")));
    }

    fn put(&mut self, f: &Fixture, key: &'static str) {
        let at = f.put(key, "web", "n1");
        self.spoilt.remove(key);
        let kind = match self.state.insert(key, ()) {
            None => "ADDED",
            Some(()) => "MODIFIED",
        };
        self.tell(kind, key, at);
    }

    fn spoil(&mut self, f: &Fixture, key: &'static str) {
        f.storage.write(&format!("/pods/{key}"), garbage());
        self.spoilt.insert(key, ());
    }

    fn delete(&mut self, f: &Fixture, key: &'static str) {
        if !self.state.contains_key(key) && !self.spoilt.contains_key(key) {
            return;
        }
        let at = f.delete(key);
        self.spoilt.remove(key);
        if self.state.remove(key).is_some() {
            self.tell("DELETED", key, at);
        }
    }

    fn after(&self, version: ResourceVersion) -> Vec<&str> {
        let later = self.words.iter().filter(|(at, _)| *at > version);
        later.map(|(_, word)| &**word).collect()
    }
}

/// Random writes, readable and not, and cuts; then a watch from every version there was, also of a cache that
/// begins only then: its history from before, up to an unreadable value, once was none. Returns how many watches
/// were refused, and of how many.
async fn run(seed: u64) -> (usize, usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let f = Fixture::start();
    f.settle().await;
    let mut log = Log::default();
    for _ in 0..60 {
        let key = KEYS[random.usize(..KEYS.len())];
        match random.u32(..100) {
            0..8 => log.spoil(&f, key),
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
    for key in log.spoilt.clone().into_keys() {
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
    let refused = [
        refused(&f, &log, seed).await,
        refused(&restarted, &log, seed).await,
    ];
    (
        refused.iter().sum(),
        2 * f.storage.revision().get() as usize,
    )
}

/// Watches from every version there was. Returns how many of them are refused.
async fn refused(f: &Fixture, log: &Log, seed: u64) -> usize {
    let mut refused = 0;
    for after in 1..=f.storage.revision().get() {
        let mut watch = f.watch(everything(), from(rv(after))).await;
        let words = said(&mut watch).await;
        if words.last().is_some_and(|word| word == "END") {
            assert_eq!(words.len(), 2, "seed {seed}, after {after}: {words:?}");
            assert!(log.is_compacted, "seed {seed}, after {after}: {words:?}");
            refused += 1;
            continue;
        }
        assert_eq!(words, log.after(rv(after)), "seed {seed}, after {after}");
    }
    refused
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_told_every_event_since_its_version_or_a_410() {
    let (mut refused, mut all) = (0, 0);
    for seed in crate::seeds::seeds(60) {
        let (some, of) = run(seed).await;
        (refused, all) = (refused + some, all + of);
    }
    assert!(
        refused * 4 < all * 3,
        "{refused} of {all} watches were refused"
    );
}
