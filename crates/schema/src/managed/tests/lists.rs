//! Tests of lists: items with keys, sets and atomic lists, order and duplicates.

use super::*;

fn pod(containers: Value) -> Value {
    json!({"spec": {"containers": containers}})
}

fn names(object: &TestObject) -> Vec<String> {
    let body = object.body();
    let list = body["spec"]["containers"].as_array().unwrap();
    let name = |item: &Value| item["name"].as_str().unwrap().to_owned();
    list.iter().map(name).collect()
}

#[test]
fn items_with_keys_have_their_own_managers() {
    let mut object = TestObject::of("v1", "Pod");
    object.apply("a", pod(json!([{"name": "x", "image": "i"}])));
    object.apply(
        "b",
        pod(json!([{"name": "x", "tty": true}, {"name": "y", "image": "j"}])),
    );
    assert_eq!(
        object.body(),
        pod(json!([{"name": "x", "image": "i", "tty": true}, {"name": "y", "image": "j"}]))
    );
    // `a` releases only its own fields of the item that `b` owns too.
    object.apply("a", pod(json!([])));
    assert_eq!(
        object.body(),
        pod(json!([{"name": "x", "tty": true}, {"name": "y", "image": "j"}]))
    );
    object.apply("b", pod(json!([{"name": "x", "tty": true}])));
    assert_eq!(object.body(), pod(json!([{"name": "x", "tty": true}])));
}

/// Asserts the order after applying `config` to `live`.
fn check_order(live: &str, config: &str, expected: &str) {
    let list = |names: &str| {
        let item = |name| json!({"name": name});
        pod(names.split_whitespace().map(item).collect())
    };
    let mut object = TestObject::of("v1", "Pod");
    object.update("a", list(live));
    object.force("b", list(config));
    let expected: Vec<&str> = expected.split_whitespace().collect();
    assert_eq!(names(&object), expected, "{live} with {config}");
}

#[test]
fn items_have_the_configurations_order() {
    check_order("a b c", "c b a", "c b a");
    check_order("a b c", "a b c", "a b c");
    check_order("a b c", "b", "a b c");
    check_order("a b c", "d", "a b c d");
    check_order("a b c", "d a", "d a b c");
    check_order("a b c", "c a", "b c a");
    check_order("a b c d", "d b", "a c d b");
    check_order("a b", "c b d a", "c b d a");
    check_order("", "b a", "b a");
}

#[test]
fn missing_keys_have_defaults() {
    let service = |port: Value| json!({"spec": {"ports": [port]}});
    let mut object = TestObject::of("v1", "Service");
    object.update(
        "a",
        service(json!({"port": 80, "protocol": "TCP", "name": "h"})),
    );
    object.apply("b", service(json!({"port": 80, "nodePort": 1})));
    assert_eq!(
        object.body(),
        service(json!({"port": 80, "protocol": "TCP", "name": "h", "nodePort": 1}))
    );
    let keys = "[port=80,protocol=\"TCP\"]";
    let expected =
        format!("b Apply: .spec.ports{keys} .spec.ports{keys}.nodePort .spec.ports{keys}.port");
    assert_eq!(object.managers()[0], expected);
}

fn set_of(values: Value) -> Value {
    json!({"metadata": {"finalizers": values}})
}

#[test]
fn set_members_have_managers() {
    let mut object = config_map();
    object.apply("a", set_of(json!(["x.io/1", "x.io/2"])));
    object.apply("b", set_of(json!(["x.io/2", "x.io/3"])));
    assert_eq!(object.body(), set_of(json!(["x.io/1", "x.io/2", "x.io/3"])));
    object.apply("a", json!({}));
    assert_eq!(object.body(), set_of(json!(["x.io/2", "x.io/3"])));
    assert_eq!(
        object.managers(),
        ["b Apply: .metadata.finalizers[=\"x.io/2\"] .metadata.finalizers[=\"x.io/3\"]"]
    );
}

#[test]
fn atomic_lists_are_replaced() {
    let args = |args: Value| pod(json!([{"name": "x", "args": args}]));
    let mut object = TestObject::of("v1", "Pod");
    object.apply("a", args(json!(["1", "2"])));
    let error = error_text(object.try_apply("b", args(json!(["1"])), false));
    assert!(
        error.ends_with("\"a\": .spec.containers[name=\"x\"].args"),
        "{error}"
    );
    object.force("b", args(json!(["1"])));
    assert_eq!(object.body(), args(json!(["1"])));
}

#[test]
fn existing_duplicates_are_one_field() {
    let env = |env: Value| pod(json!([{"name": "x", "env": env}]));
    let one = |name: &str, value: &str| json!({"name": name, "value": value});
    let mut object = TestObject::of("v1", "Pod");
    object.update(
        "a",
        env(json!([one("D", "1"), one("D", "2"), one("E", "1")])),
    );
    let entries = object.entries();
    let fields = &entries[0]["fieldsV1"]["f:spec"]["f:containers"]["k:{\"name\":\"x\"}"]["f:env"];
    assert_eq!(fields["k:{\"name\":\"D\"}"], json!({}));
    // An applier that omits them leaves them; one that applies the item replaces them by one.
    object.apply("b", env(json!([one("F", "1")])));
    let list = object.body()["spec"]["containers"][0]["env"].clone();
    assert_eq!(
        list,
        json!([one("D", "1"), one("D", "2"), one("E", "1"), one("F", "1")])
    );
    object.force("b", env(json!([one("D", "3")])));
    let list = object.body()["spec"]["containers"][0]["env"].clone();
    assert_eq!(list, json!([one("D", "3"), one("E", "1")]));
}

#[test]
fn types_without_schema_are_deduced() {
    let mut object = TestObject::custom(json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }));
    object.apply("a", json!({"spec": {"m": {"x": 1}, "l": [1]}}));
    object.apply("b", json!({"spec": {"m": {"y": 1}}}));
    assert_eq!(
        object.body(),
        json!({"spec": {"m": {"x": 1, "y": 1}, "l": [1]}})
    );
    let error = error_text(object.try_apply("b", json!({"spec": {"l": [2]}}), false));
    assert!(error.ends_with("\"a\": .spec.l"), "{error}");
    // A scalar replaces a map.
    object.force("b", json!({"spec": {"m": 1}}));
    assert_eq!(object.body(), json!({"spec": {"m": 1, "l": [1]}}));
    object.apply("a", json!({"spec": {"l": [1]}}));
    assert_eq!(object.body(), json!({"spec": {"m": 1, "l": [1]}}));
}

#[test]
fn long_lists_are_merged_quickly() {
    let items = |from: usize| {
        let item = |n: usize| json!({"name": format!("c{n}"), "image": "i"});
        pod((from..from + 20_000).map(item).collect())
    };
    let mut object = TestObject::of("v1", "Pod");
    object.update("a", items(0));
    object.apply("b", items(10_000));
    object.apply("b", items(15_000));
    assert_eq!(names(&object).len(), 35_000);
}
