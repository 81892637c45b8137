//! The admission chain: in-process plugins, policies in CEL and webhooks, which can change or deny a write before it is
//! stored. The caller builds the [`AdmissionRequest`](request::AdmissionRequest), provides the configurations, and implements [`Cluster`](cluster::Cluster).
//! The crate does not read storage.

mod check;
pub mod client;
pub mod cluster;
mod dynamic_admission;
mod error;
mod expressions;
mod matching;
pub mod plugins;
mod policy;
mod reinvocation;
pub mod request;
mod rules;
mod selector;
mod webhook;

#[cfg(test)]
mod testing;

pub use check::{client_problems, problems, types};
pub use dynamic_admission::{ConfigurationKind, DynamicAdmission, Mutators};
pub use error::AdmissionError;
pub use plugins::{AdmissionChain, EnabledPlugins, InvalidConfiguration, PluginConfigurations};
pub use plugins::{QuotaUsage, ResourceList, parse_resources};
