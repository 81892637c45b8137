//! The model test: random operations, compared with a map of all revisions: every list at every live revision, and
//! every replay of a watch. The seed is printed.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use futures::{StreamExt as _, stream};
use watchet::api::{ResourceVersion, StorageKey};
use watchet::storage::{
    Expect, KeyValue, ListRequest, Outcome, Storage, StorageError, StorageEvent,
};
use watchet::tasks::Tasks;

use super::support::{Follow, key, list, page, put};
use watchet_test_util::seeds::seed_or;

const PREFIXES: [&str; 4] = ["/pods/", "/pods/foo/", "/pods/foobar/", "/secrets/"];
const KEYS: [&str; 8] = [
    "/pods/foo/a",
    "/pods/foo/b",
    "/pods/foo/b.c",
    "/pods/foo-1/a",
    "/pods/foobar/a",
    "/pods/foobar/b",
    "/secrets/foo/a",
    "/secrets/foo/b",
];

/// The number of revisions that are compared concurrently: etcd serves watches that start in the past every 100 ms,
/// many at a time.
const CONCURRENT_CHECKS: usize = 64;

type State = BTreeMap<StorageKey, KeyValue>;

/// The expected state after every revision, and the events between them.
pub(crate) struct Model {
    states: BTreeMap<ResourceVersion, State>,
    events: BTreeMap<ResourceVersion, StorageEvent>,
    compacted: ResourceVersion,
}

impl Model {
    /// Returns the model of a store that is empty at `revision`.
    pub(crate) fn empty_at(revision: ResourceVersion) -> Self {
        Self {
            states: BTreeMap::from([(revision, State::new())]),
            events: BTreeMap::new(),
            compacted: ResourceVersion::ZERO,
        }
    }

    pub(crate) fn revision(&self) -> ResourceVersion {
        *self.states.last_key_value().expect("never empty").0
    }

    pub(crate) fn state(&self) -> &State {
        self.states.last_key_value().expect("never empty").1
    }

    /// Applies a successful operation at `revision`.
    pub(crate) fn apply(
        &mut self,
        at: &StorageKey,
        value: Option<Bytes>,
        revision: ResourceVersion,
    ) {
        assert!(revision > self.revision(), "revisions only grow");
        let mut state = self.state().clone();
        let previous = state.remove(at);
        if let Some(value) = value.clone() {
            let item = KeyValue {
                key: at.clone(),
                value,
                create_revision: previous.as_ref().map_or(revision, |p| p.create_revision),
                mod_revision: revision,
                is_stale: false,
            };
            state.insert(at.clone(), item);
        }
        let event = StorageEvent {
            key: at.clone(),
            revision,
            value,
            previous: previous.map(|item| item.value),
        };
        self.states.insert(revision, state);
        self.events.insert(revision, event);
    }

    /// Drops the history before `at`.
    pub(crate) fn compact(&mut self, at: ResourceVersion) {
        self.compacted = at;
        self.states = self.states.split_off(&at);
    }

    fn expected(&self, revision: ResourceVersion, prefix: &str, start: &str) -> Vec<KeyValue> {
        let from = format!("{prefix}{start}");
        self.states[&revision]
            .values()
            .filter(|item| key(prefix).covers(item.key.as_str()) && item.key.as_str() >= &*from)
            .cloned()
            .collect()
    }

    /// Compares the oldest list, the latest list and the whole history. Panics if they differ; returns an error if the
    /// store cannot read them.
    pub(crate) async fn verify(&self, store: &Arc<dyn Storage>) -> Result<(), StorageError> {
        assert_eq!(store.current_revision().await?, self.revision());
        let oldest = *self.states.first_key_value().expect("never empty").0;
        for prefix in ["/pods/", "/secrets/"] {
            for revision in [oldest, self.revision()] {
                let listed = list(store, prefix, Some(revision)).await?;
                let expected = self.expected(revision, prefix, "");
                assert_eq!(listed.items, expected, "{prefix} at {revision}");
            }
            let mut replay = Follow::open(store, prefix, oldest).await;
            replay.watch.progress.request();
            let mut events = Vec::new();
            loop {
                let batch = replay.batch().await?;
                events.extend(batch.events);
                if batch.revision >= self.revision() {
                    break;
                }
            }
            let expected = self.events_of(prefix, oldest);
            assert_eq!(events, expected, "{prefix} after {oldest}");
        }
        Ok(())
    }

    fn events_of(&self, prefix: &str, after: ResourceVersion) -> Vec<StorageEvent> {
        let after = self.events.range((Excluded(after), Unbounded));
        after
            .map(|(_, event)| event)
            .filter(|event| key(prefix).covers(event.key.as_str()))
            .cloned()
            .collect()
    }

    /// Compares every list at every live revision, and a watch from each.
    pub(crate) async fn check(&self, store: &Arc<dyn Storage>) {
        assert_eq!(store.current_revision().await.unwrap(), self.revision());
        let places = PREFIXES
            .into_iter()
            .flat_map(|prefix| self.states.keys().map(move |revision| (prefix, *revision)));
        stream::iter(places)
            .for_each_concurrent(CONCURRENT_CHECKS, |(prefix, revision)| async move {
                let listed = list(store, prefix, Some(revision)).await.unwrap();
                let expected = self.expected(revision, prefix, "");
                assert_eq!(listed.items, expected, "{prefix} at {revision}");
                let mut replay = Follow::open(store, prefix, revision).await;
                let events = replay.until(self.revision()).await;
                let expected = self.events_of(prefix, revision);
                assert_eq!(events, expected, "{prefix} after {revision}");
            })
            .await;
        for at in KEYS {
            let (found, _) = store.get(&key(at)).await.unwrap();
            assert_eq!(found.as_ref(), self.state().get(&key(at)), "{at}");
        }
        if self.compacted > ResourceVersion::new(1) {
            let gone = ResourceVersion::new(self.compacted.get() - 1);
            let error = list(store, "/pods/", Some(gone)).await.unwrap_err();
            assert!(matches!(error, StorageError::Compacted { .. }), "{error:?}");
        }
    }
}

/// Makes a random operation on the store and, if it succeeds, on the model.
pub(crate) async fn step(store: &Arc<dyn Storage>, model: &mut Model, random: &mut Rng) {
    let at = KEYS[random.usize(..KEYS.len())];
    let current = model.state().get(&key(at)).cloned();
    let expect = match (&current, random.usize(..10)) {
        (_, 0) => Expect::Absent,
        (_, 1) => Expect::At(ResourceVersion::new(1 + random.u64(..) % 64)),
        (Some(item), _) => Expect::At(item.mod_revision),
        (None, _) => Expect::Absent,
    };
    let met = match (&current, expect) {
        (None, Expect::Absent) => true,
        (Some(item), Expect::At(revision)) => item.mod_revision == revision,
        _ => false,
    };
    let (value, outcome) = match expect {
        Expect::At(revision) if random.usize(..3) == 0 => {
            (None, store.delete(&key(at), revision).await.unwrap())
        }
        _ => {
            let value = "v".repeat(random.usize(..2000)) + &random.u64(..).to_string();
            let outcome = put(store, at, &value, expect).await.unwrap();
            (Some(Bytes::from(value)), outcome)
        }
    };
    match outcome {
        Outcome::Done(revision) => {
            assert!(met, "{at} {expect:?} was taken over {current:?}");
            model.apply(&key(at), value, revision);
        }
        Outcome::Refused(shown) => {
            assert!(!met, "{at} {expect:?} was refused over {current:?}");
            let readable = current.filter(|_| expect != Expect::Absent);
            assert_eq!(shown, readable, "{at} {expect:?}");
        }
    }
}

/// Compares a random page of a random live state.
async fn random_page(store: &Arc<dyn Storage>, model: &Model, random: &mut Rng) {
    let prefix = PREFIXES[random.usize(..PREFIXES.len())];
    let start = ["", "foo/", "foo/b\0", "foobar/a", "a", "z"][random.usize(..6)];
    let limit = random.usize(..5);
    let revisions: Vec<_> = model.states.keys().copied().collect();
    let revision = revisions[random.usize(..revisions.len())];
    let whole = model.expected(revision, prefix, start);
    let part = page(store, prefix, start, Some(revision), limit)
        .await
        .unwrap();
    let taken = if limit == 0 {
        whole.len()
    } else {
        limit.min(whole.len())
    };
    assert_eq!(part.items, whole[..taken], "{prefix}{start} at {revision}");
    assert_eq!(part.remaining, Some((whole.len() - taken) as u64));
}

pub(crate) async fn random_operations_agree_with_the_model(store: Arc<dyn Storage>) {
    let mut random = Rng::with_seed(seed_or(0x5eed_0001));
    let mut model = Model::empty_at(store.current_revision().await.unwrap());
    let mut live = Follow::open(&store, "/pods/", model.revision()).await;
    let mut seen = Vec::new();
    for round in 0..3 {
        for _ in 0..60 {
            step(&store, &mut model, &mut random).await;
            if random.usize(..4) == 0 {
                random_page(&store, &model, &mut random).await;
            }
            if random.usize(..10) == 0 {
                seen.extend(live.until(model.revision()).await);
            }
        }
        model.check(&store).await;
        if round < 2 {
            let revisions: Vec<_> = model.states.keys().copied().collect();
            let at = revisions[random.usize(..revisions.len())];
            store.compact(at).await.unwrap();
            model.compact(at);
            model.check(&store).await;
        }
    }
    seen.extend(live.until(model.revision()).await);
    let expected = model.events_of("/pods/", ResourceVersion::ZERO);
    assert_eq!(seen, expected, "the live watch saw all of history once");
}

/// The outcomes of concurrent writers are consistent with one history, which is replayed.
pub(crate) async fn concurrent_writers_make_one_history(store: Arc<dyn Storage>) {
    let start = store.current_revision().await.unwrap();
    let tasks = Tasks::new();
    let seed = seed_or(0x5eed_1000);
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = store.clone();
            tasks.spawn("writer", async move {
                let mut random = Rng::with_seed(seed.wrapping_add(writer));
                let mut made = Vec::new();
                for _ in 0..40 {
                    let at = KEYS[random.usize(..3)];
                    let (found, _) = store.get(&key(at)).await.unwrap();
                    let value = random.u64(..).to_string();
                    let outcome = match found {
                        Some(item) if random.usize(..4) == 0 => {
                            let outcome = store.delete(&key(at), item.mod_revision).await;
                            (None, outcome.unwrap())
                        }
                        Some(item) => {
                            let expect = Expect::At(item.mod_revision);
                            let outcome = put(&store, at, &value, expect).await.unwrap();
                            (Some(Bytes::from(value)), outcome)
                        }
                        None => {
                            let outcome = put(&store, at, &value, Expect::Absent).await.unwrap();
                            (Some(Bytes::from(value)), outcome)
                        }
                    };
                    if let (value, Outcome::Done(revision)) = outcome {
                        made.push((revision, at, value));
                    }
                }
                made
            })
        })
        .collect();
    let mut made = Vec::new();
    for writer in writers {
        made.extend(writer.await.unwrap());
    }
    made.sort();
    let mut model = Model::empty_at(start);
    for (revision, at, value) in made {
        model.apply(&key(at), value, revision);
    }
    model.check(&store).await;
    let whole = ListRequest {
        prefix: key("/pods/"),
        start: String::new(),
        at: None,
        limit: 0,
        count: false,
    };
    let listed = store.list(whole).await.unwrap();
    assert_eq!(listed.revision, model.revision());
}
