//! A request of the client.

use bytes::Bytes;
use http::{HeaderMap, Method};

use super::Path;
/// A request.
pub(crate) struct Call<'a> {
    pub method: Method,
    pub path: &'a Path,
    pub accept: &'static str,
    pub content_type: &'static str,
    pub body: Bytes,
    /// Additional headers.
    pub headers: HeaderMap,
}

impl<'a> Call<'a> {
    /// Creates a GET of `path`.
    pub(crate) fn get(path: &'a Path) -> Self {
        Self {
            method: Method::GET,
            path,
            accept: "application/json",
            content_type: "application/json",
            body: Bytes::new(),
            headers: HeaderMap::new(),
        }
    }
}
