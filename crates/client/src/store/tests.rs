//! Tests of stores and indexes. The consistency of indexes after random changes is tested in
//! `reflector::indexer`.

use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Returns a pod of a node, with `number` as its resourceVersion.
fn pod(key: &str, node: &str, number: usize) -> Arc<Pod> {
    let (namespace, name) = crate::split_key(key).unwrap();
    let pod = json!({
        "metadata": {"namespace": namespace, "name": name, "resourceVersion": number.to_string()},
        "spec": {"nodeName": node, "containers": []},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn node(pod: &Pod) -> Vec<String> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    node.into_iter().filter(|node| !node.is_empty()).collect()
}

fn node_of(pod: &Pod) -> String {
    node(pod).concat()
}

fn store() -> ThreadSafeStore<Pod> {
    let store = ThreadSafeStore::new(Indexers::namespaced().with("node", node));
    for (key, node) in [("a/1", "n1"), ("a/2", "n2"), ("b/1", "n1"), ("b/2", "")] {
        assert!(store.add(pod(key, node, 1)).is_none());
    }
    store
}

fn keys(objects: Result<Objects<Pod>, UnknownIndex>) -> Vec<String> {
    let objects = objects.unwrap();
    objects.keys().map(ToString::to_string).collect()
}

#[test]
fn add_update_get_delete_and_list() {
    let store = store();
    assert_eq!((store.len(), store.is_empty()), (4, false));
    let before = store.update(pod("a/1", "n1", 2)).unwrap();
    assert_eq!(before, pod("a/1", "n1", 1));
    assert_eq!(store.get(&before), Some(pod("a/1", "n1", 2)));
    assert_eq!(store.get_by_key("a/3"), None);
    assert_eq!(store.delete(&before), Some(pod("a/1", "n1", 2)));
    assert_eq!(store.delete_by_key("a/1"), None);
    let left: Vec<_> = store.list_keys().iter().map(ToString::to_string).collect();
    assert_eq!(left, ["a/2", "b/1", "b/2"]);
    assert_eq!(store.list().to_vec()[0], pod("a/2", "n2", 1));
}

#[test]
fn index_is_the_union_over_the_values_of_an_object() {
    let all = |pod: &Pod| {
        let name = pod.metadata.name.clone();
        [node(pod), name.into_iter().collect()].concat()
    };
    let store = ThreadSafeStore::new(Indexers::new().with("either", all));
    for (key, node) in [
        ("a/1", "n1"),
        ("a/2", "n2"),
        ("b/1", "n3"),
        ("b/3", "n1"),
        ("c/9", "n9"),
    ] {
        store.add(pod(key, node, 1));
    }
    assert_eq!(
        keys(store.index("either", &pod("x/1", "n1", 1))),
        ["a/1", "b/1", "b/3"]
    );
    assert_eq!(keys(store.index("either", &pod("x/8", "", 1))), [""; 0]);
}

#[test]
fn objects_and_keys_and_values_of_an_index() {
    let store = store();
    assert_eq!(keys(store.by_index("node", "n1")), ["a/1", "b/1"]);
    assert_eq!(keys(store.by_index(NAMESPACE_INDEX, "b")), ["b/1", "b/2"]);
    assert_eq!(keys(store.by_index("node", "")), [""; 0], "it has no value");
    let of_n2 = store.index_keys("node", "n2").unwrap();
    assert_eq!(of_n2, [ObjectKey::from("a/2")]);
    let values = store.list_index_func_values("node").unwrap();
    assert_eq!(values, ["n1".into(), "n2".into()]);
    store.delete_by_key("a/2");
    let values = store.list_index_func_values("node").unwrap();
    assert_eq!(values, ["n1".into()], "an emptied value is dropped");
    assert_eq!(
        store.get_indexers().names().collect::<Vec<_>>(),
        ["namespace", "node"]
    );
}

/// As client-go's `MetaNamespaceIndexFunc`.
#[test]
fn objects_without_a_namespace_have_the_empty_one() {
    let store = ThreadSafeStore::new(Indexers::namespaced());
    store.add(pod("node-1", "", 1));
    assert_eq!(keys(store.by_index(NAMESPACE_INDEX, "")), ["node-1"]);
}

#[test]
fn an_unknown_index_is_named() {
    let store = store();
    let error = store.by_index("zone", "z").unwrap_err();
    assert_eq!(error.to_string(), "index with name \"zone\" does not exist");
    assert_eq!(store.index_keys("zone", "z"), Err(error.clone()));
    assert_eq!(store.list_index_func_values("zone"), Err(error.clone()));
    assert_eq!(store.index("zone", &pod("a/1", "", 1)).unwrap_err(), error);
}

#[test]
fn indexers_are_added_when_there_are_objects() {
    let store = store();
    let first = |pod: &Pod| pod.metadata.name.clone().into_iter().collect();
    store
        .add_indexers(Indexers::new().with("name", first))
        .unwrap();
    assert_eq!(keys(store.by_index("name", "2")), ["a/2", "b/2"]);
    store.delete_by_key("a/2");
    assert_eq!(keys(store.by_index("name", "2")), ["b/2"]);

    let again = Indexers::new().with("node", node).with("new", node);
    let error = store.add_indexers(again).unwrap_err();
    assert_eq!(error, IndexTaken(vec!["node".into()]));
    let none = store.by_index("new", "n1").unwrap_err();
    assert_eq!(none, UnknownIndex("new".into()), "all or none");
}

#[test]
fn replace_rebuilds_the_indexes() {
    let store = store();
    let before = store.list();
    store.replace(vec![pod("c/1", "n1", 1), pod("a/1", "n7", 2)]);
    assert_eq!(keys(store.by_index("node", "n1")), ["c/1"]);
    assert_eq!(keys(store.by_index(NAMESPACE_INDEX, "b")), [""; 0]);
    let values = store.list_index_func_values("node").unwrap();
    assert_eq!(values, ["n1".into(), "n7".into()]);
    assert_eq!(before.len(), 4, "what was handed out does not change");
}

proptest! {
    /// Look-ups by key, lists and indexes return the same objects.
    #[test]
    fn key_list_and_index_return_the_same_objects(
        steps in prop::collection::vec(("[ab]/[1-3]", 0..4_usize), 1..40),
    ) {
        let (store, mut model) = (store(), BTreeMap::new());
        store.replace(vec![]);
        for (number, (key, node)) in steps.into_iter().enumerate() {
            let before = match node {
                0 => {
                    let gone = store.delete_by_key(&key);
                    prop_assert_eq!(&gone, &model.remove(&key));
                    continue;
                }
                3 => {
                    let kept: Vec<_> = model.values().cloned().collect();
                    store.replace(kept);
                    continue;
                }
                node => {
                    let new = pod(&key, &format!("n{node}"), number);
                    (store.add(new.clone()), model.insert(key.clone(), new))
                }
            };
            prop_assert_eq!(before.0, before.1);
            prop_assert_eq!(store.len(), model.len());
            let listed = store.list();
            prop_assert!(listed.iter().eq(model.values()));
            for (key, pod) in &model {
                prop_assert!(Arc::ptr_eq(&store.get_by_key(key).unwrap(), pod));
                let of_node = store.by_index("node", &node_of(pod)).unwrap();
                prop_assert!(Arc::ptr_eq(of_node.get(key).unwrap(), pod));
            }
        }
    }
}
