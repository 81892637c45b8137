//! Log lines: where they go and how they look. What is worth a line is every room's own decision.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::config::{LogConfig, LogFormat};

/// Sends the process' log lines to stderr. Once per process; a second call does nothing, so that
/// whoever embeds the server may have set up logging of their own.
pub(super) fn init(config: &LogConfig) {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&config.filter))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let set_up = match config.format {
        LogFormat::Text => lines.finish().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init(),
    };
    if let Err(error) = set_up {
        tracing::debug!(%error, "logging is set up already");
    }
}
