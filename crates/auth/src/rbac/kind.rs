//! `RbacKind`: the kinds of roles and bindings.

/// The kinds of `rbac.authorization.k8s.io/v1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RbacKind {
    /// Rules for all namespaces and for cluster-scoped resources.
    ClusterRole,
    /// Rules for one namespace.
    Role,
    /// Grants a ClusterRole everywhere.
    ClusterRoleBinding,
    /// Grants a Role or ClusterRole in one namespace.
    RoleBinding,
}

impl RbacKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [
        Self::ClusterRole,
        Self::Role,
        Self::ClusterRoleBinding,
        Self::RoleBinding,
    ];

    /// Returns the name of the resource.
    pub fn plural(self) -> &'static str {
        match self {
            Self::ClusterRole => "clusterroles",
            Self::Role => "roles",
            Self::ClusterRoleBinding => "clusterrolebindings",
            Self::RoleBinding => "rolebindings",
        }
    }
}
