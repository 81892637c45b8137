//! The storage tests of the root package, run against the back end for etcd over a simulated cluster.

use std::future::Future;
use std::sync::Arc;

use watchet_simulation::etcd::Config;
pub(crate) use watchet_storage::*;

use crate::harness::Simulated;

#[macro_use]
#[path = "../../../../../tests/it/storage/suite.rs"]
mod suite;

#[path = "../../../../../tests/it/storage/compaction.rs"]
mod compaction;
#[path = "../../../../../tests/it/storage/fixtures.rs"]
mod fixtures;
#[path = "../../../../../tests/it/storage/lists.rs"]
mod lists;
#[allow(dead_code, reason = "other tests of the root package use more of it")]
#[path = "../../../../../tests/it/storage/model.rs"]
mod model;
#[path = "../../../../../tests/it/storage/support.rs"]
mod support;
#[path = "../../../../../tests/it/storage/watches.rs"]
mod watches;
#[path = "../../../../../tests/it/storage/writes.rs"]
mod writes;

/// A running, empty store, as in the root package.
pub(crate) trait Backend: Send + Sync + Sized {
    fn start() -> impl Future<Output = Self> + Send;

    fn storage(&self) -> Arc<dyn Storage>;
}

pub(crate) struct SimulatedStore {
    store: Arc<etcd3::Etcd3>,
    _cluster: Simulated,
}

impl Backend for SimulatedStore {
    async fn start() -> Self {
        let cluster = Simulated::start(Config::default(), 7);
        Self {
            store: cluster.storage().await,
            _cluster: cluster,
        }
    }

    fn storage(&self) -> Arc<dyn Storage> {
        self.store.clone()
    }
}

storage_suite!(
    simulated,
    crate::storage::SimulatedStore,
    start_paused = true
);
