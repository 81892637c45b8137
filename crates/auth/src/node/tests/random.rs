//! Random changes of the graph: it has the references of the present objects, and none when they are deleted.

use std::collections::BTreeMap;

use serde_json::json;

use crate::node::graph::{NodeGraph, SourceChange, SourceKind};
use crate::node::references::{Kind, ObjectRef};

/// After random changes, the graph decides as one that is built from the current objects. It is empty after their
/// deletion.
#[test]
fn random_changes_leave_the_graph_of_the_present_objects() {
    let mut random = fastrand::Rng::with_seed(watchet_test_util::seeds::seed());
    let (mut graph, mut present) = (NodeGraph::default(), BTreeMap::new());
    for _ in 0..3000 {
        let name = format!("o{}", random.u8(0..6));
        let kind = SourceKind::ALL[random.usize(0..4)];
        let node = format!("n{}", random.u8(0..3));
        let small = |random: &mut fastrand::Rng| format!("x{}", random.u8(0..3));
        let object = json!({"spec": {
            "nodeName": if random.u8(0..4) == 0 { "" } else { &node },
            "serviceAccountName": small(&mut random),
            "volumes": [
                {"secret": {"secretName": small(&mut random)}},
                {"persistentVolumeClaim": {"claimName": small(&mut random)}},
            ],
            "claimRef": {"namespace": "web", "name": small(&mut random)},
            "csi": {"nodeStageSecretRef": {"name": small(&mut random)}},
        }})
        .to_string();
        let namespace = if kind == SourceKind::Pod { "web" } else { "" };
        let object = (random.u8(0..3) > 0).then_some(object);
        graph
            .apply(
                kind,
                &SourceChange {
                    namespace,
                    name: &name,
                    object: object.as_deref().map(str::as_bytes),
                },
            )
            .unwrap();
        match object {
            Some(object) => present.insert((kind.resource().1, name), (kind, namespace, object)),
            None => present.remove(&(kind.resource().1, name)),
        };
    }
    let mut expected = NodeGraph::default();
    for ((_, name), (kind, namespace, object)) in &present {
        let change = SourceChange {
            namespace,
            name,
            object: Some(object.as_bytes()),
        };
        expected.apply(*kind, &change).unwrap();
    }
    for node in ["n0", "n1", "n2"] {
        for kind in [
            Kind::Secret,
            Kind::ServiceAccount,
            Kind::PersistentVolumeClaim,
        ] {
            for name in ["x0", "x1", "x2"] {
                let object = ObjectRef::new(kind, "web", name);
                assert_eq!(
                    graph.needs(node, &object),
                    expected.needs(node, &object),
                    "{node} {object:?}"
                );
            }
        }
        for volume in 0..6 {
            let volume = format!("o{volume}");
            assert_eq!(
                graph.needs_volume(node, &volume),
                expected.needs_volume(node, &volume)
            );
        }
    }
    for kind in SourceKind::ALL {
        graph.clear(kind);
    }
    assert!(graph.is_empty(), "{graph:?}");
}
