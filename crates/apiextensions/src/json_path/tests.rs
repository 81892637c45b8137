//! Tests of JSONPath: what paths find, and their limits.

use serde_json::json;

use super::*;

#[test]
fn paths_find_the_values_that_kubectl_finds() {
    let object = json!({
        "metadata": {"labels": {"a.b/c": "x", "plain": "y"}},
        "spec": {"n": 3, "list": [1, 2, 3, 4], "items": [{"name": "a"}, {"name": "b"}]},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "n": 1},
            {"type": "Synced", "status": "False", "n": 2},
        ]},
    });
    for (path, expected) in [
        (".spec.n", json!([3])),
        ("", json!([object])),
        (".", json!([object])),
        (".spec.absent", json!([])),
        (".spec.n.deeper", json!([])),
        (".spec.list[0]", json!([1])),
        (".spec.list[-1]", json!([4])),
        (".spec.list[9]", json!([])),
        (".spec.list[1:3]", json!([2, 3])),
        (".spec.list[-2:]", json!([3, 4])),
        (".spec.list[::2]", json!([1, 3])),
        (".spec.list[3:1]", json!([])),
        (".spec.items[*].name", json!(["a", "b"])),
        (".spec.items.*.name", json!(["a", "b"])),
        ("..name", json!(["a", "b"])),
        (r".metadata.labels.a\.b/c", json!(["x"])),
        (".metadata.labels['a.b/c']", json!(["x"])),
        (r#".metadata["labels"]["plain"]"#, json!(["y"])),
        (
            r#".status.conditions[?(@.type=="Ready")].status"#,
            json!(["True"]),
        ),
        (".status.conditions[?(@.type == 'Synced')].n", json!([2])),
        (".status.conditions[?(@.n > 1)].type", json!(["Synced"])),
        (".status.conditions[?(@.type != 'Ready')].n", json!([2])),
        (".status.conditions[?(@.absent)].n", json!([])),
        (".status.conditions[?(@.n)].n", json!([1, 2])),
    ] {
        let parsed = JsonPath::parse(path).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(json!(parsed.find(&object)), expected, "{path}");
    }
}

#[test]
fn invalid_paths_are_errors() {
    for bad in [
        ".a[",
        ".a['b]",
        ".a[x]",
        ".a[?(]",
        ".a[?(@.b==)]",
        ".a[1:2:0]",
        "a",
        ".a]",
    ] {
        let parsed = JsonPath::parse(bad);
        // As in kubectl, a closing bracket without an opening one is part of a name.
        assert_eq!(parsed.is_err(), bad != ".a]", "{bad}: {parsed:?}");
    }
}

#[test]
fn number_of_found_values_is_bounded() {
    let wide: Value = (0..200).map(|_| json!(vec![0; 200])).collect();
    let path = JsonPath::parse("..*..*..*").unwrap();
    assert!(path.find(&wide).len() <= FOUND_MAX);
}

/// A definition with a column of 3,360 nested filters overflowed the stack.
#[test]
fn filters_nest_to_a_limit() {
    let nested = |depth: usize| format!(".a{}{}", "[?(@.a".repeat(depth), ")]".repeat(depth));
    assert!(JsonPath::parse(&nested(FILTER_DEPTH_MAX)).is_ok());
    for depth in [FILTER_DEPTH_MAX + 1, 3_360, 20_000] {
        assert_eq!(JsonPath::parse(&nested(depth)), Err(PathError::Depth));
    }
    let compared = format!("{}{}", ".a[?(1 == @".repeat(3_360), ")]".repeat(3_360));
    assert_eq!(JsonPath::parse(&compared), Err(PathError::Depth));
}

/// Each filter visits all values within each value that the filter around it visits.
#[test]
fn number_of_visited_values_is_bounded() {
    let wide: Value = (0..300).map(|_| json!(vec![0; 300])).collect();
    let depth = 8;
    let text = format!("{}{}", "..[?(@".repeat(depth), ")]".repeat(depth));
    let path = JsonPath::parse(&text).unwrap();
    let visits = Visits(Cell::new(VISITED_MAX));
    path.find_within(&wide, &visits);
    assert_eq!(visits.0.get(), 0);
    // A small object is not affected.
    let small = json!({"a": [{"b": [1]}]});
    let path = JsonPath::parse("..[?(@..b[?(@)])]").unwrap();
    assert_eq!(path.find(&small).len(), 2);
}
