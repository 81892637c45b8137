//! The wire: routes, requests, negotiation, bodies, discovery. It turns HTTP into calls of
//! `registry` and its answers into bytes; it decides nothing about objects, and who may call is
//! decided before it, in `server`.

// In reading order: what is asked, how it is answered, in which bytes, and about what else.
mod config;
mod place;
mod query;
mod request_info;

mod options;
mod ordered;
mod protobuf;
mod request_body;

mod accept;
mod error;

mod chunks;
mod held_body;
mod indent;
mod list_body;
mod render;
mod response;
mod wanted_kind;
mod warning;
mod watch_body;
mod websocket;

mod discovery;
mod documents;
mod health;
mod monitor;
mod openapi;

mod serve;
mod verbs;

#[cfg(test)]
mod test_objects;

use std::sync::Arc;

use crate::registry::Registry;

pub use config::{HealthCheck, WireConfig};
pub(crate) use documents::git_version;
pub use held_body::HeldBody;
pub use request_info::{InvalidPath, RequestInfo, ResourceRequest, Verb};
pub use response::refusal;
pub use serve::TakenBy;
pub use websocket::is_asked_for as asks_for_websocket;

use serve::Wire;

/// The API as an axum router. Every path is answered, unknown ones by a 404 `Status`; authentication
/// and authorization are layered on by `server`.
pub fn router(registry: Arc<Registry>, wire: WireConfig) -> axum::Router {
    let wire = Arc::new(Wire::new(registry, wire));
    axum::Router::new().fallback(serve::serve).with_state(wire)
}

#[cfg(test)]
mod tests;
