//! Events have two groups and one stored form, the core group's: the newer group renames members and says
//! nothing else, so that each group sees the other's objects.

use serde_json::{Map, Value};

use super::Resource;

/// The newer group's member, and the core group's.
const MEMBERS: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Whether objects of `resource` look different in storage.
pub(super) fn is_converted(resource: &Resource) -> bool {
    resource.is("events.k8s.io", "events")
}

/// The stored form of an object of `resource`.
pub(super) fn to_storage(resource: &Resource, object: Value) -> Value {
    if is_converted(resource) {
        let core = MEMBERS.iter().map(|(newer, core)| (*newer, *core));
        renamed(object, core, "v1")
    } else {
        object
    }
}

/// What a client of `resource` sees of an object in stored form.
pub(super) fn from_storage(resource: &Resource, object: Value) -> Value {
    if is_converted(resource) {
        let newer = MEMBERS.iter().map(|(newer, core)| (*core, *newer));
        renamed(object, newer, "events.k8s.io/v1")
    } else {
        object
    }
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
    fn each_form_becomes_the_other_and_back() {
        let resources = super::super::builtins::resources();
        let find = |group| resources.iter().find(|r| r.is(group, "events")).unwrap();
        let (core, newer) = (find(""), find("events.k8s.io"));
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
        assert_eq!(to_storage(newer, shown.clone()), stored);
        assert_eq!(from_storage(newer, stored.clone()), shown);
        assert_eq!(to_storage(core, stored.clone()), stored);
        assert_eq!(from_storage(core, stored.clone()), stored);
    }
}
