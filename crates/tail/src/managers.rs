//! Determines the field manager that made a change, from the managed fields before and after it.
//!
//! A write sets the time of its manager's entry, and afterwards that entry owns the fields that the write changed. Other
//! entries only lose fields. Times are whole seconds, so that a second write within a second may leave the time unchanged.

use serde_json::Value;

use super::difference::FieldChange;

/// Returns the manager of a change and its operation; `None` if the managed fields do not determine it.
pub fn author(old: Option<&Value>, new: &Value, changes: &[FieldChange]) -> Option<String> {
    let after = entries(new);
    let before = old.map_or(&[][..], entries);
    let same = |entry: &&Value| {
        before
            .iter()
            .find(|other| identity(other) == identity(entry))
    };
    let written: Vec<&Value> = after
        .iter()
        .filter(|entry| same(entry).is_none_or(|old| old["time"] != entry["time"]))
        .collect();
    match written.as_slice() {
        [only] => return Some(name(only)),
        [] => {}
        _ => return None,
    }
    // Several writes within a second: the writer owns what it has changed or added.
    let paths: Vec<&str> = changes
        .iter()
        .filter(|change| change.new.is_some())
        .map(|change| change.path.as_str())
        .collect();
    if paths.is_empty() {
        return None;
    }
    let owns_all = |entry: &&Value| paths.iter().all(|path| owns(&entry["fieldsV1"], path));
    let owners: Vec<&Value> = after.iter().filter(owns_all).collect();
    match owners.as_slice() {
        [only] => Some(name(only)),
        _ => None,
    }
}

fn entries(object: &Value) -> &[Value] {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.map_or(&[], Vec::as_slice)
}

/// Returns what identifies an entry.
fn identity(entry: &Value) -> [&Value; 4] {
    ["manager", "operation", "subresource", "apiVersion"].map(|member| &entry[member])
}

fn name(entry: &Value) -> String {
    let text = |member: &str| entry[member].as_str().unwrap_or_default();
    match text("subresource") {
        "" => format!("{} ({})", text("manager"), text("operation")),
        subresource => format!(
            "{} ({} of {subresource})",
            text("manager"),
            text("operation")
        ),
    }
}

/// Returns true if `fields` contains the field at `path`; false for a path through elements of a list, which it does not
/// search.
fn owns(fields: &Value, path: &str) -> bool {
    let mut at = fields;
    for segment in path.split('.') {
        if segment.contains('[') {
            return false;
        }
        let Some(below) = at.get(format!("f:{segment}")) else {
            return false;
        };
        at = below;
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(replicas: u32, entries: &[(&str, &str, Value)]) -> Value {
        let entries: Vec<Value> = entries
            .iter()
            .map(|(manager, time, fields)| {
                json!({"manager": manager, "operation": "Update", "apiVersion": "v1",
                    "time": format!("2026-11-27T10:00:{time}Z"), "fieldsV1": fields})
            })
            .collect();
        json!({"metadata": {"managedFields": entries}, "spec": {"replicas": replicas}})
    }

    fn check(old: Option<&Value>, new: &Value, expected: Option<&str>) {
        let empty = json!({});
        let changes = crate::between(old.unwrap_or(&empty), new);
        assert_eq!(author(old, new, &changes).as_deref(), expected);
    }

    #[test]
    fn the_entry_whose_time_changed_is_the_author() {
        let replicas = || json!({"f:spec": {"f:replicas": {}}});
        let first = object(1, &[("a", "01", replicas())]);
        check(None, &first, Some("a (Update)"));
        let second = object(2, &[("a", "01", json!({})), ("b", "02", replicas())]);
        check(Some(&first), &second, Some("b (Update)"));
        // A second write within the second.
        let third = object(3, &[("a", "01", json!({})), ("b", "02", replicas())]);
        check(Some(&second), &third, Some("b (Update)"));
    }

    #[test]
    fn an_undetermined_author_is_unknown() {
        let both = |replicas| {
            let fields = || json!({"f:spec": {"f:replicas": {}}});
            object(replicas, &[("a", "01", fields()), ("b", "01", fields())])
        };
        check(Some(&both(1)), &both(2), None);
        check(None, &both(1), None);
        let unmanaged = |replicas| object(replicas, &[]);
        check(Some(&unmanaged(1)), &unmanaged(2), None);
        // No manager owns a removed field.
        let old = object(1, &[("a", "01", json!({"f:spec": {"f:replicas": {}}}))]);
        let mut new = old.clone();
        new["spec"] = json!({});
        check(Some(&old), &new, None);
    }
}
