//! Where the Lease of an election is. Who holds it is not decided here.

use std::future::Future;

use k8s_openapi::api::coordination::v1::Lease;

use super::super::rest::{ApiResource, ResourceClient, RestClient, RestError};

/// A place for one Lease, which is written only as it was read.
pub(super) trait Lock {
    /// The Lease.
    fn get(&mut self) -> impl Future<Output = Result<Lease, RestError>>;

    /// Makes it.
    fn create(&mut self, lease: Lease) -> impl Future<Output = Result<Lease, RestError>>;

    /// Replaces it, if it still has its resourceVersion.
    fn update(&mut self, lease: Lease) -> impl Future<Output = Result<Lease, RestError>>;
}

/// A Lease on a server.
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
