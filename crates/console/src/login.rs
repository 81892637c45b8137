//! Login by a one-time code, and logout.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use crate::response::empty;
use watchet_auth::{ConsoleSessions, NewSession};

/// The path of the login, below the console's.
pub(crate) const LOGIN: &str = "login";
/// The path of the logout, below the console's.
pub(crate) const LOGOUT: &str = "logout";

/// The maximum length of the body in bytes.
const BODY_BYTES_MAX: usize = 1024;
/// The time limit for the body: clients without a credential must not occupy connections.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// The body of a login.
#[derive(Deserialize)]
struct Login {
    code: String,
}

/// Exchanges the code in the body for a session, and returns its token, its user and its end. The content type must be
/// JSON, which a page of another server cannot send.
pub(crate) async fn log_in(sessions: &ConsoleSessions, request: Request) -> Response {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    if content_type.map(HeaderValue::as_bytes) != Some(b"application/json") {
        return empty(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let body = to_bytes(request.into_body(), BODY_BYTES_MAX);
    let Ok(body) = timeout(BODY_TIME_MAX, body).await else {
        let mut response = empty(StatusCode::REQUEST_TIMEOUT);
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
        return response;
    };
    let login = body
        .ok()
        .and_then(|body| serde_json::from_slice(&body).ok());
    let Some(Login { code }) = login else {
        return empty(StatusCode::BAD_REQUEST);
    };
    match sessions.log_in(&code, Timestamp::now().as_second()) {
        Ok(session) => {
            tracing::info!(user = session.user.name, "console session started");
            session_response(&session)
        }
        Err(error) => {
            tracing::info!(reason = error.reason(), "console login rejected");
            empty(StatusCode::UNAUTHORIZED)
        }
    }
}

fn session_response(session: &NewSession) -> Response {
    let expires = Timestamp::from_second(session.expires).unwrap_or(Timestamp::MAX);
    let body = json!({
        "token": session.token,
        "user": session.user.name,
        "expires": expires.to_string(),
    });
    let mut response = Response::new(Body::from(body.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}

/// Ends the session whose token is in the header `Authorization`.
pub(crate) fn log_out(sessions: &ConsoleSessions, request: &Request) -> Response {
    let authorization = request.headers().get(header::AUTHORIZATION);
    let authorization = authorization.and_then(|value| value.to_str().ok());
    let token = authorization.and_then(|text| text.split_once(' '));
    // The scheme has no case (RFC 9110).
    let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    if let Some((_, token)) = token {
        sessions.log_out(token.trim_start());
    }
    empty(StatusCode::NO_CONTENT)
}
