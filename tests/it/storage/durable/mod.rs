//! What only the embedded back end promises: durability, one process, checked files, restarts. The
//! rules that every back end keeps are in the suite beside this.

mod child;
mod corruption;
mod crash;
mod duties;
mod restart;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use watchet::storage::Storage;
use watchet::storage::embedded::{
    DATA_FILE, Durability, Embedded, EmbeddedConfig, OpenError, WITNESS_FILE,
};

/// Opens a store that only compacts by hand.
fn open(directory: &Path) -> Result<Arc<Embedded>, OpenError> {
    open_with(directory, Durability::Fsync)
}

fn open_with(directory: &Path, durability: Durability) -> Result<Arc<Embedded>, OpenError> {
    let config = EmbeddedConfig {
        durability,
        compaction_interval: Duration::ZERO,
    };
    Embedded::open(directory, config)
}

/// Opens a store that must open, as any back end.
fn reopen(directory: &Path) -> Arc<dyn Storage> {
    match open(directory) {
        Ok(store) => store,
        Err(error) => panic!("{error}"),
    }
}

/// What a crash of the process would leave of a store's files, in a directory of its own.
struct Crashed(tempfile::TempDir);

impl Crashed {
    fn copy(directory: &Path) -> Self {
        let copy = tempfile::tempdir().expect("a temporary directory");
        for file in [DATA_FILE, WITNESS_FILE] {
            std::fs::copy(directory.join(file), copy.path().join(file)).expect("a readable file");
        }
        Self(copy)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}
