//! The state that all requests share.

use std::sync::Arc;

use crate::config::HttpConfig;
use crate::endpoints::failing_checks::FailingChecks;
use crate::endpoints::openapi::Documents;
use crate::failed_requests::FailedRequests;
use crate::in_flight::InFlight;
use crate::list_clients::ListClients;
use crate::request::body_limits::BodyLimits;
use crate::watch_access::WatchAccessMonitor;
use crate::watch_counts::WatchCounts;
use watchet_protobuf::Schema;
use watchet_registry::Registry;

/// State shared by all requests.
#[derive(Debug)]
pub(crate) struct HttpState {
    /// The registry of resources.
    pub(crate) registry: Arc<Registry>,
    /// The limits.
    pub(crate) config: HttpConfig,
    /// The messages of protobuf bodies.
    pub(crate) protobuf: Arc<Schema>,
    /// The OpenAPI documents.
    pub(crate) openapi: Documents,
    /// The health checks that failed last time.
    pub(crate) failing_checks: FailingChecks,
    /// The log of the requests that failed.
    pub(crate) failed_requests: FailedRequests,
    /// The clients that list.
    pub(crate) list_clients: ListClients,
    /// The limits of requests in flight.
    pub(crate) in_flight: InFlight,
    /// The limits of open watches.
    pub(crate) watch_counts: Arc<WatchCounts>,
    /// The access of the open watches.
    pub(crate) watch_access: Arc<WatchAccessMonitor>,
    /// The limits of request bodies.
    pub(crate) body_limits: BodyLimits,
}

impl HttpState {
    /// Creates the state of a server of `registry`.
    pub(crate) fn new(registry: Arc<Registry>, config: HttpConfig) -> Self {
        Self {
            in_flight: InFlight::new(&config),
            watch_counts: WatchCounts::new(config.watches_per_user_max),
            body_limits: BodyLimits::new(&config.memory),
            failing_checks: FailingChecks::default(),
            failed_requests: FailedRequests::default(),
            list_clients: ListClients::default(),
            openapi: Documents::default(),
            watch_access: Arc::new(WatchAccessMonitor::new(
                Arc::clone(registry.authorizer()),
                config.connections.clone(),
            )),
            protobuf: Arc::new(Schema::new(
                registry.messages().clone(),
                registry.encodings().clone(),
            )),
            registry,
            config,
        }
    }
}
