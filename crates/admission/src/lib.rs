//! Admission: what may change a write, and what may refuse it, before it is stored: webhooks that are
//! called over HTTPS, and policies in CEL. It is told what the write is and what the configurations are;
//! it reads no storage, knows no verb's flow and speaks to no client of this server.

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
