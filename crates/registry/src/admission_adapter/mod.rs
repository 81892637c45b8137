//! Adapts registry writes to the admission chain: builds the admission request of a write, and gives plugins, policies and
//! webhooks read access to namespaces, objects, parameters and authorization. `pipeline` and `delete` call the chain.

mod attributes;
mod chain;
mod cluster;
mod follow;
mod mutation;
mod types;

pub(crate) use attributes::{AdmissionAttributes, write_options};
pub(crate) use follow::follow;
