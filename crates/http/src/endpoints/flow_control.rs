//! `/debug/api_priority_and_fairness/`: tables of the levels, queues and requests of API Priority and Fairness.

use axum::http::request::Parts;
use axum::response::Response;

use crate::endpoints::method::check_is_read;
use crate::error::HttpError;
use crate::request::query::Query;
use crate::response::document::text_response;
use crate::response::headers::accepts_gzip;
use crate::state::HttpState;

/// Serves the table `name`.
///
/// # Errors
/// 404 if there is no such table, or flow control is not enabled; 405 for a method other than GET and HEAD.
pub(crate) fn dump(state: &HttpState, parts: &Parts, name: &str) -> Result<Response, HttpError> {
    let control = state.in_flight.flow_control();
    let control = control.ok_or(HttpError::NoSuchPath)?;
    let table = match name {
        "dump_priority_levels" => control.dump_priority_levels(),
        "dump_queues" => control.dump_queues(),
        "dump_requests" => {
            let query = Query::parse(parts.uri.query().unwrap_or_default())?;
            // Any value, as upstream.
            let with_details = query.text("includeRequestDetails").is_some();
            control.dump_requests(with_details)
        }
        _ => return Err(HttpError::NoSuchPath),
    };
    check_is_read(parts)?;
    let content_type = "text/plain; charset=utf-8";
    text_response(content_type, table, accepts_gzip(&parts.headers))
}
