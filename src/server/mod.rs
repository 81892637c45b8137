//! The server process: settings, validated configuration, build, start, drain; TLS.
//!
//! # Life cycle
//!
//! ```text
//! arguments, environment, file -> Settings -> Config -> Server -> Running -> drained
//!                                  (texts)   (valid)    (built)   (tasks)
//! ```
//!
//! Each arrow is a function, and each stage is a type that the next one requires, so that nothing
//! is started before everything is built, and nothing is built from unvalidated text.
//!
//! # Exit codes
//!
//! 0: shut down by a signal; requests that exceeded the grace period were aborted. 1: failure, e.g.
//! a port or the data directory is in use. 2: invalid configuration; one line on stderr has the
//! key, the value and the remedy, and no port was bound. 128 + n: a second signal n aborted the
//! drain.

// In reading order.
mod config;
mod transport;

mod process;

mod envtest;
mod store_commands;

#[cfg(test)]
mod controller_tests;
#[cfg(test)]
mod router_tests;

pub(crate) use process::embedded_server::{EmbeddedServer, EmbeddedServerError};
pub use process::main::main;
