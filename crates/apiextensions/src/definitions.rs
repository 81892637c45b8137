//! The state of all definitions: the version up to which the server serves them, the definitions that are being cleaned
//! up, and the objects that webhooks have converted.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::active_cleanups::ActiveCleanups;
use super::conversion_cache::ConversionCache;
use watchet_api::ResourceVersion;
use watchet_registry::{ApiError, Registry, Resource};

/// The time limit for serving the definitions in storage when a server starts. The first state of a cache has the same
/// limit.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// The state of all definitions.
#[derive(Debug, Default)]
pub struct Definitions {
    /// The server serves every definition up to this version; `None` until it serves those that were in storage at the
    /// start.
    pub(super) served: watch::Sender<Option<ResourceVersion>>,
    pub(super) cleanups: ActiveCleanups,
    /// The objects of all definitions that webhooks have converted.
    pub(super) converted: Arc<ConversionCache>,
}

impl Definitions {
    /// Waits until the definitions up to `version` are served.
    ///
    /// # Errors
    /// [`ApiError::Timeout`].
    pub(super) async fn wait_until_served(&self, version: ResourceVersion) -> Result<(), ApiError> {
        let mut served = self.served.subscribe();
        let there = served.wait_for(|served| served.is_some_and(|served| served >= version));
        match tokio::time::timeout(SERVED_WITHIN, there).await {
            Ok(Ok(_)) => Ok(()),
            // `self` contains the sender, so the only possible failure is the timeout.
            _ => Err(ApiError::Timeout(format!(
                "the custom resource definitions were not read within {SERVED_WITHIN:?}"
            ))),
        }
    }
}

/// Returns the resource of the definitions.
pub(super) fn definitions_resource(registry: &Registry) -> Arc<Resource> {
    let resource = registry.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    resource.expect("the table has definitions")
}
