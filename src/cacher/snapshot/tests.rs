//! Selecting from a state: ranges, limits, what remains.

use super::*;
use crate::api::{ColumnSet, EventType, ResolvedFieldSelector};

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

fn check(namespace: Option<&str>, labels: &str, start: &str, limit: usize, expect: &str) {
    let map = objects(&["a/1", "a/2x", "a-b/1", "ab/1x", "b/1", "b/2"]);
    let labels = labels.parse().unwrap();
    let predicate = SelectionPredicate::new(namespace, labels, ResolvedFieldSelector::default());
    let page = select(&map, &predicate, start, limit);
    let keys: Vec<_> = page
        .items
        .iter()
        .map(|object| object.key().to_string())
        .collect();
    let more = page
        .more_after
        .map(|key| key.to_string())
        .unwrap_or_default();
    let told = format!("{} | {more} | {:?}", keys.join(" "), page.remaining);
    assert_eq!(
        told, expect,
        "{namespace:?} {predicate:?} from {start:?} limit {limit}"
    );
}

#[test]
fn ranges_limits_and_what_remains() {
    check(None, "", "", 0, "a-b/1 a/1 a/2x ab/1x b/1 b/2 |  | None");
    check(Some("a"), "", "", 0, "a/1 a/2x |  | None");
    check(Some("a"), "", "", 1, "a/1 | a/1 | Some(1)");
    check(Some("a"), "", "a/1\0", 1, "a/2x |  | None");
    check(Some("zz"), "", "", 1, " |  | None");
    check(None, "", "a/2x\0", 2, "ab/1x b/1 | b/1 | Some(1)");
    check(None, "app=x", "", 1, "a/2x | a/2x | None");
    // WC-104: more raw objects follow, none of which matches.
    check(None, "app=x", "a/2x\0", 1, "ab/1x | ab/1x | None");
    check(None, "app=x", "ab/1x\0", 1, " |  | None");
}
