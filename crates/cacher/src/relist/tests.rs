//! Property test of relists: the old state plus the returned revisions equals the new state.

use super::*;
use watchet_api::{ColumnSet, EventType, ObjectKey};

fn rv(n: u64) -> ResourceVersion {
    ResourceVersion::new(n)
}

fn object(key: &str, uid: u64, at: u64) -> (ObjectKey, Arc<Object>) {
    let key = ObjectKey::from(key);
    let stored = format!(r#"{{"metadata":{{"uid":"{uid}"}}}}"#);
    let stored = stored.as_bytes();
    let columns = ColumnSet::default();
    let object = Object::decode(key.clone(), rv(at), EventType::Added, stored, &columns);
    (key, Arc::new(object.unwrap()))
}

fn snapshot(at: u64, objects: impl IntoIterator<Item = (ObjectKey, Arc<Object>)>) -> Snapshot {
    Snapshot::new(0, objects.into_iter().collect(), &[], rv(at))
}

#[test]
fn old_state_and_events_give_the_new_state() {
    let seed = watchet_test_util::seeds::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..500 {
        let at = random.u64(100..110);
        let mut old_objects = Vec::new();
        let mut new = ObjectMap::new();
        for n in 0..8 {
            let key = format!("ns/{n}");
            let before = random.bool().then(|| object(&key, 0, random.u64(1..=100)));
            let after = match &before {
                Some(old_object) if random.bool() => Some(old_object.clone()),
                _ if at == 100 || random.bool() => None,
                _ => Some(object(&key, random.u64(0..2), random.u64(101..=at))),
            };
            old_objects.extend(before);
            new.extend(after);
        }
        let old = snapshot(100, old_objects);
        let Some(revisions) = changes(&old, &new, rv(at)) else {
            let deleted = old.objects().keys().any(|key| !new.contains_key(key));
            assert!(
                at == 100 && deleted,
                "seed {seed}: refused without a reason"
            );
            continue;
        };
        let mut now = old.clone();
        for revision in revisions {
            // This also asserts that revisions rise, and that each is one.
            now.push(revision);
        }
        assert!(now.at <= rv(at));
        assert_eq!(
            now.objects().values().map(|o| o.body()).collect::<Vec<_>>(),
            new.values().map(|o| o.body()).collect::<Vec<_>>(),
            "seed {seed}"
        );
    }
}

#[test]
fn contradicting_lists_return_none() {
    let old = snapshot(100, [object("ns/a", 0, 50)]);
    let objects = |key, at| ObjectMap::from_iter([object(key, 0, at)]);
    assert!(
        changes(&old, &objects("ns/a", 50), rv(99)).is_none(),
        "an older list"
    );
    assert!(
        changes(&old, &objects("ns/a", 60), rv(110)).is_none(),
        "an older version"
    );
    assert!(
        changes(&old, &objects("ns/a", 111), rv(110)).is_none(),
        "ahead of its list"
    );
    assert!(
        changes(&old, &ObjectMap::new(), rv(100)).is_none(),
        "no version left for the deletion"
    );
    assert!(
        changes(&old, &objects("ns/a", 50), rv(100)).is_some_and(|revisions| revisions.is_empty())
    );
}

/// Each deletion searched for a version of its own: an hour of expired Events blocked the cache for
/// a minute.
#[test]
fn many_deletions_are_one_revision() {
    let objects = (0..100_000).map(|n| object(&format!("ns/{n}"), 0, n + 1));
    let old = snapshot(100_000, objects);
    let revisions = changes(&old, &ObjectMap::new(), rv(200_000)).unwrap();
    assert_eq!(
        revisions.iter().map(Vec::len).collect::<Vec<_>>(),
        [100_000]
    );
    assert_eq!(revisions[0][0].resource_version(), rv(100_001));
}
