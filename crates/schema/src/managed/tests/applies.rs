//! Tests of apply: merges, conflicts, shared and released fields.

use super::*;

#[test]
fn apply_creates_an_object() {
    let mut object = config_map();
    object.apply("a", data(&[("x", "1")]));
    assert_eq!(object.body(), data(&[("x", "1")]));
    assert_eq!(object.managers(), ["a Apply: .data.x"]);
}

#[test]
fn repeated_apply_changes_nothing() {
    let mut object = config_map();
    object.apply("a", data(&[("x", "1")]));
    let before = object.object.clone();
    object.apply("a", data(&[("x", "1")]));
    assert_eq!(object.object, before);
}

#[test]
fn fields_of_other_managers_conflict() {
    let mut object = TestObject::of("apps/v1", "Deployment");
    let replicas = |count: u32| json!({"spec": {"replicas": count}});
    object.update("kubectl-create", replicas(1));
    let conflict = object.try_apply("a", replicas(2), false).unwrap_err();
    assert_eq!(
        conflict.to_string(),
        "Apply failed with 1 conflict: conflict with \"kubectl-create\" using apps/v1: .spec.replicas"
    );
    let ApplyError::Conflicts(conflicts) = conflict else {
        panic!("{conflict}");
    };
    assert_eq!(
        conflicts[0].to_string(),
        "conflict with \"kubectl-create\" using apps/v1"
    );
    object.force("a", replicas(2));
    assert_eq!(object.body(), replicas(2));
    assert_eq!(object.managers(), ["a Apply: .spec.replicas"]);
}

/// A quantity stored in another form by another server has the same value.
#[test]
fn equal_quantities_do_not_conflict() {
    let mut object = TestObject::of("v1", "ResourceQuota");
    let quota = |cpu: &str, memory: &str| json!({"spec": {"hard": {"cpu": cpu, "memory": memory}}});
    object.update("old", quota("1000m", "1024Mi"));
    object.apply("a", quota("1", "1Gi"));
    assert_eq!(object.body(), quota("1", "1Gi"));
    assert_eq!(
        object.managers(),
        [
            "a Apply: .spec.hard.cpu .spec.hard.memory",
            "old Update: .spec.hard .spec.hard.cpu .spec.hard.memory"
        ]
    );
    let other = error_text(object.try_apply("b", quota("1001m", "1Gi"), false));
    assert!(
        other.contains(".spec.hard.cpu") && !other.contains("memory"),
        "{other}"
    );
    // It is not a change for an update either.
    object.update("c", quota("1.0", "1048576Ki"));
    assert!(
        object
            .managers()
            .iter()
            .all(|entry| !entry.starts_with('c'))
    );
    // Also below a leaf.
    let mut object = TestObject::of("v1", "Pod");
    let divided = |divisor: &str| {
        let field = json!({"resource": "limits.cpu", "divisor": divisor});
        json!({"spec": {"containers": [{"name": "c",
            "env": [{"name": "e", "valueFrom": {"resourceFieldRef": field}}]}]}})
    };
    object.update("old", divided("1000m"));
    object.apply("a", divided("1"));
    error_text(object.try_apply("b", divided("2"), false));
}

#[test]
fn several_conflicts_are_grouped_by_manager() {
    let mut object = config_map();
    object.apply("b", data(&[("x", "1"), ("y", "1")]));
    object.subresource = Some("scale");
    object.update("a", data(&[("x", "1"), ("y", "1"), ("z", "1")]));
    object.subresource = None;
    let error_text =
        error_text(object.try_apply("c", data(&[("x", "2"), ("y", "2"), ("z", "2")]), false));
    assert_eq!(
        error_text,
        "Apply failed with 3 conflicts: conflicts with \"a\" with subresource \"scale\" using v1:\n\
         - .data.z\nconflicts with \"b\":\n- .data.x\n- .data.y"
    );
    assert_eq!(object.body(), data(&[("x", "1"), ("y", "1"), ("z", "1")]));
}

#[test]
fn equal_value_is_shared() {
    let mut object = config_map();
    object.apply("a", data(&[("x", "1")]));
    object.apply("b", data(&[("x", "1")]));
    assert_eq!(object.managers(), ["a Apply: .data.x", "b Apply: .data.x"]);
    let error_text = error_text(object.try_apply("a", data(&[("x", "2")]), false));
    assert!(
        error_text.ends_with("conflict with \"b\": .data.x"),
        "{error_text}"
    );
    // A manager that releases it leaves it to the other.
    object.apply("a", data(&[("y", "1")]));
    assert_eq!(object.body(), data(&[("x", "1"), ("y", "1")]));
    assert_eq!(object.managers(), ["b Apply: .data.x", "a Apply: .data.y"]);
    object.apply("a", data(&[("x", "1"), ("y", "1")]));
    object.apply("b", data(&[]));
    assert_eq!(object.body(), data(&[("x", "1"), ("y", "1")]));
}

#[test]
fn released_field_without_other_managers_is_removed() {
    let mut object = config_map();
    object.apply("a", data(&[("x", "1"), ("y", "1")]));
    object.update("b", data(&[("x", "1"), ("y", "2"), ("z", "1")]));
    object.apply("a", json!({}));
    assert_eq!(object.body(), data(&[("y", "2"), ("z", "1")]));
    assert_eq!(object.managers(), ["b Update: .data.y .data.z"]);
}

#[test]
fn released_field_is_removed_with_its_children() {
    let mut object = TestObject::of("v1", "Pod");
    object.apply(
        "a",
        json!({"spec": {"securityContext": {"runAsUser": 1}, "nodeName": "n"}}),
    );
    object.apply("a", json!({"spec": {"nodeName": "n"}}));
    assert_eq!(object.body()["spec"], json!({"nodeName": "n"}));
}

#[test]
fn existing_fields_have_a_manager() {
    let mut object = config_map();
    object.object = Some(object.full(data(&[("x", "1"), ("y", "1")])));
    let error_text = error_text(object.try_apply("a", data(&[("x", "2")]), false));
    assert!(
        error_text.contains("\"before-first-apply\" using v1: .data.x"),
        "{error_text}"
    );
    object.force("a", data(&[("x", "2")]));
    let expected = [
        "a Apply: .data.x",
        "before-first-apply Update: .data .data.y",
    ];
    assert_eq!(object.managers(), expected);
}

#[test]
fn configuration_with_managed_fields_is_rejected() {
    let mut object = config_map();
    for entries in [json!([]), json!([{"manager": "x"}])] {
        let body = json!({"metadata": {"managedFields": entries}});
        let error_text = error_text(object.try_apply("a", body, false));
        assert_eq!(error_text, "metadata.managedFields must be nil");
    }
    object.apply("a", json!({"metadata": {"managedFields": null}}));
}

/// Returns the error of applying this as a Deployment.
fn apply_error(body: Value) -> String {
    let mut object = TestObject::of("apps/v1", "Deployment");
    let error_text = error_text(object.try_apply("a", body, false));
    let prefix = "failed to create typed patch object (/x; apps/v1, Kind=Deployment): ";
    error_text
        .strip_prefix(prefix)
        .unwrap_or_else(|| panic!("{error_text}"))
        .to_owned()
}

#[test]
fn configuration_must_match_its_type() {
    let containers =
        |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let path = ".spec.template.spec.containers";
    assert_eq!(
        apply_error(json!({"spec": {"x": 1}})),
        ".spec.x: field not declared in schema"
    );
    assert_eq!(
        apply_error(json!({"spec": {"replicas": "1"}})),
        ".spec.replicas: expected numeric (int or float), got \"1\""
    );
    assert_eq!(
        apply_error(json!({"spec": 1})),
        ".spec: expected map, got 1"
    );
    assert_eq!(
        apply_error(containers(json!({}))),
        format!("{path}: expected list, got {{}}")
    );
    assert_eq!(
        apply_error(containers(json!([{"name": "a"}, {"name": "a"}]))),
        format!("{path}: duplicate entries for key [name=\"a\"]")
    );
    assert_eq!(
        apply_error(containers(json!([{"image": "a"}]))),
        format!(
            "{path}: element 0: associative list with keys has an element that omits key field \
             \"name\" (and doesn't have default value)"
        )
    );
    assert_eq!(
        apply_error(json!({"foo": 1, "spec": {"paused": "a", "minReadySeconds": true}})),
        "errors:\n  .foo: field not declared in schema\n  .spec.minReadySeconds: expected numeric \
         (int or float), got true\n  .spec.paused: expected boolean, got \"a\""
    );
    let mut secret = TestObject::of("v1", "Secret");
    let refused = secret.try_apply("a", json!({"data": {"x": 1}}), false);
    assert!(error_text(refused).contains("(/x; /v1, Kind=Secret): .data.x: expected string"));
}

/// Kube-apiserver decodes such items to zero values. An apply to the node was answered by 500.
#[test]
fn stored_items_that_are_null_or_lack_their_key_are_items_with_zero_values() {
    for conditions in [
        json!([null]),
        json!([{"status": "True"}]),
        json!([null, {}]),
    ] {
        let mut node = TestObject::of("v1", "Node");
        let status = json!({"status": {"conditions": conditions}});
        node.update("kubelet", status.clone());
        node.apply("a", json!({"spec": {"unschedulable": true}}));
        assert_eq!(node.body()["status"], status["status"]);
    }
}

#[test]
fn applier_has_one_entry_for_all_versions() {
    let spec = json!({"type": "object", "properties": {
        "a": {"type": "integer"}, "b": {"type": "integer"},
    }});
    let mut object = TestObject::custom(spec.clone());
    object.serve("example.com/v2", spec);
    object.apply("m", json!({"spec": {"a": 1, "b": 1}}));
    object.api_version = "example.com/v2";
    object.apply("m", json!({"spec": {"b": 2}}));
    assert_eq!(object.body(), json!({"spec": {"b": 2}}));
    assert_eq!(object.managers(), ["m Apply: .spec.b"]);
    assert_eq!(object.entries()[0]["apiVersion"], "example.com/v2");
}

#[test]
fn status_is_applied_to_its_subresource() {
    let mut object = TestObject::of("apps/v1", "Deployment");
    object.apply(
        "a",
        json!({"spec": {"replicas": 1}, "status": {"replicas": 3}}),
    );
    assert_eq!(object.managers(), ["a Apply: .spec.replicas"]);
    object.subresource = Some("status");
    object.apply(
        "a",
        json!({"status": {"replicas": 1}, "spec": {"paused": true}}),
    );
    let expected = ["a Apply: .spec.replicas", "a Apply: .status.replicas"];
    assert_eq!(object.managers(), expected);
    assert_eq!(object.entries()[1]["subresource"], "status");
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns a map with `x` and `y` from client-side apply; afterwards `other` changed `y`.
fn applied_on_client() -> TestObject {
    let mut object = config_map();
    let mut body = data(&[("x", "1"), ("y", "1")]);
    let last = object.full(body.clone()).to_string();
    body["metadata"] = json!({"annotations": {LAST_APPLIED: last}});
    object.update("kubectl-client-side-apply", body.clone());
    body["data"]["y"] = "2".into();
    object.update("other", body);
    object
}

#[test]
fn client_side_applied_fields_do_not_conflict() {
    let mut object = applied_on_client();
    object.apply("kubectl", data(&[("x", "3"), ("y", "2")]));
    let last = &object.object.as_ref().unwrap()["metadata"]["annotations"][LAST_APPLIED];
    let last = last.as_str().unwrap();
    assert!(last.ends_with('\n'));
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["data"], json!({"x": "3", "y": "2"}));
    assert!(
        object
            .managers()
            .contains(&"kubectl Apply: .data.x .data.y".to_owned())
    );
    // Only unchanged fields, and only for that manager.
    let mut object = applied_on_client();
    let error = error_text(object.try_apply("kubectl", data(&[("x", "3"), ("y", "3")]), false));
    assert_eq!(
        error,
        "Apply failed with 1 conflict: conflict with \"other\" using v1: .data.y"
    );
    let error = error_text(object.try_apply("someone", data(&[("x", "3")]), false));
    assert!(error.contains("kubectl-client-side-apply"), "{error}");
}

#[test]
fn missing_annotation_is_not_created() {
    let mut object = config_map();
    object.apply("kubectl", data(&[("x", "1")]));
    assert_eq!(object.body(), data(&[("x", "1")]));
}

#[test]
fn field_that_becomes_atomic_has_one_manager() {
    let map = |kind: &str| {
        json!({"type": "object", "properties": {"m": {
            "type": "object",
            "x-kubernetes-map-type": kind,
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        }}})
    };
    let mut object = TestObject::custom(map("granular"));
    object.apply("m", json!({"spec": {"m": {"a": 1}}}));
    object.serve("example.com/v1", map("atomic"));
    object.apply("n", json!({"spec": {"m": {"a": 1}}}));
    let expected = ["m Apply: .spec.m", "n Apply: .spec.m"];
    assert_eq!(object.managers(), expected);
    // The manager of the whole remains its manager when its parts get managers again.
    object.serve("example.com/v1", map("granular"));
    object.apply("n", json!({"spec": {"m": {"a": 1, "b": 1}}}));
    let expected = ["m Apply: .spec.m", "n Apply: .spec.m.a .spec.m.b"];
    assert_eq!(object.managers(), expected);
}
