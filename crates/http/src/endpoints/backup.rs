//! `/debug/storage/backup`: a backup of all stored objects, while the server runs. By default only
//! administrators may read it.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::StreamExt as _;

use crate::endpoints::method::check_is_read;
use crate::error::HttpError;
use crate::in_flight::Flow;
use crate::response::document::response;
use crate::response::guarded_body::GuardedBody;
use crate::state::HttpState;
use watchet_flowcontrol::{Classification, Work};

/// The segments of the path.
pub(crate) const PATH: [&str; 3] = ["debug", "storage", "backup"];

/// Responds with a backup, whose size is not known in advance. It occupies a seat until it has been sent, and has no
/// time limit: it ends early if the storage no longer has the history of its revision, or if the client does not read.
///
/// # Errors
/// 404 if the storage makes no backups, 405 for a method other than GET and HEAD, 429 if too many requests are in
/// flight.
pub(crate) async fn serve(state: &HttpState, parts: &Parts) -> Result<Response, HttpError> {
    check_is_read(parts)?;
    let Some(backup) = state.registry.storage_backup() else {
        return Err(HttpError::NoSuchPath);
    };
    let classification = parts.extensions.get::<Classification>().cloned();
    let flow = classification.map(|classification| Flow {
        classification,
        work: Work::SINGLE,
    });
    let limit = state.config.request_timeout;
    let permit = state.in_flight.read(flow.as_ref(), limit).await?;
    let backup = backup.inspect(|part| {
        if let Err(error) = part {
            tracing::warn!(%error, "a backup ended early");
        }
    });
    let body = GuardedBody::wrap(Body::from_stream(backup), permit);
    Ok(response(StatusCode::OK, "application/octet-stream", body))
}
