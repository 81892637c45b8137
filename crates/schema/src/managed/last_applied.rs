//! The annotation in which `kubectl apply` stores the last applied configuration. For the manager
//! `kubectl`, as upstream, server-side apply has no conflicts with fields in the annotation, and
//! updates it, so that client-side and server-side apply can alternate.

use serde_json::Value;

use super::compare::compare;
use super::field_set::FieldSet;
use super::fields_of::fields_of;
use super::typed::Type;
use super::validate::problems;

/// The only manager with this behaviour.
pub(super) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Maximum total size of all annotations in bytes.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// Returns the fields of `live` that were applied by the client and have not changed since.
pub(super) fn unchanged_since(live: &Value, ty: Type) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last["apiVersion"] != live["apiVersion"] || !problems(&last, ty).is_empty() {
        return None;
    }
    let changed = compare(&last, live, ty).ok()?.into_all();
    Some(fields_of(&last, ty).ok()?.difference(&changed))
}

/// Updates the annotation of `object`, if it exists.
pub(super) fn update_annotation(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = annotations_of(&mut config) {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = annotations_of(object) else {
        return;
    };
    annotations.insert(ANNOTATION.to_owned(), format!("{config}\n").into());
    let bytes = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    if annotations.iter().map(bytes).sum::<usize>() > ANNOTATIONS_BYTES_MAX {
        annotations.remove(ANNOTATION);
    }
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object["metadata"]["annotations"][ANNOTATION].as_str();
    text.filter(|text| !text.is_empty())
}

fn annotations_of(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    let metadata = object.get_mut("metadata")?;
    metadata.get_mut("annotations")?.as_object_mut()
}
