//! Computes the difference between two states of an object, as paths with the old and the new
//! value. Fields that every write changes are ignored.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

/// Metadata fields that change with every write.
const IGNORED_METADATA: [&str; 3] = ["managedFields", "resourceVersion", "generation"];

/// Fields that identify the elements of a list, in the order in which they are tried.
const KEYS: [&str; 5] = ["name", "type", "uid", "ip", "key"];

/// A field that changed.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldChange {
    /// `status.conditions[Ready].status`
    pub path: String,
    /// `None` if the field was added.
    pub old: Option<Value>,
    /// `None` if the field was removed.
    pub new: Option<Value>,
}

/// Returns the changes from `old` to `new`, in the order of the paths.
pub fn between(old: &Value, new: &Value) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    compare("", Some(old), Some(new), &mut changes);
    changes
}

fn compare(path: &str, old: Option<&Value>, new: Option<&Value>, changes: &mut Vec<FieldChange>) {
    match (old, new) {
        _ if old == new => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => members(path, old, new, changes),
        (Some(Value::Array(old)), Some(Value::Array(new))) => elements(path, old, new, changes),
        _ => changes.push(FieldChange {
            path: path.to_owned(),
            old: old.cloned(),
            new: new.cloned(),
        }),
    }
}

fn members(
    path: &str,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    changes: &mut Vec<FieldChange>,
) {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        if path == "metadata" && IGNORED_METADATA.contains(&name.as_str()) {
            continue;
        }
        let below = match (path, plain(name)) {
            ("", true) => name.clone(),
            (path, true) => format!("{path}.{name}"),
            (path, false) => format!("{path}[{name}]"),
        };
        compare(&below, old.get(name), new.get(name), changes);
    }
}

/// Returns true if a field name needs no brackets in a path.
fn plain(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn elements(path: &str, old: &[Value], new: &[Value], changes: &mut Vec<FieldChange>) {
    let keyed = KEYS
        .iter()
        .find_map(|key| Some((keys(old, key)?, keys(new, key)?)));
    let Some((old_keys, new_keys)) = keyed else {
        for at in 0..old.len().max(new.len()) {
            compare(&format!("{path}[{at}]"), old.get(at), new.get(at), changes);
        }
        return;
    };
    // Indexed by key, since lists may be long.
    let old_by_key: HashMap<&str, &Value> = old_keys.iter().copied().zip(old).collect();
    let new_by_key: HashMap<&str, &Value> = new_keys.iter().copied().zip(new).collect();
    let added = new_keys.iter().filter(|key| !old_by_key.contains_key(*key));
    let before = changes.len();
    for key in old_keys.iter().chain(added) {
        let (old, new) = (old_by_key.get(key).copied(), new_by_key.get(key).copied());
        compare(&format!("{path}[{key}]"), old, new, changes);
    }
    if changes.len() == before {
        // The same elements in another order.
        changes.push(FieldChange {
            path: path.to_owned(),
            old: Some(Value::from(old_keys)),
            new: Some(Value::from(new_keys)),
        });
    }
}

/// Returns the key of each element, if all elements have one and the keys are distinct.
fn keys<'a>(list: &'a [Value], key: &str) -> Option<Vec<&'a str>> {
    let keys: Vec<&str> = list
        .iter()
        .map(|element| element.get(key)?.as_str())
        .collect::<Option<_>>()?;
    let different: BTreeSet<&&str> = keys.iter().collect();
    (different.len() == keys.len()).then_some(keys)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(old: Value, new: Value, expected: &[&str]) {
        let text = |value: Option<Value>| value.map_or("-".to_owned(), |value| value.to_string());
        let actual: Vec<String> = between(&old, &new)
            .into_iter()
            .map(|change| format!("{}: {} {}", change.path, text(change.old), text(change.new)))
            .collect();
        assert_eq!(actual, expected);
    }

    #[test]
    fn only_changed_fields_without_bookkeeping() {
        check(
            json!({"metadata": {"name": "a", "resourceVersion": "1", "generation": 1, "managedFields": []},
                "spec": {"replicas": 1, "paused": true}, "status": {"phase": "Pending"}}),
            json!({"metadata": {"name": "a", "resourceVersion": "2", "generation": 2,
                "labels": {"app": "web"}}, "spec": {"replicas": 2}, "status": {"phase": "Running"}}),
            &[
                r#"metadata.labels: - {"app":"web"}"#,
                "spec.paused: true -",
                "spec.replicas: 1 2",
                r#"status.phase: "Pending" "Running""#,
            ],
        );
        // Only in metadata are such fields ignored.
        check(
            json!({"spec": {"generation": 1}}),
            json!({"spec": {"generation": 2}}),
            &["spec.generation: 1 2"],
        );
        check(json!({"a": 1}), json!({"a": 1}), &[]);
    }

    /// The comparison of lists used to be quadratic: an object of the maximum size kept a core busy
    /// for minutes.
    #[test]
    fn long_lists_are_compared_in_linear_time() {
        let list = |from: usize| -> Value {
            (from..from + 50_000)
                .map(|n| json!({"name": n.to_string()}))
                .collect()
        };
        let begun = tokio::time::Instant::now();
        let changes = between(&json!({"l": list(0)}), &json!({"l": list(3)}));
        assert_eq!(changes.len(), 6);
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    }

    #[test]
    fn names_with_special_characters_are_in_brackets() {
        check(
            json!({"metadata": {"annotations": {"a.io/b": "1", "plain": "1"}}}),
            json!({"metadata": {"annotations": {"a.io/b": "2", "plain": "2"}}}),
            &[
                r#"metadata.annotations[a.io/b]: "1" "2""#,
                r#"metadata.annotations.plain: "1" "2""#,
            ],
        );
    }

    #[test]
    fn elements_are_identified_by_key() {
        let condition = |name: &str, status: &str| json!({"type": name, "status": status});
        check(
            json!({"c": [condition("Ready", "False"), condition("Old", "True")]}),
            json!({"c": [condition("New", "True"), condition("Ready", "True")]}),
            &[
                r#"c[Ready].status: "False" "True""#,
                r#"c[Old]: {"status":"True","type":"Old"} -"#,
                r#"c[New]: - {"status":"True","type":"New"}"#,
            ],
        );
        // Without keys, or with duplicate keys, elements are compared by index.
        check(
            json!({"l": [{"name": "a"}, {"name": "a"}]}),
            json!({"l": [{"name": "a"}, {"name": "b"}, 3]}),
            &[r#"l[1].name: "a" "b""#, "l[2]: - 3"],
        );
        check(
            json!({"l": [{"name": "a"}, {"name": "b"}]}),
            json!({"l": [{"name": "b"}, {"name": "a"}]}),
            &[r#"l: ["a","b"] ["b","a"]"#],
        );
        check(json!({"l": []}), json!({"l": ["x"]}), &[r#"l[0]: - "x""#]);
    }
}
