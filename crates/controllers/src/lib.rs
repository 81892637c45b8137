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

// In reading order: what controllers consist of, the controllers, their start.
mod follower;
mod framework;
mod queue;

mod cluster_authentication;
mod csr_signers;
mod csr_signing;
mod finished_jobs;
mod garbage;
mod namespace;
mod namespace_conditions;
mod per_namespace;
mod protection;
mod quota_counter;
mod resource_quota;

mod launcher;
mod selection;

pub use launcher::Launcher;
pub use quota_counter::QuotaCounter;
pub use selection::{Selection, TOKEN_TRACKING, UnknownController};
