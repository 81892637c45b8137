//! The state that all requests share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::config::HttpConfig;
use crate::endpoints::failing_checks::FailingChecks;
use crate::endpoints::openapi::Documents;
use crate::protobuf::Schema;
use crate::request::body_limits::BodyLimits;
use crate::watch_access::WatchAccessMonitor;
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
    /// The permits of reads other than watches.
    pub(crate) reads: Arc<Semaphore>,
    /// The permits of writes.
    pub(crate) writes: Arc<Semaphore>,
    /// The access of the open watches.
    pub(crate) watch_access: Arc<WatchAccessMonitor>,
    /// The limits of request bodies.
    pub(crate) body_limits: BodyLimits,
}

impl HttpState {
    /// Creates the state of a server of `registry`.
    pub(crate) fn new(registry: Arc<Registry>, config: HttpConfig) -> Self {
        Self {
            reads: Arc::new(Semaphore::new(config.reads_in_flight_max)),
            writes: Arc::new(Semaphore::new(config.writes_in_flight_max)),
            body_limits: BodyLimits::new(),
            failing_checks: FailingChecks::default(),
            openapi: Documents::default(),
            watch_access: Arc::new(WatchAccessMonitor::new(
                Arc::clone(registry.authorizer()),
                config.connections.clone(),
            )),
            protobuf: Arc::new(Schema::new(registry.types().clone())),
            registry,
            config,
        }
    }

    /// Returns the number of reads in flight, without watches.
    pub(crate) fn reads_in_flight(&self) -> usize {
        self.config.reads_in_flight_max - self.reads.available_permits()
    }

    /// Returns the number of writes in flight.
    pub(crate) fn writes_in_flight(&self) -> usize {
        self.config.writes_in_flight_max - self.writes.available_permits()
    }
}
