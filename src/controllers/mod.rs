//! Controllers: the loops inside of the server that finish what a request begins, each by itself and
//! by the registry's verbs alone, as a client would. None is in the path of a read, none is asked by a
//! write, and what one does can also be done by somebody else outside.
//!
//! ```text
//!  cache of a resource ─watch─▶ Follower ─▶ controller: which keys? ─▶ WorkQueue
//!                                                                         │
//!            registry: get, patch, delete ◀── reconcile(key) ◀── a few at a time
//! ```
//!
//! # Several servers on one storage
//!
//! Each runs its controllers and there is no leader: what one decides holds only for the very object that
//! it looked at (uid and version go with every delete and every patch), so of two that do the same the
//! second finds it done, and goes on from there.

mod csr_signers;
mod csr_signing;
mod finished_jobs;
mod follower;
mod frame;
mod garbage;
mod namespace;
mod per_namespace;
mod protection;
mod queue;
mod resource_quota;
mod selection;

use std::sync::Arc;

pub use selection::{Selection, UnknownController};

use self::frame::Controller;
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::tasks::Tasks;
use crate::x509::CertificateAuthority;

/// The creation of the config map of token tracking, which kube-apiserver does upstream. It is selected as a
/// controller is, and runs once, when the system namespaces exist.
pub(crate) const TOKEN_TRACKING: &str = "legacy-token-tracking-controller";

/// What controllers are started with.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// What they watch and write.
    pub registry: &'a Arc<Registry>,
    /// Whose tasks they are; they end when the group does.
    pub tasks: &'a Tasks,
    /// Which of them.
    pub selection: &'a Selection,
    /// Where what they do is counted.
    pub metrics: &'a Arc<Metrics>,
    /// The CA by which clients inside of the cluster trust the server, PEM.
    pub root_ca: &'a str,
    /// What signs certificates that were requested and approved.
    pub signer: &'a Arc<CertificateAuthority>,
}

impl Start<'_> {
    /// Starts those that were selected, each as a task.
    pub fn all(&self) {
        self.one(namespace::NamespaceController::new);
        self.one(garbage::GarbageCollector::new);
        self.one(per_namespace::ServiceAccounts::new);
        self.one(|registry, metrics| per_namespace::RootCa::new(registry, metrics, self.root_ca));
        self.one(|registry, metrics| {
            csr_signing::CsrSigning::new(registry, metrics, self.signer.clone())
        });
        self.one(finished_jobs::FinishedJobs::new);
        self.one(protection::Claims::new);
        self.one(protection::Volumes::new);
        self.one(resource_quota::ResourceQuotas::new);
    }

    fn one<C: Controller>(&self, new: impl FnOnce(Arc<Registry>, &Metrics) -> C) {
        if self.selection.has(C::NAME) {
            let controller = Arc::new(new(self.registry.clone(), self.metrics));
            let run = frame::run(controller, self.tasks.token());
            self.tasks.spawn(C::NAME, run);
        }
    }
}

#[cfg(test)]
mod tests;
