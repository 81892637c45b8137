//! A served resource: its names and what is known of it, which is data. How its objects are written is told
//! by `strategy`.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::strategy::Strategy;
use super::table_columns::TableColumn;
use super::{ApiError, Subresource};
use crate::api::{ColumnSet, FieldRef, ObjectKey, StorageKey};

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
    /// How it differs from other resources when it is written.
    pub(crate) strategy: Arc<dyn Strategy>,
}

impl Resource {
    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<Subresource> {
        self.subresources.iter().copied().find(|s| s.name == name)
    }

    /// The verbs that discovery offers: of what is going away, none that keeps it.
    pub fn offered(&self) -> Vec<&str> {
        let going = self.strategy.check_creatable().is_err();
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

    /// Returns false if a CustomResourceDefinition defines it.
    pub fn is_builtin(&self) -> bool {
        self.strategy.is_builtin()
    }

    /// The warning to clients that use the resource in this version.
    pub fn deprecation_warning(&self) -> Option<&str> {
        self.strategy.deprecation_warning()
    }

    /// The `openAPIV3Schema` of a resource that is defined at run time.
    pub fn open_api_schema(&self) -> Option<&Arc<Value>> {
        self.strategy.open_api_schema()
    }

    /// Returns a number that differs between the versions of one definition; 0 for a built-in.
    pub fn version_number(&self) -> u32 {
        self.strategy.version_number()
    }

    /// The columns of a Table of its objects.
    pub fn table_columns(&self) -> &[TableColumn] {
        self.strategy.table_columns()
    }

    /// The cells of `object` in the order of the columns, as they read at `now`. Missing or oddly typed fields show
    /// as upstream shows missing ones; an object is never refused.
    pub fn table_cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        self.strategy.table_cells(object, now)
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
