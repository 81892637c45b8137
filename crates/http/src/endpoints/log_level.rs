//! `/debug/flags/log-level`: reads and sets the log level while the server runs. `/debug/flags/v`, kube-apiserver's path, is an
//! alias. By default only administrators may use them.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;

use crate::error::HttpError;
use crate::request::request_body::RequestBody;
use crate::response::document::response;
use crate::state::HttpState;

/// The maximum number of characters of an invalid level in its error.
const LEVEL_CHARACTERS_MAX: usize = 100;

/// Returns true if these are the segments of one of the paths.
pub(crate) fn is_path(segments: &[&str]) -> bool {
    matches!(segments, ["debug", "flags", "log-level" | "v"])
}

/// Responds with the current level. A PUT first sets the level to the text of its body.
///
/// # Errors
/// 404 if the level cannot be changed, 400 for an invalid level, 405 for a method other than GET, HEAD and PUT; those of
/// reading the body.
pub(crate) async fn serve(
    state: &HttpState,
    parts: &Parts,
    body: &RequestBody,
) -> Result<Response, HttpError> {
    let log_level = state.config.log_level.as_ref();
    let log_level = log_level.ok_or(HttpError::NoSuchPath)?;
    match parts.method {
        Method::GET | Method::HEAD => {}
        Method::PUT => {
            let body = body.read(state).await?;
            let text = String::from_utf8_lossy(&body);
            let level = text.trim();
            let set = log_level.set(level);
            set.map_err(|problem| {
                let level: String = level.chars().take(LEVEL_CHARACTERS_MAX).collect();
                HttpError::BadRequest(format!("log level {level:?}: {problem}"))
            })?;
        }
        _ => return Err(HttpError::MethodNotAllowed),
    }
    let body = Body::from(log_level.get() + "\n");
    Ok(response(StatusCode::OK, "text/plain; charset=utf-8", body))
}
