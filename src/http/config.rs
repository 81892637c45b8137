//! What the wire is told by the process that serves it: limits, health checks, when to end. It holds
//! no addresses, keys or users: listening and authentication are the business of `server`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Metrics;
use crate::registry::{Credentials, WRITE_DEADLINE};
use crate::tasks::Tasks;

type CheckFuture = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// One named check of `/healthz` and `/readyz`.
#[derive(Clone)]
pub struct HealthCheck {
    name: Arc<str>,
    run: Arc<dyn Fn() -> CheckFuture + Send + Sync>,
}

impl HealthCheck {
    /// A check that shows as `name`; an error says what is wrong, for the log.
    pub fn new<F, Checked>(name: &str, run: F) -> Self
    where
        F: Fn() -> Checked + Send + Sync + 'static,
        Checked: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self {
            name: name.into(),
            run: Arc::new(move || Box::pin(run())),
        }
    }

    /// The name, as in `/readyz/<name>`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs it.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub async fn run(&self) -> Result<(), String> {
        (self.run)().await
    }
}

impl fmt::Debug for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HealthCheck").field(&self.name).finish()
    }
}

/// How the wire behaves. The defaults are upstream's (§8.3).
#[derive(Debug, Clone)]
pub struct WireConfig {
    /// Where what is served by a connection runs that outlives its request. Cancelled when the server
    /// begins to drain: watches end, `/readyz` turns bad.
    pub connections: Tasks,
    /// Checks besides `ping`, `shutdown` and those of the caches; e.g. that storage answers. They
    /// count for `/healthz` and `/readyz`, not for `/livez`: to restart a server because its storage
    /// is away would throw away a cache that can still serve.
    pub checks: Vec<HealthCheck>,
    /// How many reads (other than watches) may be in progress; more are answered 429.
    pub reads_in_flight_max: usize,
    /// How many writes may be in progress; more are answered 429.
    pub writes_in_flight_max: usize,
    /// How long a request may take to be answered; `?timeout=` may only lower it.
    pub request_timeout: Duration,
    /// The same for writes: shorter, so that the outcome is told before a client gives up.
    pub write_timeout: Duration,
    /// Which bearer tokens are believed, and what makes those of service accounts.
    pub credentials: Arc<Credentials>,
    /// What `/metrics` tells, and where requests are counted.
    pub metrics: Arc<Metrics>,
}

impl WireConfig {
    /// One with the default limits and no checks.
    pub fn new(credentials: Arc<Credentials>, metrics: Arc<Metrics>) -> Self {
        Self {
            connections: Tasks::new(),
            checks: Vec::new(),
            reads_in_flight_max: 400,
            writes_in_flight_max: 200,
            request_timeout: Duration::from_secs(60),
            write_timeout: WRITE_DEADLINE,
            credentials,
            metrics,
        }
    }
}

impl Default for WireConfig {
    /// One that believes only the tokens that it makes: their key is made now, which takes a while.
    fn default() -> Self {
        Self::new(Arc::default(), Metrics::new())
    }
}
