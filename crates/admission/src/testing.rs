//! Writes for the unit tests of this crate.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::request::{
    AdmissionRequest, GroupVersionKind, GroupVersionResource, Operation, RequestOptions,
};
use watchet_api::UserInfo;

/// Returns a write of an object without spec by an admin.
pub(super) fn write<'a>(
    operation: Operation,
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
) -> AdmissionRequest<'a> {
    let object = json!({"metadata": {"name": name, "namespace": namespace}});
    let version = "v1".to_owned();
    let user = UserInfo::authenticated("admin".into(), String::new(), Vec::new());
    AdmissionRequest {
        operation,
        resource: GroupVersionResource {
            group: String::new(),
            version: version.clone(),
            resource: resource.to_owned(),
        },
        kind: GroupVersionKind {
            group: String::new(),
            version,
            kind: "Thing".to_owned(),
        },
        subresource: "",
        name,
        namespace,
        user: Box::leak(Box::new(user)),
        dry_run: false,
        options: RequestOptions(&|| Value::Null),
        warnings: Box::leak(Box::default()),
        audit_annotations: Box::leak(Box::default()),
        old_object: match operation {
            Operation::Create => Cow::Owned(Value::Null),
            _ => Cow::Owned(object.clone()),
        },
        object: Cow::Owned(object),
    }
}
