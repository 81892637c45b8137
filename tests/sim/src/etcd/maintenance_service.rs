//! The gRPC services `Maintenance` and `Cluster`.

use async_trait::async_trait;
use etcd_client::proto::{
    PbAlarmMember, PbAlarmRequest, PbAlarmResponse, PbClusterService, PbDefragmentRequest,
    PbDefragmentResponse, PbDowngradeRequest, PbDowngradeResponse, PbHashKvRequest,
    PbHashKvResponse, PbHashRequest, PbHashResponse, PbMaintenanceService, PbMember,
    PbMemberAddRequest, PbMemberAddResponse, PbMemberListRequest, PbMemberListResponse,
    PbMemberPromoteRequest, PbMemberPromoteResponse, PbMemberRemoveRequest, PbMemberRemoveResponse,
    PbMemberUpdateRequest, PbMemberUpdateResponse, PbMoveLeaderRequest, PbMoveLeaderResponse,
    PbSnapshotRequest, PbSnapshotResponse, PbStatusRequest, PbStatusResponse,
};
use futures_util::stream;
use tonic::{Request, Response, Status};

use super::apply::Operation;
use super::errors::EtcdError;
use super::services::{Services, unimplemented};
use super::writes::header;

/// Defines methods that return `Unimplemented`.
macro_rules! unimplemented_methods {
    ($service:literal: $($method:ident($request:ty) -> $response:ty;)*) => {
        unimplemented_methods! { @expand $service; $($method $request, $response;)* }
    };
    (@expand $service:literal; $($method:ident $request:ty, $response:ty;)*) => {
        $(
            fn $method<'life0, 'async_trait>(
                &'life0 self,
                _: Request<$request>,
            ) -> std::pin::Pin<Box<
                dyn Future<Output = Result<Response<$response>, Status>> + Send + 'async_trait,
            >>
            where
                'life0: 'async_trait,
                Self: 'async_trait,
            {
                Box::pin(async { Err(unimplemented(stringify!($method), $service)) })
            }
        )*
    };
}

impl Services {
    fn status(&self) -> PbStatusResponse {
        let state = self.shared.lock();
        let member = &state.members[self.member];
        let size = state.store.size_bytes() + (20 << 10);
        let mut errors = Vec::new();
        if member.leader.is_none() {
            errors.push(EtcdError::NoLeader.message());
        }
        if state.store.no_space {
            errors.push(format!("memberID:{} alarm:NOSPACE ", member.id));
        }
        let leader = member
            .leader
            .map_or(0, |leader| state.members[leader.member].id);
        PbStatusResponse {
            version: state.config.version.clone(),
            db_size: size,
            db_size_in_use: size,
            leader,
            raft_index: member.applied.index,
            raft_applied_index: member.applied.index,
            raft_term: member.term,
            errors,
            ..PbStatusResponse::default()
        }
    }

    /// Executes `Alarm`: gets, or raises and clears `NOSPACE`.
    async fn change_alarm(&self, request: PbAlarmRequest) -> Result<PbAlarmResponse, EtcdError> {
        let changes = match (request.action, request.alarm) {
            (1, 1) => Some(true),
            (2, 1) => Some(false),
            _ => None,
        };
        if let Some(on) = changes {
            self.propose(Operation::NoSpaceAlarm(on)).await?;
        }
        let state = self.shared.lock();
        let alarm = PbAlarmMember {
            member_id: state.members[self.member].id,
            alarm: 1,
        };
        let is_raised = state.store.no_space || changes == Some(false);
        Ok(PbAlarmResponse {
            header: header(0),
            alarms: is_raised.then_some(alarm).into_iter().collect(),
        })
    }
}

#[async_trait]
impl PbMaintenanceService for Services {
    async fn alarm(
        &self,
        request: Request<PbAlarmRequest>,
    ) -> Result<Response<PbAlarmResponse>, Status> {
        self.unary("Alarm", request, |services, request| async move {
            let mut response = services.change_alarm(request).await?;
            services.fill(&mut response.header);
            Ok(response)
        })
        .await
    }

    async fn status(
        &self,
        request: Request<PbStatusRequest>,
    ) -> Result<Response<PbStatusResponse>, Status> {
        self.unary("Status", request, |services, _| async move {
            let mut response = services.status();
            services.fill(&mut response.header);
            Ok(response)
        })
        .await
    }

    type SnapshotStream = stream::Empty<Result<PbSnapshotResponse, Status>>;

    unimplemented_methods! { "etcdserverpb.Maintenance":
        defragment(PbDefragmentRequest) -> PbDefragmentResponse;
        hash(PbHashRequest) -> PbHashResponse;
        hash_kv(PbHashKvRequest) -> PbHashKvResponse;
        snapshot(PbSnapshotRequest) -> Self::SnapshotStream;
        move_leader(PbMoveLeaderRequest) -> PbMoveLeaderResponse;
        downgrade(PbDowngradeRequest) -> PbDowngradeResponse;
    }
}

#[async_trait]
impl PbClusterService for Services {
    async fn member_list(
        &self,
        request: Request<PbMemberListRequest>,
    ) -> Result<Response<PbMemberListResponse>, Status> {
        self.unary("MemberList", request, |services, request| async move {
            if request.linearizable {
                services.linearize().await?;
            }
            let members = {
                let state = services.shared.lock();
                let members = state.members.iter().enumerate();
                let member = |(index, member): (usize, &super::member::Member)| PbMember {
                    id: member.id,
                    name: format!("member-{index}"),
                    ..PbMember::default()
                };
                members.map(member).collect()
            };
            let mut response = PbMemberListResponse {
                header: header(0),
                members,
            };
            services.fill(&mut response.header);
            Ok(response)
        })
        .await
    }

    unimplemented_methods! { "etcdserverpb.Cluster":
        member_add(PbMemberAddRequest) -> PbMemberAddResponse;
        member_remove(PbMemberRemoveRequest) -> PbMemberRemoveResponse;
        member_update(PbMemberUpdateRequest) -> PbMemberUpdateResponse;
        member_promote(PbMemberPromoteRequest) -> PbMemberPromoteResponse;
    }
}
