//! Subresources as data, and the results of POST requests to them.

use std::sync::Arc;

use watchet_api::{Object, Status};

/// A part of an object that has a path of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subresource {
    /// `status`, …
    pub name: &'static str,
    /// As [`Resource::verbs`](super::Resource::verbs).
    pub verbs: &'static [&'static str],
    /// The kind of its bodies, if they are not objects of the resource itself.
    pub body: Option<BodyKind>,
}

/// A kind, with its group and version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyKind {
    /// Empty for core.
    pub group: &'static str,
    /// `v1`
    pub version: &'static str,
    /// `Scale`
    pub kind: &'static str,
}

const SCALE: BodyKind = BodyKind {
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
};

/// The verbs of a subresource that is written like the object itself.
pub const CHANGED: &[&str] = &["get", "patch", "update"];

/// Returns a subresource of this name.
pub const fn part(
    name: &'static str,
    verbs: &'static [&'static str],
    body: Option<BodyKind>,
) -> Subresource {
    Subresource { name, verbs, body }
}

impl Subresource {
    /// The status, which controllers write.
    pub const STATUS: Self = part("status", CHANGED, None);
    /// The number of replicas.
    pub const SCALE: Self = part("scale", CHANGED, Some(SCALE));
    /// The finalizers of a namespace.
    pub const FINALIZE: Self = part("finalize", &["update"], None);

    /// Returns true if the subresource connects to a running container or process. This server has none.
    pub fn needs_kubelet(self) -> bool {
        matches!(
            self.name,
            "attach" | "exec" | "log" | "portforward" | "proxy"
        )
    }
}

/// The result of a POST that stores no object of its kind.
#[derive(Debug, Clone)]
pub enum Posted {
    /// The object of the response, such as a review with its status.
    Object(Arc<Object>),
    /// The Status of a request that was carried out, such as a binding.
    Status(Box<Status>),
}
