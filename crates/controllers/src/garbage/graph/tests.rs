//! Tests of the graph: which objects are examined after a change, and when nodes are dropped.

use super::*;
use watchet_api::{ColumnSet, EventType, Object, ResourceVersion};

/// Adds an object to the graph, written `uid <- owner+ owner [finalizer] deleted`: its uid, its
/// owners (`+` for `blockOwnerDeletion`), its finalizers, and `deleted` if it is being deleted.
fn observe(graph: &mut Graph, line: &str) -> Consequences {
    let mut words = line.split_whitespace();
    let uid = words.next().unwrap();
    let (mut owners, mut finalizers, mut deleted) = (Vec::new(), Vec::new(), "");
    for word in words {
        if word == "deleted" {
            deleted = r#","deletionTimestamp":"t""#;
        } else if let Some(name) = word.strip_prefix('[') {
            finalizers.push(format!("{:?}", name.trim_end_matches(']')));
        } else if word != "<-" {
            let blocks = word.ends_with('+');
            let owner = word.trim_end_matches('+');
            owners.push(format!(
                r#"{{"uid":"{owner}","blockOwnerDeletion":{blocks}}}"#
            ));
        }
    }
    let json = format!(
        r#"{{"metadata":{{"uid":"{uid}","finalizers":[{}],"ownerReferences":[{}]{deleted}}}}}"#,
        finalizers.join(","),
        owners.join(",")
    );
    let key = ObjectKey::from(uid);
    let at = ResourceVersion::new(1);
    let columns = ColumnSet::default();
    let object = Object::decode(key, at, EventType::Added, json.as_bytes(), &columns);
    let object = object.unwrap();
    graph.observe(location(uid), &Metadata::of(&object))
}

fn location(key: &str) -> Location {
    Location {
        prefix: "things".into(),
        key: ObjectKey::from(key),
    }
}

/// Returns the uids to examine and, as `orphan(uid)`, to orphan, in order.
fn work_of(then: &Consequences) -> String {
    let word = |work: &Work| match work {
        Work::Examine(uid) => uid.to_string(),
        Work::Orphan(uid) => format!("orphan({uid})"),
    };
    let mut words: Vec<String> = then.work.iter().map(word).collect();
    words.sort();
    words.join(" ")
}

fn check(lines: &[(&str, &str)], nodes: usize) {
    let mut graph = Graph::default();
    for (line, expected) in lines {
        let then = match line.strip_suffix(" gone") {
            Some(uid) => graph.remove(uid),
            None => observe(&mut graph, line),
        };
        assert_eq!(work_of(&then), *expected, "after {line:?} of {lines:?}");
    }
    assert_eq!(graph.len(), nodes, "{lines:?}");
}

#[test]
fn dependents_are_examined_when_an_owner_is_deleted() {
    check(
        &[
            ("a", ""),
            ("b <- a", ""),
            ("c <- a x", ""),
            ("a gone", "b c"),
        ],
        3,
    );
    check(&[("b <- a", ""), ("b", ""), ("a gone", "")], 0);
    check(
        &[
            ("b <- a", ""),
            ("b <- x", ""),
            ("a gone", ""),
            ("x gone", "b"),
        ],
        1,
    );
    check(
        &[("a", ""), ("b [finalizer]", ""), ("b [x] deleted", "")],
        0,
    );
}

#[test]
fn a_foreground_deletion_waits_for_blocking_dependents() {
    check(
        &[
            ("b <- a+", ""),
            ("c <- a", ""),
            ("a [foregroundDeletion]", ""),
            ("a [foregroundDeletion] deleted", "a b c"),
            ("a [foregroundDeletion] deleted", ""),
            ("late <- a+", "late"),
            ("late <- a", "a"),
            ("b gone", "a"),
            ("a gone", "c late"),
        ],
        2,
    );
    check(
        &[
            ("b <- a+", ""),
            ("a [foregroundDeletion] deleted", "a b"),
            ("b", "a"),
            ("a gone", ""),
        ],
        0,
    );
}

#[test]
fn orphaning_precedes_foreground_and_happens_once() {
    check(
        &[
            ("b <- a+", ""),
            ("a [orphan] [foregroundDeletion] deleted", "orphan(a)"),
            ("a [orphan] [foregroundDeletion] [x] deleted", ""),
            ("b", "a"),
            ("a gone", ""),
        ],
        0,
    );
}

#[test]
fn cycles_and_duplicate_owners() {
    check(&[("a <- a+", ""), ("a gone", "")], 0);
    check(
        &[
            ("a <- b", ""),
            ("b <- a", ""),
            ("a gone", "b"),
            ("b gone", ""),
        ],
        0,
    );
    check(
        &[("b <- a a+", ""), ("a [foregroundDeletion] deleted", "a b")],
        2,
    );
}

#[test]
fn new_owners_are_reported() {
    let mut graph = Graph::default();
    assert!(observe(&mut graph, "b <- a").new_owners);
    assert!(!observe(&mut graph, "b <- a+").new_owners);
    assert!(observe(&mut graph, "b <- a+ c").new_owners);
    let view = graph.view(&"a".into()).unwrap();
    assert!(view.location.is_none() && view.dependents[0].blocks);
    graph.found("a", || location("a"));
    let mut of_it: Vec<_> = graph.of_resource("things").into_iter().collect();
    of_it.sort();
    assert_eq!(
        of_it,
        ["a".into(), "b".into()] as [Uid; 2],
        "c was never seen"
    );
}

/// After any sequence of changes, the graph is empty when all objects are deleted.
#[test]
fn the_graph_is_empty_after_all_objects_are_deleted() {
    for seed in watchet_test_util::seeds::seeds(200) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut graph = Graph::default();
        for _ in 0..100 {
            let uid = random.u8(0..8);
            if random.u8(0..4) == 0 {
                graph.remove(&uid.to_string());
                continue;
            }
            let mut line = format!("{uid} <-");
            for _ in 0..random.u8(0..4) {
                let blocks = if random.bool() { "+" } else { "" };
                line += &format!(" {}{blocks}", random.u8(0..8));
            }
            for finalizer in ["orphan", "foregroundDeletion"] {
                if random.u8(0..4) == 0 {
                    line += &format!(" [{finalizer}]");
                }
            }
            if random.bool() {
                line += " deleted";
            }
            observe(&mut graph, &line);
            links_agree(&graph, seed);
        }
        for uid in 0..8 {
            graph.remove(&uid.to_string());
        }
        assert_eq!(graph.len(), 0, "seed {seed}: {graph:?}");
    }
}

fn links_agree(graph: &Graph, seed: u64) {
    for (uid, node) in &graph.nodes {
        assert!(!node.is_idle(), "seed {seed}: {graph:?}");
        for dependent in &node.dependents {
            let owners = &graph.nodes[dependent].owners;
            assert!(
                owners.iter().any(|o| o.uid == *uid),
                "seed {seed}: {graph:?}"
            );
        }
    }
}
