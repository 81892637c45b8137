//! `status.typeChecking` of policies: what their expressions select that the types they are about do not have.
//! Written with the policy itself; upstream's controller writes it a little later.

use serde_json::{Value, json};

use super::super::{Registry, Resource};
use super::{GROUP, kind_of};
use crate::admission::attributes::GroupVersionKind;
use crate::admission::types::{Kinds, warnings};
use crate::schema::KindType;

impl Kinds for Registry {
    fn of_resource(
        &self,
        group: &str,
        version: &str,
        resource: &str,
    ) -> Option<(GroupVersionKind, KindType)> {
        let found = self.resource(group, version, resource)?;
        Some((kind_of(&found), self.kind_type(&found)?))
    }

    fn of_kind(&self, kind: &GroupVersionKind) -> Option<KindType> {
        self.kind_type(&*self.resource_of_kind(kind)?)
    }
}

impl Registry {
    /// Writes into a policy what its expressions are found to be, unless it is its status that is written.
    pub(in crate::registry) fn check_types(
        &self,
        resource: &Resource,
        subresource: Option<&str>,
        policy: &mut Value,
    ) {
        if subresource.is_some() || !resource.is(GROUP, "validatingadmissionpolicies") {
            return;
        }
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
