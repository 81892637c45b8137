//! Roles and bindings: the default ones, the rules of aggregated cluster roles, and the objects for the authorizer.

mod aggregation;
mod default_policy;
mod role_source;
mod role_versions;

pub(super) use aggregation::ClusterRoleAggregation;
pub use default_policy::create_default_policy;
pub use role_source::feed_authorizer;
pub use role_versions::RoleVersions;

use std::sync::Arc;

use watchet_auth::rbac::RbacKind;
use watchet_registry::{Registry, Resource};

/// The group of the roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

fn resource(registry: &Registry, kind: RbacKind) -> Arc<Resource> {
    let resource = registry.resource(GROUP, "v1", kind.plural());
    resource.expect("the table of built-ins has the roles and bindings")
}
