//! Tests of field sets against a model: plain sets of paths.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;

type Path = Vec<&'static str>;

const STEPS: &[&str] = &["f:a", "f:b", "k:{\"n\":1}", "v:\"x\"", "i:0"];

fn paths() -> impl Strategy<Value = BTreeSet<Path>> {
    let step = prop::sample::select(STEPS);
    prop::collection::btree_set(prop::collection::vec(step, 1..4), 0..12)
}

fn set_of(paths: &BTreeSet<Path>) -> FieldSet {
    paths
        .iter()
        .map(|path| set_of_path(path))
        .fold(FieldSet::default(), FieldSet::union)
}

fn set_of_path(path: &[&str]) -> FieldSet {
    let [first, rest @ ..] = path else {
        return FieldSet::default();
    };
    let element = PathElement::parse(first).unwrap().unwrap();
    FieldSet::of_nodes(vec![Node {
        element,
        member: rest.is_empty(),
        below: set_of_path(rest),
    }])
}

fn paths_of(set: &FieldSet) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    add(set, &[], &mut found);
    fn add(set: &FieldSet, prefix: &[String], found: &mut BTreeSet<Vec<String>>) {
        for node in set.nodes() {
            let mut path = prefix.to_vec();
            path.push(node.element.as_str().to_owned());
            assert!(
                node.member || !node.below.is_empty(),
                "an empty node at {path:?}"
            );
            add(&node.below, &path, found);
            if node.member {
                found.insert(path);
            }
        }
        let ordered = set
            .nodes()
            .is_sorted_by(|a, b| a.element.as_str() < b.element.as_str());
        assert!(ordered, "{set:?}");
    }
    found
}

fn texts(paths: impl IntoIterator<Item = Path>) -> BTreeSet<Vec<String>> {
    let text = |path: Path| path.into_iter().map(str::to_owned).collect();
    paths.into_iter().map(text).collect()
}

proptest! {
    #[test]
    fn set_operations_equal_the_model(a in paths(), b in paths()) {
        let (of_a, of_b) = (set_of(&a), set_of(&b));
        prop_assert_eq!(paths_of(&of_a), texts(a.clone()));
        prop_assert_eq!(paths_of(&of_a.intersection(&of_b)), texts(&a & &b));
        prop_assert_eq!(paths_of(&of_a.difference(&of_b)), texts(&a - &b));
        prop_assert_eq!(of_b.intersects(&of_a.clone().into_wire()), !a.is_disjoint(&b));
        prop_assert_eq!(paths_of(&of_a.union(of_b)), texts(&a | &b));
    }

    #[test]
    fn encoding_round_trips(a in paths()) {
        let set = set_of(&a);
        prop_assert_eq!(FieldSet::parse(&set.clone().into_wire()), Ok(set));
    }
}

#[test]
fn fields_v1_has_the_encoding_of_upstream() {
    let set = set_of(&BTreeSet::from([
        vec!["f:a"],
        vec!["f:a", "k:{\"n\":1}"],
        vec!["f:b", "v:\"x\""],
    ]));
    let wire = json!({"f:a": {".": {}, "k:{\"n\":1}": {}}, "f:b": {"v:\"x\"": {}}});
    assert_eq!(set.clone().into_wire(), wire);
    assert_eq!(set.paths(), [".a", ".a[n=1]", ".b[=\"x\"]"]);
}

#[test]
fn foreign_encodings_are_decoded() {
    // Unknown elements are dropped with all below; keys become canonical.
    let read = FieldSet::parse(&json!({"f:a": {"z:new": {}}, "z:q": {"f:b": {}}, ".": {}}));
    assert_eq!(read, Ok(set_of(&BTreeSet::from([vec!["f:a"]]))));
    let read = FieldSet::parse(&json!({"f:a": {"k:{ \"n\": 1.0 }": {}}})).unwrap();
    assert_eq!(read.paths(), [".a[n=1]"]);
    let both = FieldSet::parse(&json!({"k:{\"n\":1.0}": {"f:x": {}}, "k:{\"n\":1}": {"f:y": {}}}));
    assert_eq!(both.unwrap().nodes().len(), 1);
    for bad in [
        json!(null),
        json!({"f:a": 1}),
        json!({"a": {}}),
        json!({"f:a": []}),
    ] {
        assert!(FieldSet::parse(&bad).is_err(), "{bad}");
    }
}

/// Compares a small set with a large one, which uses another algorithm than sets of similar size.
#[test]
fn intersection_of_small_and_large_sets() {
    let fields = |names: &[String]| {
        let of = names.iter().map(|name| (format!("f:{name}"), json!({})));
        json!({"f:data": Value::Object(of.collect())})
    };
    let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let large = FieldSet::parse(&fields(&names)).unwrap();
    for (name, is_there) in [
        ("7", true),
        ("99", true),
        ("", false),
        ("70x", false),
        ("z", false),
    ] {
        let wire = fields(&[name.to_owned()]);
        let small = FieldSet::parse(&wire).unwrap();
        assert_eq!(large.intersects(&wire), is_there, "{name}");
        assert_eq!(small.intersection(&large).is_empty(), !is_there, "{name}");
        assert_eq!(small.difference(&large).is_empty(), is_there, "{name}");
        assert_eq!(small.intersects(&fields(&names)), is_there, "{name}");
    }
    let each = names
        .iter()
        .map(|name| FieldSet::parse(&fields(std::slice::from_ref(name))));
    let each: Vec<FieldSet> = each.map(Result::unwrap).collect();
    assert_eq!(FieldSet::of_all(each), large);
    assert_eq!(FieldSet::of_all(Vec::new()), FieldSet::default());
}
