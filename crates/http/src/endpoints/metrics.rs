//! `/metrics`.

use std::time::Duration;

use axum::http::request::Parts;
use axum::response::Response;
use tokio::time::Instant;

use crate::endpoints::method::check_is_read;
use crate::error::HttpError;
use crate::request::accept::{accept_header, clauses};
use crate::response::document::text_response;
use crate::response::headers::accepts_gzip;
use crate::response::send_deadline::SendDeadline;
use crate::state::HttpState;
use watchet_metrics::{EncodingCacheSample, Format, MemorySample};
use watchet_registry::StorageError;

/// The time limit for storage to report its size during a scrape.
const STORAGE_SIZE_TIMEOUT: Duration = Duration::from_secs(1);

/// Responds to a scrape of `/metrics`.
pub(crate) async fn scrape(state: &HttpState, parts: &Parts) -> Result<Response, HttpError> {
    check_is_read(parts)?;
    let http = state.config.metrics.http();
    http.reads_in_flight.set(state.in_flight.reads() as i64);
    http.writes_in_flight.set(state.in_flight.writes() as i64);
    let registry = &state.registry;
    http.retain_resources(|group, version, plural| {
        registry.resource(group, version, plural).is_some()
    });
    let size = tokio::time::timeout(STORAGE_SIZE_TIMEOUT, state.registry.storage_bytes()).await;
    let size = size.unwrap_or_else(|_| Err(StorageError::Unavailable("no response".to_owned())));
    let size = size.unwrap_or_else(|error| {
        tracing::debug!(%error, "storage size missing from scrape");
        None
    });
    state.config.metrics.storage_size(size);
    let cache = registry.encodings().stats();
    state.config.metrics.encoding_cache(EncodingCacheSample {
        bytes: cache.bytes as u64,
        objects: cache.entries as u64,
        hits: cache.hits,
        misses: cache.misses,
        evictions: cache.evictions,
    });
    let memory = state.config.memory.stats();
    state.config.metrics.memory(MemorySample {
        limit: memory.limit.unwrap_or_default() as u64,
        used: memory.used as u64,
        reserved: memory.reserved as u64,
        pressure: memory.pressure as u64,
        refused_lists: memory.refused_lists,
        refused_watches: memory.refused_watches,
        refused_writes: memory.refused_writes,
        history_dropped: memory.history_bytes_dropped,
        responses_aborted: memory.responses_aborted,
    });
    let format = format(accept_header(parts)?.as_deref());
    let rendered = state.config.metrics.render(format);
    let mut response = text_response(
        format.content_type(),
        rendered,
        accepts_gzip(&parts.headers),
    )?;
    let until = Instant::now() + state.config.request_timeout;
    response.extensions_mut().insert(SendDeadline::from(until));
    Ok(response)
}

/// Returns the exposition format; the first acceptable clause wins, and a scraper that accepts
/// neither gets the text format.
fn format(accept: Option<&str>) -> Format {
    clauses(accept)
        .into_iter()
        .find_map(|clause| match clause.media {
            "application/openmetrics-text" => Some(Format::OpenMetrics),
            _ if clause.covers("text/plain") => Some(Format::Prometheus),
            _ => None,
        })
        .unwrap_or(Format::Prometheus)
}
