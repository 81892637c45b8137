//! Strategies of the objects that configure admission.

use serde_json::{Value, json};

use watchet_admission::types::{Kinds, warnings};
use watchet_admission::{ConfigurationKind, problems};
use watchet_registry::{Causes, Resource, Strategy};

/// The strategy of webhook configurations, policies and their bindings.
#[derive(Debug)]
pub(super) struct Configurations(pub(super) ConfigurationKind);

impl Strategy for Configurations {
    fn validate(&self, _resource: &Resource, object: &Value, causes: &mut Causes) {
        for problem in problems(self.0, object) {
            causes.push(problem);
        }
    }

    fn validate_update(
        &self,
        resource: &Resource,
        subresource: Option<&str>,
        _old: &Value,
        new: &Value,
        causes: &mut Causes,
    ) {
        if subresource.is_none() {
            self.validate(resource, new, causes);
        }
    }

    fn set_derived_status(&self, kinds: &dyn Kinds, subresource: Option<&str>, object: &mut Value) {
        if subresource.is_none() && self.0.plural() == "validatingadmissionpolicies" {
            check_types(object, kinds);
        }
    }

    fn admission_configuration(&self) -> Option<ConfigurationKind> {
        Some(self.0)
    }
}

/// Writes the warnings about the expressions of a policy into `status.typeChecking`. Upstream, a controller writes them
/// some time after the policy is created.
fn check_types(policy: &mut Value, kinds: &dyn Kinds) {
    let found = warnings(policy, kinds);
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
