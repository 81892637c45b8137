//! `ObjectReader`: reads the objects that service account tokens are bound to. The registry implements it.

use std::sync::Arc;

use async_trait::async_trait;

use watchet_api::Object;

/// The required freshness of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The object may come from a cache that is behind storage.
    Any,
    /// The object is as new as storage.
    Latest,
}

/// The error of a read of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectReadError {
    /// The object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// Any other error.
    #[error("{0}")]
    Failed(String),
}

/// Reads objects of the core group, version `v1`.
#[async_trait]
pub trait ObjectReader: Send + Sync {
    /// Returns an object of `resource` (`serviceaccounts`, `secrets`, `pods` or `nodes`).
    ///
    /// # Errors
    /// The object does not exist, or it cannot be read.
    async fn read(
        &self,
        resource: &str,
        namespace: Option<&str>,
        name: &str,
        freshness: Freshness,
    ) -> Result<Arc<Object>, ObjectReadError>;

    /// Records that the token in `secret` was used. A failure is only logged: it does not invalidate the
    /// token.
    async fn record_token_use(&self, secret: &Object);
}
