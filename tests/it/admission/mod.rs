//! Admission on real sockets: the real binary on both back ends, and webhooks that are HTTPS servers
//! inside the test.

mod client;
mod cluster;
mod configuration;
mod hostile;
mod logs;
mod matching;
mod mutating;
mod mutating_policies;
mod mutating_policy_failures;
mod parts;
mod plugins;
mod policies;
mod services;
mod shutdown;
mod validating;
