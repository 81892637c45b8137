//! Tests of the rules of the embedded store only: durability, one process, checked files, restarts. The modules beside
//! this one test the rules of every back end.

mod child;
mod corruption;
mod crash;
mod duties;
mod log;
mod restart;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use watchet::storage::Storage;
use watchet::storage::embedded::{
    DATA_FILE, Durability, Embedded, EmbeddedConfig, OpenError, REVISION_FILE, WAL_FILES,
};

/// Opens a store without automatic compaction.
fn open(directory: &Path) -> Result<Arc<Embedded>, OpenError> {
    open_with(directory, Durability::Fsync)
}

fn open_with(directory: &Path, durability: Durability) -> Result<Arc<Embedded>, OpenError> {
    let config = EmbeddedConfig {
        durability,
        compaction_interval: Duration::ZERO,
        retention: None,
    };
    Embedded::open(directory, config)
}

/// Opens a store, which must succeed, as a `Storage`.
fn reopen(directory: &Path) -> Arc<dyn Storage> {
    reopen_with(directory, Durability::Fsync)
}

fn reopen_with(directory: &Path, durability: Durability) -> Arc<dyn Storage> {
    open_with(directory, durability).expect("the store opens")
}

/// Writes all changes of the store to its data file; until then, the log has the newest.
async fn flush(store: &Arc<dyn Storage>) {
    let cancelled = tokio_util::sync::CancellationToken::new();
    cancelled.cancel();
    store.maintain(cancelled).await;
}

/// A copy of a store's files in another directory, as a crash of the process would leave them.
struct Crashed(tempfile::TempDir);

impl Crashed {
    fn copy(directory: &Path) -> Self {
        let copy = tempfile::tempdir().expect("a temporary directory");
        for file in [DATA_FILE, REVISION_FILE].into_iter().chain(WAL_FILES) {
            std::fs::copy(directory.join(file), copy.path().join(file)).expect("a readable file");
        }
        Self(copy)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}
