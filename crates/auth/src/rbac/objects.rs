//! The parsed roles and bindings, and their changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Deserialize;

use super::default_policy::{DefaultObject, default_policy};
use super::kind::RbacKind;
use super::policy_rule::PolicyRule;
use super::role_rules::RoleRules;

/// A change of one object.
#[derive(Debug, Clone, Copy)]
pub struct RbacChange<'a> {
    /// Empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// The name of the object.
    pub name: &'a str,
    /// The JSON of the object; `None` if it was deleted.
    pub object: Option<&'a [u8]>,
}

/// The error of a stored role or binding that cannot be parsed. The object grants nothing.
#[derive(Debug, thiserror::Error)]
#[error("{} {name:?} is invalid and grants nothing: {source}", kind.plural())]
pub struct InvalidRbacObject {
    kind: RbacKind,
    /// `namespace/name`, or the name.
    name: String,
    source: serde_json::Error,
}

/// Namespace and name; cluster-scoped objects have an empty namespace.
pub(super) type Key = (Box<str>, Box<str>);

/// The subject of a binding.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Subject {
    pub(super) kind: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) namespace: String,
}

/// The role of a binding.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct RoleRef {
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Binding {
    pub(super) role_ref: RoleRef,
    #[serde(default)]
    pub(super) subjects: Option<Vec<Subject>>,
}

#[derive(Deserialize)]
struct Role {
    #[serde(default)]
    rules: Option<Vec<PolicyRule>>,
}

/// The parsed objects.
#[derive(Debug, Clone, Default)]
pub(super) struct RbacObjects {
    /// Roles, and cluster roles under an empty namespace.
    pub(super) roles: HashMap<Key, Arc<RoleRules>>,
    /// Sorted, so that the reason of a decision is deterministic.
    pub(super) cluster_role_bindings: BTreeMap<Key, Binding>,
    pub(super) role_bindings: BTreeMap<Key, Binding>,
}

impl RbacObjects {
    /// Returns the objects of [`default_policy`].
    pub(super) fn default_policy() -> Self {
        let mut objects = Self::default();
        for DefaultObject {
            kind,
            namespace,
            name,
            object,
        } in default_policy()
        {
            let object = object.to_string();
            let change = RbacChange {
                namespace: &namespace,
                name: &name,
                object: Some(object.as_bytes()),
            };
            let applied = objects.apply(kind, &change);
            applied.expect("the generated objects are valid");
        }
        objects
    }

    /// Adds the objects of `others` that are missing here, by kind, namespace and name.
    pub(super) fn add_missing(&mut self, others: &Self) {
        for (key, rules) in &others.roles {
            self.roles
                .entry(key.clone())
                .or_insert_with(|| rules.clone());
        }
        for (bindings, others) in [
            (
                &mut self.cluster_role_bindings,
                &others.cluster_role_bindings,
            ),
            (&mut self.role_bindings, &others.role_bindings),
        ] {
            for (key, binding) in others {
                let entry = bindings.entry(key.clone());
                entry.or_insert_with(|| binding.clone());
            }
        }
    }

    /// Removes all objects of a kind.
    pub(super) fn clear(&mut self, kind: RbacKind) {
        match kind {
            RbacKind::ClusterRole => self.roles.retain(|(namespace, _), _| !namespace.is_empty()),
            RbacKind::Role => self.roles.retain(|(namespace, _), _| namespace.is_empty()),
            RbacKind::ClusterRoleBinding => self.cluster_role_bindings.clear(),
            RbacKind::RoleBinding => self.role_bindings.clear(),
        }
    }

    /// Applies a change.
    ///
    /// # Errors
    /// The object is invalid. The previous object is removed.
    pub(super) fn apply(
        &mut self,
        kind: RbacKind,
        change: &RbacChange<'_>,
    ) -> Result<(), InvalidRbacObject> {
        let key: Key = (change.namespace.into(), change.name.into());
        let invalid = |source| InvalidRbacObject {
            kind,
            name: match change.namespace {
                "" => change.name.to_owned(),
                namespace => format!("{namespace}/{}", change.name),
            },
            source,
        };
        match kind {
            RbacKind::ClusterRole | RbacKind::Role => {
                self.roles.remove(&key);
                if let Some(object) = change.object {
                    let role: Role = serde_json::from_slice(object).map_err(invalid)?;
                    let rules = RoleRules::new(role.rules.unwrap_or_default());
                    self.roles.insert(key, Arc::new(rules));
                }
            }
            RbacKind::ClusterRoleBinding | RbacKind::RoleBinding => {
                let bindings = match kind {
                    RbacKind::RoleBinding => &mut self.role_bindings,
                    _ => &mut self.cluster_role_bindings,
                };
                bindings.remove(&key);
                if let Some(object) = change.object {
                    bindings.insert(key, serde_json::from_slice(object).map_err(invalid)?);
                }
            }
        }
        Ok(())
    }
}
