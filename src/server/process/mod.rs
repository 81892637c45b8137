//! The server process: builds the server, runs it, and drains it.

// In reading order: the files of the server, build, run, the program.
mod audit_files;
mod authentication;
mod authorization;
pub(super) mod files;
mod flow_control;
pub(super) mod kubeconfig;
pub(super) mod pki;
mod token_issuer;
mod traces;

pub(super) mod build;
mod console_link;
mod encryption;
mod git_commit;
mod memory;
pub(super) mod open_error;
pub(super) mod open_etcd;
pub(super) mod open_storage;
pub(super) mod quotas;
mod reload;
mod roles;
mod run;
mod tls_files;

pub(super) mod announce;
mod demo_server;
pub(super) mod embedded_server;
mod file_limit;
mod logging;
pub(super) mod main;
mod ready_file;
mod service_manager;
mod signals;
mod supervising_process;
