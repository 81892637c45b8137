//! The HTTP API: routing, content negotiation, request and response bodies, discovery. Translates
//! HTTP requests into calls of `registry` and results into responses. `server` authenticates requests;
//! impersonation and authorization are here (`authorization`).

// In reading order: requests, responses, encodings, other documents.
mod config;
mod query;
mod request_info;
mod verb_check;

mod options;
mod ordered;
mod protobuf;
mod request_body;

mod accept;
mod audit;
mod authorization;
mod error;

mod chunks;
mod expected_kind;
mod guarded_body;
mod indent;
mod list_body;
mod render;
mod response;
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

pub use config::{HealthCheck, HttpConfig};
pub(crate) use documents::git_version;
pub use guarded_body::GuardedBody;
pub use request_info::{InvalidPath, RequestInfo, ResourceRequest, Verb};
pub use response::error_response;
pub use serve::SendDeadline;
pub use websocket::is_upgrade as is_websocket_upgrade;

use serve::HttpState;

/// Returns the API as an axum router. Unknown paths get a 404 `Status`. `server` authenticates requests and
/// adds the user as an extension, an `Arc<UserInfo>`; the router asks the registry's authorizer about every
/// request.
pub fn router(registry: Arc<Registry>, config: HttpConfig) -> axum::Router {
    let state = Arc::new(HttpState::new(registry, config));
    axum::Router::new().fallback(serve::serve).with_state(state)
}

#[cfg(test)]
mod tests;
