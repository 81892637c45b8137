//! `audited_error_response`: responses of layers above the router.

use std::sync::Arc;

use axum::http::Request;
use axum::http::header::USER_AGENT;
use axum::response::Response;
use jiff::Timestamp;

use super::attributes::{addresses, attributes, reference, request_uri, text};
use crate::request::request_info::RequestInfo;
use crate::response::headers::AUDIT_ID;
use crate::response::status::error_response;
use watchet_api::{Status, UserInfo};
use watchet_audit::policy::{Level, Stage};
use watchet_audit::{Auditor, Event, ResponseStatus};

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
    // The response does not wait: the request has changed nothing.
    auditor.record_detached(&Event {
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
