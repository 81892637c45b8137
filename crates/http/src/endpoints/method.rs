//! The methods of endpoints that are not about objects: all can only be read.

use axum::http::Method;
use axum::http::request::Parts;

use crate::error::HttpError;

/// Checks that the method is GET or HEAD.
///
/// # Errors
/// 405 for any other method.
pub(crate) fn check_is_read(parts: &Parts) -> Result<(), HttpError> {
    match parts.method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(HttpError::MethodNotAllowed),
    }
}
