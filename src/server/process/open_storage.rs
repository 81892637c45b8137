//! Opens the configured storage.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::metrics::Metrics;
use crate::server::config::storage::{DurabilityConfig, StorageConfig};
use crate::server::envtest::etcd_storage::EnvtestEtcdStorage;
use crate::server::process::open_error::OpenError;
use crate::server::process::open_etcd;
use crate::storage::Storage;
use crate::storage::embedded::{
    self, Durability, Embedded, EmbeddedConfig, HistoryRetention, LastRevision,
};
use crate::storage::memory::Memory;
use crate::tasks::{Tasks, report_slow};

/// The flush interval of `--durability interval`, i.e. how many acknowledged writes an embedded
/// store may lose: one second, as usual for such settings.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// The directory of the embedded store, in the data directory.
pub(in crate::server) const STORE_DIRECTORY: &str = "store";

/// The file with the latest revision of etcd, in the data directory.
const ETCD_REVISION_FILE: &str = "etcd-revision";

/// The data directory, as storage needs it.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct StoreParent<'a> {
    /// The path of the data directory.
    pub(in crate::server) data_dir: &'a Path,
    /// True if the data directory had keys and certificates before this start.
    pub(in crate::server) was_used: bool,
}

/// How much history the storage retains.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct History {
    /// `--etcd-compaction-interval`
    pub(in crate::server) compaction_interval: Duration,
    /// `--history-retention`, for the embedded store and memory.
    pub(in crate::server) retention: Option<HistoryRetention>,
}

/// Opens the storage of `config`; `metrics` is for leases.
///
/// # Errors
/// [`OpenError`]
pub(in crate::server) async fn open(
    config: &StorageConfig,
    history: History,
    parent: StoreParent<'_>,
    metrics: &Metrics,
) -> Result<Arc<dyn Storage>, OpenError> {
    match config {
        StorageConfig::Embedded { durability } => {
            let durability = match durability {
                DurabilityConfig::Fsync => Durability::Fsync,
                DurabilityConfig::Interval => Durability::Interval(FLUSH_INTERVAL),
                DurabilityConfig::None => Durability::None,
            };
            Ok(open_embedded(durability, history, parent)?)
        }
        StorageConfig::EnvtestEtcd { servers, store } => {
            let storage = open_embedded(store.durability(), history, parent)?;
            Ok(EnvtestEtcdStorage::new(storage, servers, store))
        }
        StorageConfig::Memory => Ok(Memory::with_config(embedded_config(
            Durability::Fsync,
            history,
        ))?),
        StorageConfig::Etcd(etcd) => {
            let last_seen = parent.data_dir.join(ETCD_REVISION_FILE);
            open_etcd::open(etcd, history.compaction_interval, &last_seen, metrics).await
        }
    }
}

fn open_embedded(
    durability: Durability,
    history: History,
    parent: StoreParent<'_>,
) -> Result<Arc<Embedded>, embedded::OpenError> {
    let config = embedded_config(durability, history);
    let directory = parent.data_dir.join(STORE_DIRECTORY);
    let last_revision = LastRevision {
        file: &parent.data_dir.join(embedded::LAST_REVISION_FILE),
        was_used: parent.was_used,
    };
    // Dropped when the store is open, or cannot be opened.
    let _opening = report_opening(&directory);
    // Opening verifies the file, which blocks for some time if it is large.
    tokio::task::block_in_place(|| {
        Embedded::open_with_last_revision(&directory, last_revision, config)
    })
}

/// Logs that the store is being opened, if it takes long, until the returned sender is dropped.
fn report_opening(directory: &Path) -> oneshot::Sender<()> {
    let bytes = std::fs::metadata(directory.join(embedded::DATA_FILE)).map_or(0, |file| file.len());
    let directory = directory.display().to_string();
    let (opening, ended) = oneshot::channel();
    let reports = report_slow(ended, move |elapsed, is_done| {
        if !is_done {
            tracing::info!(directory, bytes, ?elapsed, "opening the store");
        }
    });
    // Not awaited: it ends with the opening.
    drop(Tasks::new().spawn("report opening", reports));
    opening
}

fn embedded_config(durability: Durability, history: History) -> EmbeddedConfig {
    EmbeddedConfig {
        durability,
        compaction_interval: history.compaction_interval,
        retention: history.retention,
    }
}

/// Returns a description of the storage for the announcement.
pub(in crate::server) fn describe(config: &StorageConfig, data_dir: &Path) -> String {
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
        StorageConfig::EnvtestEtcd { store, .. } => {
            format!("the store of etcd in {}", store.data_dir.display())
        }
        StorageConfig::Memory => "memory: they are lost when this process ends".to_owned(),
        StorageConfig::Etcd(etcd) => {
            format!("etcd at {} under {}", etcd.servers.join(","), etcd.prefix)
        }
    }
}
