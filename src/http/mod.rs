//! The wire: routes, requests, negotiation, bodies, discovery. (skeleton)

use std::sync::Arc;

use crate::registry::Registry;

/// The API as an axum router. Authentication is layered on by `server`.
pub fn router(_registry: Arc<Registry>) -> axum::Router {
    unimplemented!()
}
