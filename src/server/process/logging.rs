//! Sets up logging to stderr.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::server::config::server_config::{LogConfig, LogFormat};

/// Installs the logger. A second call does nothing, so that an embedding program can use its own.
pub(in crate::server) fn init(config: &LogConfig) {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&config.filter))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let set_up = match config.format {
        LogFormat::Text => lines.finish().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init(),
    };
    if let Err(error) = set_up {
        tracing::debug!(%error, "logging is already set up");
    }
}
