//! The store of a kube-apiserver of envtest: an embedded one that is available while the etcd process that owns its
//! directory runs, so that a test can stop and start etcd and observe an API server without etcd.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::api::{ResourceVersion, StorageKey};
use crate::server::envtest::store::{self, Store};
use crate::storage::{
    KeyValue, ListPage, ListRequest, ListVisitor, Outcome, Put, Storage, StorageError,
    StorageLayer, StorageWatch,
};

/// The pause between two attempts to reach an etcd that does not run.
const PAUSE: Duration = Duration::from_millis(100);

/// A storage that fails as unavailable while no etcd process offers it. [`Storage::maintain`] follows the process.
/// Open watches stay open, as those of a server whose etcd does not respond.
#[derive(Debug)]
pub(in crate::server) struct EnvtestEtcdStorage {
    storage: Arc<dyn Storage>,
    servers: Vec<String>,
    /// The data directory of the etcd process.
    data_dir: PathBuf,
    /// Why the etcd process is unreachable; `None` while it runs.
    failure: Mutex<Option<String>>,
}

impl EnvtestEtcdStorage {
    /// Wraps the storage that one of the etcd `servers` has just offered as `store`.
    pub(in crate::server) fn new(
        storage: Arc<dyn Storage>,
        servers: &[String],
        store: &Store,
    ) -> Arc<Self> {
        Arc::new(Self {
            storage,
            servers: servers.to_vec(),
            data_dir: store.data_dir.clone(),
            failure: Mutex::new(None),
        })
    }

    fn check(&self) -> Result<(), StorageError> {
        match &*self.failure.lock() {
            None => Ok(()),
            Some(reason) => Err(StorageError::Unavailable(reason.clone())),
        }
    }

    /// Records whether the process runs, and logs a change, also one of the reason.
    fn record(&self, failure: Option<String>) {
        let before = std::mem::replace(&mut *self.failure.lock(), failure.clone());
        match failure {
            Some(reason) if before.as_ref() != Some(&reason) => {
                tracing::warn!(reason, "etcd does not respond");
            }
            None if before.is_some() => tracing::info!("etcd is back"),
            _ => {}
        }
    }

    /// Follows the process forever: by a connection to it, which ends with the process.
    async fn follow(&self) {
        loop {
            match self.connect().await {
                Ok(mut connection) => {
                    self.record(None);
                    // No request is sent: the read returns when the connection ends, in whichever way.
                    let end = connection.read(&mut [0; 1]).await;
                    tracing::debug!(?end, "the connection to etcd ended");
                }
                Err(reason) => {
                    self.record(Some(reason));
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Connects to the first server that offers the store.
    async fn connect(&self) -> Result<TcpStream, String> {
        let mut failure = String::new();
        for server in &self.servers {
            match self.connect_to(server).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = format!("{server}: {error}"),
            }
        }
        Err(failure)
    }

    async fn connect_to(&self, server: &str) -> io::Result<TcpStream> {
        let offered = tokio::task::block_in_place(|| store::request_store(server))?;
        if offered.is_none_or(|offered| offered.data_dir != self.data_dir) {
            let directory = self.data_dir.display();
            return Err(io::Error::other(format!(
                "this etcd does not have the data directory {directory}"
            )));
        }
        TcpStream::connect(store::authority(server)).await
    }
}

#[async_trait]
impl StorageLayer for EnvtestEtcdStorage {
    fn inner(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        self.check()?;
        self.storage.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        self.check()?;
        self.storage.list(request).await
    }

    async fn visit(
        &self,
        prefix: &StorageKey,
        visitor: Arc<dyn ListVisitor>,
    ) -> Option<Result<ResourceVersion, StorageError>> {
        if let Err(error) = self.check() {
            return Some(Err(error));
        }
        self.storage.visit(prefix, visitor).await
    }

    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        self.check()?;
        self.storage.put(put).await
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        self.check()?;
        self.storage.delete(key, expect).await
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        self.check()?;
        self.storage.watch(prefix, after).await
    }

    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.check()?;
        self.storage.current_revision().await
    }

    fn known_revision(&self) -> Option<Result<ResourceVersion, StorageError>> {
        let known = self.storage.known_revision()?;
        Some(self.check().and(known))
    }

    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError> {
        self.check()?;
        self.storage.compact(at).await
    }

    async fn size_bytes(&self) -> Result<Option<u64>, StorageError> {
        self.check()?;
        self.storage.size_bytes().await
    }

    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.check()?;
        self.storage.compacted_revision().await
    }

    async fn maintain(&self, cancel: CancellationToken) {
        let follow = cancel.run_until_cancelled(self.follow());
        tokio::join!(self.storage.maintain(cancel.clone()), follow);
    }
}
