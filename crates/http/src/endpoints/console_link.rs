//! `/console/link`: creates a one-time code, with which a browser logs in to the console as the user of the request.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use jiff::Timestamp;
use serde_json::json;

use crate::error::HttpError;
use crate::request_audit::SecretBody;
use crate::response::document::json_response;
use crate::state::HttpState;
use watchet_api::{SYSTEM_ANONYMOUS, UserInfo};
use watchet_auth::{Credential, SessionIdentity};

/// The segments of the path.
pub(crate) const PATH: [&str; 2] = ["console", "link"];

/// Responds with a new code. Its session is valid only as long as the credential of this request.
///
/// # Errors
/// 404 if there is no console or the user is anonymous, 400 with impersonation, 405 for a method other than POST.
pub(crate) fn create(state: &HttpState, parts: &Parts) -> Result<Response, HttpError> {
    let Some(sessions) = &state.config.console_sessions else {
        return Err(HttpError::NoSuchPath);
    };
    if parts.method != Method::POST {
        return Err(HttpError::MethodNotAllowed);
    }
    if parts.headers.contains_key("impersonate-user") {
        let problem =
            "a link to the console is for the user of the credential: omit Impersonate-User";
        return Err(HttpError::BadRequest(problem.to_owned()));
    }
    let user = parts.extensions.get::<Arc<UserInfo>>();
    let user = user.filter(|user| user.name != SYSTEM_ANONYMOUS);
    let user = Arc::clone(user.ok_or(HttpError::NoSuchPath)?);
    let credential = parts.extensions.get::<Credential>().cloned();
    let identity = SessionIdentity { user, credential };
    let code = sessions.new_code(identity, Timestamp::now().as_second());
    let mut response = json_response(StatusCode::CREATED, &json!({ "code": code }));
    response.extensions_mut().insert(SecretBody);
    Ok(response)
}
