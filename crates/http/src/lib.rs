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
//! watch_access  ends watches whose client loses access
//! ```
//!
//! # Example
//!
//! The caller authenticates each request and adds the user; here every request is Ann's.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use axum::body::Body;
//! use http::{Request, StatusCode};
//! use tower_service::Service as _;
//! use watchet_api::UserInfo;
//! use watchet_http::{HttpConfig, router};
//! use watchet_metrics::Metrics;
//! use watchet_tasks::Tasks;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tasks = Tasks::new();
//! let storage = watchet_storage::memory::Memory::new(Duration::ZERO)?;
//! let registry = watchet_builtin::new_registry(storage, &tasks, Default::default(), Metrics::new());
//! registry.bootstrap().await?;
//! let mut api = router(registry, HttpConfig::default());
//!
//! let ann = Arc::new(UserInfo::authenticated("ann".into(), String::new(), Vec::new()));
//! let maps = "/api/v1/namespaces/default/configmaps";
//! let body = Body::from(r#"{"metadata": {"name": "settings"}, "data": {"color": "blue"}}"#);
//! let create = Request::post(maps)
//!     .header("content-type", "application/json")
//!     .extension(ann.clone())
//!     .body(body)?;
//! assert_eq!(api.call(create).await?.status(), StatusCode::CREATED);
//!
//! let get = Request::get(format!("{maps}/missing")).extension(ann).body(Body::empty())?;
//! assert_eq!(api.call(get).await?.status(), StatusCode::NOT_FOUND);
//! # tasks.drain(Duration::from_secs(10)).await?;
//! # Ok(())
//! # }
//! ```

mod audit;
mod authorization;
mod config;
mod endpoints;
mod error;
mod failed_requests;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod health_check;
mod in_flight;
mod list_clients;
mod log_level;
mod request;
mod request_audit;
mod request_monitor;
mod request_trace;
mod response;
mod serve;
mod state;
mod verbs;
mod watch_access;
mod watch_counts;

#[cfg(test)]
mod test_objects;

use std::sync::Arc;

use watchet_registry::Registry;

pub use config::HttpConfig;
pub use endpoints::version::git_version;
pub use health_check::HealthCheck;
pub use log_level::LogLevel;
pub use request::request_info::{InvalidPath, RequestInfo, ResourceRequest, Verb};
pub use request_audit::{ClientAddress, audited_error_response};
pub use response::guarded_body::GuardedBody;
pub use response::response_tracker::{AbortedResponses, ResponseAbortHandle, ResponseTracker};
pub use response::send_deadline::SendDeadline;
pub use response::status::error_response;
pub use response::websocket::is_upgrade as is_websocket_upgrade;
pub use serve::panic_response;

use state::HttpState;

/// Returns the API as an axum router. Unknown paths get a 404 `Status`. `server` authenticates requests and
/// adds the user as an extension, an `Arc<UserInfo>`, and its credential, a `Credential`; the router calls the registry's authorizer for every
/// request.
pub fn router(registry: Arc<Registry>, config: HttpConfig) -> axum::Router {
    let state = Arc::new(HttpState::new(registry, config));
    axum::Router::new().fallback(serve::serve).with_state(state)
}
