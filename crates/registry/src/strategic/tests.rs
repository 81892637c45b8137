//! Tests of strategic merges: one example per rule, and properties of any pod and patch.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value, json};

use super::StrategicError::{self, Inapplicable, Malformed};
use super::merge;
use watchet_schema::Types;

fn merged_as(
    (api_version, kind): (&str, &str),
    mut object: Value,
    patch: Value,
) -> Result<Value, StrategicError> {
    let types = Types::builtins();
    let root = types.root(api_version, kind);
    assert!(root.is_some(), "no {kind}");
    merge(&mut object, &patch, root).map(|()| object)
}

fn check(object: Value, patch: Value, expected: Value) {
    assert_eq!(merged_as(("v1", "Pod"), object, patch), Ok(expected));
}

fn check_malformed(object: Value, patch: Value) {
    let refused = merged_as(("v1", "Pod"), object, patch);
    assert!(matches!(refused, Err(Malformed(_))), "{refused:?}");
}

fn containers(list: Value) -> Value {
    json!({"spec": {"containers": list}})
}

#[test]
fn maps_are_merged_and_nulls_delete() {
    check(
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"x": 1}}),
        json!({"metadata": {"labels": {"a": null, "c": "3"}}, "spec": {"x": {"y": null, "z": 1}}}),
        json!({"metadata": {"labels": {"b": "2", "c": "3"}}, "spec": {"x": {"z": 1}}}),
    );
}

/// The comparison of each item of a list with each other one took minutes, on a thread that other requests needed. Each
/// of these merges takes seconds even without optimization; the bound allows for slow machines.
#[test]
fn long_lists_are_merged_in_time() {
    const ITEMS: usize = 50_000;
    let started = tokio::time::Instant::now();
    let names = |from: usize| (from..from + ITEMS).map(|n| format!("n{n}"));
    let keyed = |from| {
        names(from)
            .map(|name| json!({"name": name}))
            .collect::<Value>()
    };
    let deletes = |from| {
        let delete = |name| json!({"name": name, "$patch": "delete"});
        names(from).map(delete).collect::<Value>()
    };
    let set = |from| names(from).map(Value::from).collect::<Value>();
    let half = ITEMS / 2;
    let merged = |object: Value, patch: Value| merged_as(("v1", "Pod"), object, patch).unwrap();

    let pod = merged(containers(keyed(0)), containers(keyed(half)));
    assert_eq!(
        pod["spec"]["containers"].as_array().unwrap().len(),
        ITEMS + half
    );
    let pod = merged(pod, containers(deletes(half)));
    assert_eq!(pod["spec"]["containers"].as_array().unwrap().len(), half);
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    let pod = merged(finalizers(set(0)), finalizers(set(half)));
    assert_eq!(
        pod["metadata"]["finalizers"].as_array().unwrap().len(),
        ITEMS + half
    );
    let gone = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": set(half)}});
    let pod = merged(pod, gone);
    assert_eq!(
        pod["metadata"]["finalizers"].as_array().unwrap().len(),
        half
    );
    let mut ordered = containers(keyed(half));
    ordered["spec"]["$setElementOrder/containers"] = keyed(half);
    merged(containers(keyed(0)), ordered);
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

#[test]
fn lists_of_objects_are_merged_by_key_and_others_replaced() {
    check(
        containers(json!([{"name": "a", "image": "1", "args": ["x"],
            "env": [{"name": "E", "value": "1"}]}, {"name": "b"}])),
        containers(json!([{"name": "a", "image": "2", "args": ["y"],
            "env": [{"name": "F", "value": "2"}]}])),
        containers(json!([{"name": "a", "image": "2", "args": ["y"],
            "env": [{"name": "F", "value": "2"}, {"name": "E", "value": "1"}]}, {"name": "b"}])),
    );
    check(
        json!({"spec": {"tolerations": [{"key": "a"}]}}),
        json!({"spec": {"tolerations": [{"key": "b"}]}}),
        json!({"spec": {"tolerations": [{"key": "b"}]}}),
    );
}

/// A list with the same name elsewhere has another merge key, or none.
#[test]
fn merge_rules_apply_by_field_path() {
    let ports = |list: Value| json!({"spec": {"ports": list}});
    let patched = merged_as(
        ("v1", "Service"),
        ports(json!([{"port": 80, "name": "a"}])),
        ports(json!([{"port": 80, "targetPort": 8080}])),
    );
    assert_eq!(
        patched,
        Ok(ports(
            json!([{"port": 80, "name": "a", "targetPort": 8080}])
        ))
    );
    check(
        containers(json!([{"name": "a", "ports": [{"containerPort": 1, "name": "x"}]}])),
        containers(json!([{"name": "a", "ports": [{"containerPort": 1, "protocol": "UDP"}]}])),
        containers(json!([{"name": "a", "ports":
            [{"containerPort": 1, "name": "x", "protocol": "UDP"}]}])),
    );
    let ports = |list: Value| json!({"subsets": [], "ports": list});
    let patched = merged_as(
        ("discovery.k8s.io/v1", "EndpointSlice"),
        ports(json!([{"port": 80}])),
        ports(json!([{"port": 81}])),
    );
    assert_eq!(patched, Ok(ports(json!([{"port": 81}]))));
    let template = |image: &str, name: &str| {
        let pod = containers(json!([{"name": name, "image": image}]));
        json!({"spec": {"jobTemplate": {"spec": {"template": pod}}}})
    };
    let patched = merged_as(
        ("batch/v1", "CronJob"),
        template("1", "a"),
        template("2", "a"),
    );
    assert_eq!(patched, Ok(template("2", "a")));
    let selector = |labels: Value| json!({"spec": {"selector": {"matchLabels": labels}}});
    let patched = merged_as(
        ("policy/v1", "PodDisruptionBudget"),
        selector(json!({"a": "1"})),
        selector(json!({"b": "2"})),
    );
    assert_eq!(patched, Ok(selector(json!({"b": "2"}))));
}

#[test]
fn patch_directives_replace_and_delete() {
    let list = json!([{"name": "a", "image": "1"}, {"name": "b"}, {"name": "c"}]);
    check(
        containers(list.clone()),
        containers(json!([{"$patch": "delete", "name": "b"}])),
        containers(json!([{"name": "a", "image": "1"}, {"name": "c"}])),
    );
    check(
        containers(list.clone()),
        containers(json!([{"$patch": "replace"}, {"name": "d"}])),
        containers(json!([{"name": "d"}])),
    );
    check(
        containers(list.clone()),
        containers(json!([{"$patch": "merge", "name": "a", "image": "2"}])),
        containers(json!([{"name": "a", "image": "2"}, {"name": "b"}, {"name": "c"}])),
    );
    check(
        json!({"spec": {"a": 1, "b": 2}, "kind": "Pod"}),
        json!({"spec": {"$patch": "replace", "c": 3, "d": null}}),
        json!({"spec": {"c": 3}, "kind": "Pod"}),
    );
    check(
        json!({"spec": {"a": 1}, "kind": "Pod"}),
        json!({"spec": {"$patch": "delete"}}),
        json!({"spec": {}, "kind": "Pod"}),
    );
    check(json!({}), json!({"spec": {"$patch": "delete"}}), json!({}));
    check(
        json!({}),
        containers(
            json!([{"$patch": "delete", "name": "b"}, {"name": "a", "$retainKeys": ["name"]}]),
        ),
        containers(json!([{"name": "a"}])),
    );
    check_malformed(json!({}), json!({"$patch": "other"}));
    check_malformed(
        containers(list.clone()),
        containers(json!([{"name": "a", "$patch": 1}])),
    );
    check_malformed(containers(list.clone()), containers(json!(["a"])));
    let keyless = merged_as(
        ("v1", "Pod"),
        containers(list),
        containers(json!([{"image": "x"}])),
    );
    assert!(matches!(keyless, Err(Inapplicable(_))), "{keyless:?}");
}

#[test]
fn primitive_lists_that_merge_are_sets() {
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    check(
        finalizers(json!(["a", "b"])),
        finalizers(json!(["b", "c"])),
        finalizers(json!(["a", "b", "c"])),
    );
    let mut patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
    check(
        finalizers(json!(["a", "b"])),
        patch.clone(),
        finalizers(json!(["b"])),
    );
    patch["metadata"]["finalizers"] = json!(["c"]);
    patch["metadata"]["$setElementOrder/finalizers"] = json!(["c", "b"]);
    check(
        finalizers(json!(["a", "b"])),
        patch,
        finalizers(json!(["c", "b"])),
    );
    check_malformed(json!({}), json!({"$deleteFromPrimitiveList/x": 1}));
}

#[test]
fn the_items_of_a_set_are_of_one_kind() {
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    for (old, new, message) in [
        (
            json!(["a"]),
            json!([["b"]]),
            "list element types are not identical: \"a\" and [\"b\"]",
        ),
        (
            json!([["a"]]),
            json!(["b"]),
            "lists of lists are not supported",
        ),
        (
            json!(["a"]),
            json!(["b", 1]),
            "list element types are not identical: \"a\" and 1",
        ),
    ] {
        let refused = merged_as(("v1", "Pod"), finalizers(old), finalizers(new)).unwrap_err();
        assert!(
            matches!(&refused, Inapplicable(why) if why == message),
            "{refused}"
        );
    }
}

#[test]
fn set_element_order_sorts_merged_lists() {
    let list = json!([{"name": "a"}, {"name": "server"}, {"name": "b"}]);
    let ordered = |order: Value, list: Option<Value>| {
        let mut patch = json!({"spec": {"$setElementOrder/containers": order}});
        if let Some(list) = list {
            patch["spec"]["containers"] = list;
        }
        patch
    };
    check(
        containers(list.clone()),
        ordered(json!([{"name": "b"}, {"name": "a"}]), None),
        containers(json!([{"name": "server"}, {"name": "b"}, {"name": "a"}])),
    );
    check(
        containers(list.clone()),
        ordered(
            json!([{"name": "a"}, {"name": "c"}, {"name": "b"}]),
            Some(json!([{"name": "c", "image": "1"}])),
        ),
        containers(
            json!([{"name": "a"}, {"name": "c", "image": "1"}, {"name": "server"}, {"name": "b"}]),
        ),
    );
    check(
        json!({"spec": {}}),
        ordered(json!([{"name": "a"}]), Some(json!([{"name": "a"}]))),
        containers(json!([{"name": "a"}])),
    );
    check(
        json!({"spec": {}}),
        ordered(json!([{"name": "a"}]), None),
        json!({"spec": {}}),
    );
    check_malformed(
        containers(list.clone()),
        ordered(json!([{"name": "a"}]), Some(json!([{"name": "c"}]))),
    );
    check_malformed(
        containers(list.clone()),
        ordered(
            json!([{"name": "a"}, {"name": "b"}]),
            Some(json!([{"name": "b"}, {"name": "a"}])),
        ),
    );
    check_malformed(containers(list), ordered(json!("a"), None));
}

#[test]
fn retain_keys_removes_other_keys() {
    let strategy = |s: Value| json!({"spec": {"strategy": s}});
    let patched = merged_as(
        ("apps/v1", "Deployment"),
        strategy(json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}})),
        strategy(json!({"$retainKeys": ["type"], "type": "Recreate"})),
    );
    assert_eq!(patched, Ok(strategy(json!({"type": "Recreate"}))));
    check(
        json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
        json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"},
            "$retainKeys": ["name", "hostPath"]}]}}),
        json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}}),
    );
    check_malformed(json!({}), json!({"$retainKeys": ["a"], "b": 1}));
    check_malformed(json!({}), json!({"$retainKeys": "a"}));
}

/// Generates the fields of a pod's container, without nulls.
fn a_container() -> impl Strategy<Value = Map<String, Value>> {
    let env = prop::collection::btree_map("[A-C]", "[0-9]", 0..3);
    let args = prop::collection::vec("[a-c]", 0..3);
    ("[x-z]", env, args).prop_map(|(image, env, args)| {
        let env = by_key(
            "name",
            env.into_iter().map(|(k, v)| (k, json!({ "value": v }))),
        );
        let container = json!({"image": image, "env": env, "args": args});
        container.as_object().cloned().unwrap()
    })
}

fn by_key(key: &str, items: impl IntoIterator<Item = (String, Value)>) -> Value {
    let with_key = |(name, mut item): (String, Value)| {
        item[key] = name.into();
        item
    };
    items.into_iter().map(with_key).collect()
}

type Containers = BTreeMap<String, Map<String, Value>>;

fn a_pod() -> impl Strategy<Value = (Value, Containers)> {
    let containers = prop::collection::btree_map("[a-e]", a_container(), 0..5);
    let finalizers = prop::collection::btree_set("[a-d]", 0..4);
    let labels = prop::collection::btree_map("[a-d]", "[0-9]", 0..4);
    let shuffled = |c: Containers| {
        let names: Vec<String> = c.keys().cloned().collect();
        (Just(c), Just(names).prop_shuffle())
    };
    (containers.prop_flat_map(shuffled), finalizers, labels).prop_map(
        |((containers, order), finalizers, labels)| {
            let items = order
                .iter()
                .map(|n| (n.clone(), Value::Object(containers[n].clone())));
            let pod = json!({"metadata": {"finalizers": finalizers, "labels": labels},
                "spec": {"containers": by_key("name", items)}});
            (pod, containers)
        },
    )
}

/// For random pods and patches: an empty patch and the pod itself as a patch change nothing; a patch takes effect, a second
/// application changes nothing, and no container is changed that the patch does not name.
#[test]
fn a_patch_changes_what_it_names_and_nothing_when_repeated() {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&watchet_test_util::seeds::seed().to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::with_cases(100), rng);
    let pods = (a_pod(), a_pod());
    let outcome = runner.run(&pods, |((pod, before), (patch, expected))| {
        let patched = |pod: &Value, patch: &Value| {
            merged_as(("v1", "Pod"), pod.clone(), patch.clone()).unwrap()
        };
        prop_assert_eq!(&patched(&pod, &json!({})), &pod);
        prop_assert_eq!(&patched(&pod, &pod), &pod);
        let once = patched(&pod, &patch);
        prop_assert_eq!(&patched(&once, &patch), &once);

        let list = once["spec"]["containers"].as_array().unwrap();
        let names: Vec<&str> = list.iter().map(|c| c["name"].as_str().unwrap()).collect();
        let all: std::collections::BTreeSet<_> = before.keys().chain(expected.keys()).collect();
        prop_assert_eq!(names.len(), all.len(), "each container once");
        for container in list {
            let name = container["name"].as_str().unwrap();
            match (expected.get(name), before.get(name)) {
                (Some(new), _) => {
                    prop_assert_eq!(&container["image"], &new["image"]);
                    prop_assert_eq!(&container["args"], &new["args"]);
                    for variable in new["env"].as_array().unwrap() {
                        let env = container["env"].as_array().unwrap();
                        prop_assert!(env.contains(variable), "{variable} in {container}");
                    }
                }
                (None, Some(old)) => {
                    let mut old = Value::Object(old.clone());
                    old["name"] = name.into();
                    prop_assert_eq!(container, &old);
                }
                (None, None) => prop_assert!(false, "{} came from nowhere", name),
            }
        }
        // The items of the patch are in the order of the patch, the other ones in their previous order.
        let order = |list: &Value, of: &Containers| -> Vec<String> {
            let names = list["spec"]["containers"].as_array().unwrap().iter();
            let names = names.map(|c| c["name"].as_str().unwrap().to_owned());
            names.filter(|n| of.contains_key(n)).collect()
        };
        prop_assert_eq!(order(&once, &expected), order(&patch, &expected));
        let mut others = before.clone();
        others.retain(|name, _| !expected.contains_key(name));
        prop_assert_eq!(order(&once, &others), order(&pod, &others));
        Ok(())
    });
    outcome.unwrap();
}
