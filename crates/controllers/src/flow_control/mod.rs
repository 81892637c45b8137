//! API Priority and Fairness: the default objects, the objects for the flow control, and the status of FlowSchemas.

mod configuration_source;
mod dangling_condition;
mod default_objects;

pub use configuration_source::feed_flow_control;
pub use default_objects::{ensure_default_flow_objects, maintain_default_flow_objects};

use std::sync::Arc;

use watchet_registry::{Registry, Resource};

/// The group of the objects.
const GROUP: &str = "flowcontrol.apiserver.k8s.io";

const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";

fn resource(registry: &Registry, plural: &str) -> Arc<Resource> {
    let resource = registry.resource(GROUP, "v1", plural);
    resource.expect("the table of built-ins has the objects of flow control")
}
