//! Descriptions that all kinds share, and the extension that names a kind.

use serde_json::{Value, json};

pub(super) const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. \
                           Servers convert what they know to the latest internal value and may reject \
                           what they do not know.";
pub(super) const KIND: &str = "Kind says which REST resource this object is. Servers may infer it from where the \
                    client sends requests to. It cannot be changed and is in CamelCase.";
pub(super) const METADATA: &str = "Standard object's metadata.";

pub(super) fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "kind": kind, "version": version})
}
