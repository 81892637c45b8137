//! Patches of every type and server-side apply.

use jiff::Timestamp;
use serde_json::{Value, json};
use watchet_http::fuzzing::decode_patch;
use watchet_registry::Patch;
use watchet_registry::fuzzing::{apply_json_patch, apply_strategic_merge_patch};
use watchet_schema::managed::{self, Scope, WriteContext};
use watchet_schema::{TypeRef, Types};

use super::objects::PROTOBUF;
use super::{json_parts, parts};

pub(super) const WORDS: &[&str] = &[
    "$patch",
    "replace",
    "delete",
    "merge",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
    "metadata",
    "managedFields",
    "finalizers",
    "ownerReferences",
    "containers",
    "env",
    "name",
    "ports",
    "containerPort",
    "protocol",
    "op",
    "add",
    "remove",
    "test",
    "move",
    "copy",
    "path",
    "from",
    "value",
    "/-",
    "/spec/containers/0",
    "/metadata/labels/a~1b",
    "f:metadata",
    "f:spec",
    "k:{\"name\":\"a\"}",
    "v:\"x\"",
    "i:0",
    ".",
    "operation",
    "Apply",
    "Update",
    "manager",
    "fieldsV1",
    "fieldsType",
    "FieldsV1",
    "apiVersion",
    "v1",
    "kubectl",
    "kubectl.kubernetes.io/last-applied-configuration",
];

const CONTENT_TYPES: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// The first part is an object, the second a patch of any type. A merge patch that is applied twice changes nothing the
/// second time, an empty patch changes nothing, and a strategic merge patch of objects that have no lists in common is a merge
/// patch.
pub(super) fn patches(input: &[u8]) {
    let [object, patch] = parts(input);
    let Ok(object) = serde_json::from_slice::<Value>(object) else {
        return;
    };
    if !object.is_object() {
        return;
    }
    let root = type_of(&PROTOBUF.0, &object);
    for content_type in CONTENT_TYPES {
        match decode_patch(content_type, patch) {
            Ok(Patch::Json(patch)) => json_patch(&object, &patch),
            Ok(Patch::Merge(patch)) if patch.is_object() => merge_patch(&object, &patch),
            Ok(Patch::Strategic(patch)) => strategic_merge_patch(&object, &patch, root),
            _ => {}
        }
    }
}

fn type_of<'a>(types: &'a Types, object: &Value) -> Option<TypeRef<'a>> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    types.root(text("apiVersion"), text("kind"))
}

fn json_patch(object: &Value, patch: &json_patch::Patch) {
    let mut patched = object.clone();
    if apply_json_patch(&mut patched, patch).is_ok() {
        let only_tests = patch
            .iter()
            .all(|operation| matches!(operation, json_patch::PatchOperation::Test(_)));
        assert!(!only_tests || patched == *object, "tests change nothing");
        // The difference of the two is a patch from one to the other.
        let difference = json_patch::diff(object, &patched);
        let mut again = object.clone();
        if difference.len() < 1000 {
            let applied = apply_json_patch(&mut again, &difference);
            assert_eq!(applied, Ok(()), "{difference:?}");
            assert_eq!(again, patched, "{difference:?}");
        }
    }
}

fn merge_patch(object: &Value, patch: &Value) {
    let mut once = object.clone();
    json_patch::merge(&mut once, patch);
    let mut twice = once.clone();
    json_patch::merge(&mut twice, patch);
    assert_eq!(once, twice, "{patch}");
}

fn strategic_merge_patch(object: &Value, patch: &Value, root: Option<TypeRef<'_>>) {
    let mut patched = object.clone();
    let applied = apply_strategic_merge_patch(&mut patched, patch, root);
    let mut unchanged = object.clone();
    let empty = apply_strategic_merge_patch(&mut unchanged, &json!({}), root);
    assert_eq!(
        (empty, &unchanged),
        (Ok(()), object),
        "an empty patch changes nothing"
    );
    if applied.is_err() || root.is_some() || has_directives(patch) || has_lists(patch) {
        return;
    }
    let mut merged = object.clone();
    json_patch::merge(&mut merged, patch);
    assert_eq!(patched, merged, "{patch}");
}

fn has_directives(patch: &Value) -> bool {
    any(patch, &|value| {
        let names = value
            .as_object()
            .into_iter()
            .flat_map(|members| members.keys());
        names.into_iter().any(|name| name.starts_with('$'))
    })
}

fn has_lists(patch: &Value) -> bool {
    any(patch, &Value::is_array)
}

fn any(value: &Value, is: &impl Fn(&Value) -> bool) -> bool {
    is(value)
        || match value {
            Value::Array(items) => items.iter().any(|item| any(item, is)),
            Value::Object(members) => members.values().any(|member| any(member, is)),
            _ => false,
        }
}

fn has_managed_fields(object: &Value) -> bool {
    let entries = object.pointer("/metadata/managedFields");
    entries
        .and_then(Value::as_array)
        .is_some_and(|entries| !entries.is_empty())
}

/// The first part is the stored object, or null; the others are configurations that two managers apply, and an update. An apply
/// that is repeated changes nothing.
pub(super) fn apply(input: &[u8]) {
    let Some([live, first, second, updated]) = json_parts::<4>(input) else {
        return;
    };
    let kind_of = |object: &Value| ["apiVersion", "kind"].map(|name| object.get(name).cloned());
    let mut live = Some(live).filter(Value::is_object);
    let writes = [
        ("a", first, true),
        ("b", second, true),
        ("a", updated, false),
    ];
    for (manager, mut written, is_apply) in writes {
        // The objects of one name have one kind, and these types have one version.
        let is_other = live
            .as_ref()
            .is_some_and(|live| kind_of(live) != kind_of(&written));
        if !written.is_object() || is_other {
            continue;
        }
        let api_version = written
            .get("apiVersion")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let kind = written
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let types = |version: &str| PROTOBUF.0.root(version, &kind);
        let context = WriteContext {
            name: manager,
            api_version: &api_version,
            subresource: None,
            scope: Scope::NoStatus,
            now: Timestamp::UNIX_EPOCH,
        };
        if !is_apply {
            if types(&api_version).is_some() {
                managed::update(live.as_ref(), &mut written, &context, &types);
            }
            continue;
        }
        for force in [false, true] {
            let Ok(applied) = managed::apply(live.as_ref(), &written, force, &context, &types)
            else {
                continue;
            };
            assert_eq!(
                managed::decode_error(&applied),
                None,
                "the managed fields can be decoded"
            );
            // If no manager owns a field any more, because the last owners had none or were of versions that no longer exist, the
            // second apply gives all fields to `before-first-apply`, as in kube-apiserver.
            let has_lost_managers =
                live.as_ref().is_some_and(has_managed_fields) && !has_managed_fields(&applied);
            if !has_lost_managers {
                let again = managed::apply(Some(&applied), &written, force, &context, &types);
                let again = again.expect("what was applied can be applied again");
                assert_eq!(
                    again, applied,
                    "{manager} applies {written} to {live:?} twice"
                );
            }
            live = Some(applied);
        }
    }
}
