//! Tests of the controllers with the built-in resources, memory storage and real caches.

mod garbage;
mod namespaces;
mod quotas;
mod simulation;
mod small;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use crate::api::WriteOptions;
use crate::builtin::new_registry;
use crate::controllers::{Launcher, QuotaCounter, Selection};
use crate::metrics::{Format, Metrics};
use crate::registry::{ApiError, CacherConfig, Deleted, Patch, Registry, Target};
use crate::server::process::quotas::BuiltinQuotas;
use crate::tasks::Tasks;
use crate::x509::CertificateAuthority;
use watchet_test_registry::{TestRegistry, definition, deployment, named, pod};
use watchet_test_util::scrape::Scrape;

/// A server with its controllers.
struct Started {
    server: TestRegistry,
    controllers: Tasks,
    queues: Queues,
}

/// Another server on the same storage, stopped when dropped.
struct OtherServer {
    tasks: Tasks,
    queues: Queues,
}

/// The work queues of the controllers of a server.
struct Queues(Arc<Metrics>);

impl Queues {
    fn value(&self, series: &str, controller: &str) -> f64 {
        let scrape = Scrape::parse(&self.0.render(Format::Prometheus));
        let series = format!("workqueue_{series}{{name=\"{controller}\"}}");
        let value = scrape.get(&series);
        value.unwrap_or_else(|| panic!("no series {series}"))
    }

    /// Returns how often the controller has found that a key must be processed again.
    fn retries(&self, controller: &str) -> f64 {
        self.value("retries_total", controller)
    }

    /// Waits until the controller has no key that is ready or in process.
    async fn wait_until_idle(&self, controller: &str) {
        let is_idle = || {
            self.value("depth", controller) == 0.0
                && self.value("unfinished_work_seconds", controller) == 0.0
        };
        wait_for(&format!("{controller} is idle"), is_idle).await;
    }

    /// Waits until the controller has postponed a key after it had postponed `before`.
    async fn wait_until_retried(&self, controller: &str, before: f64) {
        let is_retried = || self.retries(controller) > before;
        wait_for(&format!("{controller} retries a key"), is_retried).await;
    }
}

async fn wait_for(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..3000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("in vain for: {what}");
}

impl Deref for Started {
    type Target = TestRegistry;

    fn deref(&self) -> &TestRegistry {
        &self.server
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.controllers.cancel();
    }
}

impl Drop for OtherServer {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

async fn without_controllers() -> TestRegistry {
    let config = CacherConfig::default();
    TestRegistry::start(|storage, tasks| new_registry(storage, tasks, config, Metrics::new())).await
}

async fn started() -> Started {
    let server = without_controllers().await;
    let controllers = Tasks::new();
    let queues = start(&server.registry, &controllers);
    Started {
        server,
        controllers,
        queues,
    }
}

/// Starts all controllers, and returns their queues.
fn start(registry: &Arc<Registry>, tasks: &Tasks) -> Queues {
    let metrics = Metrics::new();
    let quotas: Arc<dyn QuotaCounter> = Arc::new(BuiltinQuotas::new(Arc::clone(registry)));
    let launcher = Launcher {
        registry,
        tasks,
        selection: &Selection::default(),
        metrics: &metrics,
        root_ca: "-----BEGIN CERTIFICATE-----\nroot\n-----END CERTIFICATE-----\n",
        signer: &Arc::new(authority()),
        quotas: &quotas,
        client_cas: &tokio::sync::watch::channel(Vec::new()).1,
        front_proxy: None,
    };
    launcher.start_all();
    Queues(metrics)
}

/// Returns a CA that signs certificates of clients.
fn authority() -> CertificateAuthority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(2041, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    CertificateAuthority::new(certificate, Issuer::new(params, key))
}

impl Started {
    /// Stops the controllers, as a server shutdown does.
    async fn stop(&self) {
        let grace = Duration::from_secs(5);
        self.controllers.drain(grace).await.unwrap();
    }

    fn another(&self) -> OtherServer {
        let tasks = Tasks::new();
        let config = CacherConfig::default();
        let registry = new_registry(self.storage.clone(), &tasks, config, Metrics::new());
        let queues = start(&registry, &tasks);
        OtherServer { tasks, queues }
    }

    /// Waits until the stored object at a key fulfils `condition`, and returns it.
    async fn wait_until(&self, key: &str, condition: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..3000 {
            match self.stored(key).await {
                Some(stored) if condition(&stored) => return stored,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        panic!("{key} is {:?}", self.stored(key).await);
    }

    async fn wait_until_deleted(&self, key: &str) {
        for _ in 0..3000 {
            if self.stored(key).await.is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{key} is still there: {:?}", self.stored(key).await);
    }

    /// Removes all finalizers from an object.
    async fn remove_finalizers(&self, namespace: &str, path: &str) {
        let target = Target {
            namespace: Some(namespace.to_owned()),
            ..self.target(path)
        };
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let options = WriteOptions::default();
        let released = self.registry.patch(&target, &patch, &options).await;
        released.unwrap();
    }
}
