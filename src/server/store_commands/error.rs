//! The error of a command.

use std::io;
use std::path::PathBuf;

use crate::client::{InvalidRestConfig, KubeconfigError, RestConfigError, RestError};
use crate::server::config::setting_value::ConfigError;
use crate::server::process::files::DataDirError;
use crate::server::process::open_error;
use crate::storage::StorageError;
use crate::storage::embedded::{self, BackupError};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "documented by their sources")]
pub(in crate::server) enum StoreError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Open(#[from] embedded::OpenError),
    #[error(transparent)]
    Etcd(#[from] open_error::OpenError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(
        "the server of {data_dir:?} is running, and its kubeconfig cannot be used ({source}): name \
         one with --kubeconfig, or stop the server"
    )]
    Kubeconfig {
        data_dir: PathBuf,
        source: RestConfigError,
    },
    #[error("--kubeconfig: {0}")]
    GivenKubeconfig(RestConfigError),
    #[error(transparent)]
    Client(#[from] InvalidRestConfig),
    #[error("the server sent no backup: {0}")]
    Request(#[from] RestError),
    #[error("cannot write {path:?}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Refused(String),
    #[error("cannot print: {0}")]
    Print(io::Error),
}

impl StoreError {
    /// Returns true if an argument is wrong.
    pub(in crate::server) fn is_config(&self) -> bool {
        matches!(
            self,
            Self::Config(_) | Self::Etcd(open_error::OpenError::Config(_))
        )
    }
}

impl From<KubeconfigError> for StoreError {
    fn from(error: KubeconfigError) -> Self {
        Self::GivenKubeconfig(error.into())
    }
}
