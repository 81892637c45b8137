//! The arguments and results of requests: the target object, a patch, and the result of a delete.

use std::sync::Arc;

use serde_json::Value;

use super::resource::Resource;
use watchet_api::Object;

/// The object that a request is for.
#[derive(Debug, Clone)]
pub struct Target {
    /// The resource of the object.
    pub resource: Arc<Resource>,
    /// From the URL.
    pub namespace: Option<String>,
    /// From the URL.
    pub name: String,
    /// `status`; `None` is the object itself.
    pub subresource: Option<String>,
}

impl Target {
    /// Returns the resource that the bodies of requests are of; see [`Resource::of_bodies`].
    pub fn of_bodies(&self) -> Arc<Resource> {
        self.resource.of_bodies(self.subresource.as_deref())
    }
}

/// A patch as the client sent it.
#[derive(Debug, Clone)]
pub enum Patch {
    /// A JSON patch (RFC 6902).
    Json(::json_patch::Patch),
    /// A merge patch (RFC 7396).
    Merge(Value),
    /// A strategic merge patch of a built-in object.
    Strategic(Value),
}

/// The result of a delete.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// The object is deleted; the response is a Success status with its uid.
    Immediately(Arc<Object>),
    /// The object is deleted; the response is its last state.
    LastState(Arc<Object>),
    /// The object exists until its finalizers are removed or its grace period ends.
    Pending(Arc<Object>),
    /// The stored object was corrupt: it could not be decoded. It is deleted.
    Corrupt,
}
