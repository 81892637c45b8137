//! Serving one request: which answer its path asks for, within which limits, and what every response
//! carries. A failure of any kind, a panic included, ends as a `Status`.

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

use crate::api::{UserInfo, Warnings};
use crate::registry::{ApiError, ReadError, Registry};

use super::accept::{status_media, wants_pretty};
use super::config::WireConfig;
use super::discovery::{self, DiscoveryForm};
use super::documents;
use super::error::WireError;
use super::health::{self, Endpoint, Failing};
use super::held_body::HeldBody;
use super::monitor::{self, Monitored};
use super::openapi::{self, Asked, Documents};
use super::ordered::{DISCOVERY, Ordered};
use super::protobuf::Schema;
use super::query::Query;
use super::request_body::Sent;
use super::request_info::{InvalidPath, RequestInfo, ResourceRequest, Verb};
use super::response::{
    audit_id, finish, json_response, pretty_response, response, status_response_in,
};
use super::verbs::{Call, accept_of};
use super::warning::warn;

/// On a response: when its client must have taken all of it. The layer that sends it gives up what
/// is not taken by then, because the body itself is not asked for more while its client stands still.
#[derive(Debug, Clone)]
pub struct TakenBy {
    /// At the latest.
    pub until: Instant,
    /// Of a watch, which ends when this is cancelled: it must be taken soon after that.
    pub ends: Option<CancellationToken>,
}

impl From<Instant> for TakenBy {
    fn from(until: Instant) -> Self {
        Self { until, ends: None }
    }
}

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Wire {
    /// The resources.
    pub(crate) registry: Arc<Registry>,
    /// The limits.
    pub(crate) config: WireConfig,
    /// The messages of protobuf bodies.
    pub(crate) protobuf: Arc<Schema>,
    /// The documents of OpenAPI.
    pub(crate) openapi: Documents,
    /// The health checks that failed when they were last asked for.
    pub(crate) failing: Failing,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl Wire {
    /// The wire to `registry`.
    pub(crate) fn new(registry: Arc<Registry>, config: WireConfig) -> Self {
        Self {
            reads: Arc::new(Semaphore::new(config.reads_in_flight_max)),
            writes: Arc::new(Semaphore::new(config.writes_in_flight_max)),
            failing: Failing::default(),
            openapi: Documents::default(),
            protobuf: Arc::new(Schema::new(registry.types().clone())),
            registry,
            config,
        }
    }

    /// Reads in progress, other than watches.
    pub(crate) fn reads_in_flight(&self) -> usize {
        self.config.reads_in_flight_max - self.reads.available_permits()
    }

    /// Writes in progress.
    pub(crate) fn writes_in_flight(&self) -> usize {
        self.config.writes_in_flight_max - self.writes.available_permits()
    }
}

/// Answers one request, whatever it is.
pub(crate) async fn serve(State(wire): State<Arc<Wire>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let audit_id = audit_id(&parts.headers);
    let (method, uri) = (&parts.method, &parts.uri);
    let user = parts.extensions.get::<Arc<UserInfo>>();
    let user = user.map_or("", |user| &user.name);
    let user_agent = parts.headers.get(USER_AGENT);
    let info = RequestInfo::parse(method, uri.path(), uri.query());
    let monitored = Monitored::begin(&wire, &parts, &info);
    let warnings = Warnings::default();
    let answered = AssertUnwindSafe(answer(&wire, &parts, info, body, &warnings))
        .catch_unwind()
        .await;
    let result = answered.unwrap_or_else(|panic| {
        let detail = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a message");
        tracing::error!(audit_id, user, %method, %uri, detail, "a request panicked");
        let told = "the request failed because of a bug in the server".to_owned();
        Err(WireError::Internal(told))
    });
    let mut response = result.unwrap_or_else(|error| {
        let status = error.status();
        if status.code >= 500 {
            tracing::warn!(audit_id, user, %method, %uri, code = status.code, %error, "a request failed");
        } else {
            tracing::debug!(audit_id, user, %method, %uri, code = status.code, %error, "request refused");
        }
        // An Accept header that cannot be read was refused; its client gets JSON.
        let media = status_media(accept_of(&parts).unwrap_or_default().as_deref());
        let pretty = is_pretty(uri.query(), user_agent);
        status_response_in(&status, media, pretty, &wire.protobuf)
    });
    finish(&mut response, &audit_id);
    warn(&mut response, &warnings);
    if method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    monitored.answered(response)
}

async fn answer(
    wire: &Wire,
    parts: &Parts,
    info: Result<RequestInfo, InvalidPath>,
    body: Body,
    warnings: &Warnings,
) -> Result<Response, WireError> {
    match info? {
        RequestInfo::NonResource(segments) => {
            let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
            if let Some(endpoint) = segments.first().and_then(|s| Endpoint::from_path(s)) {
                // Probes come also when all seats are taken.
                return health_check(wire, parts, endpoint, &segments[1..]).await;
            }
            if segments == ["metrics"] {
                // So do scrapes: they are to tell of that.
                only_reads(parts)?;
                return monitor::scrape(wire, parts).await;
            }
            let answer = document(wire, parts, &segments);
            seated(&wire.reads, wire.config.request_timeout, answer).await
        }
        RequestInfo::Resource(request) => {
            let call = Call::new(wire, parts, request.clone(), warnings.clone())?;
            if call.verb() == Verb::Watch {
                // A watch lasts; what bounds it is its own timeout and the cache's.
                return objects(wire, call, parts, request, body, warnings).await;
            }
            let limit = call.time_limit()?;
            let seats = match call.verb().is_write() {
                true => &wire.writes,
                false => &wire.reads,
            };
            let answer = objects(wire, call, parts, request, body, warnings);
            seated(seats, limit, answer).await
        }
    }
}

/// A request about objects. It is about the resource, and not about how that was defined when it came: when
/// the definition changes before it is done, it is done by the new one.
async fn objects(
    wire: &Wire,
    mut call: Call<'_>,
    parts: &Parts,
    request: ResourceRequest,
    body: Body,
    warnings: &Warnings,
) -> Result<Response, WireError> {
    let body = Sent::new(body);
    // A cache can be found just before it is stopped: then its resource is the new one already.
    let mut of_the_same = 0;
    loop {
        let answer = call.run(&body).await;
        let Err(WireError::Api(ApiError::NotServed | ApiError::Read(ReadError::Stopped))) = answer
        else {
            return answer;
        };
        // What the old one had to say does not hold any more.
        warnings.clear();
        let now = Call::new(wire, parts, request.clone(), warnings.clone())?;
        of_the_same += usize::from(Arc::ptr_eq(now.resource(), call.resource()));
        if of_the_same > 1 {
            return answer;
        }
        call = now;
    }
}

/// An answer within the limits of §8.3: on one of the `seats`, and whole within `limit`.
async fn seated(
    seats: &Arc<Semaphore>,
    limit: Duration,
    answer: impl Future<Output = Result<Response, WireError>>,
) -> Result<Response, WireError> {
    let until = Instant::now() + limit;
    let permit = seats
        .clone()
        .try_acquire_owned()
        .map_err(|_| WireError::TooManyRequests)?;
    let response = tokio::time::timeout_at(until, answer)
        .await
        .map_err(|_| WireError::Timeout(limit))??;
    // It counts as in flight until it has been sent.
    let mut response = response.map(|body| HeldBody::around(body, permit));
    response.extensions_mut().insert(TakenBy::from(until));
    Ok(response)
}

async fn health_check(
    wire: &Wire,
    parts: &Parts,
    endpoint: Endpoint,
    name: &[&str],
) -> Result<Response, WireError> {
    only_reads(parts)?;
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    let name = name.join("/");
    health::answer(wire, endpoint, &name, &query).await
}

/// What is neither about objects nor about health or metrics: discovery, version, OpenAPI.
async fn document(wire: &Wire, parts: &Parts, segments: &[&str]) -> Result<Response, WireError> {
    let found = match segments {
        ["openapi", version @ ("v2" | "v3"), path @ ..] if *version == "v3" || path.is_empty() => {
            only_reads(parts)?;
            return openapi(wire, parts, version, &path.join("/")).await;
        }
        ["api"] | ["apis"] => {
            only_reads(parts)?;
            return discover(wire, parts, segments == ["api"]);
        }
        [""] => Some(root(wire)),
        ["version"] => Some(documents::version()),
        [".well-known", "openid-configuration"] => {
            let issuer = wire.config.credentials.issuer();
            Some(issuer.configuration_document(address(parts)))
        }
        ["openid", "v1", "jwks"] => {
            only_reads(parts)?;
            let keys = wire.config.credentials.issuer().keys_document();
            let body = Body::from(keys.to_string());
            return Ok(response(StatusCode::OK, "application/jwk-set+json", body));
        }
        ["api", version] => discovery::resource_list(&wire.registry.resources(), "", version),
        ["apis", group] => discovery::group(&wire.registry.resources(), group),
        ["apis", group, version] if !group.is_empty() => {
            discovery::resource_list(&wire.registry.resources(), group, version)
        }
        _ => None,
    };
    let document = found.ok_or(WireError::NoSuchPath)?;
    only_reads(parts)?;
    Ok(plain(parts, &document))
}

async fn openapi(
    wire: &Wire,
    parts: &Parts,
    version: &str,
    path: &str,
) -> Result<Response, WireError> {
    let resources = wire.registry.resources();
    if version == "v3" && path.is_empty() {
        return Ok(plain(parts, &openapi::index(&resources)));
    }
    let accept = accept_of(parts)?;
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    let asked = Asked {
        resources: &resources,
        types: wire.registry.types(),
        tasks: &wire.config.connections,
        headers: &parts.headers,
        accept: accept.as_deref(),
        hash: query.text("hash"),
    };
    match version {
        "v3" => wire.openapi.v3(asked, path).await,
        _ => wire.openapi.v2(asked).await,
    }
}

fn only_reads(parts: &Parts) -> Result<(), WireError> {
    match parts.method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(WireError::MethodNotAllowed),
    }
}

/// Whether a person reads the answer. A query that cannot be read is refused elsewhere.
fn is_pretty(query: Option<&str>, user_agent: Option<&HeaderValue>) -> bool {
    let query = Query::parse(query.unwrap_or_default()).unwrap_or_default();
    wants_pretty(&query, user_agent.and_then(|v| v.to_str().ok()))
}

/// A document of ours, for a program or for a person.
fn plain(parts: &Parts, document: &serde_json::Value) -> Response {
    let document = &Ordered::new(document, &DISCOVERY);
    match is_pretty(parts.uri.query(), parts.headers.get(USER_AGENT)) {
        true => pretty_response(StatusCode::OK, document),
        false => json_response(StatusCode::OK, document),
    }
}

fn discover(wire: &Wire, parts: &Parts, core: bool) -> Result<Response, WireError> {
    let resources = wire.registry.resources();
    match discovery::negotiate(accept_of(parts)?.as_deref())? {
        DiscoveryForm::Aggregated => {
            let document = discovery::aggregated(&resources, core);
            Ok(discovery::aggregated_response(&document, &parts.headers))
        }
        DiscoveryForm::Legacy if core => Ok(plain(parts, &discovery::api_versions(address(parts)))),
        DiscoveryForm::Legacy => Ok(plain(parts, &discovery::group_list(&resources))),
    }
}

/// Where the client reaches this server.
fn address(parts: &Parts) -> &str {
    let host = parts.headers.get(HOST).and_then(|v| v.to_str().ok());
    let authority = parts.uri.authority().map(|a| a.as_str());
    authority.or(host).unwrap_or_default()
}

fn root(wire: &Wire) -> serde_json::Value {
    let checks = wire.config.checks.iter().map(|c| c.name().to_owned());
    let mut names: Vec<String> = checks.collect();
    names.extend(["ping", "shutdown"].map(str::to_owned));
    discovery::root_paths(&wire.registry.resources(), &names)
}
