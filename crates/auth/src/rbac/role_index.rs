//! `RoleIndex`: the granted rules by user name and by group, so that a decision reads only the bindings of the user.

use std::collections::HashMap;
use std::sync::Arc;

use super::objects::{Binding, Key, RbacObjects, RoleRef, Subject};
use super::policy_rule::PolicyRule;
use crate::service_account::user_name;
use watchet_api::UserInfo;

/// What one subject of a binding is granted.
#[derive(Debug)]
pub(super) struct Grant {
    /// Why a request is allowed, in upstream's words.
    pub(super) reason: String,
    /// The rules of the role, or upstream's message if it does not exist.
    pub(super) rules: Result<Arc<[PolicyRule]>, String>,
}

/// The grants in one namespace, or everywhere.
#[derive(Debug, Default)]
struct Scope {
    users: HashMap<Box<str>, Vec<Arc<Grant>>>,
    groups: HashMap<Box<str>, Vec<Arc<Grant>>>,
}

/// The grants by user and group. It is immutable: every change of a role or binding makes a new one.
#[derive(Debug, Default)]
pub(super) struct RoleIndex {
    cluster: Scope,
    namespaces: HashMap<Box<str>, Scope>,
}

impl RoleIndex {
    pub(super) fn new(objects: &RbacObjects) -> Self {
        let mut index = Self::default();
        for (key, binding) in &objects.cluster_role_bindings {
            index
                .cluster
                .add(objects, "ClusterRoleBinding", key, binding);
        }
        for (key, binding) in &objects.role_bindings {
            let scope = index.namespaces.entry(key.0.clone()).or_default();
            scope.add(objects, "RoleBinding", key, binding);
        }
        index
    }

    /// Returns the grants of a user: those everywhere, then those in `namespace` unless that is empty. A grant through
    /// several groups is returned for each.
    pub(super) fn grants<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &str,
    ) -> impl Iterator<Item = &'a Grant> {
        let local = match namespace {
            "" => None,
            namespace => self.namespaces.get(namespace),
        };
        let scopes = [Some(&self.cluster), local].into_iter().flatten();
        scopes.flat_map(move |scope| scope.grants(user))
    }
}

impl Scope {
    fn grants<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = &'a Grant> {
        let own = self.users.get(&*user.name).into_iter();
        let of_groups = user.groups.iter();
        let of_groups = of_groups.filter_map(|group| self.groups.get(&**group));
        own.chain(of_groups).flatten().map(|grant| &**grant)
    }

    fn add(&mut self, objects: &RbacObjects, kind: &str, key: &Key, binding: &Binding) {
        let rules = rules(objects, &binding.role_ref, &key.0);
        let binding_name = match &*key.0 {
            "" => key.1.to_string(),
            namespace => format!("{}/{namespace}", key.1),
        };
        for subject in binding.subjects.iter().flatten() {
            let (subjects, name, described) = match &*subject.kind {
                "User" => (&mut self.users, subject.name.clone(), subject.name.clone()),
                "Group" => (&mut self.groups, subject.name.clone(), subject.name.clone()),
                "ServiceAccount" => match account_namespace(subject, &key.0) {
                    "" => continue,
                    namespace => (
                        &mut self.users,
                        user_name(namespace, &subject.name),
                        format!("{}/{namespace}", subject.name),
                    ),
                },
                _ => continue,
            };
            let role = &binding.role_ref;
            let grant = Grant {
                reason: format!(
                    "RBAC: allowed by {kind} {binding_name:?} of {} {:?} to {} {described:?}",
                    role.kind, role.name, subject.kind,
                ),
                rules: rules.clone(),
            };
            let grants = subjects.entry(name.into_boxed_str()).or_default();
            grants.push(Arc::new(grant));
        }
    }
}

/// The namespace of a service account defaults to that of the role binding.
fn account_namespace<'a>(subject: &'a Subject, of_binding: &'a str) -> &'a str {
    match &*subject.namespace {
        "" => of_binding,
        namespace => namespace,
    }
}

/// Returns the rules of a role; a cluster role is under an empty namespace.
fn rules(
    objects: &RbacObjects,
    role: &RoleRef,
    namespace: &str,
) -> Result<Arc<[PolicyRule]>, String> {
    let (namespace, resource) = match &*role.kind {
        "ClusterRole" => ("", "clusterrole"),
        "Role" => (namespace, "role"),
        kind => return Err(format!("unsupported role reference kind: {kind:?}")),
    };
    let key: Key = (namespace.into(), role.name.as_str().into());
    let rules = objects.roles.get(&key).cloned();
    rules.ok_or_else(|| {
        format!(
            "{resource}.rbac.authorization.k8s.io {:?} not found",
            role.name
        )
    })
}
