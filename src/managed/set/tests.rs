//! Sets of fields against a model of them: plain sets of paths.

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

fn set_of(paths: &BTreeSet<Path>) -> Set {
    paths
        .iter()
        .map(|path| set_of_path(path))
        .fold(Set::default(), Set::union)
}

fn set_of_path(path: &[&str]) -> Set {
    let [first, rest @ ..] = path else {
        return Set::default();
    };
    let element = Element::parse(first).unwrap().unwrap();
    Set::of_nodes(vec![Node {
        element,
        member: rest.is_empty(),
        below: set_of_path(rest),
    }])
}

fn paths_of(set: &Set) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    add(set, &[], &mut found);
    fn add(set: &Set, prefix: &[String], found: &mut BTreeSet<Vec<String>>) {
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
    fn a_set_is_a_set_of_paths(a in paths(), b in paths()) {
        let (of_a, of_b) = (set_of(&a), set_of(&b));
        prop_assert_eq!(paths_of(&of_a), texts(a.clone()));
        prop_assert_eq!(paths_of(&of_a.intersection(&of_b)), texts(&a & &b));
        prop_assert_eq!(paths_of(&of_a.difference(&of_b)), texts(&a - &b));
        prop_assert_eq!(of_b.meets(&of_a.to_wire()), !a.is_disjoint(&b));
        prop_assert_eq!(paths_of(&of_a.union(of_b)), texts(&a | &b));
    }

    #[test]
    fn the_wire_keeps_it(a in paths()) {
        let set = set_of(&a);
        prop_assert_eq!(Set::parse(&set.to_wire()), Ok(set));
    }
}

#[test]
fn the_form_on_the_wire() {
    let set = set_of(&BTreeSet::from([
        vec!["f:a"],
        vec!["f:a", "k:{\"n\":1}"],
        vec!["f:b", "v:\"x\""],
    ]));
    let wire = json!({"f:a": {".": {}, "k:{\"n\":1}": {}}, "f:b": {"v:\"x\"": {}}});
    assert_eq!(set.to_wire(), wire);
    assert_eq!(set.paths(), [".a", ".a[n=1]", ".b[=\"x\"]"]);
}

#[test]
fn what_others_write_is_read() {
    // An element of an unknown sort is dropped, what is below it too; keys are made canonical.
    let read = Set::parse(&json!({"f:a": {"z:new": {}}, "z:q": {"f:b": {}}, ".": {}}));
    assert_eq!(read, Ok(set_of(&BTreeSet::from([vec!["f:a"]]))));
    let read = Set::parse(&json!({"f:a": {"k:{ \"n\": 1.0 }": {}}})).unwrap();
    assert_eq!(read.paths(), [".a[n=1]"]);
    let both = Set::parse(&json!({"k:{\"n\":1.0}": {"f:x": {}}, "k:{\"n\":1}": {"f:y": {}}}));
    assert_eq!(both.unwrap().nodes().len(), 1);
    for bad in [
        json!(null),
        json!({"f:a": 1}),
        json!({"a": {}}),
        json!({"f:a": []}),
    ] {
        assert!(Set::parse(&bad).is_err(), "{bad}");
    }
}

/// A few fields against many take another way than as many against as many.
#[test]
fn small_sets_meet_large_ones() {
    let fields = |names: &[String]| {
        let of = names.iter().map(|name| (format!("f:{name}"), json!({})));
        json!({"f:data": Value::Object(of.collect())})
    };
    let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let large = Set::parse(&fields(&names)).unwrap();
    for (name, is_there) in [
        ("7", true),
        ("99", true),
        ("", false),
        ("70x", false),
        ("z", false),
    ] {
        let wire = fields(&[name.to_owned()]);
        let small = Set::parse(&wire).unwrap();
        assert_eq!(large.meets(&wire), is_there, "{name}");
        assert_eq!(small.intersection(&large).is_empty(), !is_there, "{name}");
        assert_eq!(small.difference(&large).is_empty(), is_there, "{name}");
        assert_eq!(small.meets(&fields(&names)), is_there, "{name}");
    }
    let each = names
        .iter()
        .map(|name| Set::parse(&fields(std::slice::from_ref(name))));
    let each: Vec<Set> = each.map(Result::unwrap).collect();
    assert_eq!(Set::of_all(each), large);
    assert_eq!(Set::of_all(Vec::new()), Set::default());
}
