//! Handles the requests of a connection: authenticates each, then calls the router.

use std::any::Any;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::body::Body;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, Map};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};
use jiff::Timestamp;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use crate::api::{AuditAnnotations, UserInfo};
use crate::audit::Auditor;
use crate::auth::{
    AuthenticatedRequest, Authenticator, ConsoleSession, Credential, ExternalToken, ObjectReader,
    PeerCertificate, ServiceAccountToken, TokenAuthenticator, Unauthorized, websocket_token,
};
use crate::builtin::TokenObjects;
use crate::console;
use crate::http::{self as http_layer, ClientAddress};
use crate::registry::Registry;
use crate::server::transport::connections::Connection;
use crate::server::transport::service::{Authentication, Service};
use crate::server::transport::unread::{self, DelaysClose};
use crate::server::transport::{local, overdue};
use crate::tasks::Tasks;

/// Handles the requests of an HTTP/1.1 connection in the connection's task.
#[derive(Debug, Clone)]
pub(in crate::server) struct Handler {
    router: Routes,
    console: Option<Routes>,
    authentication: Access,
    certificate: PeerCertificate,
    /// The certificate as that of a front proxy.
    proxy: PeerCertificate,
    client: ClientAddress,
    auditor: Option<Arc<Auditor>>,
    tasks: Tasks,
    delays_close: DelaysClose,
    connection: Arc<Connection>,
}

type Routes = TowerToHyperService<axum::Router>;

/// [`Authentication`] with routers as hyper services.
#[derive(Debug, Clone)]
enum Access {
    Required(Arc<Authenticator>, Routes),
    Unsecured(Arc<UserInfo>),
}

type HandlerResult = Result<Response<Body>, Infallible>;

/// Returns a router that completes the authentication of a request and passes the request on with its user: it validates
/// a service account token with the objects in `registry` and records its use in `tokens`, validates sessions of the console,
/// and asks external authenticators about other tokens.
pub(in crate::server) fn token_router(
    registry: Arc<Registry>,
    tokens: Arc<TokenAuthenticator>,
    router: axum::Router,
    auditor: Option<Arc<Auditor>>,
    tasks: Tasks,
) -> axum::Router {
    let objects: Arc<dyn ObjectReader> = Arc::new(TokenObjects(registry));
    axum::Router::new().fallback(move |mut request: Request<Body>| {
        let (objects, router) = (objects.clone(), TowerToHyperService::new(router.clone()));
        let (auditor, tokens) = (auditor.clone(), Arc::clone(&tokens));
        let tasks = tasks.clone();
        let response = async move {
            let token = request
                .extensions_mut()
                .remove::<Box<ServiceAccountToken>>();
            let external = request.extensions_mut().remove::<Box<ExternalToken>>();
            let session = request.extensions_mut().remove::<Box<ConsoleSession>>();
            let user = match (token, external, session) {
                (Some(token), _, _) => match token.validate(&*objects).await {
                    Ok(user) => {
                        let annotations = AuditAnnotations::default();
                        tokens.record_use(&token, &annotations);
                        request.extensions_mut().insert(annotations);
                        let credential = Credential::ServiceAccount { token, objects };
                        Ok((Arc::new(user), credential))
                    }
                    Err(error) => Err(Unauthorized::new(format!(
                        "token of a service account: {error}"
                    ))),
                },
                (None, Some(token), _) => token.authenticate().await,
                (None, None, Some(session)) => {
                    session.authenticate(Timestamp::now().as_second()).await
                }
                (None, None, None) => Err(Unauthorized::new("no credentials")),
            };
            match user {
                Ok((user, credential)) => {
                    request.extensions_mut().insert(user);
                    request.extensions_mut().insert(credential);
                    let result = hyper::service::Service::call(&router, request).await;
                    result.unwrap_or_else(|never| match never {})
                }
                Err(unauthorized) => {
                    unauthorized_response(&unauthorized, &request, auditor.as_ref())
                }
            }
        };
        async move {
            let response = AssertUnwindSafe(response).catch_unwind().await;
            response.unwrap_or_else(|panic| response_to(&tasks, &*panic))
        }
    })
}

/// Logs and counts the panic of a request, and returns the response.
fn response_to(tasks: &Tasks, panic: &(dyn Any + Send)) -> Response<Body> {
    tasks.record_panic("request", panic);
    http_layer::panic_response()
}

/// Logs the reason of a 401 and returns the response, which does not contain it.
fn unauthorized_response<B>(
    error: &Unauthorized,
    request: &Request<B>,
    auditor: Option<&Arc<Auditor>>,
) -> Response<Body> {
    let (method, path) = (request.method(), request.uri().path());
    tracing::info!(%method, path, reason = error.reason(), "request not authenticated");
    http_layer::audited_error_response(auditor, request, &error.status())
}

impl Handler {
    /// Creates the handler of a connection of `service` whose client has this certificate.
    pub(in crate::server) fn new(
        service: &Service,
        certificate: PeerCertificate,
        client: SocketAddr,
        connection: Arc<Connection>,
    ) -> Self {
        Self {
            router: TowerToHyperService::new(service.router.clone()),
            console: service.console.clone().map(TowerToHyperService::new),
            authentication: match service.authentication.clone() {
                Authentication::Required {
                    authenticator,
                    token_routes,
                } => Access::Required(authenticator, TowerToHyperService::new(token_routes)),
                Authentication::Unsecured(user) => Access::Unsecured(user),
            },
            certificate,
            proxy: PeerCertificate::Absent,
            client: ClientAddress(client),
            auditor: service.auditor.clone(),
            tasks: service.tasks.clone(),
            delays_close: DelaysClose::default(),
            connection,
        }
    }

    /// Sets the certificate of the client as that of a front proxy.
    #[must_use]
    pub(in crate::server) fn with_proxy(mut self, proxy: PeerCertificate) -> Self {
        self.proxy = proxy;
        self
    }

    /// Returns the state of the connection.
    pub(in crate::server) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Returns the switch that delays the close of the connection.
    pub(in crate::server) fn delays_close(&self) -> DelaysClose {
        self.delays_close.clone()
    }

    /// Authenticates a request; returns its route, or the error response.
    fn route_of(&self, request: &mut Request<Body>) -> Result<&Routes, Box<Response<Body>>> {
        let auditor = self.auditor.as_ref();
        if let Some(console) = &self.console
            && console::is_console_path(request.uri().path())
        {
            if let Access::Unsecured(_) = &self.authentication {
                local::check(request)
                    .map_err(|foreign| Box::new(foreign.response(request, auditor)))?;
            }
            return Ok(console);
        }
        request.extensions_mut().insert(self.client);
        let unsent = Arc::clone(self.connection.unsent_events());
        request.extensions_mut().insert(unsent);
        let (authenticator, token_routes) = match &self.authentication {
            Access::Unsecured(user) => {
                local::check(request)
                    .map_err(|foreign| Box::new(foreign.response(request, auditor)))?;
                request.extensions_mut().insert(Arc::clone(user));
                return Ok(&self.router);
            }
            Access::Required(authenticator, token_routes) => (authenticator, token_routes),
        };
        let authenticated = self.authenticate(authenticator, request);
        let authenticated = authenticated.map_err(|unauthorized| {
            Box::new(unauthorized_response(&unauthorized, request, auditor))
        })?;
        match authenticated {
            AuthenticatedRequest::User { user, credential } => {
                request.extensions_mut().insert(user);
                if let Some(credential) = credential {
                    request.extensions_mut().insert(credential);
                }
                Ok(&self.router)
            }
            AuthenticatedRequest::ServiceAccount(token) => {
                request.extensions_mut().insert(token);
                Ok(token_routes)
            }
            AuthenticatedRequest::External(token) => {
                request.extensions_mut().insert(token);
                Ok(token_routes)
            }
            AuthenticatedRequest::Session(session) => {
                request.extensions_mut().insert(session);
                Ok(token_routes)
            }
        }
    }

    fn authenticate(
        &self,
        authenticator: &Authenticator,
        request: &mut Request<Body>,
    ) -> Result<AuthenticatedRequest, Unauthorized> {
        if http_layer::is_websocket_upgrade(request.headers()) {
            websocket_token::move_token_to_header(request.headers_mut())?;
        }
        let now = Timestamp::now().as_second();
        if let Some(front_proxy) = authenticator.front_proxy() {
            let proxied = front_proxy.authenticate(&self.proxy, request.headers_mut(), now);
            if let Some((user, credential)) = proxied {
                return Ok(AuthenticatedRequest::User {
                    user,
                    credential: Some(credential),
                });
            }
        }
        let (path, headers) = (request.uri().path(), request.headers());
        authenticator.authenticate(&self.certificate, path, headers, now)
    }
}

/// The future of the response to a rejected request. The response is boxed, because the future of every stream reserves space for it.
type RejectedFuture = Map<Ready<Box<Response<Body>>>, fn(Box<Response<Body>>) -> HandlerResult>;

/// The future of a response, before the rest of the request body is discarded.
type Routed = Either<RejectedFuture, TowerToHyperServiceFuture<axum::Router, Request<Body>>>;

impl Handler {
    /// Authenticates a request and passes it on, or rejects it.
    fn route(&self, mut request: Request<Body>) -> Routed {
        // Unwind safety: the request is dropped after a panic.
        let route = catch_unwind(AssertUnwindSafe(|| self.route_of(&mut request)));
        match route {
            Ok(Ok(route)) => Either::Right(hyper::service::Service::call(route, request)),
            Ok(Err(response)) => Either::Left(reject_with(response)),
            Err(panic) => Either::Left(reject_with(Box::new(response_to(&self.tasks, &*panic)))),
        }
    }
}

fn reject_with(response: Box<Response<Body>>) -> RejectedFuture {
    ready(response).map(|response| Ok(*response))
}

fn limited(result: HandlerResult) -> HandlerResult {
    result.map(overdue::limited)
}

impl hyper::service::Service<Request<Incoming>> for Handler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future =
        Either<Map<Routed, fn(HandlerResult) -> HandlerResult>, BoxFuture<'static, HandlerResult>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.connection.set_busy();
        let awaited = unread::is_awaited(&request);
        let (request, unread) = unread::share_body(request);
        let routed = self.route(request);
        let Some(unread) = unread else {
            return Either::Left(routed.map(limited as fn(HandlerResult) -> HandlerResult));
        };
        let delays_close = self.delays_close.clone();
        let response = async move {
            let response = unread.before_http1(routed.await?, awaited, &delays_close);
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
    type Future =
        Either<RejectedFuture, Map<AbortOnDropHandle<HandlerResult>, fn(Joined) -> HandlerResult>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (request, unread) = unread::share_body(request);
        let task = match (self.handler.route(request), unread) {
            (Either::Left(rejected), None) => return Either::Left(rejected),
            (Either::Right(routed), None) => self.tasks.spawn("request", routed),
            (routed, Some(unread)) => {
                let tasks = self.tasks.clone();
                let response = async move { Ok(unread.before_http2(routed.await?, &tasks).await) };
                self.tasks.spawn("request", response)
            }
        };
        let task = AbortOnDropHandle::new(task);
        Either::Right(task.map(|joined| match joined {
            Ok(result) => result.map(overdue::limited),
            // Only a dropped response future aborts the task, or the end of the process.
            Err(error) => match error.try_into_panic() {
                // The task has logged and counted it.
                Ok(_) => Ok(http_layer::panic_response()),
                Err(_) => {
                    let mut unanswered = Response::new(Body::empty());
                    *unanswered.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                    Ok(unanswered)
                }
            },
        }))
    }
}
