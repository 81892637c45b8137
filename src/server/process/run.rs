//! Starts and drains a server: its tasks end in reverse order of dependency: connections,
//! controllers, caches, storage.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::api::{SYSTEM_MASTERS, UserInfo};
use crate::auth::{ConsoleSessions, SessionIdentity};
use crate::builtin::{KubernetesService, new_registry_with_config, start_token_tracking};
use crate::console;
use crate::controllers;
use crate::http::{self, HealthCheck, HttpConfig};
use crate::registry::Registry;
use crate::server::process::build::{Done, Server};
use crate::server::process::console_link;
use crate::server::process::encryption;
use crate::server::process::files::DataDir;
use crate::server::process::flow_control;
use crate::server::process::git_commit::GIT_COMMIT;
use crate::server::process::logging;
use crate::server::process::pki::ADMIN_USER;
use crate::server::process::quotas::BuiltinQuotas;
use crate::server::process::reload;
use crate::server::process::roles;
use crate::server::process::traces;
use crate::server::transport::handler::token_router;
use crate::server::transport::listen;
use crate::server::transport::service::{Authentication, Service};
use crate::storage::{Storage, StorageError};
use crate::tasks::{DrainTimeout, TaskFailed, Tasks};

/// The time limit for the caches to end, and for the storage to flush, in addition to the grace
/// period: without the flush, interval durability would lose acknowledged writes.
const FLUSH_MAX: Duration = Duration::from_secs(10);

/// The pause before a failed bootstrap is retried.
const BOOTSTRAP_PAUSE: Duration = Duration::from_secs(1);

/// The pause between checks whether the store has found damage.
const DAMAGE_PAUSE: Duration = Duration::from_millis(100);

/// A running server.
#[derive(Debug)]
pub(in crate::server) struct Running {
    /// The results of the build.
    pub done: Done,
    /// The sessions of the console; `None` if it is not served.
    sessions: Option<Arc<ConsoleSessions>>,
    ports: Tasks,
    connections: Tasks,
    controllers: Tasks,
    caches: Tasks,
    storage: Tasks,
    audit: Tasks,
    traces: Tasks,
    authentication: Tasks,
    /// Become true when everything exists that a first request may need.
    ready: Vec<tokio::sync::watch::Receiver<bool>>,
    stored: Arc<dyn Storage>,
    shutdown_grace: Duration,
    _data_dir: DataDir,
}

impl Server {
    /// Starts the tasks. Must be called in a Tokio runtime.
    pub(in crate::server) fn spawn(self) -> Running {
        self.spawn_with_router().0
    }

    /// As [`Self::spawn`]; also returns the router of the ports, for use without a connection.
    pub(in crate::server) fn spawn_with_router(self) -> (Running, axum::Router) {
        let group = || Tasks::with_metrics(self.metrics.tasks());
        let (ports, connections) = (group(), group());
        let (caches, storage_tasks) = (group(), group());
        let (controllers, traces) = (group(), group());
        let storage = self.storage;
        let (maintained, stored) = (Arc::clone(&storage), Arc::clone(&storage));
        let until = storage_tasks.token();
        storage_tasks.spawn("storage", async move { maintained.maintain(until).await });

        // The address that it listens on, not the one in the kubeconfig.
        let secure = self.secure.listener.local_addr();
        let secure = secure.unwrap_or(self.done.secure);
        let service = KubernetesService::new(&self.registry.service_ranges, secure);
        let mut registry_config = self.registry;
        registry_config.caches.memory = Arc::clone(&self.memory.server_memory);
        let registry = new_registry_with_config(
            Arc::clone(&storage),
            self.encryption.clone(),
            &caches,
            Arc::clone(&self.metrics),
            registry_config,
            self.authorizer,
        );
        let (bootstrapped, bootstrap_seen) = tokio::sync::watch::channel(false);
        let bootstrap = bootstrap(
            Arc::clone(&registry),
            bootstrapped,
            service,
            self.controllers.has(controllers::TOKEN_TRACKING),
            caches.token(),
        );
        caches.spawn("bootstrap", bootstrap);
        let mut checks = vec![
            storage_check(storage),
            bootstrap_check(bootstrap_seen.clone()),
        ];
        let mut ready = vec![bootstrap_seen.clone()];
        let flow_control = self.requests.flow_control(&self.metrics);
        if let Some(control) = &flow_control {
            let bootstrapped = bootstrap_seen.clone();
            let configured = flow_control::start(&registry, control, bootstrapped, &caches);
            checks.push(flow_control::check(configured.clone()));
            ready.push(configured);
        }
        if let Some(rbac) = self.rbac {
            let has_default_roles = roles::start(&registry, rbac, bootstrap_seen, &caches);
            checks.push(roles::check(has_default_roles.clone()));
            ready.push(has_default_roles);
        }

        if let Some(encryption) = self.encryption {
            checks.push(encryption::check(&encryption));
            let until = caches.token();
            caches.spawn(
                "kms-probes",
                async move { encryption.maintain(until).await },
            );
        }
        if let Some(nodes) = self.nodes {
            let (registry, stop) = (Arc::clone(&registry), caches.token());
            caches.spawn("node-authorizer", async move {
                let feed = controllers::feed_node_authorizer(&registry, &nodes);
                let _stopped: Option<()> = stop.run_until_cancelled(feed).await;
            });
        }
        reload::start(self.reloads, &caches);
        let quotas: Arc<dyn controllers::QuotaCounter> =
            Arc::new(BuiltinQuotas::new(Arc::clone(&registry)));
        let launcher = controllers::Launcher {
            registry: &registry,
            tasks: &controllers,
            selection: &self.controllers,
            metrics: &self.metrics,
            root_ca: &self.root_ca,
            signer: &self.signer,
            quotas: &quotas,
            client_cas: &self.client_cas,
            front_proxy: self.front_proxy.as_ref(),
        };
        launcher.start_all();

        let sessions = self.secure.authenticator.sessions();
        let sessions = self.console.then(|| Arc::clone(sessions));
        let console = sessions.clone().map(console::router);
        let tracing = self.tracing.as_ref();
        let tracer = tracing.map(|tracing| traces::start(tracing, secure, &self.metrics, &traces));
        let config = self.requests.apply(HttpConfig {
            console_sessions: sessions.clone(),
            connections: connections.clone(),
            checks,
            flow_control,
            auditor: self.auditor.clone(),
            tracer,
            memory: Arc::clone(&self.memory.server_memory),
            log_level: logging::level(),
            profiling: self.profiling,
            git_commit: GIT_COMMIT,
            ..HttpConfig::new(Arc::clone(&self.tokens), self.metrics)
        });
        self.memory.start(
            registry.encodings(),
            &config.responses,
            &self.connections,
            &ports,
        );
        let router = http::router(Arc::clone(&registry), config);
        let token_routes = token_router(
            registry,
            self.tokens,
            router.clone(),
            self.auditor.clone(),
            connections.clone(),
        );
        let audit = self.auditor.as_ref().map(|auditor| auditor.start());
        let audit = audit.unwrap_or_default();
        let secure = Service {
            router: router.clone(),
            console: console.clone(),
            authentication: Authentication::Required {
                authenticator: self.secure.authenticator,
                token_routes,
            },
            auditor: self.auditor.clone(),
            tasks: connections.clone(),
        };
        let tls = Some(self.secure.tls);
        let (secure, open) = (Arc::new(secure), Arc::clone(&self.connections));
        let listener = self.secure.listener;
        let accept = listen::accept(listener, tls, secure, open, connections.clone());
        ports.spawn("accept https", accept);
        if let Some(listener) = self.insecure {
            let service = Service {
                router: router.clone(),
                console,
                authentication: Authentication::Unsecured(Arc::new(UserInfo::unsecured())),
                auditor: self.auditor,
                tasks: connections.clone(),
            };
            let open = Arc::clone(&self.connections);
            let service = Arc::new(service);
            let accept = listen::accept(listener, None, service, open, connections.clone());
            ports.spawn("accept http", accept);
        }
        let end_idle = self.connections.end_idle(connections.token());
        ports.spawn("idle connections", end_idle);
        let running = Running {
            done: self.done,
            sessions,
            ports,
            connections,
            controllers,
            caches,
            storage: storage_tasks,
            audit,
            traces,
            authentication: self.authentication,
            ready,
            stored,
            shutdown_grace: self.shutdown_grace,
            _data_dir: self.data_dir,
        };
        (running, router)
    }
}

impl Running {
    /// Waits until everything a first request may need exists. Cancel safe.
    pub(in crate::server) async fn ready(&self) {
        for part in &self.ready {
            roles::until_true(part.clone()).await;
        }
    }

    /// Returns a link that logs a browser in to the console as the user of the kubeconfig, once; `None` if the console is not
    /// served.
    pub(in crate::server) fn console_link(&self) -> Option<String> {
        let sessions = self.sessions.as_ref()?;
        let groups = vec![SYSTEM_MASTERS.to_owned()];
        let admin = UserInfo::authenticated(ADMIN_USER.to_owned(), String::new(), groups);
        let identity = SessionIdentity {
            user: Arc::new(admin),
            credential: None,
        };
        let now = Timestamp::now().as_second();
        let code = sessions.new_code(identity, now);
        let server = format!("https://{}", self.done.secure);
        Some(console_link::link(&server, &code))
    }

    /// Waits until the embedded store has found damage; forever with another storage. Before the server is ready, that
    /// means that it never will be: what the start needs is damaged. Cancel safe.
    pub(in crate::server) async fn damaged(&self) -> StorageError {
        if self.stored.known_revision().is_none() {
            return std::future::pending().await;
        }
        loop {
            match self.stored.current_revision().await {
                Err(error @ StorageError::Corrupt(_)) => return error,
                _ => tokio::time::sleep(DAMAGE_PAUSE).await,
            }
        }
    }

    /// Waits for the panic of a vital task, after which the server would silently misbehave (e.g. a
    /// stalled cache still answers reads). Tasks of single connections are not vital. Cancel safe.
    pub(in crate::server) async fn failed(&self) -> TaskFailed {
        first_failure([
            &self.ports,
            &self.controllers,
            &self.caches,
            &self.storage,
            &self.audit,
            &self.traces,
            &self.authentication,
        ])
        .await
    }

    /// Stops accepting, ends watches, lets requests complete, then ends the controllers and the
    /// caches and flushes the storage. Requests that exceed the grace period are aborted.
    ///
    /// # Errors
    /// The caches or the storage did not end in time; all steps were attempted.
    pub(in crate::server) async fn drain(self) -> Result<(), DrainTimeout> {
        self.drain_within(None).await
    }

    /// As [`Self::drain`], with another grace period than the configured one.
    pub(in crate::server) async fn drain_within(
        self,
        grace: Option<Duration>,
    ) -> Result<(), DrainTimeout> {
        let started = Instant::now();
        if let Err(error) = self
            .connections
            .drain(grace.unwrap_or(self.shutdown_grace))
            .await
        {
            tracing::warn!(%error, "connections aborted");
        }
        let ports = self.ports.drain(FLUSH_MAX).await;
        let authentication = self.authentication.drain(FLUSH_MAX).await;
        let controllers = self.controllers.drain(FLUSH_MAX).await;
        let caches = self.caches.drain(FLUSH_MAX).await;
        let storage = self.storage.drain(FLUSH_MAX).await;
        // The last requests have ended.
        let audit = self.audit.drain(FLUSH_MAX).await;
        let traces = self.traces.drain(FLUSH_MAX).await;
        let elapsed_ms = started.elapsed().as_millis();
        tracing::info!(elapsed_ms, "drained");
        ports
            .and(authentication)
            .and(controllers)
            .and(caches)
            .and(storage)
            .and(audit)
            .and(traces)
    }
}

/// Waits for the first panic in any group. Cancel safe.
async fn first_failure(groups: [&Tasks; 7]) -> TaskFailed {
    let failures = groups.map(|group| Box::pin(group.failed()));
    futures_util::future::select_all(failures).await.0
}

/// Creates the system namespaces, with retries: etcd may have no leader when the server starts.
async fn bootstrap(
    registry: Arc<Registry>,
    bootstrapped: tokio::sync::watch::Sender<bool>,
    service: KubernetesService,
    tracks_tokens: bool,
    stop: tokio_util::sync::CancellationToken,
) {
    let attempts = async {
        while let Err(error) = registry.bootstrap().await {
            tracing::warn!(%error, "cannot create the system namespaces, retrying");
            tokio::time::sleep(BOOTSTRAP_PAUSE).await;
        }
        bootstrapped.send_replace(true);
        // No request waits for these.
        if tracks_tokens {
            start_token_tracking(&registry).await;
        }
        service.publish(&registry).await;
        service.keep_published(&registry).await;
    };
    // Stopping comes first: the namespaces are no longer needed.
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = attempts => {}
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
                    false => Err("the system namespaces do not exist yet".to_owned()),
                }
            }
        },
    )
}

/// Returns the storage check, with upstream's name `etcd`, whatever the storage is.
fn storage_check(storage: Arc<dyn Storage>) -> HealthCheck {
    HealthCheck::new("etcd", move || {
        let storage = Arc::clone(&storage);
        async move {
            let revision = storage.current_revision().await;
            revision.map(drop).map_err(|error| error.to_string())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_panic_in_any_vital_group_is_reported() {
        for panics in 0..7 {
            let groups = [(); 7].map(|()| Tasks::new());
            let group = groups.each_ref();
            let quiet = tokio::time::timeout(Duration::from_secs(1), first_failure(group)).await;
            assert!(quiet.is_err(), "{quiet:?}");
            drop(group[panics].spawn("vital", async { panic!("a bug") }));
            assert_eq!(first_failure(group).await.message, "a bug");
        }
    }
}
