//! The Node authorizer, as upstream's `Node` authorization mode: a kubelet may read the secrets, config maps, claims and
//! volumes of the pods on its node, and its own node, lease and CSINode; nothing of other nodes.
//!
//! ```text
//! pods, persistentvolumes, volumeattachments, resourceslices ─▶ NodeGraph: object ─▶ nodes that need it
//!                                                                    │
//!                                       Attributes ─▶ NodeAuthorizer ◀──┘
//! ```
//!
//! ```
//! use std::sync::Arc;
//!
//! use watchet_api::UserInfo;
//! use watchet_auth::node::{NodeAuthorizer, SourceChange, SourceKind};
//! use watchet_auth::{Attributes, Authorizer as _};
//!
//! let nodes = NodeAuthorizer::new();
//! nodes.change(SourceKind::Pod, [SourceChange {
//!     namespace: "web",
//!     name: "web-0",
//!     object: Some(br#"{"spec": {"nodeName": "n1", "volumes": [{"name": "v", "secret": {"secretName": "tls"}}]}}"#),
//! }]);
//! let get_by = |node: &str| Attributes {
//!     user: Arc::new(UserInfo {
//!         name: format!("system:node:{node}"),
//!         groups: vec!["system:nodes".to_owned()],
//!         ..UserInfo::default()
//!     }),
//!     verb: "get".to_owned(),
//!     is_resource_request: true,
//!     resource: "secrets".to_owned(),
//!     namespace: "web".to_owned(),
//!     name: "tls".to_owned(),
//!     ..Attributes::default()
//! };
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! assert!(nodes.authorize(&get_by("n1")).await.is_allowed());
//! assert!(!nodes.authorize(&get_by("n2")).await.is_allowed());
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

// In reading order.
mod identity;

mod references;

mod graph;

mod authorizer;

#[cfg(test)]
mod tests;

pub use authorizer::NodeAuthorizer;
pub use graph::{InvalidSource, SourceChange, SourceKind};
pub use identity::node_of;
pub use references::kinds_referenced_by_pod;
