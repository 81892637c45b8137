//! A served resource: its names and what is known of it, which is data. How its objects are written is told
//! by `strategy`.

use std::sync::Arc;

use super::{ApiError, Subresource};
use crate::api::{ColumnSet, FieldRef, ObjectKey, StorageKey};
use crate::apiextensions;

/// One served resource, e.g. apps/v1 deployments.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    /// `v1`
    pub version: String,
    /// `Deployment`
    pub kind: String,
    /// `deployments`
    pub plural: String,
    /// `deployment`
    pub singular: String,
    /// `deploy`
    pub short_names: Vec<String>,
    /// `all`
    pub categories: Vec<String>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Served subresources.
    pub subresources: Vec<Subresource>,
    /// Verbs in discovery: create delete deletecollection get list patch update watch, as served.
    pub verbs: Vec<String>,
    /// Below the storage root: `deployments`, `minions`, `services/specs`.
    pub storage_prefix: String,
    /// Selectable fields.
    pub columns: Arc<ColumnSet>,
    /// See `CachedResource::triggers`.
    pub triggers: Vec<FieldRef>,
    /// What its definition says besides, if it is no built-in.
    pub custom: Option<Arc<apiextensions::Custom>>,
}

impl Resource {
    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<Subresource> {
        self.subresources.iter().copied().find(|s| s.name == name)
    }

    /// The verbs that discovery offers: of what is going away, none that keeps it.
    pub fn offered(&self) -> Vec<&str> {
        let custom = self.custom.as_ref();
        let going = custom.is_some_and(|custom| custom.terminating);
        let keeps = |verb: &str| matches!(verb, "create" | "patch" | "update");
        let verbs = self.verbs.iter().map(String::as_str);
        verbs.filter(|verb| !going || !keeps(verb)).collect()
    }

    /// The plural name with its group, as errors name it: `pods`, `deployments.apps`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether its objects are stored; a review is answered and forgotten.
    pub fn is_stored(&self) -> bool {
        !self.storage_prefix.is_empty()
    }

    /// Whether this is that resource; the empty group is the core group.
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// Where its objects are.
    ///
    /// # Errors
    /// A storage prefix that is no path; no built-in has one.
    pub(crate) fn prefix(&self) -> Result<StorageKey, ApiError> {
        StorageKey::new(&format!("/{}/", self.storage_prefix))
            .map_err(|error| ApiError::BadRequest(error.to_string()))
    }

    /// Where the object of this key is.
    ///
    /// # Errors
    /// The key has a segment that no path can have.
    pub(crate) fn storage_key(&self, key: &ObjectKey) -> Result<StorageKey, ApiError> {
        StorageKey::new(&format!("/{}/{key}", self.storage_prefix))
            .map_err(|error| ApiError::BadRequest(error.to_string()))
    }
}
