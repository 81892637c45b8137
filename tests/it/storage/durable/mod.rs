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
    DATA_FILE, Durability, Embedded, EmbeddedConfig, OpenError, REVISION_FILE,
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
    reopen_with(directory, Durability::Fsync)
}

/// A store that was dropped has freed its directory, but another test of this process may just be making
/// a child, which shares every open file, and so the lock, until it runs its own program.
fn reopen_with(directory: &Path, durability: Durability) -> Arc<dyn Storage> {
    for _ in 0..1000 {
        match open_with(directory, durability) {
            Ok(store) => return store,
            Err(OpenError::InUse { .. }) => std::thread::sleep(Duration::from_millis(2)),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{} stays in use", directory.display());
}

/// What a crash of the process would leave of a store's files, in a directory of its own.
struct Crashed(tempfile::TempDir);

impl Crashed {
    fn copy(directory: &Path) -> Self {
        let copy = tempfile::tempdir().expect("a temporary directory");
        for file in [DATA_FILE, REVISION_FILE] {
            std::fs::copy(directory.join(file), copy.path().join(file)).expect("a readable file");
        }
        Self(copy)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}
