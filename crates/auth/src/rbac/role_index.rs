//! `RoleIndex`: the granted rules by user name and by group, so that a decision reads only the bindings of the user.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::objects::{Binding, Key, RbacObjects, RoleRef, Subject};
use super::role_rules::RoleRules;
use super::rule_filter::RuleFilter;
use crate::service_account::user_name;
use watchet_api::UserInfo;

/// The rules that a binding grants to one of its subjects.
#[derive(Debug)]
pub(super) struct Grant {
    /// The reason for an allowed request, with upstream's text.
    pub(super) reason: String,
    /// The rules of the role, or upstream's message if it does not exist.
    pub(super) rules: Result<Arc<RoleRules>, String>,
}

/// A grant of a subject. A decision reads most entries only, not what they point to.
#[derive(Debug)]
struct Entry {
    /// The scope of the grant: [`EVERYWHERE`], or the ID of a namespace.
    scope: u32,
    filter: RuleFilter,
    grant: Box<Grant>,
}

/// The scope of cluster role bindings.
const EVERYWHERE: u32 = 0;

type Map<V> = HashMap<Box<str>, V, RandomState>;

/// The grants of a user or group, sorted by their scopes.
type Entries = Vec<Entry>;

/// The grants by user and group. It is immutable: every change of a role or binding creates a new index.
#[derive(Debug, Default)]
pub(super) struct RoleIndex {
    users: Map<Entries>,
    groups: Map<Entries>,
    /// The IDs of the namespaces that have role bindings, from 1.
    namespaces: Map<u32>,
}

/// The grants of one user.
#[derive(Debug)]
pub(super) struct UserGrants<'a> {
    index: &'a RoleIndex,
    /// Those of the user, then those of its groups.
    entries: Vec<&'a [Entry]>,
}

impl RoleIndex {
    pub(super) fn new(objects: &RbacObjects) -> Self {
        let mut index = Self::default();
        for (key, binding) in &objects.cluster_role_bindings {
            index.add(objects, "ClusterRoleBinding", EVERYWHERE, key, binding);
        }
        // Sorted by namespaces, so the entries of a subject are sorted too.
        for (key, binding) in &objects.role_bindings {
            let next = u32::try_from(index.namespaces.len()).unwrap_or(u32::MAX - 1) + 1;
            let scope = *index.namespaces.entry(key.0.clone()).or_insert(next);
            index.add(objects, "RoleBinding", scope, key, binding);
        }
        index
    }

    /// Returns the grants of a user.
    pub(super) fn of_user<'a>(&'a self, user: &UserInfo) -> UserGrants<'a> {
        let mut entries = Vec::with_capacity(1 + user.groups.len());
        entries.extend(self.users.get(&*user.name).map(Vec::as_slice));
        let of_groups = user.groups.iter();
        let of_groups = of_groups.filter_map(|group| self.groups.get(&**group));
        entries.extend(of_groups.map(Vec::as_slice));
        UserGrants {
            index: self,
            entries,
        }
    }

    fn add(&mut self, objects: &RbacObjects, kind: &str, scope: u32, key: &Key, binding: &Binding) {
        let rules = rules(objects, &binding.role_ref, &key.0);
        // A missing role is reported with each decision.
        let filter = match &rules {
            Ok(rules) => rules.filter(),
            Err(_) => RuleFilter::EVERYTHING,
        };
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
            let entries = subjects.entry(name.into_boxed_str()).or_default();
            entries.push(Entry {
                scope,
                filter,
                grant: Box::new(grant),
            });
        }
    }
}

impl<'a> UserGrants<'a> {
    /// Returns the grants everywhere, then those in `namespace` unless that is empty; with `filter`, those that may allow a
    /// request with these bits. A grant through several groups is returned for each.
    pub(super) fn grants(
        &self,
        namespace: &str,
        filter: Option<RuleFilter>,
    ) -> impl Iterator<Item = &'a Grant> {
        let local = match namespace {
            "" => None,
            namespace => self.index.namespaces.get(namespace).copied(),
        };
        let scopes = [Some(EVERYWHERE), local].into_iter().flatten();
        let entries = scopes.flat_map(|scope| {
            let of_subjects = self.entries.iter();
            of_subjects.flat_map(move |entries| in_scope(entries, scope))
        });
        let may_allow =
            move |entry: &&Entry| filter.is_none_or(|bits| entry.filter.may_allow(bits));
        entries.filter(may_allow).map(|entry| &*entry.grant)
    }
}

/// Returns the entries of one scope.
fn in_scope(entries: &[Entry], scope: u32) -> &[Entry] {
    let begin = match scope {
        EVERYWHERE => 0,
        scope => entries.partition_point(|entry| entry.scope < scope),
    };
    let rest = &entries[begin..];
    let end = rest.iter().position(|entry| entry.scope != scope);
    &rest[..end.unwrap_or(rest.len())]
}

/// Returns the namespace of a service account; the default is that of the role binding.
fn account_namespace<'a>(subject: &'a Subject, of_binding: &'a str) -> &'a str {
    match &*subject.namespace {
        "" => of_binding,
        namespace => namespace,
    }
}

/// Returns the rules of a role; a cluster role is under an empty namespace.
fn rules(objects: &RbacObjects, role: &RoleRef, namespace: &str) -> Result<Arc<RoleRules>, String> {
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
