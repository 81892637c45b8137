//! Tests of managers after creates and updates.

use super::*;

#[test]
fn create_owns_the_written_fields() {
    let mut object = TestObject::of("apps/v1", "Deployment");
    object.update(
        "kubectl-create",
        json!({
            "metadata": {"labels": {"app": "a"}, "uid": "u", "creationTimestamp": "t", "generation": 1},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "a"}},
                "strategy": {"rollingUpdate": {"maxSurge": 1}},
                "template": {"spec": {"containers": [
                    {"name": "c", "env": [{"name": "E", "value": "e"}], "resources": {}}
                ]}},
            },
            "status": {},
        }),
    );
    let expected = json!([{
        "manager": "kubectl-create",
        "operation": "Update",
        "apiVersion": "apps/v1",
        "time": "1970-01-01T00:00:01Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:replicas": {},
                "f:selector": {},
                "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}},
                "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {},
                    "f:name": {},
                    "f:env": {".": {}, "k:{\"name\":\"E\"}": {".": {}, "f:name": {}, "f:value": {}}},
                    "f:resources": {},
                }}}},
            },
        },
    }]);
    assert_eq!(json!(object.entries()), expected);
}

#[test]
fn custom_resource_owns_all_written_fields() {
    let mut object = TestObject::custom(json!({
        "type": "object", "properties": {"a": {"type": "integer"}},
    }));
    object.update("m", json!({"spec": {"a": 1}}));
    assert_eq!(object.managers(), ["m Update: .spec .spec.a"]);
}

#[test]
fn update_makes_its_manager_the_only_owner() {
    let mut object = config_map();
    object.update("a", data(&[("x", "1"), ("y", "1")]));
    object.update("b", data(&[("x", "2"), ("y", "1"), ("z", "1")]));
    let expected = ["a Update: .data .data.y", "b Update: .data.x .data.z"];
    assert_eq!(object.managers(), expected);
    // Removed fields have no owner; a manager without fields has no entry.
    object.update("c", data(&[("y", "1")]));
    assert_eq!(object.managers(), ["a Update: .data .data.y"]);
    assert_eq!(object.entries()[0]["time"], "1970-01-01T00:00:01Z");
}

#[test]
fn equal_entries_are_merged() {
    let mut object = config_map();
    object.update("a", data(&[("x", "1")]));
    object.update("a", data(&[("x", "1"), ("y", "1")]));
    assert_eq!(object.managers(), ["a Update: .data .data.x .data.y"]);
    assert_eq!(object.entries()[0]["time"], "1970-01-01T00:00:02Z");
    // An apply and a write to a subresource have other entries.
    object.apply("a", data(&[("x", "1")]));
    object.subresource = Some("status");
    object.update(
        "a",
        json!({"metadata": {"annotations": {"k": "v"}}, "data": {"x": "1", "y": "1"}}),
    );
    let managers = object.managers();
    assert_eq!(managers.len(), 3, "{managers:?}");
    assert_eq!(object.entries()[2]["subresource"], "status");
}

#[test]
fn unchanged_update_changes_no_entry() {
    let mut object = config_map();
    object.update("a", data(&[("x", "1")]));
    let before = object.object.clone();
    object.update("b", data(&[("x", "1")]));
    assert_eq!(object.object, before);
}

#[test]
fn update_without_managed_fields_keeps_them() {
    let mut object = config_map();
    object.update("a", data(&[("x", "1")]));
    let mut body = object.full(data(&[("x", "1"), ("y", "1")]));
    object.write("b", |live, by, types| update(live, &mut body, by, types));
    object.object = Some(body);
    let expected = ["a Update: .data .data.x", "b Update: .data.y"];
    assert_eq!(object.managers(), expected);
}

/// Returns the managers after an update with these entries in the body.
fn managers_after(entries: Value) -> Vec<String> {
    let mut object = config_map();
    object.update("a", data(&[("x", "1"), ("y", "1")]));
    let mut body = data(&[("x", "2"), ("y", "1")]);
    body["metadata"] = json!({"managedFields": entries});
    object.update("b", body).managers()
}

#[test]
fn clients_can_set_entries() {
    let entry = |changes: Value| {
        let mut entry = json!({
            "manager": "c", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:x": {}, "f:y": {}}},
        });
        json_patch::merge(&mut entry, &changes);
        json!([entry])
    };
    let changed = ["c Update: .data.y", "b Update: .data.x"];
    assert_eq!(managers_after(entry(json!({}))), changed);
    // An empty list, or one empty entry, resets managed fields.
    assert_eq!(managers_after(json!([])), [""; 0]);
    assert_eq!(managers_after(json!([{}])), [""; 0]);
    assert_eq!(
        managers_after(json!([{"manager": "", "time": null}])),
        [""; 0]
    );
    // Undecodable entries are ignored.
    let unchanged = ["a Update: .data .data.y", "b Update: .data.x"];
    for bad in [
        json!({"operation": "Delete"}),
        json!({"operation": null}),
        json!({"apiVersion": ""}),
        json!({"fieldsType": "FieldsV2"}),
        json!({"fieldsType": null}),
        json!({"fieldsV1": {"data": {}}}),
        json!({"fieldsV1": [1]}),
        json!({"time": "yesterday"}),
        json!({"manager": 1}),
    ] {
        assert_eq!(managers_after(entry(bad.clone())), unchanged, "{bad}");
    }
    assert_eq!(managers_after(json!([{}, {}])), unchanged);
}

#[test]
fn undecodable_entries_are_reported() {
    let mut object = config_map();
    object.update("a", data(&[("x", "1")]));
    let mut object = object.object.take().unwrap();
    assert_eq!(decode_error(&object), None);
    object["metadata"]["managedFields"][0]["operation"] = "Delete".into();
    let problem = decode_error(&object).unwrap();
    assert_eq!(problem, "operation must be `Apply` or `Update`");
    object["metadata"]["managedFields"] = json!({});
    assert!(decode_error(&object).is_some());
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    assert_eq!(decode_error(&object), None);
}

#[test]
fn subresource_write_ignores_entries_in_the_body() {
    let mut object = config_map();
    object.update("a", data(&[("x", "1")]));
    object.subresource = Some("status");
    object.update(
        "b",
        json!({"metadata": {"managedFields": []}, "data": {"x": "1"}}),
    );
    assert_eq!(object.managers(), ["a Update: .data .data.x"]);
}

#[test]
fn update_does_not_start_tracking() {
    let mut object = config_map();
    object.object = Some(object.full(data(&[("x", "1")])));
    object.update("a", data(&[("x", "2")]));
    assert!(object.entries().is_empty());
    assert!(
        object.object.as_ref().unwrap()["metadata"]
            .get("managedFields")
            .is_none()
    );
}

#[test]
fn oldest_updates_are_merged() {
    let mut object = config_map();
    let mut pairs = Vec::new();
    let names: Vec<String> = (0..13).map(|n| format!("m{n:02}")).collect();
    for name in &names {
        pairs.push((name.as_str(), "1"));
        object.update(name, data(&pairs));
    }
    let managers = object.managers();
    assert_eq!(managers.len(), 10);
    assert_eq!(
        managers[0],
        "ancient-changes Update: .data .data.m00 .data.m01 .data.m02 .data.m03"
    );
    assert_eq!(object.entries()[0]["time"], "1970-01-01T00:00:04Z");
    assert_eq!(managers[9], "m12 Update: .data.m12");
}

#[test]
fn status_is_written_by_its_subresource_only() {
    let mut object = TestObject::of("apps/v1", "Deployment");
    object.update(
        "a",
        json!({"spec": {"replicas": 1}, "status": {"replicas": 1}}),
    );
    assert_eq!(object.managers(), ["a Update: .spec.replicas"]);
    object.subresource = Some("status");
    object.update(
        "b",
        json!({"spec": {"replicas": 1}, "status": {"replicas": 2}}),
    );
    let expected = ["a Update: .spec.replicas", "b Update: .status.replicas"];
    assert_eq!(object.managers(), expected);
}

#[test]
fn changes_remove_fields_of_other_versions_entries() {
    let spec = json!({"type": "object", "properties": {
        "a": {"type": "integer"}, "b": {"type": "integer"},
    }});
    let mut object = TestObject::custom(spec.clone());
    object.serve("example.com/v2", spec);
    object.update("m", json!({"spec": {"a": 1, "b": 1}}));
    object.api_version = "example.com/v2";
    object.update("m", json!({"spec": {"a": 2, "b": 1}}));
    let expected = ["m Update: .spec .spec.b", "m Update: .spec.a"];
    assert_eq!(object.managers(), expected);
    assert_eq!(object.entries()[1]["apiVersion"], "example.com/v2");
    // Entries of a version that is no longer served are dropped.
    object.custom.remove(0);
    object.update("m", json!({"spec": {"a": 2, "b": 2}}));
    assert_eq!(object.managers(), ["m Update: .spec.a .spec.b"]);
}

#[test]
fn incomparable_list_leaves_entries_unchanged() {
    let mut object = TestObject::of("v1", "Pod");
    let pod = |containers: Value| json!({"spec": {"containers": containers}});
    object.update("a", pod(json!([{"name": "c"}])));
    let before = object.managers();
    object.update("b", pod(json!([1])));
    assert_eq!(object.managers(), before);
}

/// Kube-apiserver decodes the container to one whose name is empty.
#[test]
fn item_without_its_key_has_an_empty_one() {
    let mut object = TestObject::of("v1", "Pod");
    let pod = |containers: Value| json!({"spec": {"containers": containers}});
    object.update("a", pod(json!([{"name": "c"}])));
    object.update("b", pod(json!([{"image": "i"}])));
    assert_eq!(
        object.managers(),
        ["b Update: .spec.containers[name=\"\"] .spec.containers[name=\"\"].image"]
    );
}

/// Each entry of a body was compared with all before it, and the fields of the oldest were copied for each merged entry:
/// minutes for one request. Eight times the entries must not take 64 times as long.
#[test]
fn time_grows_with_the_number_of_managers_not_with_its_square() {
    let (few, many) = (write_with_managers(5_000), write_with_managers(40_000));
    assert!(many < 30 * few, "{few:?} for 5,000 and {many:?} for 40,000");
}

/// Returns how long two writes with this number of managers take.
fn write_with_managers(count: usize) -> std::time::Duration {
    let entries = |operation: &str| {
        let entry = |n: usize| {
            json!({
                "manager": format!("m{n}"), "operation": operation, "apiVersion": "v1",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:x{n}"): {}}},
            })
        };
        (0..count).map(entry).collect::<Vec<Value>>()
    };
    let begun = tokio::time::Instant::now();
    let mut object = config_map();
    let body = json!({"metadata": {"managedFields": entries("Update")}, "data": {"y": "1"}});
    object.update("a", body);
    assert_eq!(object.entries().len(), 10);
    // Appliers keep separate entries, which every later write processes.
    let mut object = config_map();
    let body = json!({"metadata": {"managedFields": entries("Apply")}, "data": {"y": "1"}});
    object.update("a", body);
    assert_eq!(object.entries().len(), count + 1);
    begun.elapsed()
}
