//! Built-in resources of which one stored object is shown in two forms: which those are, and the way between
//! a form and what is stored. How one pair differs is told by its module, and what becomes of the versions of
//! a custom resource by `custom`.

use std::sync::Arc;

use serde_json::Value;

use super::{ApiError, ReadError, Registry, Resource, autoscalers, custom, events};
use crate::schema::Types;

/// Whether objects of `resource` look different in storage.
pub(super) fn is_converted(resource: &Resource) -> bool {
    events::is_converted(resource) || autoscalers::is_converted(resource)
}

/// The stored form of an object of `resource`.
pub(super) fn to_storage(types: &Arc<Types>, resource: &Resource, object: Value) -> Value {
    match autoscalers::is_converted(resource) {
        true => autoscalers::to_storage(types, object),
        false => events::to_storage(resource, object),
    }
}

/// What a client of `resource` sees of an object in stored form.
pub(super) fn from_storage(resource: &Resource, object: Value) -> Value {
    match autoscalers::is_converted(resource) {
        true => autoscalers::from_storage(object),
        false => events::from_storage(resource, object),
    }
}

impl Registry {
    /// Whether objects of `resource` may have to be shown in another form than the verbs answer with.
    pub fn converts(&self, resource: &Resource) -> bool {
        is_converted(resource) || custom::is_renamed(resource)
    }

    /// The representation of an object of `resource`, where that is not the stored form: events are
    /// stored as core events, and events.k8s.io shows them in its own form; custom resources are stored in
    /// one version. What a webhook converts the verbs have converted. `None`: `body` is right.
    ///
    /// # Errors
    /// [`ReadError::Undecodable`] when `body` is not JSON.
    pub fn converted(&self, resource: &Resource, body: &[u8]) -> Result<Option<Vec<u8>>, ApiError> {
        if !self.converts(resource) || custom::is_in_version(resource, body) {
            return Ok(None);
        }
        let undecodable = |e: serde_json::Error| ReadError::Undecodable(e.to_string());
        let value: Value = serde_json::from_slice(body).map_err(undecodable)?;
        let shown = match &resource.custom {
            Some(_) => custom::renamed(resource, value),
            None => from_storage(resource, value),
        };
        Ok(Some(serde_json::to_vec(&shown).map_err(undecodable)?))
    }
}
