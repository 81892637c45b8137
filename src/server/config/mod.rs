//! The configuration of `watchet serve`: command line, environment and file, and their validation.

// In reading order: raw settings, their sources, the validated configuration.
pub(super) mod flags;
pub(super) mod setting_value;
pub(super) mod settings;

pub(super) mod cli;
pub(super) mod file;
pub(super) mod help_files;

pub(super) mod audit;
pub(super) mod authentication;
pub(super) mod authorization;
mod bytes;
pub(super) mod encryption;
pub(super) mod file_setting;
pub(super) mod lifetime;
pub(super) mod memory;
pub(super) mod requests;
pub(super) mod server_config;
pub(super) mod sni;
pub(super) mod storage;
pub(super) mod store_args;
pub(super) mod tls;
pub(super) mod token_config;
