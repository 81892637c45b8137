//! Serves one connection: handshake, protocol selection, HTTP/1.1 or HTTP/2 until it ends or the
//! server drains. Requests pass authentication before the router.

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

use crate::api::UserInfo;
use crate::auth::{
    AuthenticatedToken, Authenticator, PeerCertificate, ServiceAccountToken, Unauthorized,
    websocket_token,
};
use crate::builtin::TokenObjects;
use crate::http as http_layer;
use crate::registry::Registry;
use crate::server::transport::handshakes::HandshakePermit;
use crate::server::transport::socket::Socket;
use crate::server::transport::unread::{self, DelayedClose, DelaysClose};
use crate::server::transport::{http2, local, overdue};
use crate::tasks::{PollOnWake, Tasks};
use crate::x509;

/// The time limit of a TLS handshake, or of the first bytes on the plain port.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit for a complete HTTP/1.1 request head. It also limits idle connections, so it is
/// no shorter than the usual idle timeout of clients.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(90);

/// The start of the HTTP/2 preface; no HTTP/1.1 method begins like this.
const H2_PREFACE_START: &[u8] = b"PRI ";

/// The pause before looking for the rest of an incomplete preface.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);

/// The service of a listener.
#[derive(Debug, Clone)]
pub(in crate::server) struct Service {
    /// The router of authenticated requests.
    pub(in crate::server) router: axum::Router,
    /// How requests are authenticated.
    pub(in crate::server) authentication: Authentication,
}

/// How requests are authenticated.
#[derive(Debug, Clone)]
pub(in crate::server) enum Authentication {
    /// By certificate or token.
    Required {
        /// Authenticates requests.
        authenticator: Arc<Authenticator>,
        /// The router of requests with a service account token: it validates the token before it passes
        /// them on.
        service_accounts: axum::Router,
    },
    /// Not at all: every request from a local program has this user.
    Unsecured(Arc<UserInfo>),
}

enum Protocol {
    Http1,
    Http2,
}

/// The future of a connection, boxed so that the connection's task need not be as large as every
/// protocol at every stage: most of thousands of connections are idle.
type Serving = BoxFuture<'static, hyper::Result<()>>;

/// Serves one connection until it ends. When the group of `tasks` is cancelled it completes the
/// requests in progress and ends.
pub(in crate::server) async fn serve(
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
    // Stopping comes first: a client that has sent no request loses nothing.
    let serving = tokio::select! {
        biased;
        () = stop.cancelled() => return,
        begun = begun => match begun {
            Some(Ok(serving)) => serving,
            Some(Err(error)) => return tracing::debug!(%peer, %error, "handshake failed"),
            None => return tracing::debug!(%peer, "handshake timed out"),
        },
    };
    drop(stop);
    if let Err(error) = serving.await {
        tracing::debug!(%peer, %error, "connection failed");
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
        // A handshake that has ended is not aborted.
        biased;
        output = handshake => Some(output),
        () = needed => None,
        () = tokio::time::sleep(HANDSHAKE_TIMEOUT) => None,
    }
}

/// Performs the handshake and returns the future that serves the connection.
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

/// Returns the negotiated protocol and the handler for the client's certificate.
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
        tracing::info!(%peer, subject, issuer, %reason, "client certificate rejected");
    }
    (protocol, Handler::new(service, certificate))
}

/// Detects HTTP/2 with prior knowledge, or HTTP/1.1, by the first bytes.
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
        // Peeking returns immediately while there is data, so this must not spin.
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
    let stream = DelayedClose::new(stream, handler.delays_close.clone());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .serve_connection(TokioIo::new(stream), handler)
        .with_upgrades();
    let mut connection = Box::pin(connection);
    let mut stop = PollOnWake::new(tasks.token().cancelled_owned());
    let exchanges = overdue::run_within_deadline(async move {
        let stopped = poll_fn(|cx| {
            // The connection comes first, so that it completes if it can.
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
            tracing::debug!(%peer, "connection dropped: the client does not read the response");
            Ok(())
        })
    };
    serving.boxed()
}

/// Handles the requests of an HTTP/1.1 connection in the connection's task.
#[derive(Debug, Clone)]
pub(in crate::server) struct Handler {
    router: Routes,
    authentication: Access,
    certificate: PeerCertificate,
    delays_close: DelaysClose,
}

type Routes = TowerToHyperService<axum::Router>;

/// [`Authentication`] with routers as hyper services.
#[derive(Debug, Clone)]
enum Access {
    Required(Arc<Authenticator>, Routes),
    Unsecured(Arc<UserInfo>),
}

type HandlerResult = Result<Response<Body>, Infallible>;

/// Returns a router that validates the service account token of a request with the objects in `registry`, and
/// passes the request on with the token's user.
pub(in crate::server) fn service_account_router(
    registry: Arc<Registry>,
    router: axum::Router,
) -> axum::Router {
    axum::Router::new().fallback(move |mut request: Request<Body>| {
        let (registry, router) = (registry.clone(), TowerToHyperService::new(router.clone()));
        async move {
            let token = request
                .extensions_mut()
                .remove::<Box<ServiceAccountToken>>();
            let user = match &token {
                Some(token) => token
                    .validate(&TokenObjects(&registry))
                    .await
                    .map_err(|error| {
                        Unauthorized::new(format!("token of a service account: {error}"))
                    }),
                None => Err(Unauthorized::new("no credentials")),
            };
            match user {
                Ok(user) => {
                    request.extensions_mut().insert(Arc::new(user));
                    let answer = hyper::service::Service::call(&router, request).await;
                    answer.unwrap_or_else(|never| match never {})
                }
                Err(unauthorized) => unauthorized_response(&unauthorized, &request),
            }
        }
    })
}

/// Logs the reason of a 401 and returns the response, which does not contain it.
fn unauthorized_response<B>(error: &Unauthorized, request: &Request<B>) -> Response<Body> {
    let (method, path) = (request.method(), request.uri().path());
    tracing::info!(%method, path, reason = error.reason(), "request not authenticated");
    http_layer::error_response(request.headers(), &error.status())
}

impl Handler {
    fn new(service: &Service, certificate: PeerCertificate) -> Self {
        Self {
            router: TowerToHyperService::new(service.router.clone()),
            authentication: match service.authentication.clone() {
                Authentication::Required {
                    authenticator,
                    service_accounts,
                } => Access::Required(authenticator, TowerToHyperService::new(service_accounts)),
                Authentication::Unsecured(user) => Access::Unsecured(user),
            },
            certificate,
            delays_close: DelaysClose::default(),
        }
    }

    /// Authenticates a request; returns its route, or the error response.
    fn route_of(&self, request: &mut Request<Body>) -> Result<&Routes, Box<Response<Body>>> {
        let (authenticator, service_accounts) = match &self.authentication {
            Access::Unsecured(user) => {
                local::check(request).map_err(|foreign| Box::new(foreign.response(request)))?;
                request.extensions_mut().insert(Arc::clone(user));
                return Ok(&self.router);
            }
            Access::Required(authenticator, service_accounts) => (authenticator, service_accounts),
        };
        let authenticated = self.authenticate(authenticator, request);
        let authenticated = authenticated
            .map_err(|unauthorized| Box::new(unauthorized_response(&unauthorized, request)))?;
        match authenticated {
            AuthenticatedToken::User(user) => {
                request.extensions_mut().insert(user);
                Ok(&self.router)
            }
            AuthenticatedToken::ServiceAccount(token) => {
                request.extensions_mut().insert(token);
                Ok(service_accounts)
            }
        }
    }

    fn authenticate(
        &self,
        authenticator: &Authenticator,
        request: &mut Request<Body>,
    ) -> Result<AuthenticatedToken, Unauthorized> {
        if http_layer::is_websocket_upgrade(request.headers()) {
            websocket_token::take(request.headers_mut())?;
        }
        let (path, headers) = (request.uri().path(), request.headers());
        authenticator.authenticate(&self.certificate, path, headers, UnixTime::now())
    }
}

/// The future of a response, before the rest of the request body is discarded.
type Routed = Either<Ready<HandlerResult>, TowerToHyperServiceFuture<axum::Router, Request<Body>>>;

impl Handler {
    /// Authenticates a request and passes it on, or rejects it.
    fn route(&self, mut request: Request<Body>) -> Routed {
        match self.route_of(&mut request) {
            Ok(route) => Either::Right(hyper::service::Service::call(route, request)),
            Err(refusal) => Either::Left(ready(Ok(*refusal))),
        }
    }
}

fn limited(answer: HandlerResult) -> HandlerResult {
    answer.map(overdue::limited)
}

impl hyper::service::Service<Request<Incoming>> for Handler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future =
        Either<Map<Routed, fn(HandlerResult) -> HandlerResult>, BoxFuture<'static, HandlerResult>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let awaited = unread::is_awaited(&request);
        let (request, unread) = unread::share_body(request);
        let answer = self.route(request);
        let Some(unread) = unread else {
            return Either::Left(answer.map(limited as fn(HandlerResult) -> HandlerResult));
        };
        let delays_close = self.delays_close.clone();
        let response = async move {
            let response = unread.before_http1(answer.await?, awaited, &delays_close);
            limited(Ok(response.await))
        };
        Either::Right(response.boxed())
    }
}

/// Handles the requests of an HTTP/2 connection, each in its own task, so that none delays others
/// or the connection.
#[derive(Debug, Clone)]
pub(in crate::server) struct SpawningHandler {
    handler: Handler,
    tasks: Tasks,
}

impl SpawningHandler {
    pub(in crate::server) fn new(handler: Handler, tasks: Tasks) -> Self {
        Self { handler, tasks }
    }
}

type Joined = Result<HandlerResult, JoinError>;

impl hyper::service::Service<Request<Incoming>> for SpawningHandler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<
        Ready<HandlerResult>,
        Map<AbortOnDropHandle<HandlerResult>, fn(Joined) -> HandlerResult>,
    >;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (request, unread) = unread::share_body(request);
        let task = match (self.handler.route(request), unread) {
            (Either::Left(refusal), None) => return Either::Left(refusal),
            (Either::Right(answer), None) => self.tasks.spawn("request", answer),
            (answer, Some(unread)) => {
                let tasks = self.tasks.clone();
                let response = async move { Ok(unread.before_http2(answer.await?, &tasks).await) };
                self.tasks.spawn("request", response)
            }
        };
        let task = AbortOnDropHandle::new(task);
        Either::Right(task.map(|joined| match joined {
            Ok(answer) => answer.map(overdue::limited),
            // Only a dropped response future aborts the task, or the end of the process.
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
