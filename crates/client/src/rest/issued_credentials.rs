//! Credentials that a token file or a credential plugin has issued.

use std::sync::Arc;

use http::HeaderValue;
use jiff::Timestamp;

use super::material::Identity;

/// Credentials with an expiry.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct IssuedCredentials {
    /// The header with the token, if any.
    pub(super) header: Option<HeaderValue>,
    /// The client certificate, if any.
    pub(super) identity: Option<Arc<Identity>>,
    /// When they expire.
    pub(super) until: Option<Timestamp>,
}

impl IssuedCredentials {
    /// Creates credentials with only a token, without an expiry.
    pub(super) fn token(header: HeaderValue) -> Self {
        Self {
            header: Some(header),
            identity: None,
            until: None,
        }
    }
}

/// Returns the value of the header `Authorization` for a bearer token.
///
/// # Errors
/// The token has characters that are invalid in a header.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| "is not a valid header value".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}
