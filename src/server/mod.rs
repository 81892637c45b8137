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

// In reading order: settings, parts of the server, serving.
mod bytes;
mod cli;
mod config;
mod config_file;
mod settings;

mod announce;
mod build;
mod files;
mod kubeconfig;
mod open_etcd;
mod open_storage;
mod overdue;
mod pki;
mod tls;
mod token_config;

mod envtest;

mod connection;
mod corked;
mod handshakes;
mod http2;
mod listen;
mod local;
mod logging;
mod run;
mod signals;
mod socket;
mod unread;

mod main;
mod within;

pub use main::main;
pub(crate) use within::{EmbeddedServer, EmbeddedServerError};
