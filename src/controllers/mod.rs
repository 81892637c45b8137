//! Controllers that run in the server's process. They use the registry's verbs as a client would.
//! No read or write depends on them, and an external kube-controller-manager can replace them.
//!
//! ```text
//!  cache of a resource ─watch─▶ Follower ─▶ controller: select keys ─▶ WorkQueue
//!                                                                         │
//!            registry: get, patch, delete ◀── reconcile(key) ◀── a few at a time
//! ```
//!
//! # Several servers on one storage
//!
//! Each runs its controllers, without leader election: every delete and patch has the uid and
//! version of the object it was decided on as preconditions, so of two servers that do the same the
//! second gets a conflict or finds the work done.

mod cluster_authentication;
mod csr_signers;
mod csr_signing;
mod finished_jobs;
mod follower;
mod framework;
mod garbage;
mod namespace;
mod per_namespace;
mod protection;
mod queue;
mod resource_quota;
mod selection;

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
pub use selection::{Selection, UnknownController};

use self::framework::Controller;
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::tasks::Tasks;
use crate::x509::CertificateAuthority;

/// The creation of the config map of legacy token tracking, which upstream's kube-apiserver does.
/// It is selected like a controller and runs once, when the system namespaces exist.
pub(crate) const TOKEN_TRACKING: &str = "legacy-token-tracking-controller";

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
    /// The CAs of the client certificates that the server accepts.
    pub client_cas: &'a [CertificateDer<'static>],
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
        self.start(protection::Claims::new);
        self.start(protection::Volumes::new);
        self.start(protection::AttributesClasses::new);
        self.start(resource_quota::ResourceQuotas::new);
        self.start(|registry, metrics| {
            cluster_authentication::ClusterAuthentication::new(registry, metrics, self.client_cas)
        });
    }

    fn start<C: Controller>(&self, new: impl FnOnce(Arc<Registry>, &Metrics) -> C) {
        if self.selection.has(C::NAME) {
            let controller = Arc::new(new(self.registry.clone(), self.metrics));
            let run = framework::run(controller, self.tasks.token());
            self.tasks.spawn(C::NAME, run);
        }
    }
}

#[cfg(test)]
mod tests;
