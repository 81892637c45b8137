//! One connection: handshake, choice of protocol, HTTP/1.1 or HTTP/2 until its end or the server's.
//! Requests go through authentication into the router; what they mean is not known here.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use futures_util::FutureExt as _;
use futures_util::future::{Either, Map};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};
use rustls_pki_types::UnixTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::auth::{Authenticator, PeerCertificate};
use super::{local, overdue};
use crate::api::UserInfo;
use crate::tasks::Tasks;

/// How long a TLS handshake may take, or on the other port the first bytes to come.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an HTTP/1.1 connection may wait for a whole request head. It bounds idle connections
/// too, so it is no shorter than clients commonly keep those.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(90);

/// Streams of an HTTP/2 connection: an informer-heavy client multiplexes hundreds of watches, and
/// one that is refused a stream waits without a word.
const H2_STREAMS_MAX: u32 = 1000;

/// What an HTTP/2 stream buffers for a client that does not read. With [`H2_STREAMS_MAX`] it bounds
/// a connection at 64 MB, and watch frames seldom fill it.
const H2_SEND_BUFFER_BYTES_MAX: usize = 64 << 10;

/// What a client may send on one stream before it is read: request bodies are small, and at most
/// 3 MiB.
const H2_STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// The same for all streams of a connection.
const H2_CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// Request heads: tokens and selectors are long at times; upstream allows as much in all.
const H2_HEADER_BYTES_MAX: u32 = 1 << 20;

/// A silent HTTP/2 connection is asked for a sign of life after this time.
const H2_PING_INTERVAL: Duration = Duration::from_secs(30);

/// And is dead when none comes in this.
const H2_PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a client that has no request open may take to confirm the end of its connection.
const H2_GOODBYE_MAX: Duration = Duration::from_secs(1);

const _: () = assert!(H2_STREAM_WINDOW_BYTES <= H2_CONNECTION_WINDOW_BYTES);

/// What every HTTP/2 connection begins with; no method of HTTP/1.1 does.
const H2_PREFACE_START: &[u8] = b"PRI ";

/// How long until the rest of a preface is looked for that came in parts.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);

/// What a listener serves.
#[derive(Debug, Clone)]
pub(super) struct Service {
    /// Where requests go.
    pub(super) router: axum::Router,
    /// Whose they are.
    pub(super) authentication: Authentication,
}

/// Whether requests are authenticated.
#[derive(Debug, Clone)]
pub(super) enum Authentication {
    /// Each.
    Required(Arc<Authenticator>),
    /// None: all of local programs are this user's.
    Unsecured(Arc<UserInfo>),
}

enum Protocol {
    Http1,
    Http2,
}

/// Serves one connection until it ends. When the group of `tasks` is cancelled it finishes the
/// requests in progress and ends.
pub(super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    service: Arc<Service>,
    handshake_permit: Option<OwnedSemaphorePermit>,
    tasks: Tasks,
) {
    let stop = tasks.token();
    let start = tokio::time::timeout(HANDSHAKE_TIMEOUT, async {
        match tls {
            Some(tls) => tls.accept(stream).await.map(Either::Left),
            None => plain_protocol(&stream)
                .await
                .map(|protocol| Either::Right((stream, protocol))),
        }
    });
    // Stopping comes first: who has not asked anything yet loses nothing.
    let started = tokio::select! {
        biased;
        () = stop.cancelled() => return,
        started = start => started,
    };
    drop(handshake_permit);
    match started {
        Err(_elapsed) => tracing::debug!(%peer, "handshake took too long"),
        Ok(Err(error)) => tracing::debug!(%peer, %error, "handshake failed"),
        Ok(Ok(Either::Left(stream))) => {
            let (protocol, handler) = secured(&stream, &service);
            http(stream, peer, protocol, handler, &tasks).await;
        }
        Ok(Ok(Either::Right((stream, protocol)))) => {
            let handler = Handler::new(&service, PeerCertificate::Absent);
            http(stream, peer, protocol, handler, &tasks).await;
        }
    }
}

/// What the handshake has settled.
fn secured(stream: &TlsStream<TcpStream>, service: &Service) -> (Protocol, Handler) {
    let (_, session) = stream.get_ref();
    let protocol = match session.alpn_protocol() {
        Some(b"h2") => Protocol::Http2,
        _ => Protocol::Http1,
    };
    let certificate = match &service.authentication {
        Authentication::Required(authenticator) => {
            authenticator.peer_certificate(session.peer_certificates(), UnixTime::now())
        }
        Authentication::Unsecured(_) => PeerCertificate::Absent,
    };
    (protocol, Handler::new(service, certificate))
}

/// HTTP/2 with prior knowledge or HTTP/1.1, by the first bytes.
async fn plain_protocol(stream: &TcpStream) -> std::io::Result<Protocol> {
    let mut start = [0; H2_PREFACE_START.len()];
    loop {
        let count = stream.peek(&mut start).await?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if start[..count] != H2_PREFACE_START[..count] {
            return Ok(Protocol::Http1);
        }
        if count == start.len() {
            return Ok(Protocol::Http2);
        }
        // Peeking returns at once as long as there is anything, so this must not spin.
        tokio::time::sleep(PREFACE_PAUSE).await;
    }
}

async fn http<S>(stream: S, peer: SocketAddr, protocol: Protocol, handler: Handler, tasks: &Tasks)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stop = tasks.token();
    let stream = TokioIo::new(stream);
    let ended = match protocol {
        Protocol::Http1 => {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_READ_TIMEOUT)
                .serve_connection(stream, handler);
            let mut connection = pin!(connection);
            let ended = overdue::in_time(async {
                // The connection first: what it can finish now needs no draining.
                tokio::select! {
                    biased;
                    ended = connection.as_mut() => ended,
                    () = stop.cancelled() => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                }
            });
            ended.await.unwrap_or_else(|| {
                tracing::debug!(%peer, "connection given up: its answer is not taken");
                Ok(())
            })
        }
        Protocol::Http2 => {
            let streams = StreamExecutor::new(tasks);
            let connection = http2_builder(&streams).serve_connection(stream, handler);
            let mut connection = pin!(connection);
            // In the same order.
            let ended = tokio::select! {
                biased;
                ended = connection.as_mut() => Some(ended),
                () = stop.cancelled() => None,
            };
            match ended {
                Some(ended) => ended,
                None => {
                    connection.as_mut().graceful_shutdown();
                    http2_goodbye(connection, &streams).await
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "connection broke");
    }
}

/// Waits for the streams in progress. HTTP/2 then also waits for the client to confirm that it has
/// heard; one that is gone without a trace would hold up the shutdown for nothing.
async fn http2_goodbye<C>(mut connection: Pin<&mut C>, streams: &StreamExecutor) -> C::Output
where
    C: Future<Output = hyper::Result<()>>,
{
    loop {
        // The connection first: what it can finish now needs no patience.
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            () = tokio::time::sleep(H2_GOODBYE_MAX) => {
                if streams.running.load(Ordering::Relaxed) == 0 {
                    return Ok(());
                }
            }
        }
    }
}

fn http2_builder(streams: &StreamExecutor) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(streams.clone());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_STREAMS_MAX)
        .max_send_buf_size(H2_SEND_BUFFER_BYTES_MAX)
        .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(H2_CONNECTION_WINDOW_BYTES)
        .max_header_list_size(H2_HEADER_BYTES_MAX)
        .keep_alive_interval(H2_PING_INTERVAL)
        .keep_alive_timeout(H2_PING_TIMEOUT);
    builder
}

/// Runs the streams of one HTTP/2 connection as tasks of the connections' group, and counts them.
#[derive(Debug, Clone)]
struct StreamExecutor {
    tasks: Tasks,
    running: Arc<AtomicUsize>,
}

impl StreamExecutor {
    fn new(tasks: &Tasks) -> Self {
        Self {
            tasks: tasks.clone(),
            running: Arc::default(),
        }
    }
}

/// One less when dropped, however its stream ended.
struct RunningStream(Arc<AtomicUsize>);

impl Drop for RunningStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        self.running.fetch_add(1, Ordering::Relaxed);
        let running = RunningStream(Arc::clone(&self.running));
        // The group waits for it; nobody needs its result.
        drop(self.tasks.spawn("http2 stream", async move {
            let _running = running;
            if overdue::in_time(stream).await.is_none() {
                tracing::debug!("stream reset: its answer is not taken");
            }
        }));
    }
}

/// Requests of one connection.
#[derive(Debug, Clone)]
struct Handler {
    router: TowerToHyperService<axum::Router>,
    authentication: Authentication,
    certificate: PeerCertificate,
}

impl Handler {
    fn new(service: &Service, certificate: PeerCertificate) -> Self {
        Self {
            router: TowerToHyperService::new(service.router.clone()),
            authentication: service.authentication.clone(),
            certificate,
        }
    }
}

type Answer = Result<Response<Body>, Infallible>;

impl hyper::service::Service<Request<Incoming>> for Handler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<
        Ready<Answer>,
        Map<TowerToHyperServiceFuture<axum::Router, Request<Incoming>>, fn(Answer) -> Answer>,
    >;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let user = match &self.authentication {
            Authentication::Unsecured(user) => local::check(&request)
                .map(|()| Arc::clone(user))
                .map_err(|foreign| foreign.response(&request)),
            Authentication::Required(authenticator) => authenticator
                .authenticate(
                    &self.certificate,
                    request.uri().path(),
                    request.headers(),
                    UnixTime::now(),
                )
                .map_err(|unauthorized| unauthorized.response(request.headers())),
        };
        match user {
            Ok(user) => {
                request.extensions_mut().insert(user);
                let answer = self.router.call(request);
                Either::Right(answer.map(|answer| answer.map(overdue::limited)))
            }
            Err(refusal) => Either::Left(ready(Ok(refusal))),
        }
    }
}

#[cfg(test)]
mod tests;
