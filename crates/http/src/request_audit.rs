//! `RequestAudit`: the audit events of one request. It begins before impersonation and authorization, and lives in the body of the
//! response: the last event is recorded when the response has been sent or dropped.

use std::borrow::Cow;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, Uri};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::audit;
use crate::protobuf::Schema;
use crate::request::body;
use crate::request::request_info::{InvalidPath, RequestInfo, ResourceRequest, Verb};
use crate::response::headers::AUDIT_ID;
use crate::response::status::error_response;
use crate::state::HttpState;
use watchet_api::{AuditAnnotations, Status, UserInfo};
use watchet_audit::policy::{AuditConfig, Level, RequestAttributes, ResourceAttributes, Stage};
use watchet_audit::{Auditor, Event, ObjectReference, ResponseStatus, source_ips};

/// The maximum size of a recorded response in bytes; the event of a larger one has no object and the annotation
/// [`TRUNCATED`].
const RESPONSE_BYTES_MAX: usize = 10 << 20;

/// The annotation of an event without its object, as upstream's.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The subresources whose requests are long-running, as upstream.
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

/// The address of the client, an extension of requests.
#[derive(Debug, Clone, Copy)]
pub struct ClientAddress(pub IpAddr);

/// The body of a request, an extension of requests that are audited.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceivedRequest(Arc<OnceLock<Bytes>>);

impl ReceivedRequest {
    /// Stores the body; only the first call has an effect.
    pub(crate) fn set(&self, body: &Bytes) {
        self.0.get_or_init(|| body.clone());
    }
}

/// Records the last event of its request when dropped.
#[derive(Debug)]
pub(crate) struct RequestAudit {
    auditor: Arc<Auditor>,
    config: AuditConfig,
    protobuf: Arc<Schema>,
    audit_id: String,
    received: Timestamp,
    uri: Uri,
    method: String,
    resource: Option<ResourceRequest>,
    user: Arc<UserInfo>,
    impersonated: Option<Arc<UserInfo>>,
    source_ips: Vec<IpAddr>,
    user_agent: Option<HeaderValue>,
    annotations: AuditAnnotations,
    request_type: Option<HeaderValue>,
    request: ReceivedRequest,
    response: Option<RecordedResponse>,
    panic: Option<String>,
}

/// What is recorded of a response.
#[derive(Debug)]
struct RecordedResponse {
    code: u16,
    status: Option<Arc<Status>>,
    media_type: Option<HeaderValue>,
    /// `None` unless the level requires it, and if it is too large.
    body: Option<Vec<u8>>,
}

impl RequestAudit {
    /// Evaluates the policy and records that the request has arrived; `None` if the request is not recorded.
    pub(crate) fn begin(
        state: &HttpState,
        parts: &mut Parts,
        info: &Result<RequestInfo, InvalidPath>,
        audit_id: &str,
    ) -> Option<Self> {
        let auditor = state.config.auditor.as_ref()?;
        let resource = match info {
            Ok(RequestInfo::Resource(request)) => Some(request),
            Ok(RequestInfo::NonResource(_)) | Err(_) => None,
        };
        let user = parts.extensions.get::<Arc<UserInfo>>();
        let user = user.cloned().unwrap_or_default();
        let method = parts.method.as_str().to_ascii_lowercase();
        let config = auditor.evaluate(&attributes(&parts.uri, &method, resource, Some(&user)));
        if config.level == Level::None {
            return None;
        }
        let request = ReceivedRequest::default();
        parts.extensions.insert(request.clone());
        if config.level == Level::RequestResponse {
            // The body is recorded as it is sent, so it must not be compressed.
            parts.headers.remove(ACCEPT_ENCODING);
        }
        let audit = Self {
            auditor: Arc::clone(auditor),
            config,
            protobuf: Arc::clone(&state.protobuf),
            audit_id: audit_id.to_owned(),
            received: Timestamp::now(),
            uri: parts.uri.clone(),
            method,
            resource: resource.cloned(),
            user,
            impersonated: None,
            source_ips: addresses(&parts.headers, parts.extensions.get()),
            user_agent: parts.headers.get(USER_AGENT).cloned(),
            annotations: audit::annotations(parts),
            request_type: parts.headers.get(CONTENT_TYPE).cloned(),
            request,
            response: None,
            panic: None,
        };
        audit.record(Stage::RequestReceived);
        Some(audit)
    }

    /// Sets the user that the request acts as.
    pub(crate) fn set_user(&mut self, user: &Arc<UserInfo>) {
        if !Arc::ptr_eq(user, &self.user) {
            self.impersonated = Some(Arc::clone(user));
        }
    }

    /// Records that the request has panicked, instead of its end.
    pub(crate) fn set_panic(&mut self, detail: &str) {
        self.panic = Some(detail.to_owned());
    }

    /// Moves into the body of `response`, and records the head of a long-running one.
    pub(crate) fn with_response(mut self, response: Response) -> Response {
        let records_body = self.config.level == Level::RequestResponse && !self.is_watch();
        self.response = Some(RecordedResponse {
            code: response.status().as_u16(),
            status: response.extensions().get::<Arc<Status>>().cloned(),
            media_type: response.headers().get(CONTENT_TYPE).cloned(),
            body: records_body.then(Vec::new),
        });
        if self.is_long_running() {
            self.record(Stage::ResponseStarted);
        }
        response.map(|inner| Body::new(AuditedBody { inner, audit: self }))
    }

    fn is_watch(&self) -> bool {
        let resource = self.resource.as_ref();
        resource.is_some_and(|request| request.verb == Some(Verb::Watch))
    }

    fn is_long_running(&self) -> bool {
        let subresource = self
            .resource
            .as_ref()
            .and_then(|r| r.subresource.as_deref());
        self.is_watch() || subresource.is_some_and(|name| LONG_RUNNING.contains(&name))
    }

    fn capture(&mut self, data: &[u8]) {
        let Some(body) = self.response.as_mut().and_then(|r| r.body.as_mut()) else {
            return;
        };
        if body.len() + data.len() <= RESPONSE_BYTES_MAX {
            body.extend_from_slice(data);
        } else if let Some(response) = &mut self.response {
            response.body = None;
            self.annotations.add(TRUNCATED, "true");
        }
    }

    fn record(&self, stage: Stage) {
        if self.config.omit_stages.contains(stage) {
            return;
        }
        let is_end = matches!(stage, Stage::ResponseComplete | Stage::Panic);
        let body = self
            .request
            .0
            .get()
            .filter(|body| is_end && !body.is_empty());
        let attributes = attributes(&self.uri, &self.method, self.resource.as_ref(), None);
        let metadata = body.and_then(|body| self.metadata(body));
        let with_request = body.filter(|_| self.config.level >= Level::Request);
        let request_object = with_request.and_then(|body| self.decoded(&self.request_type, body));
        let response_body = self
            .response
            .as_ref()
            .and_then(|response| response.body.as_ref());
        let response_body = response_body.filter(|body| is_end && !body.is_empty());
        let media_type = self.response.as_ref().and_then(|r| r.media_type.clone());
        let response_object = response_body.and_then(|body| self.decoded(&media_type, body));
        let failure = self.failure(stage);
        let response = match (&failure, &self.response) {
            (Some(failure), _) => Some(ResponseStatus {
                code: failure.code,
                status: Some(failure),
            }),
            (None, Some(response)) => Some(ResponseStatus {
                code: response.code,
                status: response.status.as_deref(),
            }),
            (None, None) => None,
        };
        self.auditor.record(&Event {
            level: self.config.level,
            audit_id: &self.audit_id,
            stage,
            request_uri: request_uri(&self.uri),
            verb: attributes.verb,
            user: &self.user,
            impersonated_user: self.impersonated.as_deref(),
            source_ips: &self.source_ips,
            user_agent: text(self.user_agent.as_ref()),
            object: attributes.resource.map(|r| reference(&r, metadata)),
            response,
            request_object: request_object.as_ref(),
            response_object: response_object.as_ref(),
            received: self.received,
            reached: match stage {
                Stage::RequestReceived => self.received,
                _ => Timestamp::now(),
            },
            annotations: &self.annotations.all(),
        });
    }

    /// Returns the status of a request that has no response of its own.
    fn failure(&self, stage: Stage) -> Option<Status> {
        match (stage, &self.panic, &self.response) {
            (Stage::Panic, Some(detail), _) => {
                let message = format!("the request panicked: {detail}");
                Some(Status::failure(500, "InternalError", message))
            }
            (Stage::ResponseComplete, _, None) => {
                let message = "the client closed the connection before the response";
                Some(Status::failure(499, "ClientClosedRequest", message))
            }
            _ => None,
        }
    }

    /// Returns the metadata of the object in the body of a create or an update.
    fn metadata(&self, body: &Bytes) -> Option<ObjectMetadata> {
        let verb = self.resource.as_ref()?.verb;
        if !matches!(verb, Some(Verb::Create | Verb::Update)) {
            return None;
        }
        let is_json = body::is_json(self.request_type.as_ref().and_then(|t| t.to_str().ok()));
        let object = match is_json {
            true => serde_json::from_slice::<ObjectWithMetadata>(body).ok(),
            false => {
                let object = self.decoded(&self.request_type, body)?;
                ObjectWithMetadata::deserialize(object).ok()
            }
        };
        Some(object?.metadata)
    }

    /// Returns the object in a body of any supported encoding; a body that is none has been rejected.
    fn decoded(&self, media_type: &Option<HeaderValue>, body: &[u8]) -> Option<Value> {
        let media_type = media_type
            .as_ref()
            .and_then(|media_type| media_type.to_str().ok());
        let object = match media_type {
            Some(patch) if patch.contains("patch+json") => serde_json::from_slice(body).ok(),
            Some(patch) if patch.contains("apply-patch+yaml") => {
                body::configuration(body).ok().map(|(object, _)| object)
            }
            _ => body::object(None, &self.protobuf, media_type, body)
                .ok()
                .map(|decoded| decoded.value),
        };
        let mut object = object?;
        if self.config.omit_managed_fields {
            remove_managed_fields(&mut object);
        }
        Some(object)
    }
}

impl Drop for RequestAudit {
    fn drop(&mut self) {
        self.record(match self.panic {
            Some(_) => Stage::Panic,
            None => Stage::ResponseComplete,
        });
    }
}

/// Records that a layer above the router rejects a request (401, 403), and returns the response. As upstream, the event
/// has the stage ResponseStarted and no user.
pub fn audited_error_response<B>(
    auditor: Option<&Arc<Auditor>>,
    request: &Request<B>,
    status: &Status,
) -> Response {
    let response = error_response(request.headers(), status);
    let Some(auditor) = auditor else {
        return response;
    };
    let uri = request.uri();
    let method = request.method().as_str().to_ascii_lowercase();
    let info = RequestInfo::parse(request.method(), uri.path(), uri.query());
    let resource = match &info {
        Ok(RequestInfo::Resource(resource)) => Some(resource),
        Ok(RequestInfo::NonResource(_)) | Err(_) => None,
    };
    let attributes = attributes(uri, &method, resource, None);
    let config = auditor.evaluate(&attributes);
    if config.level == Level::None || config.omit_stages.contains(Stage::ResponseStarted) {
        return response;
    }
    let now = Timestamp::now();
    auditor.record(&Event {
        level: config.level,
        audit_id: text(response.headers().get(AUDIT_ID)),
        stage: Stage::ResponseStarted,
        request_uri: request_uri(uri),
        verb: attributes.verb,
        user: &UserInfo::default(),
        impersonated_user: None,
        source_ips: &addresses(request.headers(), request.extensions().get()),
        user_agent: text(request.headers().get(USER_AGENT)),
        object: attributes.resource.map(|r| reference(&r, None)),
        response: Some(ResponseStatus {
            code: status.code,
            status: Some(status),
        }),
        request_object: None,
        response_object: None,
        received: now,
        reached: now,
        annotations: &std::collections::BTreeMap::new(),
    });
    response
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ObjectWithMetadata {
    metadata: ObjectMetadata,
}

/// The members of an object's metadata that an event has.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectMetadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
}

fn attributes<'a>(
    uri: &'a Uri,
    method: &'a str,
    resource: Option<&'a ResourceRequest>,
    user: Option<&'a UserInfo>,
) -> RequestAttributes<'a> {
    fn part(part: &Option<String>) -> &str {
        part.as_deref().unwrap_or_default()
    }
    RequestAttributes {
        user,
        verb: match resource {
            Some(request) => request.verb.map_or("", Verb::as_str),
            None => method,
        },
        path: uri.path(),
        resource: resource.map(|request| ResourceAttributes {
            group: &request.group,
            version: &request.version,
            resource: &request.resource,
            subresource: part(&request.subresource),
            namespace: match &*request.resource {
                // The namespace of a namespace is itself, as upstream.
                "namespaces" if request.namespace.is_none() => part(&request.name),
                _ => part(&request.namespace),
            },
            name: part(&request.name),
        }),
    }
}

/// Returns the reference to an object; what the path does not have comes from `metadata`.
fn reference<'a>(
    requested: &ResourceAttributes<'a>,
    metadata: Option<ObjectMetadata>,
) -> ObjectReference<'a> {
    let metadata = metadata.unwrap_or_default();
    let or = |text: &'a str, other: String| match text {
        "" => Cow::Owned(other),
        text => Cow::Borrowed(text),
    };
    ObjectReference {
        resource: requested.resource.into(),
        namespace: or(requested.namespace, metadata.namespace),
        name: or(requested.name, metadata.name),
        uid: metadata.uid.into(),
        api_group: requested.group.into(),
        api_version: requested.version.into(),
        resource_version: metadata.resource_version.into(),
        subresource: requested.subresource.into(),
    }
}

fn addresses(headers: &HeaderMap, client: Option<&ClientAddress>) -> Vec<IpAddr> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let client = client.map(|client| client.0);
    source_ips(header("x-forwarded-for"), header("x-real-ip"), client)
}

fn request_uri(uri: &Uri) -> Cow<'_, str> {
    uri.path_and_query()
        .map_or("/", |path| path.as_str())
        .into()
}

fn text(header: Option<&HeaderValue>) -> &str {
    let text = header.and_then(|value| value.to_str().ok());
    text.unwrap_or_default()
}

/// Removes the managed fields of an object, of the items of a list and of the objects of a Table.
fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for (list, member) in [("items", None), ("rows", Some("object"))] {
        let items = object.get_mut(list).and_then(Value::as_array_mut);
        for item in items.into_iter().flatten() {
            let item = match member {
                Some(member) => item.get_mut(member),
                None => Some(item),
            };
            let metadata = item.and_then(|item| item.get_mut("metadata"));
            if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
    }
}

/// A body that records what is sent.
#[derive(Debug)]
struct AuditedBody {
    inner: Body,
    audit: RequestAudit,
}

impl http_body::Body for AuditedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.audit.capture(data);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
