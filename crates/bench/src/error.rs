//! Why there is no report, or why it has faults.

use std::io;
use std::path::PathBuf;

use super::client::ClientError;
use super::floor::FloorError;
use super::objects::conversion::WebhookError;
use super::process::ProcessError;
use super::report::{ReportFormatError, UnknownKey};
use super::target::TargetError;

/// Why there is no report, or why it has faults.
#[derive(Debug, thiserror::Error)]
pub(super) enum BenchError {
    #[error(transparent)]
    Arguments(#[from] clap::Error),
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Floor(#[from] FloorError),
    #[error("{0}")]
    Ended(&'static str),
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    #[error("cannot prepare the run: {0}")]
    Setup(String),
    #[error("a connection's task failed, which is a bug: {0}")]
    Task(#[from] tokio::task::JoinError),
    #[error("cannot start: {0}")]
    Start(io::Error),
    #[error(transparent)]
    Key(#[from] UnknownKey),
    #[error("cannot print the report: {0}")]
    Print(io::Error),
    #[error("cannot write the page {path:?}: {source}")]
    Page { path: PathBuf, source: io::Error },
    #[error("cannot read the report {path:?}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{path:?} is not a report that can be compared: {source}; write one with `watchet bench LOAD \
         --json > FILE`"
    )]
    NoReport {
        path: PathBuf,
        source: ReportFormatError,
    },
    #[error("the run has faults:\n  {}", .0.join("\n  "))]
    Faults(Vec<String>),
}

impl BenchError {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Arguments(_)
            | Self::Usage(_)
            | Self::Target(_)
            | Self::Key(_)
            | Self::Unreadable { .. }
            | Self::NoReport { .. } => 2,
            _ => 1,
        }
    }
}
