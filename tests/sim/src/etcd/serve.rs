//! Connections of clients: HTTP/2 with the gRPC services, as tasks of the member's process.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tower_service::Service as _;

use etcd_client::proto::{
    PbClusterServer, PbKvServer, PbLeaseServer, PbMaintenanceServer, PbWatchServer,
};

use super::member::MemberState;
use super::services::Services;
use super::shared::Shared;
use super::suspension::Suspendable;

/// The largest request in bytes that the gRPC layer reads; the services enforce etcd's limit with its message.
const DECODED_MAX: usize = 64 << 20;

/// The number of concurrent streams of a connection.
const STREAMS_MAX: u32 = 1000;

/// Serves a connection as a task of the member's process.
pub(super) fn serve(
    shared: &Arc<Shared>,
    member: usize,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) {
    let (tasks, suspension, process) = {
        let state = shared.lock();
        let member = &state.members[member];
        if member.state == MemberState::Stopped {
            return;
        }
        (
            member.tasks.clone(),
            member.suspension.clone(),
            member.process.clone(),
        )
    };
    let connection = process.child_token();
    let services = Services::new(shared.clone(), member, connection.clone());
    let io = TokioIo::new(Suspendable::new(stream, suspension));
    let executor = tasks.clone();
    let served = async move {
        let respond = service_fn(move |request| dispatch(services.clone(), request));
        http2::Builder::new(executor)
            .timer(TokioTimer::new())
            // The header would have the wall clock's time.
            .auto_date_header(false)
            .max_concurrent_streams(STREAMS_MAX)
            .serve_connection(io, respond)
            .await
    };
    tasks.spawn("etcd-connection", async move {
        if let Some(Err(error)) = connection.run_until_cancelled(served).await {
            tracing::debug!(member, %error, "connection failed");
        }
        // Ends the requests of the connection.
        connection.cancel();
    });
}

/// Calls the service that the path names.
async fn dispatch(
    services: Services,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let service = request.uri().path().split('/').nth(1).unwrap_or_default();
    match service {
        "etcdserverpb.KV" => {
            let server = PbKvServer::new(services);
            server
                .max_decoding_message_size(DECODED_MAX)
                .call(request)
                .await
        }
        "etcdserverpb.Watch" => PbWatchServer::new(services).call(request).await,
        "etcdserverpb.Lease" => PbLeaseServer::new(services).call(request).await,
        "etcdserverpb.Maintenance" => PbMaintenanceServer::new(services).call(request).await,
        "etcdserverpb.Cluster" => PbClusterServer::new(services).call(request).await,
        unknown => {
            let status = tonic::Status::unimplemented(format!("unknown service {unknown}"));
            Ok(status.into_http())
        }
    }
}
