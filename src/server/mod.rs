//! The process: raw settings, checked config, build, spawn, drain; TLS and authentication. It knows
//! how rooms are put together and nothing of what they do.
//!
//! # The life of a process
//!
//! ```text
//! arguments, environment, file -> Settings -> Config -> Server -> Running -> drained
//!                                  (texts)   (checked)  (built)   (tasks)
//! ```
//!
//! Each arrow is a function and each stage a type that the next one needs, so that nothing runs
//! before all of it could be built and nothing is built of unchecked text.
//!
//! # Exit codes
//!
//! 0: asked to end, and ended in order; requests that outlasted the grace period were cut off. 1:
//! failed, e.g. a port or the data directory is in use. 2: wrong configuration; one line on stderr names the key,
//! the value and what to do, and no port was bound. 128 + n: a second signal n cut the drain short.

// In reading order: settings, what is made of them, serving.
mod bytes;
mod cli;
mod config;
mod config_file;
mod settings;

mod announce;
mod auth;
mod build;
mod files;
mod impersonation;
mod kubeconfig;
mod open_storage;
mod overdue;
mod pki;
mod protocol_token;
mod tls;
mod token_config;
mod token_file;

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
pub(crate) use within::{Within, WithinError};
