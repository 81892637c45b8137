//! The storage tests: every rule of the `Storage` trait, run against each back end. Separate modules test what only one
//! back end can do.
//!
//! To add a back end, add a [`Backend`] and a `storage_suite!` line below. Each test has its own store without other
//! writers; it must not assume that revisions are dense or begin at 1.

#[macro_use]
mod suite;

mod compaction;
mod durable;
pub(crate) mod etcd;
mod etcd_cacher;
mod etcd_cacher_faults;
mod etcd_cluster_faults;
mod etcd_faults;
mod etcd_only;
pub(crate) mod fixtures;
mod lists;
mod model;
pub(crate) mod support;
pub(crate) mod tls;
mod watches;
mod writes;

use std::future::Future;
use std::sync::Arc;

use watchet::storage::Storage;

/// A running, empty store, and the directory or process that it needs, for the lifetime of this value.
pub(crate) trait Backend: Send + Sync + Sized {
    /// Starts a store that no other test writes to.
    fn start() -> impl Future<Output = Self> + Send;

    /// The store.
    fn storage(&self) -> Arc<dyn Storage>;
}

storage_suite!(memory, crate::storage::fixtures::MemoryStore);
storage_suite!(embedded, crate::storage::fixtures::EmbeddedStore);
storage_suite!(etcd_backend, crate::storage::etcd::EtcdStore);
storage_suite!(newest_etcd_backend, crate::storage::etcd::NewestEtcdStore);
