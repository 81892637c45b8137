//! The collection that the load churns: its namespace and the names of its objects.

use crate::args::Resource;
use crate::objects::{self, collection};

/// The namespace of the objects. Objects of earlier runs in it are deleted first.
pub(super) const NAMESPACE: &str = "bench-churn";

/// Returns the name of an object.
pub(super) fn name(object: u32) -> String {
    format!("bench-churn-{object}")
}

/// Returns the path of the collection of all objects.
pub(super) fn all() -> String {
    let collection = collection(Resource::Configmaps, Some(NAMESPACE));
    format!("{collection}?{}", objects::ours())
}
