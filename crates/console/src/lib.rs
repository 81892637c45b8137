//! The console: a program in the browser that shows watches, caches and objects of the server.
//!
//! The files in `assets/` are the program. They contain no data: the program reads everything from the Kubernetes API, with
//! the credential of its user. [`router`] serves the files to every client, and exchanges a one-time code for a session
//! ([`watchet_auth::ConsoleSessions`]).

mod assets;
mod login;
mod response;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderValue, Method, StatusCode, header};

use crate::response::empty;
use watchet_auth::ConsoleSessions;

/// The path below which the console is served.
pub const PATH: &str = "/console/";

/// The path at which an authenticated user requests a link. [`router`] does not serve it.
pub const LINK_PATH: &str = "/console/link";

/// What the fragment of a link begins with; the code follows. Browsers send no fragments to servers.
pub const LOGIN_FRAGMENT: &str = "#login=";

/// The Content-Security-Policy: files and requests of this server only, and no page may embed the console.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

/// Returns true if [`router`] serves the path.
pub fn is_console_path(path: &str) -> bool {
    (path.starts_with(PATH) && path != LINK_PATH) || format!("{path}/") == PATH
}

/// Returns the router of the files and of the login. Its requests need no credentials.
pub fn router(sessions: Arc<ConsoleSessions>) -> Router {
    Router::new().fallback(move |request: Request| respond(Arc::clone(&sessions), request))
}

async fn respond(sessions: Arc<ConsoleSessions>, request: Request) -> Response {
    let path = request.uri().path();
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let is_post = request.method() == Method::POST;
    let is_head = request.method() == Method::HEAD;
    let mut response = match path.strip_prefix(PATH) {
        None if is_read => redirect(),
        Some(login::LOGIN) if is_post => login::log_in(&sessions, request).await,
        Some(login::LOGOUT) if is_post => login::log_out(&sessions, &request),
        Some(login::LOGIN | login::LOGOUT) => empty(StatusCode::METHOD_NOT_ALLOWED),
        Some(name) if is_read => assets::respond(name, request.headers()),
        _ => empty(StatusCode::METHOD_NOT_ALLOWED),
    };
    if is_head {
        *response.body_mut() = Body::empty();
    }
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

fn redirect() -> Response {
    let mut response = empty(StatusCode::PERMANENT_REDIRECT);
    let location = HeaderValue::from_static(PATH);
    response.headers_mut().insert(header::LOCATION, location);
    response
}

#[cfg(test)]
mod tests;
