//! `RequestAudit`: the audit events of one request. It begins before impersonation and authorization, and lives in the body of the
//! response: the last event is recorded when the response has been sent or dropped; if a backend blocks, before its end is
//! sent.

mod attributes;
mod audited_body;
mod audited_request;
mod last_event;
mod rejection;

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use axum::http::request::Parts;
use axum::response::Response;
use jiff::Timestamp;

pub use attributes::ClientAddress;
use attributes::{addresses, attributes as attributes_of};
use audited_body::AuditedBody;
use audited_request::{AuditedRequest, RecordedResponse};
use last_event::LastEvent;
pub use rejection::audited_error_response;

use crate::audit;
use crate::request::received_request::ReceivedRequest;
use crate::request::request_info::{InvalidPath, RequestInfo};
use crate::state::HttpState;
use watchet_api::{Status, UserInfo};
use watchet_audit::NotWritten;
use watchet_audit::policy::{Level, Stage};

/// An extension of a response whose body contains a credential. The audit log records such a body at no level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SecretBody;

/// Records the events of a request; the last one when dropped, unless it was recorded before.
#[derive(Debug)]
pub(crate) struct RequestAudit(LastEvent);

impl RequestAudit {
    /// Evaluates the policy; `None` if the request is not recorded.
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
        let attributes = attributes_of(&parts.uri, &method, resource, Some(&user));
        let config = auditor.evaluate(&attributes);
        if config.level == Level::None {
            return None;
        }
        let request = ReceivedRequest::default();
        parts.extensions.insert(request.clone());
        if config.level == Level::RequestResponse {
            // The body is recorded as it is sent, so it must not be compressed.
            parts.headers.remove(ACCEPT_ENCODING);
        }
        let request = AuditedRequest {
            tasks: state.config.connections.clone(),
            processors: Arc::clone(&state.body_limits.processors),
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
        Some(Self(LastEvent::of(request)))
    }

    /// Records that the request has arrived.
    ///
    /// # Errors
    /// The event was not written and the mode is `blocking-strict`: the request is to be rejected. It has no other events.
    pub(crate) async fn record_received(&mut self) -> Result<(), NotWritten> {
        let Some(request) = self.0.request() else {
            return Ok(());
        };
        let Some(delivery) = request.record(Stage::RequestReceived) else {
            return Ok(());
        };
        let written = delivery.complete().await;
        if written.is_err() {
            request.auditor.count_rejected();
            self.0.cancel();
        }
        written
    }

    /// Sets the user that the request acts as.
    pub(crate) fn set_user(&mut self, user: &Arc<UserInfo>) {
        if let Some(request) = self.0.request()
            && !Arc::ptr_eq(user, &request.user)
        {
            request.impersonated = Some(Arc::clone(user));
        }
    }

    /// Records that the request has panicked, instead of its end.
    pub(crate) fn set_panic(&mut self, detail: &str) {
        if let Some(request) = self.0.request() {
            request.panic = Some(detail.to_owned());
        }
    }

    /// Moves into the body of `response`, and records the head of a long-running one.
    pub(crate) async fn with_response(mut self, response: Response) -> Response {
        let Some(request) = self.0.request() else {
            return response;
        };
        let is_secret = response.extensions().get::<SecretBody>().is_some();
        let is_recorded = request.records_response() && !is_secret;
        request.response = Some(RecordedResponse {
            code: response.status().as_u16(),
            status: response.extensions().get::<Arc<Status>>().cloned(),
            media_type: response.headers().get(CONTENT_TYPE).cloned(),
            body: is_recorded.then(Vec::new),
        });
        let is_blocking = request.auditor.is_blocking();
        if request.is_long_running()
            && let Some(delivery) = request.record(Stage::ResponseStarted)
        {
            // Failures are logged and counted.
            let _counted = delivery.complete().await;
        }
        if is_blocking && response.body().is_end_stream() {
            // The server does not poll an empty body.
            if let Some(recorded) = self.0.finish() {
                recorded.await;
            }
            return response;
        }
        response.map(|inner| Body::new(AuditedBody::new(inner, self.0, is_blocking)))
    }
}
