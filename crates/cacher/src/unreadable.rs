//! The error of a stored value that is no object.

use watchet_api::StorageKey;
use watchet_reflector::SourceError;

/// A stored value that cannot be decoded as an object.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{key}: {detail}")]
pub(super) struct Unreadable {
    pub(super) key: StorageKey,
    pub(super) detail: String,
}

impl From<Unreadable> for SourceError {
    fn from(error: Unreadable) -> Self {
        Self::Undecodable {
            detail: error.to_string(),
        }
    }
}
