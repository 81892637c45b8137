//! Constructors of the errors that name a resource.

use super::error::ApiError;
use super::resource::Resource;
use watchet_api::StatusCause;

impl ApiError {
    /// Returns the error for an object that does not exist.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::NotFound {
            resource: resource.qualified(),
            name: name.to_owned(),
        }
    }

    /// Returns a conflict with the stored object, for the reason `detail`.
    pub fn conflict(resource: &Resource, name: &str, detail: impl Into<String>) -> Self {
        Self::Conflict {
            resource: resource.qualified(),
            name: name.to_owned(),
            detail: detail.into(),
        }
    }

    /// Returns the conflict after which clients read the object again and retry. Clients compare the text.
    pub fn modified(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try \
             again",
        )
    }

    /// Returns the error for an object with these problems.
    pub fn invalid(resource: &Resource, name: &str, causes: Vec<StatusCause>) -> Self {
        Self::Invalid {
            group: resource.group.clone(),
            kind: resource.kind.clone(),
            name: name.to_owned(),
            causes,
        }
    }
}
