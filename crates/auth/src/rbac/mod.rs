//! Role-based access control, as upstream's `RBAC` authorization mode: the rules of the roles that are bound to a user
//! allow requests; no rule denies a request.
//!
//! ```text
//! Role, ClusterRole, RoleBinding, ClusterRoleBinding ─▶ RbacObjects ─▶ RoleIndex: by user and by group
//!                                                                          │
//!                                          Attributes ─▶ RbacAuthorizer ◀──┘
//! ```
//!
//! ```
//! use std::sync::Arc;
//!
//! use watchet_api::UserInfo;
//! use watchet_auth::rbac::{RbacAuthorizer, RbacChange, RbacKind};
//! use watchet_auth::{Attributes, Authorizer as _};
//!
//! let rbac = RbacAuthorizer::new();
//! let change = |name, object: &'static str| RbacChange { namespace: "web", name, object: Some(object.as_bytes()) };
//! rbac.change(RbacKind::Role, [change("reader", r#"{"rules": [
//!     {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
//! ]}"#)]);
//! rbac.change(RbacKind::RoleBinding, [change("readers", r#"{
//!     "roleRef": {"kind": "Role", "name": "reader"},
//!     "subjects": [{"kind": "User", "name": "jane"}]
//! }"#)]);
//!
//! let get = Attributes {
//!     user: Arc::new(UserInfo { name: "jane".to_owned(), ..UserInfo::default() }),
//!     verb: "get".to_owned(),
//!     is_resource_request: true,
//!     resource: "pods".to_owned(),
//!     namespace: "web".to_owned(),
//!     name: "web-0".to_owned(),
//!     ..Attributes::default()
//! };
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! assert!(rbac.authorize(&get).await.is_allowed());
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

// In reading order.
mod policy_rule;

mod rule_filter;

mod role_rules;

mod kind;

mod objects;

mod role_index;

mod authorizer;

mod coverage;

mod default_policy;

#[cfg(test)]
mod tests;

pub use authorizer::RbacAuthorizer;
pub use coverage::missing_rules;
pub use default_policy::{DefaultObject, default_policy};
pub use kind::RbacKind;
pub use objects::{InvalidRbacObject, RbacChange};
pub use policy_rule::PolicyRule;
