//! `/debug/list_clients`: the clients that list, with the number of their lists.

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde_json::json;

use crate::endpoints::method::check_is_read;
use crate::error::HttpError;
use crate::list_clients::Client;
use crate::response::document::json_response;
use crate::state::HttpState;

/// The segments of the path.
pub(crate) const PATH: [&str; 2] = ["debug", "list_clients"];

/// Responds with the clients.
///
/// # Errors
/// 405 for a method other than GET and HEAD.
pub(crate) fn respond(state: &HttpState, parts: &Parts) -> Result<Response, HttpError> {
    check_is_read(parts)?;
    let all = state.list_clients.all().into_iter();
    let all = all.map(|(Client { user, user_agent }, lists)| {
        json!({ "user": user, "userAgent": user_agent, "lists": lists })
    });
    let document = json!({ "clients": all.collect::<Vec<_>>() });
    Ok(json_response(StatusCode::OK, &document))
}
