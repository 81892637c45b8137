//! The error of an invalid `RestConfig`.

/// A [`RestConfig`](super::RestConfig) is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server {server:?} cannot be used: {detail}")]
pub struct InvalidRestConfig {
    /// The URL of the server.
    pub server: String,
    /// The problem.
    pub detail: String,
}
