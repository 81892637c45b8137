//! What changed between two states of an object, as paths with the old and the new value. What every
//! write changes is left out. How it is printed is not known here.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

/// Members of the metadata that change with every write and say nothing about it.
const NOISE: [&str; 3] = ["managedFields", "resourceVersion", "generation"];

/// What the elements of lists are known by, in the order in which they are tried.
const KEYS: [&str; 5] = ["name", "type", "uid", "ip", "key"];

/// A field that changed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FieldChange {
    /// `status.conditions[Ready].status`
    pub path: String,
    /// `None`: it is new.
    pub old: Option<Value>,
    /// `None`: it is gone.
    pub new: Option<Value>,
}

/// What makes `new` of `old`, in the order of the paths.
pub(super) fn between(old: &Value, new: &Value) -> Vec<FieldChange> {
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
        if path == "metadata" && NOISE.contains(&name.as_str()) {
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

/// Whether a member's name can stand between dots.
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
    // By key, as lists may be long.
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

/// What each element is known by, if all of them are, and by different values.
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
        let told: Vec<String> = between(&old, &new)
            .into_iter()
            .map(|change| format!("{}: {} {}", change.path, text(change.old), text(change.new)))
            .collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn only_what_changed_is_told_and_no_noise() {
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
        // Elsewhere such a member is like any other.
        check(
            json!({"spec": {"generation": 1}}),
            json!({"spec": {"generation": 2}}),
            &["spec.generation: 1 2"],
        );
        check(json!({"a": 1}), json!({"a": 1}), &[]);
    }

    /// Each element was once looked for in the whole list: an object as large as a server takes kept a core
    /// busy for minutes.
    #[test]
    fn long_lists_are_compared_in_one_go() {
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
    fn names_that_are_no_words_are_in_brackets() {
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
    fn elements_are_told_by_their_names() {
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
        // Not all have one, or two the same: then by their places.
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
