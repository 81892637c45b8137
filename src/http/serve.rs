//! Serves one request: authorizes it, dispatches by path, enforces the limits, sets common headers. Every failure,
//! including a panic, becomes a `Status`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{HOST, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use futures_util::FutureExt as _;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{AuditAnnotations, UserInfo, Warnings};
use crate::registry::{ApiError, ReadError, Registry};

use crate::http::request::accept::{status_media, wants_pretty};
use crate::http::audit;
use crate::http::authorization::authorize;
use crate::http::config::HttpConfig;
use crate::http::endpoints::discovery::{self, DiscoveryForm};
use crate::http::endpoints::version;
use crate::http::error::HttpError;
use crate::http::response::guarded_body::GuardedBody;
use crate::http::endpoints::health::{self, Endpoint, FailingChecks};
use crate::http::request_monitor::{self, RequestMonitor};
use crate::http::endpoints::openapi::{self, DocumentRequest, Documents};
use crate::http::response::ordered::{DISCOVERY, Ordered};
use crate::http::protobuf::Schema;
use crate::http::request::query::Query;
use crate::http::request::body::RequestBody;
use crate::http::request::request_info::{InvalidPath, RequestInfo, ResourceRequest, Verb};
use crate::http::response::encoding::{
    audit_id, json_response, pretty_response, response, set_common_headers, status_response_in,
};
use crate::http::verbs::call::{Call, accept_of};
use crate::http::response::warning;

/// A response extension: the deadline for the client to receive the whole response. The connection
/// layer enforces it, because the body is not polled while the client does not read.
#[derive(Debug, Clone)]
pub struct SendDeadline {
    /// The latest time.
    pub deadline: Instant,
    /// The token whose cancellation ends a watch: the client must receive the rest soon after that.
    pub end: Option<CancellationToken>,
}

impl From<Instant> for SendDeadline {
    fn from(deadline: Instant) -> Self {
        Self {
            deadline,
            end: None,
        }
    }
}

/// State shared by all requests.
#[derive(Debug)]
pub(crate) struct HttpState {
    /// The registry of resources.
    pub(crate) registry: Arc<Registry>,
    /// The limits.
    pub(crate) config: HttpConfig,
    /// The messages of protobuf bodies.
    pub(crate) protobuf: Arc<Schema>,
    /// The OpenAPI documents.
    pub(crate) openapi: Documents,
    /// The health checks that failed last time.
    pub(crate) failing_checks: FailingChecks,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl HttpState {
    /// Creates the state of a server of `registry`.
    pub(crate) fn new(registry: Arc<Registry>, config: HttpConfig) -> Self {
        Self {
            reads: Arc::new(Semaphore::new(config.reads_in_flight_max)),
            writes: Arc::new(Semaphore::new(config.writes_in_flight_max)),
            failing_checks: FailingChecks::default(),
            openapi: Documents::default(),
            protobuf: Arc::new(Schema::new(registry.types().clone())),
            registry,
            config,
        }
    }

    /// Returns the number of reads in flight, without watches.
    pub(crate) fn reads_in_flight(&self) -> usize {
        self.config.reads_in_flight_max - self.reads.available_permits()
    }

    /// Returns the number of writes in flight.
    pub(crate) fn writes_in_flight(&self) -> usize {
        self.config.writes_in_flight_max - self.writes.available_permits()
    }
}

/// Serves any request.
pub(crate) async fn serve(State(state): State<Arc<HttpState>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(AuditAnnotations::default());
    let audit_id = audit_id(&parts.headers);
    let uri = &parts.uri;
    let info = RequestInfo::parse(&parts.method, uri.path(), uri.query());
    let monitored = RequestMonitor::begin(&state, &parts, &info);
    let warnings = Warnings::default();
    let result = AssertUnwindSafe(async {
        authorize(&**state.registry.authorizer(), &mut parts, &info).await?;
        dispatch(&state, &parts, info, body, &warnings).await
    });
    let result = result.catch_unwind().await;
    let parts = parts;
    let (method, uri) = (&parts.method, &parts.uri);
    // The impersonated user, if any.
    let user = parts.extensions.get::<Arc<UserInfo>>();
    let user = user.map_or("", |user| &user.name);
    let user_agent = parts.headers.get(USER_AGENT);
    let result = result.unwrap_or_else(|panic| {
        let detail = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a message");
        tracing::error!(audit_id, user, %method, %uri, detail, "request panicked");
        let message = "the request failed because of a bug in the server".to_owned();
        Err(HttpError::Internal(message))
    });
    let mut response = result.unwrap_or_else(|error| {
        let status = error.status();
        if status.code >= 500 {
            tracing::warn!(audit_id, user, %method, %uri, code = status.code, %error, "request failed");
        } else {
            tracing::debug!(audit_id, user, %method, %uri, code = status.code, %error, "request rejected");
        }
        // An invalid Accept header is an error of its own; its client gets JSON.
        let media = status_media(accept_of(&parts).unwrap_or_default().as_deref());
        let pretty = is_pretty(uri.query(), user_agent);
        status_response_in(&status, media, pretty, &state.protobuf)
    });
    audit::log(&parts, &audit_id, user);
    set_common_headers(&mut response, &audit_id);
    warning::add_headers(&mut response, &warnings);
    if method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    monitored.with_response(response)
}

async fn dispatch(
    state: &HttpState,
    parts: &Parts,
    info: Result<RequestInfo, InvalidPath>,
    body: Body,
    warnings: &Warnings,
) -> Result<Response, HttpError> {
    match info? {
        RequestInfo::NonResource(segments) => {
            let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
            if let Some(endpoint) = segments.first().and_then(|s| Endpoint::from_path(s)) {
                // Probes are exempt from the in-flight limit.
                return health_check(state, parts, endpoint, &segments[1..]).await;
            }
            if segments == ["metrics"] {
                // Scrapes are exempt too: they report the number of requests in flight.
                only_reads(parts)?;
                return monitor::scrape(state, parts).await;
            }
            let response = document(state, parts, &segments);
            run_limited(&state.reads, state.config.request_timeout, response).await
        }
        RequestInfo::Resource(request) => {
            let call = Call::new(state, parts, request.clone(), warnings.clone())?;
            if call.verb() == Verb::Watch {
                // A watch is limited by its own timeout and the cache's, not by the request
                // timeout.
                return serve_objects(state, call, parts, request, body, warnings).await;
            }
            let limit = call.time_limit()?;
            let permits = match call.verb().is_write() {
                true => &state.writes,
                false => &state.reads,
            };
            let response = serve_objects(state, call, parts, request, body, warnings);
            run_limited(permits, limit, response).await
        }
    }
}

/// Serves a request about objects. If the resource's definition changes meanwhile (a CRD update
/// replaces its cache), the request is repeated with the new definition.
async fn serve_objects(
    state: &HttpState,
    mut call: Call<'_>,
    parts: &Parts,
    request: ResourceRequest,
    body: Body,
    warnings: &Warnings,
) -> Result<Response, HttpError> {
    let body = RequestBody::new(body);
    // The old definition may still be registered just after its cache has stopped: retry it once.
    let mut unchanged = 0;
    loop {
        let response = call.run(&body).await;
        let Err(HttpError::Api(ApiError::NotServed | ApiError::Read(ReadError::Stopped))) =
            response
        else {
            return response;
        };
        // Warnings of the old definition no longer apply.
        warnings.clear();
        let now = Call::new(state, parts, request.clone(), warnings.clone())?;
        unchanged += usize::from(Arc::ptr_eq(now.resource(), call.resource()));
        if unchanged > 1 {
            return response;
        }
        call = now;
    }
}

/// Runs a request with one of the `permits` and within the time limit; the permit is released when
/// the response has been sent.
async fn run_limited(
    permits: &Arc<Semaphore>,
    limit: Duration,
    response: impl Future<Output = Result<Response, HttpError>>,
) -> Result<Response, HttpError> {
    let deadline = Instant::now() + limit;
    let permit = permits
        .clone()
        .try_acquire_owned()
        .map_err(|_| HttpError::TooManyRequests)?;
    let response = tokio::time::timeout_at(deadline, response)
        .await
        .map_err(|_| HttpError::Timeout(limit))??;
    // It counts as in flight until it has been sent.
    let mut response = response.map(|body| GuardedBody::wrap(body, permit));
    response
        .extensions_mut()
        .insert(SendDeadline::from(deadline));
    Ok(response)
}

async fn health_check(
    state: &HttpState,
    parts: &Parts,
    endpoint: Endpoint,
    name: &[&str],
) -> Result<Response, HttpError> {
    only_reads(parts)?;
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    let name = name.join("/");
    health::respond(state, endpoint, &name, &query).await
}

/// Serves discovery, version and OpenAPI: paths that are not about objects, health or metrics.
async fn document(
    state: &HttpState,
    parts: &Parts,
    segments: &[&str],
) -> Result<Response, HttpError> {
    let found = match segments {
        ["openapi", version @ ("v2" | "v3"), path @ ..] if *version == "v3" || path.is_empty() => {
            only_reads(parts)?;
            return openapi(state, parts, version, &path.join("/")).await;
        }
        ["api"] | ["apis"] => {
            only_reads(parts)?;
            return discover(state, parts, segments == ["api"]);
        }
        [""] => Some(root(state)),
        ["version"] => Some(documents::version()),
        [".well-known", "openid-configuration"] => {
            let issuer = state.config.tokens.issuer();
            Some(issuer.configuration_document(address(parts)))
        }
        ["openid", "v1", "jwks"] => {
            only_reads(parts)?;
            let keys = state.config.tokens.issuer().keys_document();
            let body = Body::from(keys.to_string());
            return Ok(response(StatusCode::OK, "application/jwk-set+json", body));
        }
        ["api", version] => discovery::resource_list(&state.registry.resources(), "", version),
        ["apis", group] => discovery::group(&state.registry.resources(), group),
        ["apis", group, version] if !group.is_empty() => {
            discovery::resource_list(&state.registry.resources(), group, version)
        }
        _ => None,
    };
    let document = found.ok_or(HttpError::NoSuchPath)?;
    only_reads(parts)?;
    Ok(plain(parts, &document))
}

async fn openapi(
    state: &HttpState,
    parts: &Parts,
    version: &str,
    path: &str,
) -> Result<Response, HttpError> {
    let resources = state.registry.resources();
    if version == "v3" && path.is_empty() {
        return Ok(plain(parts, &openapi::index(&resources)));
    }
    let accept = accept_of(parts)?;
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    let request = DocumentRequest {
        resources: &resources,
        types: state.registry.types(),
        tasks: &state.config.connections,
        headers: &parts.headers,
        accept: accept.as_deref(),
        hash: query.text("hash"),
    };
    match version {
        "v3" => state.openapi.v3(request, path).await,
        _ => state.openapi.v2(request).await,
    }
}

fn only_reads(parts: &Parts) -> Result<(), HttpError> {
    match parts.method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(HttpError::MethodNotAllowed),
    }
}

/// Returns true if JSON should be indented. An invalid query is rejected elsewhere.
fn is_pretty(query: Option<&str>, user_agent: Option<&HeaderValue>) -> bool {
    let query = Query::parse(query.unwrap_or_default()).unwrap_or_default();
    wants_pretty(&query, user_agent.and_then(|v| v.to_str().ok()))
}

/// Returns a JSON document as a response, indented for interactive clients.
fn plain(parts: &Parts, document: &serde_json::Value) -> Response {
    let document = &Ordered::new(document, &DISCOVERY);
    match is_pretty(parts.uri.query(), parts.headers.get(USER_AGENT)) {
        true => pretty_response(StatusCode::OK, document),
        false => json_response(StatusCode::OK, document),
    }
}

fn discover(state: &HttpState, parts: &Parts, core: bool) -> Result<Response, HttpError> {
    let resources = state.registry.resources();
    match discovery::negotiate(accept_of(parts)?.as_deref())? {
        DiscoveryForm::Aggregated => {
            let document = discovery::aggregated(&resources, core);
            Ok(discovery::aggregated_response(&document, &parts.headers))
        }
        DiscoveryForm::Legacy if core => Ok(plain(parts, &discovery::api_versions(address(parts)))),
        DiscoveryForm::Legacy => Ok(plain(parts, &discovery::group_list(&resources))),
    }
}

/// Returns the server's address as the client used it.
fn address(parts: &Parts) -> &str {
    let host = parts.headers.get(HOST).and_then(|v| v.to_str().ok());
    let authority = parts.uri.authority().map(|a| a.as_str());
    authority.or(host).unwrap_or_default()
}

fn root(state: &HttpState) -> serde_json::Value {
    let checks = state.config.checks.iter().map(|c| c.name().to_owned());
    let mut names: Vec<String> = checks.collect();
    names.extend(["ping", "shutdown"].map(str::to_owned));
    discovery::root_paths(&state.registry.resources(), &names)
}
