//! The gRPC service `Lease`.

use async_trait::async_trait;
use etcd_client::proto::{
    PbLeaseGrantRequest, PbLeaseGrantResponse, PbLeaseKeepAliveRequest, PbLeaseKeepAliveResponse,
    PbLeaseLeasesRequest, PbLeaseLeasesResponse, PbLeaseRevokeRequest, PbLeaseRevokeResponse,
    PbLeaseService, PbLeaseStatus, PbLeaseTimeToLiveRequest, PbLeaseTimeToLiveResponse,
};
use futures_util::stream::{BoxStream, StreamExt as _};
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};

use super::apply::{Applied, Operation};
use super::errors::EtcdError;
use super::services::{Services, proposed};
use super::writes::header;

#[async_trait]
impl PbLeaseService for Services {
    async fn lease_grant(
        &self,
        request: Request<PbLeaseGrantRequest>,
    ) -> Result<Response<PbLeaseGrantResponse>, Status> {
        self.unary("LeaseGrant", request, |services, mut request| async move {
            while request.id == 0 {
                request.id = services.shared.lock().rng.i64(1..);
            }
            proposed!(services, Operation::LeaseGrant(request), LeaseGrant)
        })
        .await
    }

    async fn lease_revoke(
        &self,
        request: Request<PbLeaseRevokeRequest>,
    ) -> Result<Response<PbLeaseRevokeResponse>, Status> {
        self.unary("LeaseRevoke", request, |services, request| async move {
            proposed!(services, Operation::LeaseRevoke(request.id), LeaseRevoke)
        })
        .await
    }

    type LeaseKeepAliveStream = BoxStream<'static, Result<PbLeaseKeepAliveResponse, Status>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<PbLeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let services = self.clone();
        let answers = request.into_inner().then(move |request| {
            let services = services.clone();
            async move {
                let (id, member) = (request?.id, services.member);
                let shared = &services.shared;
                shared.trace(|| format!("{member} <- LeaseKeepAlive {id}"));
                let result = services.keep_alive(id).await;
                shared.trace(|| format!("{member} -> LeaseKeepAlive {result:?}"));
                Ok(result?)
            }
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<PbLeaseTimeToLiveRequest>,
    ) -> Result<Response<PbLeaseTimeToLiveResponse>, Status> {
        self.unary("LeaseTimeToLive", request, |services, request| async move {
            services.linearize().await?;
            let mut response = services.time_to_live(&request);
            services.fill(&mut response.header);
            Ok(response)
        })
        .await
    }

    async fn lease_leases(
        &self,
        request: Request<PbLeaseLeasesRequest>,
    ) -> Result<Response<PbLeaseLeasesResponse>, Status> {
        self.unary("LeaseLeases", request, |services, _| async move {
            services.linearize().await?;
            let leases = {
                let state = services.shared.lock();
                let ids = state.store.leases.keys();
                ids.map(|id| PbLeaseStatus { id: *id }).collect()
            };
            let mut response = PbLeaseLeasesResponse {
                header: header(0),
                leases,
            };
            services.fill(&mut response.header);
            Ok(response)
        })
        .await
    }
}

impl Services {
    /// Renews a lease at the leader; a lease that does not exist has the time to live zero.
    async fn keep_alive(&self, id: i64) -> Result<PbLeaseKeepAliveResponse, EtcdError> {
        self.linearize().await?;
        let ttl = self.shared.change(|state, now| {
            let ttl = state.store.leases.get(&id).map(|lease| lease.ttl);
            ttl.map_or(0, |ttl| state.lease_clock.renew(id, ttl, now))
        });
        let mut response = PbLeaseKeepAliveResponse {
            header: header(0),
            id,
            ttl,
        };
        self.fill(&mut response.header);
        Ok(response)
    }

    fn time_to_live(&self, request: &PbLeaseTimeToLiveRequest) -> PbLeaseTimeToLiveResponse {
        let state = self.shared.lock();
        let id = request.id;
        let Some(lease) = state.store.leases.get(&id) else {
            return PbLeaseTimeToLiveResponse {
                id,
                ttl: -1,
                ..PbLeaseTimeToLiveResponse::default()
            };
        };
        let keys = lease.keys.iter().filter(|_| request.keys);
        PbLeaseTimeToLiveResponse {
            header: header(0),
            id,
            ttl: state.lease_clock.remaining(id, Instant::now()),
            granted_ttl: lease.ttl,
            keys: keys.cloned().collect(),
        }
    }
}
