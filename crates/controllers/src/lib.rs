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
//!
//! # Example
//!
//! The garbage collector deletes a config map whose owner does not exist.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use serde_json::json;
//! use watchet_api::{EventType, ListOptions, WriteOptions};
//! use watchet_controllers::{Launcher, QuotaCounter, Selection};
//! use watchet_metrics::Metrics;
//! use watchet_registry::WatchItem;
//! use watchet_tasks::Tasks;
//! # use watchet_api::{Object, ObjectKey};
//! # use watchet_registry::{ApiError, Resource};
//! # use watchet_x509::CertificateAuthority;
//! # #[derive(Debug)]
//! # struct NoQuotas;
//! # #[async_trait::async_trait]
//! # impl QuotaCounter for NoQuotas {
//! #     fn resources(&self, _: &serde_json::Value) -> Vec<Arc<Resource>> { Vec::new() }
//! #     fn is_uncounted(&self, _: &serde_json::Value) -> bool { false }
//! #     fn footprint(&self, _: &Resource, _: &Object) -> Option<u64> { None }
//! #     async fn count(&self, _: &ObjectKey, _: &WriteOptions) -> Result<Option<Duration>, ApiError> { Ok(None) }
//! # }
//! # fn authority() -> Result<CertificateAuthority, rcgen::Error> {
//! #     let mut params = rcgen::CertificateParams::default();
//! #     params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
//! #     let key = rcgen::KeyPair::generate()?;
//! #     let certificate = params.self_signed(&key)?.der().clone();
//! #     Ok(CertificateAuthority::new(certificate, rcgen::Issuer::new(params, key)))
//! # }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (signer, quotas) = (Arc::new(authority()?), Arc::new(NoQuotas) as Arc<dyn QuotaCounter>);
//! let (tasks, metrics) = (Tasks::new(), Metrics::new());
//! let storage = watchet_storage::memory::Memory::new(Duration::ZERO)?;
//! let registry = watchet_builtin::new_registry(storage, &tasks, Default::default(), metrics.clone());
//! registry.bootstrap().await?;
//! let (_, client_cas) = tokio::sync::watch::channel(Vec::new());
//! let launcher = Launcher {
//!     registry: &registry,
//!     tasks: &tasks,
//!     selection: &Selection::parse("garbage-collector-controller")?,
//!     metrics: &metrics,
//!     root_ca: "",
//!     signer: &signer,
//!     quotas: &quotas,
//!     client_cas: &client_cas,
//!     front_proxy: None,
//! };
//! launcher.start_all();
//!
//! let maps = registry.resource("", "v1", "configmaps").expect("a built-in resource");
//! let mut events = registry.watch(&maps, Some("default"), &ListOptions::default()).await?;
//! let absent = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1"});
//! let map = json!({"metadata": {"name": "garbage", "ownerReferences": [absent]}});
//! registry.create(&maps, Some("default"), map, &WriteOptions::default()).await?;
//! let is_deletion = |item: &WatchItem| {
//!     matches!(item, WatchItem::Event(event) if event.event_type() == EventType::Deleted)
//! };
//! while !events.next().await.expect("the watch is open").iter().any(is_deletion) {}
//! # tasks.drain(Duration::from_secs(10)).await?;
//! # Ok(())
//! # }
//! ```

// In reading order: what controllers consist of, the controllers, their start.
mod follower;
mod framework;
mod queue;
mod stored_objects;

mod cluster_authentication;
mod csr_signers;
mod csr_signing;
mod finished_jobs;
mod flow_control;
mod garbage;
mod namespace;
mod namespace_conditions;
mod node_authorization;
mod per_namespace;
mod protection;
mod quota_counter;
mod rbac;
mod resource_quota;

mod launcher;
mod selection;

pub use cluster_authentication::FrontProxyInfo;
pub use flow_control::{
    ensure_default_flow_objects, feed_flow_control, maintain_default_flow_objects,
};
pub use launcher::Launcher;
pub use node_authorization::feed_node_authorizer;
pub use quota_counter::QuotaCounter;
pub use rbac::{RoleVersions, create_default_policy, feed_authorizer};
pub use selection::{Selection, TOKEN_TRACKING, UnknownController};
