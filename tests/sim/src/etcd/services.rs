//! What the gRPC services share: faults, the trace, limits, proposals, linearizable reads and headers.

use std::fmt::Debug;
use std::sync::Arc;

use etcd_client::proto::PbResponseHeader;
use prost::Message;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::apply::{Applied, Operation};
use super::errors::EtcdError;
use super::faults::{Loss, RequestFault};
use super::shared::Shared;
use super::state::State;

/// The default of `--max-request-bytes`.
const REQUEST_BYTES_MAX: usize = 1_572_864;

/// The limit of the gRPC layer, which is also the size from which watch responses are fragmented.
pub(super) const MESSAGE_BYTES_MAX: usize = REQUEST_BYTES_MAX + (512 << 10);

/// The services of one connection.
#[derive(Clone)]
pub(super) struct Services {
    pub(super) shared: Arc<Shared>,
    pub(super) member: usize,
    pub(super) connection: CancellationToken,
}

impl Services {
    pub(super) fn new(shared: Arc<Shared>, member: usize, connection: CancellationToken) -> Self {
        Self {
            shared,
            member,
            connection,
        }
    }

    /// Executes a unary call with its fault, if any, and records both messages.
    pub(super) async fn unary<Q, A, F>(
        &self,
        name: &'static str,
        request: Request<Q>,
        execute: impl FnOnce(Self, Q) -> F,
    ) -> Result<Response<A>, Status>
    where
        Q: Message + Debug,
        A: Debug,
        F: Future<Output = Result<A, EtcdError>>,
    {
        let member = self.member;
        let (metadata, _, message) = request.into_parts();
        self.shared
            .trace(|| format!("{member} <- {name} {message:?}"));
        let fault = {
            let mut state = self.shared.lock();
            let State { faults, rng, .. } = &mut *state;
            faults.take(member, rng)
        };
        match fault {
            Some(RequestFault::LoseRequest(loss)) => self.lose(loss).await,
            Some(RequestFault::Delay(delay)) => tokio::time::sleep(delay).await,
            Some(RequestFault::LoseResponse(_) | RequestFault::DelayResponse(_)) | None => {}
        }
        let result = match self.check(&metadata, &message) {
            Ok(()) => execute(self.clone(), message).await.map_err(Status::from),
            Err(status) => Err(status),
        };
        if let Some(RequestFault::LoseResponse(loss)) = fault {
            self.shared
                .trace(|| format!("{member} lost {name} {result:?}"));
            self.lose(loss).await;
        }
        if let Some(RequestFault::DelayResponse(delay)) = fault {
            tokio::time::sleep(delay).await;
        }
        self.shared.trace(|| match &result {
            Ok(answer) => format!("{member} -> {name} {answer:?}"),
            Err(status) => format!(
                "{member} -> {name} {:?} {}",
                status.code(),
                status.message()
            ),
        });
        result.map(Response::new)
    }

    fn check(&self, metadata: &MetadataMap, message: &impl Message) -> Result<(), Status> {
        let bytes = message.encoded_len();
        if bytes > MESSAGE_BYTES_MAX {
            return Err(Status::resource_exhausted(format!(
                "grpc: received message larger than max ({bytes} vs. {MESSAGE_BYTES_MAX})"
            )));
        }
        self.check_leader(metadata)
    }

    /// Refuses a request that requires a leader while the member knows none.
    pub(super) fn check_leader(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let has_leader = self.shared.lock().members[self.member].leader.is_some();
        match requires_leader(metadata) && !has_leader {
            true => Err(EtcdError::NoLeader.into()),
            false => Ok(()),
        }
    }

    /// Never answers.
    async fn lose(&self, loss: Loss) {
        if loss == Loss::Reset {
            self.connection.cancel();
        }
        std::future::pending().await
    }

    pub(super) async fn propose(&self, operation: Operation) -> Result<Applied, EtcdError> {
        let bytes = match &operation {
            Operation::Put(request) => request.encoded_len(),
            Operation::Delete(request) => request.encoded_len(),
            Operation::Txn(request) => request.encoded_len(),
            _ => 0,
        };
        if bytes > REQUEST_BYTES_MAX {
            return Err(EtcdError::RequestTooLarge);
        }
        let member = self.member;
        let result = self
            .shared
            .change(|state, now| state.propose(member, operation, now));
        received(result).await?
    }

    /// Waits until the member's state is as new as the cluster's.
    pub(super) async fn linearize(&self) -> Result<(), EtcdError> {
        let member = self.member;
        let confirmed = self
            .shared
            .change(|state, now| state.read_index(member, now));
        received(confirmed).await?
    }

    /// Sets the ids and the term of a header.
    pub(super) fn fill(&self, header: &mut Option<PbResponseHeader>) {
        let state = self.shared.lock();
        let header = header.get_or_insert_default();
        fill_header(&state, self.member, header);
        if header.revision == 0 {
            header.revision = state.members[self.member].applied.revision;
        }
    }
}

/// Sets the ids and the term of a header, but not the revision.
pub(super) fn fill_header(state: &State, member: usize, header: &mut PbResponseHeader) {
    header.cluster_id = state.cluster_id;
    header.member_id = state.members[member].id;
    header.raft_term = state.members[member].term;
}

pub(super) fn requires_leader(metadata: &MetadataMap) -> bool {
    metadata
        .get("hasleader")
        .is_some_and(|value| value == "true")
}

/// Receives a result; the process ends instead of sending one when the member stops.
async fn received<T>(result: oneshot::Receiver<T>) -> Result<T, EtcdError> {
    match result.await {
        Ok(result) => Ok(result),
        Err(_) => std::future::pending().await,
    }
}

/// Proposes an operation, and returns its response with a complete header.
macro_rules! proposed {
    ($services:expr, $operation:expr, $variant:ident) => {{
        match $services.propose($operation).await? {
            Applied::$variant(mut response) => {
                $services.fill(&mut response.header);
                Ok(response)
            }
            other => unreachable!("the result of another operation: {other:?}"),
        }
    }};
}
pub(super) use proposed;

/// Returns the error of a method that etcd has and this cluster does not.
pub(super) fn unimplemented(method: &str, service: &str) -> Status {
    Status::unimplemented(format!("unknown method {method} for service {service}"))
}
