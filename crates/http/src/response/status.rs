//! Responses with a `Status` as body.

use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use axum::response::Response;

use crate::request::accept::Media;
use crate::response::chunks::ChunkError;
use crate::response::document::{json_response, pretty_response};
use crate::response::headers::{audit_id, set_common_headers, set_header};
use crate::response::yaml::yaml;
use watchet_api::Status;
use watchet_protobuf::{Encoder, Schema};

/// Returns the response of a layer above the router that rejects a request with these headers (401,
/// 403).
pub fn error_response(request: &HeaderMap, status: &Status) -> Response {
    let mut response = json_status(status, false);
    set_common_headers(&mut response, &audit_id(request));
    response
}

/// Returns a response with `status` in the encoding that the client accepts for objects, and with the code of
/// `status`, 200 for a success.
pub(crate) fn status_response(
    status: &Status,
    media: Media,
    pretty: bool,
    schema: &Arc<Schema>,
) -> Response {
    let mut response = json_status(status, pretty);
    // For the audit log.
    response.extensions_mut().insert(Arc::new(status.clone()));
    let encoded = match media {
        Media::Json => return response,
        Media::Yaml => serde_json::to_value(status)
            .map_err(ChunkError::from)
            .and_then(|status| yaml(&status))
            .map(Body::from),
        Media::Protobuf => serde_json::to_vec(status)
            .map_err(ChunkError::from)
            .and_then(|json| Ok(Encoder::of_status(schema).encode_body(&json)?))
            .map(Body::from),
    };
    match encoded {
        Ok(body) => {
            let mut response = response.map(|_json| body);
            set_header(&mut response, CONTENT_TYPE, media.content_type());
            response
        }
        // A status can always be encoded; if not, JSON is the fallback.
        Err(error) => {
            tracing::error!(%error, "cannot encode a status");
            response
        }
    }
}

/// Returns a JSON response with `status`, indented if `pretty`.
fn json_status(status: &Status, pretty: bool) -> Response {
    let code = match status.code {
        0 => StatusCode::OK,
        code => StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let mut response = match pretty {
        true => pretty_response(code, status),
        false => json_response(code, status),
    };
    if let Some(details) = &status.details
        && details.retry_after_seconds > 0
    {
        let seconds = details.retry_after_seconds.to_string();
        set_header(&mut response, RETRY_AFTER, &seconds);
    }
    response
}
