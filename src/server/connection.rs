//! One connection: handshake, choice of protocol, HTTP/1.1 or HTTP/2 until its end or the server's.
//! Requests go through authentication into the router; what they mean is not known here.

use std::convert::Infallible;
use std::future::{Future, Ready, poll_fn, ready};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, Map};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};
use rustls_pki_types::UnixTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinError;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use super::auth::{Authenticator, PeerCertificate, Unauthorized};
use super::handshakes::HandshakePermit;
use super::socket::Socket;
use super::unread::{self, Lingering, Lingers};
use super::{http2, impersonation, local, overdue, protocol_token};
use crate::api::UserInfo;
use crate::registry::{Bearer, ClaimedUser, Registry};
use crate::tasks::{PollOnWake, Tasks};
use crate::x509;

/// How long a TLS handshake may take, or on the other port the first bytes to come.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an HTTP/1.1 connection may wait for a whole request head. It bounds idle connections
/// too, so it is no shorter than clients commonly keep those.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(90);

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
    Required {
        /// Tells whose they are.
        authenticator: Arc<Authenticator>,
        /// Where those go that claim to be a service account's: to the router, by way of a look whether
        /// there is such an account.
        claimed: axum::Router,
    },
    /// None: all of local programs are this user's.
    Unsecured(Arc<UserInfo>),
}

enum Protocol {
    Http1,
    Http2,
}

/// A connection that is served. It is apart from the task that runs it, which would else have room for
/// every kind of connection at every stage: most of them only wait, by the thousand.
type Serving = BoxFuture<'static, hyper::Result<()>>;

/// Serves one connection until it ends. When the group of `tasks` is cancelled it finishes the
/// requests in progress and ends.
pub(super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    service: Arc<Service>,
    handshake_permit: Option<HandshakePermit>,
    tasks: Tasks,
) {
    let stop = tasks.token();
    let begun = begin(stream, peer, tls, service, tasks);
    let begun = Box::pin(in_time(begun, handshake_permit));
    // Stopping comes first: who has not asked anything yet loses nothing.
    let serving = tokio::select! {
        biased;
        () = stop.cancelled() => return,
        begun = begun => match begun {
            Some(Ok(serving)) => serving,
            Some(Err(error)) => return tracing::debug!(%peer, %error, "handshake failed"),
            None => return tracing::debug!(%peer, "handshake took too long"),
        },
    };
    drop(stop);
    if let Err(error) = serving.await {
        tracing::debug!(%peer, %error, "connection broke");
    }
}

/// Waits for a handshake. Returns nothing if it takes too long, or if it is slow and another connection needs its
/// permit.
async fn in_time<F: Future>(handshake: F, permit: Option<HandshakePermit>) -> Option<F::Output> {
    let needed = async {
        match &permit {
            Some(permit) => permit.is_needed().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        // A handshake that has ended is not given up.
        biased;
        output = handshake => Some(output),
        () = needed => None,
        () = tokio::time::sleep(HANDSHAKE_TIMEOUT) => None,
    }
}

/// The handshake, and what follows it.
async fn begin(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    service: Arc<Service>,
    tasks: Tasks,
) -> io::Result<Serving> {
    Ok(match tls {
        Some(tls) => {
            let stream = tls.accept(Socket(stream)).await?;
            let (protocol, handler) = secured(&stream, peer, &service);
            http(stream, peer, protocol, handler, tasks)
        }
        None => {
            let protocol = plain_protocol(&stream).await?;
            let handler = Handler::new(&service, PeerCertificate::Absent);
            http(Socket(stream), peer, protocol, handler, tasks)
        }
    })
}

/// What the handshake has settled.
fn secured(stream: &TlsStream<Socket>, peer: SocketAddr, service: &Service) -> (Protocol, Handler) {
    let (_, session) = stream.get_ref();
    let protocol = match session.alpn_protocol() {
        Some(b"h2") => Protocol::Http2,
        _ => Protocol::Http1,
    };
    let certificate = match &service.authentication {
        Authentication::Required { authenticator, .. } => {
            authenticator.peer_certificate(session.peer_certificates(), UnixTime::now())
        }
        Authentication::Unsecured(_) => PeerCertificate::Absent,
    };
    if let (PeerCertificate::Invalid(reason), Some([leaf, ..])) =
        (&certificate, session.peer_certificates())
    {
        let (subject, issuer) = x509::describe(leaf);
        tracing::info!(%peer, subject, issuer, %reason, "client certificate refused");
    }
    (protocol, Handler::new(service, certificate))
}

/// HTTP/2 with prior knowledge or HTTP/1.1, by the first bytes.
async fn plain_protocol(stream: &TcpStream) -> io::Result<Protocol> {
    let mut start = [0; H2_PREFACE_START.len()];
    loop {
        let count = stream.peek(&mut start).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
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

fn http<S>(
    stream: S,
    peer: SocketAddr,
    protocol: Protocol,
    handler: Handler,
    tasks: Tasks,
) -> Serving
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match protocol {
        Protocol::Http1 => http1(stream, peer, handler, &tasks),
        Protocol::Http2 => http2::serve(stream, handler, tasks),
    }
}

fn http1<S>(stream: S, peer: SocketAddr, handler: Handler, tasks: &Tasks) -> Serving
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = Lingering::new(stream, handler.lingers.clone());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .serve_connection(TokioIo::new(stream), handler)
        .with_upgrades();
    let mut connection = Box::pin(connection);
    let mut stop = PollOnWake::new(tasks.token().cancelled_owned());
    let exchanges = overdue::in_time(async move {
        let stopped = poll_fn(|cx| {
            // The connection first: what it can finish now needs no draining.
            match connection.as_mut().poll(cx) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                Poll::Pending => stop.poll(cx).map(|()| None),
            }
        });
        match stopped.await {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    });
    let serving = async move {
        exchanges.await.unwrap_or_else(|| {
            tracing::debug!(%peer, "connection given up: its answer is not taken");
            Ok(())
        })
    };
    serving.boxed()
}

/// Requests of one connection of HTTP/1.1, whose task carries them out one by one.
#[derive(Debug, Clone)]
pub(super) struct Handler {
    router: Routes,
    authentication: Access,
    certificate: PeerCertificate,
    lingers: Lingers,
}

type Routes = TowerToHyperService<axum::Router>;

/// [`Authentication`], with routers as connections call them.
#[derive(Debug, Clone)]
enum Access {
    Required(Arc<Authenticator>, Routes),
    Unsecured(Arc<UserInfo>),
}

type Answer = Result<Response<Body>, Infallible>;

/// Sends requests on to `router` whose service account `registry` has, as its user.
pub(super) fn claimed_router(registry: Arc<Registry>, router: axum::Router) -> axum::Router {
    axum::Router::new().fallback(move |mut request: Request<Body>| {
        let (registry, router) = (registry.clone(), TowerToHyperService::new(router.clone()));
        async move {
            let claimed = request.extensions_mut().remove::<Box<ClaimedUser>>();
            let user = match &claimed {
                Some(claimed) => registry.claimed_user(claimed).await.map_err(|error| {
                    Unauthorized::new(format!("token of a service account: {error}"))
                }),
                None => Err(Unauthorized::new("no credentials")),
            };
            let user = match user {
                Ok(user) => Arc::new(user),
                Err(unauthorized) => return unauthorized.response(&request),
            };
            match impersonation::acting(user, request.uri().path(), request.headers()) {
                Ok(user) => {
                    request.extensions_mut().insert(user);
                    let answer = hyper::service::Service::call(&router, request).await;
                    answer.unwrap_or_else(|never| match never {})
                }
                Err(refused) => refused.response(request.headers()),
            }
        }
    })
}

impl Handler {
    fn new(service: &Service, certificate: PeerCertificate) -> Self {
        Self {
            router: TowerToHyperService::new(service.router.clone()),
            authentication: match service.authentication.clone() {
                Authentication::Required {
                    authenticator,
                    claimed,
                } => Access::Required(authenticator, TowerToHyperService::new(claimed)),
                Authentication::Unsecured(user) => Access::Unsecured(user),
            },
            certificate,
            lingers: Lingers::default(),
        }
    }

    /// Notes whose request it is and says where it goes, or why it is not let in.
    fn way_of(&self, request: &mut Request<Body>) -> Result<&Routes, Box<Response<Body>>> {
        let (authenticator, claimed) = match &self.authentication {
            Access::Unsecured(user) => {
                local::check(request).map_err(|foreign| Box::new(foreign.response(request)))?;
                let acting = impersonation::acting_freely(user, request.headers());
                let user = acting.map_err(|refused| refused.response(request.headers()))?;
                request.extensions_mut().insert(user);
                return Ok(&self.router);
            }
            Access::Required(authenticator, claimed) => (authenticator, claimed),
        };
        let told = protocol_token::take(request.headers_mut()).and_then(|()| {
            let (path, headers) = (request.uri().path(), request.headers());
            authenticator.authenticate(&self.certificate, path, headers, UnixTime::now())
        });
        match told.map_err(|unauthorized| Box::new(unauthorized.response(&*request)))? {
            Bearer::Known(user) => {
                let acting = impersonation::acting(user, request.uri().path(), request.headers());
                let user = acting.map_err(|refused| refused.response(request.headers()))?;
                request.extensions_mut().insert(user);
                Ok(&self.router)
            }
            Bearer::Claimed(user) => {
                request.extensions_mut().insert(user);
                Ok(claimed)
            }
        }
    }
}

/// The answer to a request, without what follows from its body.
type Routed = Either<Ready<Answer>, TowerToHyperServiceFuture<axum::Router, Request<Body>>>;

impl Handler {
    /// Authenticates a request and passes it on, or refuses it.
    fn route(&self, mut request: Request<Body>) -> Routed {
        match self.way_of(&mut request) {
            Ok(way) => Either::Right(hyper::service::Service::call(way, request)),
            Err(refusal) => Either::Left(ready(Ok(*refusal))),
        }
    }
}

fn limited(answer: Answer) -> Answer {
    answer.map(overdue::limited)
}

impl hyper::service::Service<Request<Incoming>> for Handler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<Map<Routed, fn(Answer) -> Answer>, BoxFuture<'static, Answer>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let awaited = unread::is_awaited(&request);
        let (request, unread) = unread::lend(request);
        let answer = self.route(request);
        let Some(unread) = unread else {
            return Either::Left(answer.map(limited as fn(Answer) -> Answer));
        };
        let lingers = self.lingers.clone();
        let settled = async move {
            let response = unread.before_http1(answer.await?, awaited, &lingers);
            limited(Ok(response.await))
        };
        Either::Right(settled.boxed())
    }
}

/// Requests of one connection of HTTP/2, each carried out by a task of its own: one does not hold up
/// the others, nor what the connection sends meanwhile.
#[derive(Debug, Clone)]
pub(super) struct SpawningHandler {
    handler: Handler,
    tasks: Tasks,
}

impl SpawningHandler {
    pub(super) fn new(handler: Handler, tasks: Tasks) -> Self {
        Self { handler, tasks }
    }
}

type Joined = Result<Answer, JoinError>;

impl hyper::service::Service<Request<Incoming>> for SpawningHandler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<Ready<Answer>, Map<AbortOnDropHandle<Answer>, fn(Joined) -> Answer>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (request, unread) = unread::lend(request);
        let task = match (self.handler.route(request), unread) {
            (Either::Left(refusal), None) => return Either::Left(refusal),
            (Either::Right(answer), None) => self.tasks.spawn("request", answer),
            (answer, Some(unread)) => {
                let tasks = self.tasks.clone();
                let settled = async move { Ok(unread.before_http2(answer.await?, &tasks).await) };
                self.tasks.spawn("request", settled)
            }
        };
        let task = AbortOnDropHandle::new(task);
        Either::Right(task.map(|joined| match joined {
            Ok(answer) => answer.map(overdue::limited),
            // Nobody aborts it but who no longer waits for it, and the end of the process.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => {
                    let mut unanswered = Response::new(Body::empty());
                    *unanswered.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                    Ok(unanswered)
                }
            },
        }))
    }
}

#[cfg(test)]
mod tests;
