//! Serves custom resources: the implementation of the registry's interface for resources that are defined at run time.

use std::sync::Arc;

use async_trait::async_trait;

use super::definitions::{Definitions, definitions_resource};
use super::follow::follow;
use watchet_api::ResourceVersion;
use watchet_registry::{ApiError, Registry, ResourceProvider};

/// Serves the custom resources of a registry.
#[derive(Debug)]
pub struct CustomResources(pub Arc<Definitions>);

#[async_trait]
impl ResourceProvider for CustomResources {
    fn start(&self, registry: &Arc<Registry>) {
        let following = follow(registry.clone(), self.0.clone());
        registry.tasks().spawn("custom-resources", following);
    }

    async fn wait_until_started(&self) -> Result<(), ApiError> {
        self.0.wait_until_served(ResourceVersion::ZERO).await
    }

    async fn wait_until_served(
        &self,
        registry: &Registry,
        version: ResourceVersion,
    ) -> Result<(), ApiError> {
        let changed = registry
            .changed_up_to(&definitions_resource(registry), version)
            .await?;
        // If etcd cannot report its progress, the version of the cache is the newest known one.
        self.0.wait_until_served(changed.unwrap_or_default()).await
    }
}
