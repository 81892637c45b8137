//! The choice of storage: from the checked config to an open store, and which failures are the
//! configuration's.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::config::{DurabilityConfig, EtcdConfig, StorageConfig};
use super::settings::ConfigError;
use crate::metrics::Metrics;
use crate::storage::Storage;
use crate::storage::embedded::{self, Durability, Embedded, EmbeddedConfig};
use crate::storage::etcd3::{ConnectError, Etcd3, Etcd3Config};
use crate::storage::memory::Memory;

/// How much of what it acknowledged an embedded store may lose with `--durability interval`: a
/// second, as other stores' settings of that kind.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// How long etcd may take to answer for the first time: when a machine or a compose file starts
/// everything at once, etcd elects its leader meanwhile.
const ETCD_START_MAX: Duration = Duration::from_secs(30);

/// How long to wait before it is tried again.
const ETCD_START_PAUSE: Duration = Duration::from_secs(1);

/// Storage could not be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The embedded store is damaged, or its files cannot be used.
    #[error(transparent)]
    Embedded(#[from] embedded::OpenError),
    /// etcd does not answer.
    #[error("--etcd-servers {servers:?}: {error}; start etcd there or name another")]
    Unreachable {
        /// As configured.
        servers: String,
        /// Of the last try.
        error: ConnectError,
    },
}

/// Opens the store that `config` asks for; `data_dir` is for the embedded one, `metrics` for leases.
///
/// # Errors
/// [`OpenError`]
pub(super) async fn open(
    config: &StorageConfig,
    compaction_interval: Duration,
    data_dir: &Path,
    metrics: &Metrics,
) -> Result<Arc<dyn Storage>, OpenError> {
    match config {
        StorageConfig::Embedded { durability } => {
            let embedded = EmbeddedConfig {
                durability: match durability {
                    DurabilityConfig::Fsync => Durability::Fsync,
                    DurabilityConfig::Interval => Durability::Interval(FLUSH_INTERVAL),
                    DurabilityConfig::None => Durability::None,
                },
                compaction_interval,
            };
            let directory = data_dir.join("store");
            // Opening verifies the file, which takes its time when that is large.
            let opened = tokio::task::block_in_place(|| Embedded::open(&directory, embedded));
            Ok(opened?)
        }
        StorageConfig::Memory => Ok(Memory::new(compaction_interval)?),
        StorageConfig::Etcd(etcd) => Ok(connect(etcd, compaction_interval, metrics).await?),
    }
}

async fn connect(
    config: &EtcdConfig,
    compaction_interval: Duration,
    metrics: &Metrics,
) -> Result<Arc<Etcd3>, OpenError> {
    let identity = config.identity.as_ref();
    let etcd = Etcd3Config {
        endpoints: config.servers.clone(),
        prefix: config.prefix.clone(),
        ca_file: config.ca.as_ref().map(|file| file.path.clone()),
        cert_file: identity.map(|files| files.certificate.path.clone()),
        key_file: identity.map(|files| files.key.path.clone()),
        compaction_interval,
        lease_keys: metrics.lease_keys(),
    };
    let deadline = Instant::now() + ETCD_START_MAX;
    loop {
        let error = match Etcd3::connect(etcd.clone()).await {
            Ok(storage) => return Ok(storage),
            Err(error @ ConnectError::Unreachable { .. }) => error,
            Err(error) => return Err(ConfigError::new(error).into()),
        };
        if Instant::now() + ETCD_START_PAUSE >= deadline {
            return Err(OpenError::Unreachable {
                servers: config.servers.join(","),
                error,
            });
        }
        tracing::warn!(%error, "etcd does not answer yet");
        tokio::time::sleep(ETCD_START_PAUSE).await;
    }
}

/// The storage in words, for the announcement.
pub(super) fn describe(config: &StorageConfig, data_dir: &Path) -> String {
    match config {
        StorageConfig::Embedded { durability } => {
            let path = data_dir.display();
            match durability {
                DurabilityConfig::Fsync => format!("the embedded store in {path}"),
                DurabilityConfig::Interval | DurabilityConfig::None => format!(
                    "the embedded store in {path}, where a crash may lose the last writes \
                     (--durability)"
                ),
            }
        }
        StorageConfig::Memory => "memory: they are gone when this process ends".to_owned(),
        StorageConfig::Etcd(etcd) => {
            format!("etcd at {} under {}", etcd.servers.join(","), etcd.prefix)
        }
    }
}
