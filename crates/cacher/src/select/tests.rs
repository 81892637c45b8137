//! Tests of selection: ranges, limits, counts.

use super::*;
use watchet_api::{ColumnSet, EventType, ResolvedFieldSelector, ResourceVersion};

fn objects(keys: &[&str]) -> ObjectMap {
    let columns = ColumnSet::default();
    let decode = |key: &str| {
        let app = if key.ends_with('x') { "x" } else { "y" };
        let stored = format!(r#"{{"metadata":{{"labels":{{"app":"{app}"}}}}}}"#);
        let (key, at) = (ObjectKey::from(key), ResourceVersion::new(1));
        Arc::new(Object::decode(key, at, EventType::Added, stored.as_bytes(), &columns).unwrap())
    };
    keys.iter()
        .map(|key| (ObjectKey::from(*key), decode(key)))
        .collect()
}

/// A `limit` of 0 means no limit.
fn check(namespace: Option<&str>, labels: &str, start: &str, limit: usize, expect: &str) {
    let map = objects(&["a/1", "a/2x", "a-b/1", "ab/1x", "b/1", "b/2"]);
    let labels = labels.parse().unwrap();
    let predicate = SelectionPredicate::new(namespace, labels, ResolvedFieldSelector::default());
    let part = select(
        &map,
        &predicate,
        start,
        if limit == 0 { usize::MAX } else { limit },
    );
    let keys: Vec<_> = part
        .items
        .iter()
        .map(|object| object.key().to_string())
        .collect();
    let more = part
        .more_after
        .map(|key| key.to_string())
        .unwrap_or_default();
    let result = format!(
        "{} | {more} | {}",
        keys.join(" "),
        count(&map, &predicate, start)
    );
    assert_eq!(
        result, expect,
        "{namespace:?} {predicate:?} from {start:?} limit {limit}"
    );
}

#[test]
fn ranges_limits_and_counts() {
    check(None, "", "", 0, "a-b/1 a/1 a/2x ab/1x b/1 b/2 |  | 6");
    check(Some("a"), "", "", 0, "a/1 a/2x |  | 2");
    check(Some("a"), "", "", 1, "a/1 | a/1 | 2");
    check(Some("a"), "", "a/1\0", 1, "a/2x |  | 1");
    check(Some("a"), "", "b", 1, " |  | 0");
    check(Some("zz"), "", "", 1, " |  | 0");
    check(None, "", "a/2x\0", 2, "ab/1x b/1 | b/1 | 3");
    check(None, "app=x", "", 1, "a/2x | a/2x | 6");
    // WC-104: more raw objects follow, none of which matches.
    check(None, "app=x", "a/2x\0", 1, "ab/1x | ab/1x | 3");
    check(None, "app=x", "ab/1x\0", 1, " |  | 2");
}

#[test]
fn examined_objects_are_bounded_without_matches() {
    let keys: Vec<String> = (0..10_000).map(|n| format!("ns/{n:05}")).collect();
    let map = objects(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let labels = "app=x".parse().unwrap();
    let predicate = SelectionPredicate::new(None, labels, ResolvedFieldSelector::default());
    let mut start = String::new();
    let mut calls = 0;
    loop {
        let part = select(&map, &predicate, &start, 1);
        assert!(part.items.is_empty());
        calls += 1;
        match part.more_after {
            Some(last) => start = format!("{last}\0"),
            None => break,
        }
    }
    assert_eq!(calls, 3, "of {EXAMINED_MAX} each");
}
