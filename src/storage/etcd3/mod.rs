//! The `etcd` back end: `Storage` over a real etcd, with Kubernetes' key layout, leases and compaction,
//! so that any number of servers share one etcd. Values are bytes here; those above write and read
//! JSON only, so what a kube-apiserver stored as protobuf (all but custom resources) cannot be read.
//! Everything that says "etcd" is in this folder.
//!
//! # Parts
//!
//! `config` is checked into endpoints; `cluster` says which member is asked, how long and how often;
//! `failure` reads what went wrong; `keys` maps keys; `list`, `watch`, `lease` and `compactor` are
//! the operations with a life of their own.
//!
//! # Invariants
//!
//! 1. A write whose outcome is unknown is reported as such and never made a second time.
//! 2. A revision is never cut in two by a batch, and a batch never vouches for more than etcd did.
//! 3. No answer, however large the data, exceeds `ANSWER_BYTES_MAX`: lists are paged by bytes,
//!    watches are fragmented.

mod cluster;
mod compactor;
mod config;
mod failure;
mod keys;
mod lease;
mod list;
mod version;
mod watch;
mod watch_pool;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::proto::{PbTxnOpResponse, PbTxnResponse};
use etcd_client::{Compare, CompareOp, PutOptions, ResponseHeader, Txn, TxnOp, TxnResponse};
use tokio_util::sync::CancellationToken;

use self::cluster::{Cluster, Repeat};
pub use self::config::{ConnectError, Etcd3Config};
use self::failure::Failure;
use self::keys::{Layout, raw_revision, revision};
use self::lease::Leases;
use crate::api::{ResourceVersion, StorageKey};
use crate::storage::{
    Expect, KeyValue, ListPage, ListRequest, Outcome, Put, Storage, StorageError, StorageWatch,
};

/// How long a read of one key may take.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a write may take before its outcome counts as unknown. etcd itself gives up on a
/// proposal after 7 s with its default election timeout.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often members are asked for their versions again, besides after each failure: an upgrade of
/// a member that nobody is talking to shows in no call.
const VERSIONS_INTERVAL: Duration = Duration::from_secs(30);

/// The shortest time between two such rounds, however often members fail.
const VERSIONS_PAUSE: Duration = Duration::from_secs(1);

/// The etcd back end. See the module.
#[derive(Debug)]
pub struct Etcd3 {
    cluster: Cluster,
    layout: Layout,
    leases: Leases,
    agreed: compactor::Agreed,
    compaction_interval: Duration,
}

impl Etcd3 {
    /// Connects: checks the configuration and asks every member for its version. One that answers
    /// is enough.
    ///
    /// # Errors
    /// [`ConnectError`], which names the endpoint or the file.
    pub async fn connect(config: Etcd3Config) -> Result<Arc<Self>, ConnectError> {
        let checked = config.check()?;
        let unreachable = |failures| ConnectError::Unreachable { failures };
        let cluster = Cluster::new(checked.endpoints)
            .await
            .map_err(|failure| unreachable(vec![failure.into_storage_error().to_string()]))?;
        cluster.meet().await.map_err(unreachable)?;
        Ok(Arc::new(Self {
            cluster,
            layout: checked.layout,
            leases: Leases::new(config.lease_keys),
            agreed: compactor::Agreed::default(),
            compaction_interval: config.compaction_interval,
        }))
    }

    /// The store's revision, by a linearizable read of a key that does not exist.
    async fn probe(&self) -> Result<ResourceVersion, Failure> {
        let key = self.layout.probe();
        let (_, at) = self.read(key).await?;
        Ok(at)
    }

    async fn read(
        &self,
        key: Vec<u8>,
    ) -> Result<(Option<etcd_client::KeyValue>, ResourceVersion), Failure> {
        let mut answer = self
            .cluster
            .call(Repeat::Freely, READ_TIMEOUT, |member| {
                let mut kv = member.calls().kv;
                let key = key.clone();
                async move { Ok(kv.get(key, None).await?) }
            })
            .await?;
        let at = header_revision(answer.header());
        Ok((answer.take_kvs().into_iter().next(), at))
    }

    async fn txn(&self, txn: impl Fn() -> Txn) -> Result<TxnResponse, Failure> {
        self.cluster
            .call(Repeat::IfUnsent, WRITE_TIMEOUT, |member| {
                let mut kv = member.calls().kv;
                let txn = txn();
                async move { Ok(kv.txn(txn).await?) }
            })
            .await
    }

    fn outcome(&self, answer: TxnResponse) -> Result<Outcome, StorageError> {
        if answer.succeeded() {
            return Ok(Outcome::Done(header_revision(answer.header())));
        }
        let found = first_read(answer.0).map(|kv| self.layout.key_value(kv));
        Ok(Outcome::Refused(found.transpose()?))
    }

    /// The answer to a condition that no key meets: revision zero is no key's.
    async fn refused(&self, key: &StorageKey) -> Result<Outcome, StorageError> {
        Ok(Outcome::Refused(self.get(key).await?.0))
    }

    async fn put_with_lease(&self, put: &Put, lease: Option<i64>) -> Result<TxnResponse, Failure> {
        let key = self.layout.key(&put.key);
        self.txn(|| {
            let options = lease.map(|id| PutOptions::new().with_lease(id));
            let write = [TxnOp::put(key.clone(), put.value.to_vec(), options)];
            let expected = match put.expect {
                Expect::Absent => 0,
                Expect::At(revision) => raw_revision(revision),
            };
            let txn = Txn::new()
                .when([Compare::mod_revision(
                    key.clone(),
                    CompareOp::Equal,
                    expected,
                )])
                .and_then(write);
            match put.expect {
                Expect::Absent => txn,
                Expect::At(_) => txn.or_else([TxnOp::get(key.clone(), None)]),
            }
        })
        .await
    }
}

#[async_trait]
impl Storage for Etcd3 {
    fn name(&self) -> &'static str {
        "etcd"
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        let (kv, at) = self
            .read(self.layout.key(key))
            .await
            .map_err(Failure::into_storage_error)?;
        let kv = kv.map(|kv| self.layout.key_value(kv.0)).transpose()?;
        Ok((kv, at))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        self.list_pages(request).await
    }

    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        if put.expect == Expect::At(ResourceVersion::ZERO) {
            return self.refused(&put.key).await;
        }
        let Some(ttl) = put.ttl else {
            let answer = self.put_with_lease(&put, None).await;
            return self.outcome(answer.map_err(|failure| put_error(&put, failure))?);
        };
        let unleased = Failure::into_storage_error;
        let lease = self
            .leases
            .get(&self.cluster, ttl)
            .await
            .map_err(unleased)?;
        let mut answer = self.put_with_lease(&put, Some(lease)).await;
        if answer
            .as_ref()
            .is_err_and(|failure| *failure == Failure::LeaseNotFound)
        {
            // It was revoked, or etcd was restored from a backup. The put was not made.
            self.leases.forget(lease).await;
            let lease = self
                .leases
                .get(&self.cluster, ttl)
                .await
                .map_err(unleased)?;
            answer = self.put_with_lease(&put, Some(lease)).await;
        }
        self.outcome(answer.map_err(|failure| put_error(&put, failure))?)
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        if expect.is_zero() {
            return self.refused(key).await;
        }
        let raw = self.layout.key(key);
        let answer = self
            .txn(|| {
                let expected = raw_revision(expect);
                Txn::new()
                    .when([Compare::mod_revision(
                        raw.clone(),
                        CompareOp::Equal,
                        expected,
                    )])
                    .and_then([TxnOp::delete(raw.clone(), None)])
                    .or_else([TxnOp::get(raw.clone(), None)])
            })
            .await
            .map_err(Failure::into_storage_error)?;
        self.outcome(answer)
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        self.open_watch(prefix, after).await
    }

    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.probe().await.map_err(Failure::into_storage_error)
    }

    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError> {
        let compacted = self
            .cluster
            .call(Repeat::Freely, WRITE_TIMEOUT, |member| {
                let mut kv = member.calls().kv;
                async move { Ok(kv.compact(raw_revision(at), None).await?) }
            })
            .await;
        match compacted {
            // Compacted before, by this call's first try or by another server: as asked.
            Ok(_) | Err(Failure::Compacted) => Ok(()),
            Err(Failure::Future) => {
                let current = self.current_revision().await?;
                let requested = at;
                Err(StorageError::Future { requested, current })
            }
            Err(failure) => Err(failure.into_storage_error()),
        }
    }

    /// Of whichever member answers: they hold the same.
    async fn size_bytes(&self) -> Result<Option<u64>, StorageError> {
        let status = self
            .cluster
            .call(Repeat::Freely, READ_TIMEOUT, |member| {
                let mut maintenance = member.calls().maintenance;
                async move { Ok(maintenance.status().await?) }
            })
            .await
            .map_err(Failure::into_storage_error)?;
        Ok(u64::try_from(status.db_size()).ok())
    }

    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.agreed.get(self).await
    }

    fn progress_supported(&self) -> bool {
        self.cluster.progress_is_truthful()
    }

    async fn maintain(&self, cancel: CancellationToken) {
        let versions = async {
            loop {
                // A wish that came before we waited for it is kept; either way all are asked.
                tokio::select! {
                    biased;
                    () = self.cluster.version_wanted() => {}
                    () = tokio::time::sleep(VERSIONS_INTERVAL) => {}
                }
                for reason in self
                    .cluster
                    .ask_versions()
                    .await
                    .into_iter()
                    .filter_map(Result::err)
                {
                    tracing::warn!(reason, "etcd member does not answer");
                }
                tokio::time::sleep(VERSIONS_PAUSE).await;
            }
        };
        let compaction = async {
            if self.compaction_interval.is_zero() {
                std::future::pending().await
            } else {
                compactor::run(self, self.compaction_interval).await
            }
        };
        // Stopping goes first; the other two never end and do not depend on each other.
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            () = compaction => {}
            () = versions => {}
        }
    }
}

fn put_error(put: &Put, failure: Failure) -> StorageError {
    match failure {
        Failure::RequestTooLarge(detail) => StorageError::TooLarge {
            key: put.key.clone(),
            detail: format!("{} bytes: {detail}", put.value.len()),
        },
        other => other.into_storage_error(),
    }
}

fn header_revision(header: Option<&ResponseHeader>) -> ResourceVersion {
    revision(header.map_or(0, ResponseHeader::revision))
}

/// What the `else` branch of a transaction read, if it read anything.
fn first_read(answer: PbTxnResponse) -> Option<etcd_client::proto::PbKeyValue> {
    answer
        .responses
        .into_iter()
        .find_map(|operation| match operation.response {
            Some(PbTxnOpResponse::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        })
}
