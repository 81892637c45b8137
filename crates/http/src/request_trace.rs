//! `RequestTrace`: the span of a request, with the names and attributes of
//! [upstream](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/endpoints/filters/traces.go).
//! Also starts the span of its verb.

use std::borrow::Cow;
use std::sync::Arc;

use axum::http::header::{ACCEPT, HOST, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Version};
use axum::response::Response;
use watchet_api::{SYSTEM_MASTERS, UserInfo};
use watchet_telemetry::{
    ChildSpan, Context, IncomingRequest, KeyValue, ServerSpan, extract, text_attribute,
};

use crate::request::request_info::{InvalidPath, RequestInfo, ResourceRequest, Verb};
use crate::request_audit::ClientAddress;
use crate::request_monitor::scope_of;
use crate::response::guarded_body::hold_until_end;
use crate::state::HttpState;

/// Besides `system:masters`, the group of users whose requests continue the trace of the client, as upstream.
const MONITORING: &str = "system:monitoring";

/// The trace of a request.
#[derive(Debug)]
pub(crate) enum RequestTrace {
    /// Without `--tracing-config-file`: the trace context that the server received and propagates; `None` if the request has
    /// none.
    Propagated(Option<Context>),
    /// With `--tracing-config-file`: the span of the request.
    Traced(ServerSpan),
}

impl RequestTrace {
    /// Extracts the trace context from the headers of a request, and starts the span of the request if tracing is configured.
    pub(crate) fn begin(
        state: &HttpState,
        parts: &Parts,
        info: &Result<RequestInfo, InvalidPath>,
        audit_id: &str,
    ) -> Self {
        let received = extract(&parts.headers);
        let Some(tracer) = &state.config.tracer else {
            return Self::Propagated(received);
        };
        let request = IncomingRequest {
            received,
            is_trusted: is_trusted(parts),
            audit_id,
        };
        let describe = || (span_name(parts, info), attributes(parts, info));
        Self::Traced(tracer.start_server_span(request, describe))
    }

    /// Returns the trace context in which the request is served; `None` if there is none.
    pub(crate) fn context(&self) -> Option<Context> {
        match self {
            Self::Propagated(context) => context.clone(),
            Self::Traced(span) => Some(span.context().clone()),
        }
    }

    /// Moves the span into the body of `response`, so that it ends when the body has been sent or dropped, as upstream. The span
    /// of a watch therefore ends with the watch, also with that over a WebSocket.
    pub(crate) fn with_response(self, response: Response) -> Response {
        let Self::Traced(span) = self else {
            return response;
        };
        span.set_response(response.status().as_u16());
        hold_until_end(response, span)
    }
}

/// Starts the span of the verb of a resource request, with upstream's name. A watch has no such span.
pub(crate) fn verb_span(parts: &Parts, request: &ResourceRequest, verb: Verb) -> ChildSpan {
    let name = match verb {
        Verb::Get => "Get",
        Verb::List => "List",
        Verb::Create => "Create",
        Verb::Update => "Update",
        Verb::Patch => "Patch",
        Verb::Delete | Verb::DeleteCollection => "Delete",
        Verb::Watch => return ChildSpan::default(),
    };
    ChildSpan::start(|| {
        let named = request.name.is_some() || verb == Verb::Create;
        let mut attributes = vec![
            text_attribute("accept", header(&parts.headers, &ACCEPT)),
            KeyValue::new("protocol", protocol(parts.version)),
            text_attribute("resource", &*request.resource),
            KeyValue::new(
                "scope",
                scope_of(named, request.namespace.is_some()).as_str(),
            ),
            text_attribute("url", parts.uri.path()),
            text_attribute("user-agent", header(&parts.headers, &USER_AGENT)),
            KeyValue::new("verb", verb.as_str()),
        ];
        if let Some(client) = parts.extensions.get::<ClientAddress>() {
            attributes.push(text_attribute("client", client.0.ip().to_string()));
        }
        (name.into(), attributes)
    })
}

/// Returns true if the user may continue the trace of the client, and so decide whether the server exports spans.
fn is_trusted(parts: &Parts) -> bool {
    let user = parts.extensions.get::<Arc<UserInfo>>();
    user.is_some_and(|user| {
        let mut groups = user.groups.iter();
        groups.any(|group| group == SYSTEM_MASTERS || group == MONITORING)
    })
}

/// Returns the method and, for a resource request, the route.
fn span_name(parts: &Parts, info: &Result<RequestInfo, InvalidPath>) -> Cow<'static, str> {
    let method = parts.method.as_str();
    match info {
        Ok(RequestInfo::Resource(request)) => format!("{method} {}", route(request)).into(),
        _ => method.to_owned().into(),
    }
}

/// Returns the path with placeholders for the namespace and the name.
fn route(request: &ResourceRequest) -> String {
    let mut route = match &*request.group {
        "" => "/api".to_owned(),
        group => format!("/apis/{group}"),
    };
    route = format!("{route}/{}", request.version);
    if request.namespace.is_some() {
        route += "/namespaces/{:namespace}";
    }
    route = format!("{route}/{}", request.resource);
    if request.name.is_some() {
        route += "/{:name}";
    }
    match &request.subresource {
        Some(subresource) => format!("{route}/{subresource}"),
        None => route,
    }
}

/// Returns the attributes of OpenTelemetry's conventions for HTTP, and upstream's `http.target`.
fn attributes(parts: &Parts, info: &Result<RequestInfo, InvalidPath>) -> Vec<KeyValue> {
    let target = parts
        .uri
        .path_and_query()
        .map_or("", |target| target.as_str());
    let version = match parts.version {
        Version::HTTP_2 => "2",
        _ => "1.1",
    };
    let mut attributes = vec![
        text_attribute("http.request.method", parts.method.as_str()),
        text_attribute("http.target", target),
        text_attribute("url.path", parts.uri.path()),
        KeyValue::new("network.protocol.version", version),
    ];
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let host = authority.unwrap_or_else(|| header(&parts.headers, &HOST));
    if !host.is_empty() {
        attributes.push(text_attribute("server.address", host));
    }
    let user_agent = header(&parts.headers, &USER_AGENT);
    if !user_agent.is_empty() {
        attributes.push(text_attribute("user_agent.original", user_agent));
    }
    if let Some(client) = parts.extensions.get::<ClientAddress>() {
        let address = client.0.ip().to_string();
        attributes.push(text_attribute("network.peer.address", address));
        attributes.push(KeyValue::new(
            "network.peer.port",
            i64::from(client.0.port()),
        ));
    }
    if let Ok(RequestInfo::Resource(request)) = info {
        attributes.push(text_attribute("http.route", route(request)));
    }
    attributes
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}
