//! Conversion of events between the core group and `events.k8s.io`. Both groups have the same fields under different
//! names, and events are stored in the representation of the core group, so each group shows the other's objects.

use serde_json::{Map, Value};

/// The names of each field: in `events.k8s.io`, and in the core group.
const MEMBERS: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// The `apiVersion` of the newer group.
pub(crate) const VERSION: &str = "events.k8s.io/v1";

/// Converts an event of the newer group to the representation of the core group.
pub(crate) fn to_core(event: Value) -> Value {
    let names = MEMBERS.iter().map(|(newer, core)| (*newer, *core));
    renamed(event, names, "v1")
}

/// Converts an event of the core group to the representation of the newer group.
pub(crate) fn from_core(event: Value) -> Value {
    let names = MEMBERS.iter().map(|(newer, core)| (*core, *newer));
    renamed(event, names, VERSION)
}

fn renamed<'a>(
    object: Value,
    names: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    api_version: &str,
) -> Value {
    let Value::Object(members) = object else {
        return object;
    };
    let mut renamed = Map::new();
    for (member, value) in members {
        let name = names.clone().find(|(from, _)| *from == member);
        renamed.insert(name.map_or(member, |(_, to)| to.to_owned()), value);
    }
    renamed.insert("apiVersion".to_owned(), api_version.into());
    Value::Object(renamed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_representations_convert_without_loss() {
        let shown = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": "e"}, "regarding": {"kind": "Pod"}, "note": "n", "reason": "r",
            "reportingController": "c", "deprecatedCount": 2, "eventTime": null,
            "deprecatedSource": {"component": "x"}, "deprecatedFirstTimestamp": "t1",
            "deprecatedLastTimestamp": "t2", "series": {"count": 1}});
        let stored = json!({"apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}, "message": "n",
            "reason": "r", "reportingComponent": "c", "count": 2, "eventTime": null,
            "source": {"component": "x"}, "firstTimestamp": "t1", "lastTimestamp": "t2",
            "series": {"count": 1}});
        assert_eq!(to_core(shown.clone()), stored);
        assert_eq!(from_core(stored), shown);
    }
}
