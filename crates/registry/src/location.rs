//! The location of an object in storage, and the check of its name and namespace.

use std::sync::Arc;

use super::allocator::ObjectIdentity;
use super::error::ApiError;
use super::names;
use super::resource::Resource;
use super::target::Target;
use watchet_api::{ObjectKey, StorageKey};

/// The location of one object.
#[derive(Debug, Clone)]
pub struct ObjectLocation {
    /// The resource of the object.
    pub resource: Arc<Resource>,
    /// The name of the object.
    pub name: String,
    /// The key of the object in the cache.
    pub key: ObjectKey,
    /// The key of the object in storage.
    pub storage_key: StorageKey,
}

impl ObjectLocation {
    /// Returns the location of `target`.
    ///
    /// # Errors
    /// 400 if a name or a namespace is missing or cannot be part of a path.
    pub fn of(target: &Target) -> Result<Self, ApiError> {
        Self::new(&target.resource, target.namespace.as_deref(), &target.name)
    }

    /// Returns the location of an object.
    ///
    /// # Errors
    /// The errors of [`Self::of`].
    pub fn new(
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Self, ApiError> {
        let key = Self::key_of(resource, namespace, name)?;
        Ok(Self {
            resource: resource.clone(),
            name: name.to_owned(),
            storage_key: resource.storage_key(&key)?,
            key,
        })
    }

    /// Returns the key of an object in the cache of `resource`.
    ///
    /// # Errors
    /// The errors of [`Self::of`].
    pub(crate) fn key_of(
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<ObjectKey, ApiError> {
        let namespace = match (resource.namespaced, namespace) {
            (true, None | Some("")) => {
                return Err(ApiError::BadRequest(
                    "an empty namespace may not be set when a resource name is provided".to_owned(),
                ));
            }
            (true, namespace) => namespace,
            (false, _) => None,
        };
        for (what, text) in [("name", Some(name)), ("namespace", namespace)] {
            let problems = text.map(names::path_segment_problems).unwrap_or_default();
            if text == Some("") || !problems.is_empty() {
                return Err(ApiError::BadRequest(format!(
                    "invalid {what} {:?} of {}: {}",
                    text.unwrap_or_default(),
                    resource.qualified(),
                    if problems.is_empty() {
                        "must not be empty".to_owned()
                    } else {
                        problems.join(", ")
                    },
                )));
            }
        }
        Ok(ObjectKey::new(namespace, name))
    }

    /// Returns the error for an object that does not exist here.
    pub fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.resource, &self.name)
    }

    pub(crate) fn identity(&self) -> ObjectIdentity<'_> {
        ObjectIdentity {
            storage_prefix: &self.resource.storage_prefix,
            namespace: self.key.namespace(),
            name: &self.name,
        }
    }
}

impl Resource {
    /// Returns the prefix of the keys of its objects in storage.
    ///
    /// # Errors
    /// The storage prefix is not a path; no built-in resource has such a prefix.
    pub(crate) fn prefix(&self) -> Result<StorageKey, ApiError> {
        StorageKey::new(&format!("/{}/", self.storage_prefix))
            .map_err(|error| ApiError::BadRequest(error.to_string()))
    }

    /// Returns the key of an object in storage.
    ///
    /// # Errors
    /// `key` has a segment that cannot be part of a path.
    pub(crate) fn storage_key(&self, key: &ObjectKey) -> Result<StorageKey, ApiError> {
        StorageKey::new(&format!("/{}/{key}", self.storage_prefix))
            .map_err(|error| ApiError::BadRequest(error.to_string()))
    }
}
