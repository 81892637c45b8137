//! Spawn and drain: a built server becomes tasks, and the tasks end in an order in which nobody
//! needs what is already gone: connections, caches, storage.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::build::{Done, SecurePort, Server};
use super::connection::{Authentication, Service};
use super::files::DataDir;
use super::listen;
use crate::api::UserInfo;
use crate::http::{self, HealthCheck, WireConfig};
use crate::registry::Registry;
use crate::storage::Storage;
use crate::tasks::{DrainTimeout, Tasks};

/// How long the caches may take to end, and then the storage to flush; beyond the grace period for
/// requests, because without the flush an interval durability would lose what it acknowledged.
const FLUSH_MAX: Duration = Duration::from_secs(10);

/// How long to wait before what must exist is made again after that failed.
const BOOTSTRAP_PAUSE: Duration = Duration::from_secs(1);

/// How long storage may take to answer a health check.
const STORAGE_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// A server whose tasks run.
#[derive(Debug)]
pub(super) struct Running {
    /// What building did.
    pub done: Done,
    connections: Tasks,
    caches: Tasks,
    storage: Tasks,
    bootstrapped: tokio::sync::watch::Receiver<bool>,
    shutdown_grace: Duration,
    _data_dir: DataDir,
}

impl Server {
    /// Starts to serve. Must be called in a Tokio runtime.
    pub(super) fn spawn(self) -> Running {
        let (connections, caches, storage_tasks) = (Tasks::new(), Tasks::new(), Tasks::new());
        let storage = self.storage;
        let maintained = Arc::clone(&storage);
        let until = storage_tasks.token();
        storage_tasks.spawn("storage", async move { maintained.maintain(until).await });

        let registry = Registry::new(Arc::clone(&storage), &caches, self.watch_cache);
        let (bootstrapped, bootstrap_seen) = tokio::sync::watch::channel(false);
        let bootstrap = bootstrap(Arc::clone(&registry), bootstrapped, caches.token());
        caches.spawn("bootstrap", bootstrap);

        let wire = WireConfig {
            shutdown: connections.token(),
            checks: vec![
                storage_check(storage),
                bootstrap_check(bootstrap_seen.clone()),
            ],
            ..WireConfig::default()
        };
        let router = http::router(registry, wire);
        spawn_secure(self.secure, router.clone(), &connections);
        if let Some(listener) = self.insecure {
            let service = Service {
                router,
                authentication: Authentication::Unsecured(Arc::new(UserInfo::unsecured())),
            };
            let accept = listen::accept(listener, None, Arc::new(service), connections.clone());
            connections.spawn("accept http", accept);
        }
        Running {
            done: self.done,
            connections,
            caches,
            storage: storage_tasks,
            bootstrapped: bootstrap_seen,
            shutdown_grace: self.shutdown_grace,
            _data_dir: self.data_dir,
        }
    }
}

impl Running {
    /// Waits until everything a first request may need is there. Cancel safe.
    pub(super) async fn ready(&mut self) {
        // The sender goes only after it has said so, or when the server stops.
        if self.bootstrapped.wait_for(|done| *done).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Stops accepting, ends watches, lets requests finish, then ends the caches and flushes the
    /// storage.
    ///
    /// Requests that outlast the grace period are cut off: that is what the period is for, and
    /// their clients see it.
    ///
    /// # Errors
    /// The caches or the storage had not ended in time; everything was tried.
    pub(super) async fn drain(self) -> Result<(), DrainTimeout> {
        let started = Instant::now();
        if let Err(error) = self.connections.drain(self.shutdown_grace).await {
            tracing::warn!(%error, "connections are cut off");
        }
        let caches = self.caches.drain(FLUSH_MAX).await;
        let storage = self.storage.drain(FLUSH_MAX).await;
        let elapsed_ms = started.elapsed().as_millis();
        tracing::info!(elapsed_ms, "drained");
        caches.and(storage)
    }
}

fn spawn_secure(port: SecurePort, router: axum::Router, connections: &Tasks) {
    let service = Service {
        router,
        authentication: Authentication::Required(port.authenticator),
    };
    let tls = Some(TlsAcceptor::from(port.tls));
    let accept = listen::accept(port.listener, tls, Arc::new(service), connections.clone());
    connections.spawn("accept https", accept);
}

/// Tries until it is done: etcd may be without a leader when we start.
async fn bootstrap(
    registry: Arc<Registry>,
    bootstrapped: tokio::sync::watch::Sender<bool>,
    stop: tokio_util::sync::CancellationToken,
) {
    let attempts = async {
        while let Err(error) = registry.bootstrap().await {
            tracing::warn!(%error, "cannot make the system namespaces yet");
            tokio::time::sleep(BOOTSTRAP_PAUSE).await;
        }
    };
    // Stopping comes first: nobody waits for the namespaces any more.
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = attempts => {
            bootstrapped.send_replace(true);
        }
    }
}

fn bootstrap_check(bootstrapped: tokio::sync::watch::Receiver<bool>) -> HealthCheck {
    HealthCheck::new(
        "poststarthook/start-system-namespaces-controller",
        move || {
            let done = *bootstrapped.borrow();
            async move {
                match done {
                    true => Ok(()),
                    false => Err("the system namespaces are not made yet".to_owned()),
                }
            }
        },
    )
}

/// Named as upstream's, whose checks of it are called that whatever the storage is.
fn storage_check(storage: Arc<dyn Storage>) -> HealthCheck {
    HealthCheck::new("etcd", move || {
        let storage = Arc::clone(&storage);
        async move {
            match tokio::time::timeout(STORAGE_CHECK_TIMEOUT, storage.current_revision()).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no answer in {STORAGE_CHECK_TIMEOUT:?}")),
            }
        }
    })
}
