//! Built-in resources of which one stored object is shown in two forms: which those are, and the way between
//! a form and what is stored. How one pair differs is told by its module, and what becomes of the versions of
//! a custom resource by `custom`.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::{ApiError, ReadError, Registry, Resource};
use crate::apiextensions;
use crate::builtin::{autoscalers, events};
use crate::schema::Types;

/// Whether objects of `resource` look different in storage.
pub(crate) fn is_converted(resource: &Resource) -> bool {
    events::is_converted(resource) || autoscalers::is_converted(resource)
}

/// The stored form of an object of `resource`.
pub(crate) fn to_storage(types: &Arc<Types>, resource: &Resource, object: Value) -> Value {
    match is_converted(resource) {
        true => stored(types, &resource.api_version(), object),
        false => object,
    }
}

/// What a client of `resource` sees of an object in stored form.
pub(crate) fn from_storage(resource: &Resource, object: Value) -> Value {
    match is_converted(resource) {
        true => shown(&resource.api_version(), object),
        false => object,
    }
}

/// An object of a built-in kind, which says of which version it is, in another version of its kind. An object
/// that is the same in all versions, or in this one already, is returned as it is.
pub(crate) fn to_version<'o>(
    types: &Arc<Types>,
    object: &'o Value,
    api_version: &str,
) -> Cow<'o, Value> {
    let from = object["apiVersion"].as_str().unwrap_or_default();
    let is_stored = |version: &str| ![autoscalers::VERSION, events::VERSION].contains(&version);
    if from == api_version || is_stored(from) && is_stored(api_version) {
        return Cow::Borrowed(object);
    }
    Cow::Owned(shown(api_version, stored(types, from, object.clone())))
}

fn stored(types: &Arc<Types>, from: &str, object: Value) -> Value {
    match from {
        autoscalers::VERSION => autoscalers::to_storage(types, object),
        events::VERSION => events::to_core(object),
        _ => object,
    }
}

fn shown(api_version: &str, stored: Value) -> Value {
    match api_version {
        autoscalers::VERSION => autoscalers::from_storage(stored),
        events::VERSION => events::from_core(stored),
        _ => stored,
    }
}

impl Registry {
    /// Whether objects of `resource` may have to be shown in another form than the verbs answer with.
    pub fn converts(&self, resource: &Resource) -> bool {
        is_converted(resource) || apiextensions::is_renamed(resource)
    }

    /// The representation of an object of `resource`, where that is not the stored form: events are
    /// stored as core events, and events.k8s.io shows them in its own form; custom resources are stored in
    /// one version. What a webhook converts the verbs have converted. `None`: `body` is right.
    ///
    /// # Errors
    /// [`ReadError::Undecodable`] when `body` is not JSON.
    pub fn converted(&self, resource: &Resource, body: &[u8]) -> Result<Option<Vec<u8>>, ApiError> {
        if !self.converts(resource) || apiextensions::is_in_version(resource, body) {
            return Ok(None);
        }
        let undecodable = |e: serde_json::Error| ReadError::Undecodable(e.to_string());
        let value: Value = serde_json::from_slice(body).map_err(undecodable)?;
        let shown = match &resource.custom {
            Some(_) => apiextensions::renamed(resource, value),
            None => from_storage(resource, value),
        };
        Ok(Some(serde_json::to_vec(&shown).map_err(undecodable)?))
    }
}
