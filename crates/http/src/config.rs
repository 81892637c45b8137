//! Configuration of the HTTP layer: limits, health checks, the drain token. Listeners, TLS and
//! authentication are configured in `server`.

use std::sync::Arc;
use std::time::Duration;

use watchet_api::ServerMemory;
use watchet_audit::Auditor;
use watchet_auth::{ConsoleSessions, TokenAuthenticator};
use watchet_flowcontrol::FlowControl;
use watchet_metrics::Metrics;
use watchet_registry::WRITE_DEADLINE;
use watchet_tasks::Tasks;
use watchet_telemetry::Tracer;

use crate::health_check::HealthCheck;
use crate::log_level::LogLevel;
use crate::response::response_tracker::ResponseTracker;

/// Configuration of the HTTP layer. The defaults are kube-apiserver's.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// The task group of connections that outlive their request (watches). Cancelled when the
    /// server starts to drain: watches end, `/readyz` fails.
    pub connections: Tasks,
    /// Checks besides `ping`, `shutdown` and those of the caches, e.g. that storage responds. They
    /// count for `/healthz` and `/readyz`, not for `/livez`: restarting a server because its
    /// storage is unavailable would discard a cache that can still serve.
    pub checks: Vec<HealthCheck>,
    /// Admits requests by FlowSchemas and priority levels; without it the two next limits apply.
    pub flow_control: Option<Arc<FlowControl>>,
    /// How many reads (other than watches) may be in flight; more get a 429.
    pub reads_in_flight_max: usize,
    /// How many writes may be in flight; more get a 429.
    pub writes_in_flight_max: usize,
    /// How many watches a user may have open; more get a 429. `None` is no limit.
    pub watches_per_user_max: Option<usize>,
    /// The time limit of a request; `?timeout=` can only lower it.
    pub request_timeout: Duration,
    /// The time limit of a write: shorter, so that the client receives the outcome before its own
    /// timeout.
    pub write_timeout: Duration,
    /// The authenticator of bearer tokens, with the issuer of service account tokens.
    pub tokens: Arc<TokenAuthenticator>,
    /// The sessions of the console, for which users request links; `None` if there is no console.
    pub console_sessions: Option<Arc<ConsoleSessions>>,
    /// The registry of metrics, served at `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Records requests in the audit log; `None` if there is none.
    pub auditor: Option<Arc<Auditor>>,
    /// Starts the spans of requests; `None` without `--tracing-config-file`.
    pub tracer: Option<Tracer>,
    /// The memory of the server: under pressure, lists and watches get a 429.
    pub memory: Arc<ServerMemory>,
    /// The responses in progress of lists and watches.
    pub responses: Arc<ResponseTracker>,
    /// The log level, served at `/debug/flags/log-level`; `None` if it cannot be changed.
    pub log_level: Option<Arc<dyn LogLevel>>,
    /// Whether profiles are served at `/debug/pprof/`.
    pub profiling: bool,
    /// The commit of the build, served at `/version`; empty if it is unknown.
    pub git_commit: &'static str,
}

impl HttpConfig {
    /// Creates a configuration with the default limits and no checks.
    pub fn new(tokens: Arc<TokenAuthenticator>, metrics: Arc<Metrics>) -> Self {
        Self {
            connections: Tasks::new(),
            checks: Vec::new(),
            flow_control: None,
            reads_in_flight_max: 400,
            writes_in_flight_max: 200,
            watches_per_user_max: None,
            request_timeout: Duration::from_secs(60),
            write_timeout: WRITE_DEADLINE,
            tokens,
            console_sessions: None,
            metrics,
            auditor: None,
            tracer: None,
            memory: Arc::default(),
            responses: Arc::default(),
            log_level: None,
            profiling: true,
            git_commit: "",
        }
    }
}

impl Default for HttpConfig {
    /// Creates a configuration that accepts only tokens of its own new key; generating the key
    /// takes a while.
    fn default() -> Self {
        Self::new(Arc::default(), Metrics::new())
    }
}
