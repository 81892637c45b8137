//! `CliError`: why a command failed, and its exit code.

use std::io;
use std::path::PathBuf;

use watchet_client::{
    InvalidRestConfig, KubeconfigError, RestConfigError, RestError, UnknownResource,
};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Arguments(#[from] clap::Error),
    /// A value of an argument is invalid.
    #[error("{argument}: {problem}")]
    Value {
        argument: &'static str,
        problem: String,
    },
    #[error(transparent)]
    Config(#[from] RestConfigError),
    #[error(
        "--kubeconfig {error}; name the kubeconfig of the server, or omit the flag to use $KUBECONFIG or ~/.kube/config"
    )]
    Kubeconfig { error: KubeconfigError },
    #[error(transparent)]
    Client(#[from] InvalidRestConfig),
    #[error(transparent)]
    Unknown(#[from] UnknownResource),
    #[error(transparent)]
    Refused(#[from] RestError),
    /// The state is not available, or an object does not exist in it.
    #[error("{0}")]
    Missing(String),
    #[error("{path}: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("{path}: {detail}")]
    Content { path: PathBuf, detail: String },
    #[error("the server's response is not as expected: {0}")]
    Response(String),
    #[error("cannot start: {0}")]
    Start(io::Error),
    #[error("cannot print: {0}")]
    Print(io::Error),
}

impl From<KubeconfigError> for CliError {
    fn from(error: KubeconfigError) -> Self {
        Self::Config(error.into())
    }
}

impl CliError {
    /// Returns true if the arguments or the configuration are invalid.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Arguments(_)
                | Self::Value { .. }
                | Self::Config(_)
                | Self::Kubeconfig { .. }
                | Self::Client(_)
        )
    }
}
