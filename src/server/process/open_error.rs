//! The error of opening the configured storage: distinguishes errors of the configuration from other failures.

use crate::server::config::setting_value::ConfigError;
use crate::storage::embedded;

/// Why storage could not be opened.
#[derive(Debug, thiserror::Error)]
pub(in crate::server) enum OpenError {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The embedded store is damaged, or its files cannot be used.
    #[error(transparent)]
    Embedded(#[from] embedded::OpenError),
    /// etcd does not respond.
    #[cfg(feature = "etcd")]
    #[error("--etcd-servers {servers:?}: {error}; start etcd there or give another address")]
    Unreachable {
        /// As configured.
        servers: String,
        /// The error of the last attempt.
        error: String,
    },
}
