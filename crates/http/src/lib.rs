//! The HTTP API: routing, content negotiation, request and response bodies, discovery. Translates
//! HTTP requests into calls of `registry` and results into responses. `server` authenticates requests;
//! impersonation and authorization are here (`authorization`).
//!
//! ```text
//! serve ─▶ authorization ─▶ verbs      a request about objects: read, watch, write, delete
//!                      └──▶ endpoints  discovery, OpenAPI, version, health checks, metrics
//!
//! request    path, query, options, Accept header, body of a request
//! response   headers, statuses, objects, lists and watches as bodies
//! protobuf   bodies in protobuf
//! state      what all requests share; config: its limits
//! ```

mod audit;
mod authorization;
mod config;
mod endpoints;
mod error;
mod protobuf;
mod request;
mod request_monitor;
mod response;
mod serve;
mod state;
mod verbs;

#[cfg(test)]
mod test_objects;

use std::sync::Arc;

use watchet_registry::Registry;

pub use config::{HealthCheck, HttpConfig};
pub use endpoints::version::git_version;
pub use request::request_info::{InvalidPath, RequestInfo, ResourceRequest, Verb};
pub use response::guarded_body::GuardedBody;
pub use response::send_deadline::SendDeadline;
pub use response::status::error_response;
pub use response::websocket::is_upgrade as is_websocket_upgrade;

use state::HttpState;

/// Returns the API as an axum router. Unknown paths get a 404 `Status`. `server` authenticates requests and
/// adds the user as an extension, an `Arc<UserInfo>`; the router calls the registry's authorizer for every
/// request.
pub fn router(registry: Arc<Registry>, config: HttpConfig) -> axum::Router {
    let state = Arc::new(HttpState::new(registry, config));
    axum::Router::new().fallback(serve::serve).with_state(state)
}
