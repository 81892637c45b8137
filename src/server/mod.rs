//! The process: raw settings, checked config, build, spawn, drain; TLS and authentication. It knows
//! how rooms are put together and nothing of what they do.

mod auth;
mod cli;
mod config;
mod config_file;
mod duration;
mod files;
mod kubeconfig;
mod pki;
mod settings;
mod tls;
mod token_file;
