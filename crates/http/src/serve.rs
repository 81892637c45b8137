//! Serves one request: authorizes it, dispatches by path, enforces the limits, sets common headers. Every failure,
//! including a panic, becomes a `Status`.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::USER_AGENT;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::audit;
use crate::authorization::authorize;
use crate::endpoints::health::{self, Endpoint};
use crate::endpoints::{backup, console_link, log_level, metrics, profiles, route};
use crate::error::HttpError;
use crate::in_flight::{self, Flow, InFlightPermit};
use crate::request::accept::{accept_header, is_pretty, status_media};
use crate::request::received_request::ReceivedRequest;
use crate::request::request_body::RequestBody;
use crate::request::request_info::{InvalidPath, RequestInfo, ResourceRequest, Verb};
use crate::request_audit::RequestAudit;
use crate::request_monitor::RequestMonitor;
use crate::request_trace::{RequestTrace, verb_span};
use crate::response::guarded_body::GuardedBody;
use crate::response::headers::{audit_id, set_common_headers};
use crate::response::send_deadline::SendDeadline;
use crate::response::status::{error_response, status_response};
use crate::response::warning;
use crate::state::HttpState;
use crate::verbs;
use crate::verbs::call::Call;
use watchet_api::{AuditAnnotations, MemoryReservation, UserInfo, Warnings};
use watchet_flowcontrol::{Classification, Work};
use watchet_registry::{ApiError, ReadError};
use watchet_tasks::panic_message;
use watchet_telemetry::{ChildSpan, with_context, with_current_context};

/// Serves any request.
pub(crate) async fn serve(State(state): State<Arc<HttpState>>, request: Request) -> Response {
    let tasks = state.config.metrics.tasks().clone();
    // The panics of handlers are caught below, with what is known of the request; this catches the rest.
    let response = AssertUnwindSafe(serve_request(state, request)).catch_unwind();
    response.await.unwrap_or_else(|panic| {
        tracing::error!(detail = panic_message(&*panic), "request panicked");
        tasks.count_panic("request");
        panic_response()
    })
}

/// Returns the response to a request that panicked: 500, without the detail, which is in the log.
pub fn panic_response() -> Response {
    error_response(&HeaderMap::new(), &panic_error().status())
}

fn panic_error() -> HttpError {
    HttpError::Internal("the request failed because of a bug in the server".to_owned())
}

async fn serve_request(state: Arc<HttpState>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let audit_id = audit_id(&parts.headers);
    let info = RequestInfo::parse(&parts.method, parts.uri.path(), parts.uri.query());
    let trace = RequestTrace::begin(&state, &parts, &info, &audit_id);
    let response = match trace.context() {
        None => respond(state, parts, body, info, audit_id).await,
        // Boxed, so that a trace does not enlarge the future of the requests without one.
        Some(context) => {
            let response = Box::pin(respond(state, parts, body, info, audit_id));
            with_context(Some(context), response).await
        }
    };
    trace.with_response(response)
}

/// Returns the response to a request.
async fn respond(
    state: Arc<HttpState>,
    mut parts: Parts,
    body: Body,
    info: Result<RequestInfo, InvalidPath>,
    audit_id: String,
) -> Response {
    // Retains the annotations of authentication, if there are any.
    parts.extensions.get_or_insert_default::<AuditAnnotations>();
    let monitored = RequestMonitor::begin(&state, &parts, &info);
    let mut recorded = RequestAudit::begin(&state, &mut parts, &info, &audit_id);
    let warnings = Warnings::default();
    let received = match &mut recorded {
        Some(recorded) => recorded.record_received().await,
        None => Ok(()),
    };
    let authorized = async {
        received.map_err(|error| HttpError::Internal(error.to_string()))?;
        let authorizer = &**state.registry.authorizer();
        let span = ChildSpan::start(|| ("authorization".into(), Vec::new()));
        span.run(authorize(authorizer, &mut parts, &info)).await
    };
    let authorized = AssertUnwindSafe(authorized).catch_unwind().await;
    let flow = match &authorized {
        Ok(Ok(())) => classify(&state, &mut parts, &info),
        _ => None,
    };
    let parts = Arc::new(parts);
    let result = match authorized {
        Ok(Ok(())) => {
            let response = dispatch(&state, &parts, info, body, &warnings);
            AssertUnwindSafe(response).catch_unwind().await
        }
        Ok(Err(denied)) => Ok(Err(denied)),
        Err(panic) => Err(panic),
    };
    let (method, uri) = (&parts.method, &parts.uri);
    // The impersonated user, if any.
    let user = parts.extensions.get::<Arc<UserInfo>>();
    if let (Some(recorded), Some(user)) = (&mut recorded, user) {
        recorded.set_user(user);
    }
    let user = user.map_or("", |user| &user.name);
    let user_agent = parts.headers.get(USER_AGENT);
    let result = result.unwrap_or_else(|panic| {
        let detail = panic_message(&*panic);
        tracing::error!(audit_id, user, %method, %uri, detail, "request panicked");
        if let Some(recorded) = &mut recorded {
            recorded.set_panic(detail);
        }
        state.config.metrics.tasks().count_panic("request");
        Err(panic_error())
    });
    let mut response = result.unwrap_or_else(|error| {
        let status = error.status();
        // 501 is expected: subresources that need a kubelet, such as `log`, are not served.
        let is_server_failure = status.code >= 500 && status.code != 501;
        let suppressed = match is_server_failure {
            true => state.failed_requests.next(&status),
            false => None,
        };
        if let Some(suppressed) = suppressed {
            tracing::warn!(audit_id, user, %method, %uri, code = status.code, %error, suppressed, "request failed");
        } else {
            tracing::debug!(audit_id, user, %method, %uri, code = status.code, %error, "request rejected");
        }
        // An invalid Accept header is an error of its own; its client gets JSON.
        let media = status_media(accept_header(&parts).unwrap_or_default().as_deref());
        let pretty = is_pretty(uri.query(), user_agent);
        status_response(&status, media, pretty, &state.protobuf)
    });
    audit::log(&parts, &audit_id, user);
    set_common_headers(&mut response, &audit_id);
    warning::add_headers(&mut response, &warnings);
    if let Some(flow) = &flow {
        in_flight::add_headers(&mut response, flow);
    }
    if method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    let response = match recorded {
        Some(recorded) => recorded.with_response(response).await,
        None => response,
    };
    monitored.with_response(response)
}

/// Returns the flow of an allowed request, which is then also in its extensions; `None` without flow control, and for probes
/// and scrapes, which are never limited.
fn classify(
    state: &HttpState,
    parts: &mut Parts,
    info: &Result<RequestInfo, InvalidPath>,
) -> Option<Classification> {
    let info = info.as_ref().ok()?;
    if let RequestInfo::NonResource(segments) = info {
        let first = segments.first().map(String::as_str);
        if first == Some("metrics") || first.is_some_and(|s| Endpoint::from_path(s).is_some()) {
            return None;
        }
    }
    let flow = state.in_flight.classify(parts, info)?;
    parts.extensions.insert(flow.clone());
    Some(flow)
}

async fn dispatch(
    state: &Arc<HttpState>,
    parts: &Arc<Parts>,
    info: Result<RequestInfo, InvalidPath>,
    body: Body,
    warnings: &Warnings,
) -> Result<Response, HttpError> {
    match info? {
        // Boxed, so that these rare requests do not enlarge the future of every request.
        RequestInfo::NonResource(segments) => {
            Box::pin(dispatch_non_resource(state, parts, &segments, body)).await
        }
        RequestInfo::Resource(request) => {
            let call = Call::new(state, parts, request.clone(), warnings.clone())?;
            let limit = match call.verb() {
                Verb::Watch => state.config.request_timeout,
                _ => call.time_limit()?,
            };
            let objects = ObjectRequest {
                state: Arc::clone(state),
                parts: Arc::clone(parts),
                request,
                body: Arc::new(call.body(body, limit)),
                warnings: warnings.clone(),
            };
            match call.verb() {
                // A watch is limited by its own timeout and the cache's, not by the request
                // timeout. Its seat is free again when it is open.
                Verb::Watch => {
                    let _seat = state.in_flight.watch(call.flow().as_ref(), limit).await?;
                    // After the seat, as of a list.
                    let _memory = call.reserve_memory()?;
                    objects.serve(call).await
                }
                verb if verb.is_write() => run_write(objects, call, limit).await,
                Verb::List => run_list(objects, call, limit).await,
                _ => run_read(state, call.flow(), limit, objects.serve(call)).await,
            }
        }
    }
}

/// Serves a non-resource request.
async fn dispatch_non_resource(
    state: &Arc<HttpState>,
    parts: &Arc<Parts>,
    segments: &[String],
    body: Body,
) -> Result<Response, HttpError> {
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    if let Some(endpoint) = segments.first().and_then(|s| Endpoint::from_path(s)) {
        // Probes are exempt from the limits of requests in flight.
        return health::respond(state, parts, endpoint, &segments[1..]).await;
    }
    if segments == ["metrics"] {
        // Scrapes are exempt too: they report the number of requests in flight.
        return metrics::scrape(state, parts).await;
    }
    if segments == backup::PATH {
        return backup::serve(state, parts).await;
    }
    if let Some(name) = profiles::name(&segments) {
        // The limits of requests in flight do not apply, as upstream, so that an overloaded server can be profiled. Only
        // one profile is recorded at a time.
        return profiles::serve(state, parts, name).await;
    }
    if segments == console_link::PATH {
        return console_link::create(state, parts);
    }
    let classification = parts.extensions.get::<Classification>().cloned();
    let flow = classification.map(|classification| Flow {
        classification,
        work: Work::SINGLE,
    });
    let limit = state.config.request_timeout;
    if log_level::is_path(&segments) {
        let user = parts.extensions.get::<Arc<UserInfo>>();
        let user = user.map_or("", |user| user.name.as_str());
        let audited = parts.extensions.get::<ReceivedRequest>().cloned();
        let body = RequestBody::new(body, None, user, 0, audited, flow.clone(), limit);
        let response = log_level::serve(state, parts, &body);
        if parts.method == Method::PUT {
            // It acquires a permit of the limit of writes when it has the body.
            let response = tokio::time::timeout(limit, response).await;
            return response.map_err(|_| HttpError::Timeout(limit))?;
        }
        return run_read(state, flow, limit, response).await;
    }
    let response = route::document(state, parts, &segments);
    run_read(state, flow, limit, response).await
}

/// A request about objects, which may be repeated.
struct ObjectRequest {
    state: Arc<HttpState>,
    parts: Arc<Parts>,
    request: ResourceRequest,
    body: Arc<RequestBody>,
    warnings: Warnings,
}

impl ObjectRequest {
    /// Serves the request; see [`Self::serve_with_retry`]. Boxed, because enclosing futures move it.
    fn serve(self, call: Call) -> BoxFuture<'static, Result<Response, HttpError>> {
        self.serve_with_retry(call).boxed()
    }

    /// Serves the request. If the resource's definition changes meanwhile (a CRD update replaces its cache), the
    /// request is repeated with the new definition.
    async fn serve_with_retry(self, mut call: Call) -> Result<Response, HttpError> {
        // The old definition may still be registered just after its cache has stopped: retry it once.
        let mut unchanged = 0;
        loop {
            let span = verb_span(&self.parts, &self.request, call.verb());
            let response = span.run(verbs::run(&call, &self.body)).await;
            let Err(HttpError::Api(ApiError::NotServed | ApiError::Read(ReadError::Stopped))) =
                response
            else {
                return response;
            };
            // Warnings of the old definition no longer apply.
            self.warnings.clear();
            let (request, warnings) = (self.request.clone(), self.warnings.clone());
            let now = Call::new(&self.state, &self.parts, request, warnings)?;
            unchanged += usize::from(Arc::ptr_eq(now.resource(), call.resource()));
            if unchanged > 1 {
                return response;
            }
            call = now;
        }
    }
}

/// Runs a read with a permit of the limit of reads in flight and within the time limit, which includes the wait for it; the permit is released when
/// the response has been sent.
async fn run_read(
    state: &HttpState,
    flow: Option<Flow>,
    limit: Duration,
    response: impl Future<Output = Result<Response, HttpError>>,
) -> Result<Response, HttpError> {
    let deadline = Instant::now() + limit;
    let permit = state.in_flight.read(flow.as_ref(), limit).await?;
    let response = tokio::time::timeout_at(deadline, response).await;
    let response = response.map_err(|_| HttpError::Timeout(limit))??;
    Ok(with_permit(response, permit, deadline))
}

/// Runs a list as [`run_read`] does, with a reservation of its memory until the response has been sent.
async fn run_list(
    request: ObjectRequest,
    call: Call,
    limit: Duration,
) -> Result<Response, HttpError> {
    let deadline = Instant::now() + limit;
    let state = Arc::clone(&request.state);
    state.list_clients.count(&request.parts);
    let permit = state.in_flight.read(call.flow().as_ref(), limit).await?;
    // Lists that wait for a seat need no memory: with their reservations, those of one user made the server refuse the
    // lists of all others.
    let memory = call.reserve_memory()?;
    let response = tokio::time::timeout_at(deadline, request.serve(call)).await;
    let response = response.map_err(|_| HttpError::Timeout(limit))??;
    let response = with_permit(response, permit, deadline);
    Ok(tracked(&state, response, memory))
}

/// Runs a write within the time limit. It acquires its permit of the limit of writes in flight when its body is there.
async fn run_write(
    request: ObjectRequest,
    call: Call,
    limit: Duration,
) -> Result<Response, HttpError> {
    let deadline = Instant::now() + limit;
    let (state, body) = (Arc::clone(&request.state), Arc::clone(&request.body));
    let response = run_with_body(&state, &body, request.serve(call));
    let response = tokio::time::timeout_at(deadline, response).await;
    let response = response.map_err(|_| HttpError::Timeout(limit))??;
    Ok(match body.take_in_flight_permit() {
        Some(permit) => with_permit(response, permit, deadline),
        None => response,
    })
}

/// Runs `response` in this task until `body` has been read. If that is large, the rest runs on threads for blocking
/// work: decoding, defaults and validation of a large object take too long for an async worker.
async fn run_with_body(
    state: &HttpState,
    body: &RequestBody,
    mut response: BoxFuture<'static, Result<Response, HttpError>>,
) -> Result<Response, HttpError> {
    let is_large = body.is_large();
    let ended = poll_fn(|cx| match response.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if is_large.load(Ordering::SeqCst) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    match ended.await {
        Some(output) => output,
        None => {
            let processors = &state.body_limits.processors;
            let tasks = &state.config.connections;
            // The task on the other thread does not inherit the trace context.
            let response = Box::pin(with_current_context(response));
            tasks
                .run_on_blocking_threads("large-request", processors, response)
                .await
        }
    }
}

/// Returns the response of a list with its reservation of memory. It is aborted if its client does not read and memory is scarce.
fn tracked(
    state: &HttpState,
    mut response: Response,
    memory: Option<MemoryReservation>,
) -> Response {
    let config = &state.config;
    let tracked = config.responses.add(&config.memory);
    if let Some(deadline) = response.extensions_mut().get_mut::<SendDeadline>() {
        deadline.abort = Some(tracked.abort_handle());
    }
    response.map(|body| tracked.track(GuardedBody::wrap(body, memory)))
}

/// Returns the response with its permit: a request counts as in flight until its response has been sent.
fn with_permit(response: Response, permit: InFlightPermit, deadline: Instant) -> Response {
    let mut response = response.map(|body| GuardedBody::wrap(body, permit));
    response
        .extensions_mut()
        .insert(SendDeadline::from(deadline));
    response
}
