//! The interface to the code that adds resources to the table at run time.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;

use super::{ApiError, Registry};
use crate::api::ResourceVersion;

/// Adds resources to the table of a registry while it runs, and removes them.
#[async_trait]
pub(crate) trait ResourceProvider: Debug + Send + Sync {
    /// Starts to serve resources, in tasks of the registry.
    fn start(&self, registry: &Arc<Registry>);

    /// Waits until the resources that storage defined at the start are served.
    ///
    /// # Errors
    /// [`ApiError::Timeout`].
    async fn wait_until_started(&self) -> Result<(), ApiError>;

    /// Waits until the resources that storage defined at `version` are served.
    ///
    /// # Errors
    /// [`ApiError::Timeout`], and those of a cache that does not reach the version.
    async fn wait_until_served(
        &self,
        registry: &Registry,
        version: ResourceVersion,
    ) -> Result<(), ApiError>;
}
