//! `/debug/storage/backup`: a backup of all stored objects, while the server runs. By default only
//! administrators may read it.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::endpoints::method::check_is_read;
use crate::error::HttpError;
use crate::in_flight::Flow;
use crate::response::document::response;
use crate::response::guarded_body::GuardedBody;
use crate::response::send_deadline::SendDeadline;
use crate::state::HttpState;
use watchet_flowcontrol::{Classification, Work};
use watchet_registry::StorageError;

/// The segments of the path.
pub(crate) const PATH: [&str; 3] = ["debug", "storage", "backup"];

/// A backup is aborted when its client has read nothing for this time. The storage retains the history of its revision
/// meanwhile.
const UNREAD_MAX: Duration = Duration::from_secs(60);

/// More than any backup takes. Until then, its connection is not idle.
const SEND_TIME_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The size of the pieces into which the parts of a backup are divided, so that a slow client asks for another one in
/// less than [`UNREAD_MAX`].
const PIECE_BYTES: usize = 64 << 10;

/// Responds with a backup, whose size is not known in advance. It occupies a seat until it has been sent, and has no
/// time limit: it ends early if the storage no longer has the history of its revision, if the client reads nothing for
/// [`UNREAD_MAX`], or if the server stops.
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
    let config = &state.config;
    let tracked = config.responses.add(&config.memory);
    let abort = tracked.abort_handle();
    let sent = CancellationToken::new();
    let guard = sent.clone().drop_guard();
    let unread = tracked.until_unread_for(UNREAD_MAX);
    let (stopped, unread_abort) = (config.connections.token(), abort.clone());
    // Not awaited: it ends with the response.
    drop(config.connections.spawn("backup", async move {
        // The end of the response comes first, so that no response is aborted that has been sent.
        tokio::select! {
            biased;
            () = sent.cancelled() => {}
            () = stopped.cancelled() => {}
            () = unread => {
                tracing::warn!(unread = ?UNREAD_MAX, "a backup was aborted, because its client did not read");
                unread_abort.abort();
            }
        }
    }));
    let pieces = backup.flat_map(|part| stream::iter(divide(part)));
    let body = GuardedBody::wrap(Body::from_stream(pieces), (permit, guard));
    let body = tracked.track(body);
    let mut response = response(StatusCode::OK, "application/octet-stream", body);
    response.extensions_mut().insert(SendDeadline {
        deadline: Instant::now() + SEND_TIME_MAX,
        end: None,
        abort: Some(abort),
    });
    Ok(response)
}

/// Divides a part of a backup into pieces of at most [`PIECE_BYTES`].
fn divide(part: Result<Bytes, StorageError>) -> Vec<Result<Bytes, StorageError>> {
    let mut rest = match part {
        Ok(part) => part,
        Err(error) => return vec![Err(error)],
    };
    let mut pieces = Vec::with_capacity(rest.len().div_ceil(PIECE_BYTES));
    while !rest.is_empty() {
        pieces.push(Ok(rest.split_to(rest.len().min(PIECE_BYTES))));
    }
    pieces
}
