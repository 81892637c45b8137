//! What the configurations of admission have beside what built-in resources share.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::admission::{ConfigurationKind, problems};
use crate::api::{ResourceVersion, StatusCause};
use crate::registry::Registry;
use crate::registry::strategy::Strategy;

/// Webhook configurations, policies and their bindings.
#[derive(Debug)]
pub(super) struct Configurations(pub(super) ConfigurationKind);

impl Strategy for Configurations {
    fn strict_problems(&self, object: &Value) -> Vec<StatusCause> {
        problems(self.0, object)
    }

    fn set_derived_status(
        &self,
        registry: &Registry,
        subresource: Option<&str>,
        object: &mut Value,
    ) {
        if subresource.is_none() && self.0.plural() == "validatingadmissionpolicies" {
            registry.check_types(object);
        }
    }

    fn after_store<'a>(
        &'a self,
        registry: &'a Registry,
        at: ResourceVersion,
    ) -> Option<BoxFuture<'a, ()>> {
        Some(registry.configurations_in_force(self.0, at).boxed())
    }
}
