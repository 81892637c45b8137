//! The merge of a mutating admission policy's apply configuration into an object: that of server-side
//! apply, without managers. Whatever has no parts of its own may not be set, because the rest of it would
//! be lost.

use serde_json::Value;

use crate::{ListKind, Shape, TypeRef};

use super::merge::merge;
use super::typed::Type;
use super::validate::{joined, problems};

/// How many atomic values are named.
const ATOMICS_MAX: usize = 100;

/// Returns `object` with what `configuration` says of it.
///
/// # Errors
/// The configuration does not fit the type, or sets an atomic list, map or object; in upstream's words.
pub fn mutated(
    object: &Value,
    configuration: &Value,
    type_of_object: TypeRef<'_>,
) -> Result<Value, String> {
    let ty = Type::Schema(type_of_object);
    let problems = problems(configuration, ty);
    if !problems.is_empty() {
        let problems = joined(&problems);
        return Err(format!(
            "failed to convert patch object to typed object: {problems}"
        ));
    }
    let mut atomics = Vec::new();
    find_atomics(
        configuration,
        type_of_object,
        &mut String::new(),
        &mut atomics,
    );
    if !atomics.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        ));
    }
    merge(object, configuration, ty).map_err(|error| format!("failed to merge patch: {error}"))
}

/// Adds the paths of what is atomic in `value`. Keys of maps are not looked into, as upstream.
fn find_atomics(value: &Value, ty: TypeRef<'_>, path: &mut String, atomics: &mut Vec<String>) {
    let (is_atomic, item) = match (value, ty.shape()) {
        (Value::Object(_), Shape::Object { atomic, .. } | Shape::Map { atomic, .. }) => {
            (atomic, None)
        }
        (Value::Array(_), Shape::List { item, kind }) => (kind == ListKind::Atomic, Some(item)),
        (Value::Array(_), Shape::Any) => (true, None),
        _ => return,
    };
    if is_atomic && atomics.len() < ATOMICS_MAX {
        atomics.push(path.clone());
    }
    let length = path.len();
    let mut below = |step: String, value: &Value, ty: TypeRef<'_>| {
        path.push_str(&step);
        find_atomics(value, ty, path, atomics);
        path.truncate(length);
    };
    if let (Value::Object(members), Shape::Object { fields, .. }) = (value, ty.shape()) {
        for (name, member) in members {
            if let Some(ty) = fields.get(name) {
                below(format!(".{name}"), member, ty);
            }
        }
    }
    for (at, value) in value.as_array().into_iter().flatten().enumerate() {
        if let Some(item) = item {
            below(format!("[{at}]"), value, item);
        }
    }
}
