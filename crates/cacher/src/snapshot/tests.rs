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
async fn trimming_removes_events_gaps_and_checkpoints() {
    let mut random = fastrand::Rng::with_seed(watchet_test_util::seeds::seed_or(1));
    let mut snapshot = empty();
    let window = Duration::from_secs(75);
    for version in 2..1500 {
        let revision = revision(&snapshot, &mut random, rv(version));
        snapshot.push(revision);
        if version % 100 == 0 {
            snapshot.relisted(rv(version - 10), rv(version));
        }
        snapshot.trim(usize::MAX, window);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(snapshot.relists, 14);
    // Two or three events each second.
    assert_eq!(snapshot.reaches_back_to(), rv(1499 - 76));
    assert_eq!(snapshot.gaps.len(), 0, "the last gap was 1,390 to 1,400");
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

#[test]
fn states_inside_a_gap_are_unknown() {
    let mut random = fastrand::Rng::with_seed(watchet_test_util::seeds::seed_or(2));
    let mut snapshot = empty();
    for version in 2..20 {
        let revision = revision(&snapshot, &mut random, rv(version));
        snapshot.push(revision);
    }
    snapshot.relisted(rv(10), rv(25));
    snapshot.relisted(rv(25), rv(25));
    for version in 1..=25 {
        let hidden = (11..25).contains(&version);
        let expected = hidden.then_some(TooOld(rv(25)));
        assert_eq!(snapshot.gap_at(rv(version)), expected, "{version}");
        assert_eq!(
            snapshot.objects_at(rv(version)).is_err(),
            hidden,
            "{version}"
        );
    }
}

/// A watch that began before the end of a gap received the relist's difference as if it were every
/// event, so that it missed states without a 410.
#[test]
fn watches_that_begin_before_the_end_of_a_gap_are_rejected() {
    let mut snapshot = empty();
    snapshot.advance(rv(10));
    let before = snapshot.epoch();
    snapshot.relisted(rv(10), rv(20));
    let between = snapshot.epoch();
    snapshot.advance(rv(30));
    snapshot.relisted(rv(30), rv(40));
    let after = snapshot.epoch();
    let rejected_at = |origin, watch| {
        snapshot
            .rejects(rv(origin), watch)
            .map(|TooOld(at)| at.get())
    };
    for (origin, of_before, of_between, of_after) in [
        (5, None, Some(20), Some(40)),
        (10, None, Some(20), Some(40)),
        (15, Some(20), Some(20), Some(40)),
        (20, None, None, Some(40)),
        (30, None, None, Some(40)),
        (35, Some(40), Some(40), Some(40)),
        (40, None, None, None),
    ] {
        assert_eq!(rejected_at(origin, before), of_before, "{origin}");
        assert_eq!(rejected_at(origin, between), of_between, "{origin}");
        assert_eq!(rejected_at(origin, after), of_after, "{origin}");
    }
}

/// Each relist left a gap for the life of the process, which every read of history examined.
#[test]
fn gaps_of_a_quiet_resource_are_bounded() {
    let mut snapshot = empty();
    for round in 1..=1000 {
        snapshot.relisted(rv(round * 10), rv(round * 10 + 5));
        snapshot.advance(rv(round * 10 + 10));
    }
    assert_eq!(snapshot.gaps.len(), GAPS_MAX);
    for (version, hidden) in [
        (10, false),
        (12, true),
        (17, true),
        (9992, true),
        (9997, false),
    ] {
        assert_eq!(snapshot.gap_at(rv(version)).is_some(), hidden, "{version}");
    }
}
