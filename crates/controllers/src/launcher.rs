//! Starts the selected controllers.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use tokio::sync::watch;

use crate::framework::{self, Controller};
use crate::quota_counter::QuotaCounter;
use crate::selection::Selection;
use crate::{
    cluster_authentication, csr_signing, finished_jobs, garbage, namespace, per_namespace,
    protection, rbac, resource_quota,
};
use watchet_metrics::Metrics;
use watchet_registry::Registry;
use watchet_tasks::Tasks;
use watchet_x509::CertificateAuthority;

/// Starts the controllers.
#[derive(Debug, Clone, Copy)]
pub struct Launcher<'a> {
    /// The registry that they watch and write.
    pub registry: &'a Arc<Registry>,
    /// The task group to spawn them in; its shutdown ends them.
    pub tasks: &'a Tasks,
    /// The controllers to start.
    pub selection: &'a Selection,
    /// The metrics of work queues.
    pub metrics: &'a Arc<Metrics>,
    /// The PEM certificate of the CA with which clients in the cluster verify the server.
    pub root_ca: &'a str,
    /// The CA that signs certificates.
    pub signer: &'a Arc<CertificateAuthority>,
    /// Counts the usage of ResourceQuotas.
    pub quotas: &'a Arc<dyn QuotaCounter>,
    /// The CAs of the client certificates that the server accepts, which may change.
    pub client_cas: &'a watch::Receiver<Vec<CertificateDer<'static>>>,
    /// The front proxies that the server accepts, if any.
    pub front_proxy: Option<&'a cluster_authentication::FrontProxyInfo>,
}

impl Launcher<'_> {
    /// Starts the selected controllers, each as a task.
    pub fn start_all(&self) {
        self.start(namespace::NamespaceController::new);
        self.start(garbage::GarbageCollector::new);
        self.start(per_namespace::ServiceAccounts::new);
        self.start(|registry, metrics| per_namespace::RootCa::new(registry, metrics, self.root_ca));
        self.start(|registry, metrics| {
            csr_signing::CsrSigning::new(registry, metrics, self.signer.clone())
        });
        self.start(finished_jobs::FinishedJobs::new);
        self.start(rbac::ClusterRoleAggregation::new);
        self.start(protection::Claims::new);
        self.start(protection::Volumes::new);
        self.start(protection::AttributesClasses::new);
        self.start(|registry, metrics| {
            resource_quota::ResourceQuotas::new(registry, metrics, self.quotas.clone())
        });
        self.start(|registry, metrics| {
            let (client_cas, front_proxy) = (self.client_cas, self.front_proxy);
            cluster_authentication::ClusterAuthentication::new(
                registry,
                metrics,
                client_cas,
                front_proxy,
            )
        });
    }

    fn start<C: Controller>(&self, new: impl FnOnce(Arc<Registry>, &Metrics) -> C) {
        if self.selection.has(C::NAME) {
            let controller = Arc::new(new(self.registry.clone(), self.metrics));
            let run = framework::run(controller, self.tasks.clone());
            self.tasks.spawn(C::NAME, run);
        }
    }
}
