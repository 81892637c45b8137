//! The construction of a registry, and its tasks that watch admission configurations and definitions.

use std::sync::Arc;

use super::error::ApiError;
use super::registry::{Parts, Registry};
use super::{admission_adapter, namespaces};
use watchet_auth::Authorizer;
use watchet_metrics::Metrics;
use watchet_storage::Storage;
use watchet_tasks::Tasks;

impl Registry {
    /// Returns a registry over `storage`. Its caches run in tasks of `tasks` and are counted in `metrics`. `authorizer`
    /// decides on requests, reviews, and in admission.
    ///
    /// # Panics
    /// If the resources of `parts` do not contain that of the namespaces with a column `status.phase`, and outside of a Tokio
    /// runtime.
    pub fn new(
        storage: Arc<dyn Storage>,
        tasks: &Tasks,
        metrics: Arc<Metrics>,
        parts: Parts,
        authorizer: Arc<dyn Authorizer>,
    ) -> Arc<Self> {
        let registry = Self::assemble(storage, tasks, metrics, parts, authorizer);
        let following = admission_adapter::follow(registry.clone());
        registry.tasks.spawn("admission-configurations", following);
        registry
            .cache(&registry.namespaces)
            .expect("the table's prefixes are paths");
        registry.provider.start(&registry);
        registry
    }

    /// Creates what must exist before the first request, which is the system namespaces, and waits for the resources
    /// that storage defines.
    ///
    /// # Errors
    /// The errors of a create, and [`ApiError::Timeout`].
    pub async fn bootstrap(&self) -> Result<(), ApiError> {
        namespaces::bootstrap(self).await?;
        self.provider.wait_until_started().await
    }
}
