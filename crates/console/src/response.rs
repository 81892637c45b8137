//! Responses without a body.

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;

/// Returns a response with this status and an empty body.
pub(crate) fn empty(code: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}
