//! Headers of responses.

use axum::http::HeaderValue;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, HeaderMap, HeaderName, VARY,
};
use axum::response::Response;

/// The header that identifies a request, in the response and in log lines.
pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The maximum length of an Audit-Id that is adopted from a client.
const AUDIT_ID_BYTES_MAX: usize = 64;

/// Sets a header to a value that this server has built and that must be valid.
pub(crate) fn set_header(response: &mut Response, name: HeaderName, value: &str) {
    match HeaderValue::from_str(value) {
        Ok(value) => {
            response.headers_mut().insert(name, value);
        }
        Err(error) => tracing::error!(%name, value, %error, "invalid response header"),
    }
}

/// Sets the headers of every response; `Cache-Control` only if absent.
pub(crate) fn set_common_headers(response: &mut Response, audit_id: &str) {
    set_header(response, AUDIT_ID, audit_id);
    let uncached = HeaderValue::from_static("no-cache, private");
    response
        .headers_mut()
        .entry(CACHE_CONTROL)
        .or_insert(uncached);
}

/// Returns the client's Audit-Id if valid, else a new one.
pub(crate) fn audit_id(headers: &HeaderMap) -> String {
    let sent = headers.get(AUDIT_ID).and_then(|value| value.to_str().ok());
    match sent {
        Some(id) if !id.is_empty() && id.len() <= AUDIT_ID_BYTES_MAX => id.to_owned(),
        // The ID only identifies requests, so it needs no cryptographic randomness.
        _ => uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes())
            .into_uuid()
            .to_string(),
    }
}

/// Returns true if the client accepts gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let is_gzip = parts.next().is_some_and(|coding| coding == "gzip");
            let is_refused = parts.any(|part| {
                let quality = part.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok());
                quality == Some(0.0)
            });
            is_gzip && !is_refused
        })
}

/// Sets the headers of a compressed body.
pub(crate) fn mark_gzip(response: &mut Response) {
    set_header(response, CONTENT_ENCODING, "gzip");
    set_header(response, VARY, "Accept-Encoding");
}
