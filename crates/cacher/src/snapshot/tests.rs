//! Tests of history against a model: past states, trimming, gaps.

use std::collections::BTreeMap;

use super::*;
use watchet_api::{ColumnSet, EventType, FieldColumn, FieldSelector, ResolvedFieldSelector};

fn rv(n: u64) -> ResourceVersion {
    ResourceVersion::new(n)
}

fn columns() -> ColumnSet {
    ColumnSet::new(vec![FieldColumn::new("spec.nodeName")])
}

fn object(key: &str, node: u32, at: ResourceVersion) -> Arc<Object> {
    let stored = format!(r#"{{"metadata":{{}},"spec":{{"nodeName":"n{node}"}}}}"#);
    let (key, stored) = (ObjectKey::from(key), stored.as_bytes());
    Arc::new(Object::decode(key, at, EventType::Added, stored, &columns()).unwrap())
}

fn empty() -> Snapshot {
    Snapshot::new(0, ObjectMap::new(), &[FieldRef::Column(0)], rv(1))
}

fn predicate(fields: &str) -> SelectionPredicate {
    let fields: FieldSelector = fields.parse().unwrap();
    let fields = ResolvedFieldSelector::resolve(&fields, &columns()).unwrap();
    SelectionPredicate::new(None, Default::default(), fields)
}

type Model = BTreeMap<ObjectKey, ResourceVersion>;

fn model(objects: &ObjectMap) -> Model {
    objects
        .iter()
        .map(|(key, object)| (key.clone(), object.resource_version()))
        .collect()
}

/// Returns a revision of a few random keys.
fn revision(
    snapshot: &Snapshot,
    random: &mut fastrand::Rng,
    at: ResourceVersion,
) -> Vec<CacheEvent> {
    let mut keys: Vec<u32> = (0..20).collect();
    random.shuffle(&mut keys);
    let received = Instant::now();
    let change = |key: &u32, random: &mut fastrand::Rng| {
        let key = format!("ns/{key:02}");
        let before = snapshot.objects().get(key.as_str()).cloned();
        match before {
            Some(before) if random.bool() => {
                CacheEvent::delete(before.deleted_at(at), before, received)
            }
            before => CacheEvent::put(object(&key, random.u32(0..4), at), before, received),
        }
    };
    keys[..random.usize(1..5)]
        .iter()
        .map(|key| change(key, random))
        .collect()
}

#[test]
fn past_states_and_indexes_equal_the_model() {
    let seed = watchet_test_util::seeds::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut snapshot = empty();
    let mut states = BTreeMap::from([(rv(1), Model::new())]);
    let mut version = 1;
    for _ in 0..1000 {
        version += random.u64(1..4);
        let revision = revision(&snapshot, &mut random, rv(version));
        snapshot.push(revision);
        states.insert(snapshot.at, model(snapshot.objects()));
        if random.u32(..10) == 0 {
            version += 1;
            snapshot.advance(rv(version));
        }
        for node in 0..5 {
            let pinned = predicate(&format!("spec.nodeName=n{node}"));
            let (candidates, _) = snapshot.candidates(&pinned, None);
            let all = snapshot.objects().iter();
            let scanned = all.filter(|(_, object)| pinned.matches(object));
            let scanned = scanned.map(|(key, object)| (key.clone(), object.clone()));
            let scanned = model(&scanned.collect());
            assert_eq!(model(&candidates), scanned, "seed {seed}: n{node}");
        }
    }
    // Versions between two revisions have the state of the earlier one.
    let mut state = &states[&rv(1)];
    for at in 1..=version {
        state = states.get(&rv(at)).unwrap_or(state);
        let objects = snapshot.objects_at(rv(at)).unwrap();
        assert_eq!(&model(&objects), state, "seed {seed}: at {at}");
    }
    assert!(snapshot.checkpoints.len() > 5, "checkpoints were used");
}

#[tokio::test(start_paused = true)]
async fn trimming_removes_events_and_checkpoints() {
    let mut random = fastrand::Rng::with_seed(watchet_test_util::seeds::seed_or(1));
    let mut snapshot = empty();
    let window = Duration::from_secs(75);
    for version in 2..1500 {
        let revision = revision(&snapshot, &mut random, rv(version));
        snapshot.push(revision);
        snapshot.trim(usize::MAX, window);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    // Two or three events each second.
    assert_eq!(snapshot.reaches_back_to(), rv(1499 - 76));
    assert!(snapshot.checkpoints.iter().all(|(at, _)| *at >= rv(1423)));
    assert!(snapshot.events_after(rv(1422)).is_err());
    assert!(snapshot.objects_at(rv(1422)).is_err());
    assert!(snapshot.events_after(rv(1423)).is_ok());

    // The last hundred events remain regardless of age, by whole revisions.
    tokio::time::advance(Duration::from_secs(3600)).await;
    snapshot.trim(usize::MAX, window);
    let retained = snapshot
        .events_after(snapshot.reaches_back_to())
        .unwrap()
        .len();
    assert!((100..105).contains(&retained), "{retained}");
    // Unless they exceed the memory limit.
    snapshot.trim(snapshot.history_bytes / 2, window);
    let left = snapshot
        .events_after(snapshot.reaches_back_to())
        .unwrap()
        .len();
    assert!((45..55).contains(&left), "{left} of {retained}");
    snapshot.trim(0, window);
    assert_eq!(
        (snapshot.reaches_back_to(), snapshot.history_bytes),
        (rv(1499), 0)
    );
}
