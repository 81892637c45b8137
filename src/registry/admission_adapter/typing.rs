//! `status.typeChecking` of policies: what their expressions select that the types they are about do not have.
//! Written with the policy itself; upstream's controller writes it a little later.

use serde_json::{Value, json};

use super::{kind_of, resource_of};
use crate::admission::request::{GroupVersionKind, GroupVersionResource};
use crate::admission::types::{Kinds, warnings};
use crate::registry::Registry;
use crate::schema::KindType;

impl Kinds for Registry {
    fn resources(&self) -> Vec<GroupVersionResource> {
        let all = Self::resources(self);
        all.iter().map(|resource| resource_of(resource)).collect()
    }

    fn of_resource(&self, resource: &GroupVersionResource) -> Option<(GroupVersionKind, KindType)> {
        let found = self.resource(&resource.group, &resource.version, &resource.resource)?;
        Some((kind_of(&found), self.kind_type(&found)?))
    }

    fn of_kind(&self, kind: &GroupVersionKind) -> Option<KindType> {
        self.kind_type(&*self.resource_of_kind(kind)?)
    }
}

impl Registry {
    /// Writes the warnings about the expressions of a policy into its status.
    pub(crate) fn check_types(&self, policy: &mut Value) {
        let found = warnings(policy, self);
        let generation = policy["metadata"]["generation"].clone();
        if !policy["status"].is_object() {
            policy["status"] = json!({});
        }
        policy["status"]["observedGeneration"] = generation;
        policy["status"]["typeChecking"] = match found.is_empty() {
            true => json!({}),
            false => json!({"expressionWarnings": found}),
        };
    }
}
