//! The annotation in which `kubectl apply` keeps what it applied last. Whoever begins to apply on the
//! server has no conflict with what that annotation says, and the annotation follows, so that both ways
//! can be used in turn. Only for the manager `kubectl`, as upstream.

use serde_json::Value;

use super::compare::compare;
use super::fields_of::fields_of;
use super::set::Set;
use super::typed::Type;
use super::validate::problems;

/// The manager for which this is done.
pub(super) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What the keys and values of all annotations may be long, in bytes.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// The fields of `live` that were applied on the client and have been left alone since.
pub(super) fn unchanged_since(live: &Value, ty: Type) -> Option<Set> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last["apiVersion"] != live["apiVersion"] || !problems(&last, ty).is_empty() {
        return None;
    }
    let touched = compare(&last, live, ty).ok()?.touched();
    Some(fields_of(&last, ty).ok()?.difference(&touched))
}

/// Makes the annotation of `object` say what was applied, if there is one.
pub(super) fn follow(object: &mut Value, config: &Value) {
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
