//! The fixtures of the back ends that need no other process.

use std::sync::Arc;
use std::time::Duration;

use watchet::storage::Storage;
use watchet::storage::embedded::{Embedded, EmbeddedConfig};
use watchet::storage::memory::Memory;

use super::Backend;

/// A store in memory.
pub(crate) struct MemoryStore(Arc<Memory>);

impl Backend for MemoryStore {
    async fn start() -> Self {
        Self(Memory::new(Duration::ZERO).expect("memory opens"))
    }

    fn storage(&self) -> Arc<dyn Storage> {
        self.0.clone()
    }
}

/// A store in its own directory with the default durability.
pub(crate) struct EmbeddedStore {
    store: Arc<Embedded>,
    _directory: tempfile::TempDir,
}

impl Backend for EmbeddedStore {
    async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let config = EmbeddedConfig {
            compaction_interval: Duration::ZERO,
            ..EmbeddedConfig::default()
        };
        Self {
            store: Embedded::open(directory.path(), config).expect("a new store opens"),
            _directory: directory,
        }
    }

    fn storage(&self) -> Arc<dyn Storage> {
        self.store.clone()
    }
}
