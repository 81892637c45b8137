//! Access to the Lease of an election.

use std::future::Future;

use k8s_openapi::api::coordination::v1::Lease;

use super::super::rest::{ApiResource, ResourceClient, RestClient, RestError};

/// Stores one Lease with optimistic concurrency.
pub(super) trait Lock {
    /// Reads the Lease.
    fn get(&mut self) -> impl Future<Output = Result<Lease, RestError>>;

    /// Creates the Lease.
    fn create(&mut self, lease: Lease) -> impl Future<Output = Result<Lease, RestError>>;

    /// Replaces the Lease if its resourceVersion is unchanged.
    fn update(&mut self, lease: Lease) -> impl Future<Output = Result<Lease, RestError>>;
}

/// A Lease on an API server.
#[derive(Debug)]
pub(super) struct LeaseLock {
    leases: ResourceClient<Lease>,
    namespace: String,
    name: String,
}

impl LeaseLock {
    pub(super) fn new(client: &RestClient, namespace: &str, name: &str) -> Self {
        let leases = client.resource(ApiResource::of::<Lease>());
        Self {
            leases: leases.namespace(namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl Lock for LeaseLock {
    async fn get(&mut self) -> Result<Lease, RestError> {
        self.leases.get(&self.name).await
    }

    async fn create(&mut self, mut lease: Lease) -> Result<Lease, RestError> {
        lease.metadata.name = Some(self.name.clone());
        lease.metadata.namespace = Some(self.namespace.clone());
        self.leases.create(&lease).await
    }

    async fn update(&mut self, lease: Lease) -> Result<Lease, RestError> {
        self.leases.update(&lease).await
    }
}
