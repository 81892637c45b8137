//! Tests of admission with the real program on both back ends. The webhooks are HTTPS servers in the process of the
//! test.

mod client;
pub(crate) mod cluster;
mod configuration;
mod hostile;
mod logs;
mod matching;
mod mutating;
mod mutating_policies;
mod mutating_policy_failures;
mod plugins;
mod policies;
mod services;
mod shutdown;
mod subresources;
mod validating;
