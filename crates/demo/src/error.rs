//! `DemoError`: why the demonstration cannot start or continue.

use watchet_client::{FactoryNotSynced, InvalidRestConfig, RestConfigError, RestError};
use watchet_tasks::TaskFailed;

/// Why the demonstration cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The arguments are those of another command.
    #[error(transparent)]
    Arguments(#[from] clap::Error),
    /// The kubeconfig of the server is invalid.
    #[error(transparent)]
    Config(#[from] RestConfigError),
    /// No client can be created from the kubeconfig.
    #[error(transparent)]
    Client(#[from] InvalidRestConfig),
    /// The server did not accept an object that the demonstration needs.
    #[error("cannot prepare {object}: {source}")]
    Prepare {
        /// The kind and the name of the object.
        object: String,
        /// The response.
        source: RestError,
    },
    /// An informer stopped before its first list, which is a bug.
    #[error("{0}: this is a bug")]
    NotSynced(#[from] FactoryNotSynced),
    /// A task panicked, which is a bug.
    #[error("{0}: this is a bug")]
    Task(#[from] TaskFailed),
}
