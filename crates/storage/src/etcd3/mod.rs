//! The `etcd` back end: `Storage` over etcd with Kubernetes' key layout, leases and compaction, so
//! that several servers can share one etcd. Values are opaque bytes here; `TranscodingStorage`
//! (`crates/protobuf`) decodes and encodes protobuf. Only this directory depends on etcd.
//!
//! # Parts
//!
//! `config` validates the endpoints; `dialer` connects to them; `cluster` chooses the member for a call, with timeouts and
//! retries; `member` detects that a member hangs; `availability` knows whether any responds, and
//! `identity` whether it is the same etcd as before, also as in an earlier process (`last_seen_file`); `restored` advances
//! an etcd that was restored from a backup;
//! `write_retry` sends a write again if its outcome is unknown; `failure` classifies errors; `keys` maps
//! keys; `traced_channel` adds the trace context to calls; `list`, `watch`, `lease` and `compactor` implement the larger operations.
//!
//! # Invariants
//!
//! 1. A write is executed at most once. It is repeated after an unknown outcome only where that
//!    cannot execute it twice, and is reported as unknown otherwise.
//! 2. A batch never splits a revision and never reports more progress than etcd did.
//! 3. No response exceeds `RESPONSE_BYTES_MAX`, whatever the size of the data: lists are paged by
//!    bytes and watch responses are fragmented.

mod availability;
mod cluster;
mod compacted_revision;
mod compactor;
mod config;
mod dialer;
mod export;
mod failure;
mod identity;
mod keys;
mod last_seen_file;
mod lease;
mod list;
mod member;
mod restored;
mod traced_channel;
mod version;
mod watch;
mod watch_pool;
mod write_retry;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::TxnResponse;
use etcd_client::proto::{PbTxnOpResponse, PbTxnResponse};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::cluster::{Cluster, RetryPolicy};
use self::compacted_revision::{COMPACT_REV_KEY, CompactedRevision};
pub use self::config::{ConnectError, Etcd3Config};
pub use self::dialer::Dialer;
use self::failure::{AdvanceError, Failure};
use self::identity::ReadStart;
use self::keys::{Layout, header_revision, raw_revision};
use self::last_seen_file::LastSeenFile;
use self::lease::Leases;
use crate::clock::Clock;
use crate::revision_times::SAMPLE_PERIOD;
use crate::{
    Expect, KeyValue, ListPage, ListRequest, Outcome, Put, RevisionSample, RevisionTimes, Storage,
    StorageError, StorageWatch,
};
use watchet_api::{ResourceVersion, StorageKey};
use watchet_metrics::LogInterval;
use watchet_tasks::Tasks;

/// Timeout of a read of one key.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a write, after which its outcome is unknown. With its default election timeout etcd
/// returns `request timed out` after 7 s; the proposal may still be applied.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which the last revision is stored for the next process.
const LAST_SEEN_INTERVAL: Duration = Duration::from_secs(1);

/// The etcd back end. See the module documentation.
#[derive(Debug)]
pub struct Etcd3 {
    cluster: Cluster,
    layout: Layout,
    leases: Leases,
    compacted: CompactedRevision,
    compaction_interval: Duration,
    times: Arc<RevisionTimes>,
    /// Retains the latest revision for the next process, if that is configured.
    last_seen: Option<Arc<Mutex<LastSeenFile>>>,
    /// Held while a restored etcd is advanced.
    advancing: tokio::sync::Mutex<()>,
}

impl Etcd3 {
    /// Validates the configuration and requests every member's version; one response is sufficient. If etcd was restored
    /// from a backup since an earlier process, advances its revision first.
    ///
    /// # Errors
    /// Returns [`ConnectError`] with the endpoint or file.
    pub async fn connect(config: Etcd3Config) -> Result<Arc<Self>, ConnectError> {
        let checked = config.check()?;
        let unreachable = |failures| ConnectError::Unreachable { failures };
        let cluster = Cluster::new(checked.endpoints, &config.dialer)
            .await
            .map_err(|failure| unreachable(vec![failure.into_storage_error().to_string()]))?;
        let last_seen = config.open_last_seen_file()?;
        cluster.connect().await.map_err(unreachable)?;
        if let Some(file) = &last_seen
            && let Some(seen) = file.of_cluster(cluster.identity().last_seen().cluster)
        {
            cluster.identity().resume(seen);
        }
        let etcd = Self {
            cluster,
            layout: checked.layout,
            leases: Leases::new(config.lease_keys),
            compacted: CompactedRevision::default(),
            compaction_interval: config.compaction_interval,
            times: Arc::default(),
            last_seen: last_seen.map(|file| Arc::new(Mutex::new(file))),
            advancing: tokio::sync::Mutex::default(),
        };
        if etcd.last_seen.is_some() {
            let advanced = etcd.advance_at_start().await;
            advanced.map_err(|error| match error {
                AdvanceError::Storage(error) => unreachable(vec![error.to_string()]),
                error @ AdvanceError::Failed { .. } => ConnectError::NotAdvanced(error.to_string()),
                error @ AdvanceError::TooOld { .. } => ConnectError::TooOld(error.to_string()),
            })?;
        }
        Ok(Arc::new(etcd))
    }

    /// Stores what the next process must know to detect that etcd was restored, at an interval, until cancelled.
    async fn keep_storing_last_seen(&self) {
        let log = LogInterval::growing();
        let mut stored = None;
        loop {
            let seen = self.cluster.identity().last_seen();
            if let Some(file) = &self.last_seen
                && stored != Some(seen)
            {
                let file = Arc::clone(file);
                // A disk that does not respond must not stop the probes of etcd.
                let store =
                    Tasks::new().spawn_blocking("etcd-revision", move || file.lock().store(seen));
                match store.await {
                    Ok(Ok(())) => stored = Some(seen),
                    Ok(Err(error)) if log.next().is_some() => {
                        tracing::warn!(%error, "cannot store the last revision of etcd");
                    }
                    // It was logged before, or the task has panicked, which is logged where tasks end.
                    _ => {}
                }
            }
            tokio::time::sleep(LAST_SEEN_INTERVAL).await;
        }
    }

    /// Returns the store's revision by a linearizable read of a key that does not exist.
    async fn probe(&self) -> Result<ResourceVersion, Failure> {
        let key = self.layout.probe();
        let (_, at) = self.read(key).await?;
        Ok(at)
    }

    /// Compacts at a revision, unless that was done by an earlier attempt or another server.
    async fn compact_at(&self, at: ResourceVersion) -> Result<(), Failure> {
        let compacted = self
            .cluster
            .call(RetryPolicy::Repeatable, WRITE_TIMEOUT, |member| {
                let mut kv = member.calls().kv;
                async move { Ok(kv.compact(raw_revision(at), None).await?) }
            })
            .await;
        match compacted {
            Ok(_) | Err(Failure::Compacted) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Samples the revision and the time at an interval, until cancelled: etcd itself records no times. A read precedes
    /// the first sample, so that it is older than the clients' changes. Later samples send no requests: they have the
    /// revision of the last response, and the caches read the compacted revision at an interval.
    async fn sample_revisions(&self) {
        let clock = Clock::start();
        if let Err(failure) = self.probe().await {
            let error = failure.into_storage_error();
            tracing::debug!(%error, "cannot read the revision for the first sample");
        }
        loop {
            let revision = self.cluster.identity().reached();
            if !revision.is_zero() {
                self.times.record(RevisionSample {
                    time_ms: clock.now_ms(),
                    revision,
                    written_bytes: 0,
                });
            }
            tokio::time::sleep(SAMPLE_PERIOD).await;
        }
    }

    async fn read(
        &self,
        key: Vec<u8>,
    ) -> Result<(Option<etcd_client::KeyValue>, ResourceVersion), Failure> {
        let identity = self.cluster.identity();
        loop {
            let start = identity.read_start();
            let mut answer = self
                .cluster
                .call(RetryPolicy::Repeatable, READ_TIMEOUT, |member| {
                    let mut kv = member.calls().kv;
                    let key = key.clone();
                    async move { Ok(kv.get(key, None).await?) }
                })
                .await?;
            let at = header_revision(answer.header());
            if !identity.record_read(start, at) {
                return Ok((answer.take_kvs().into_iter().next(), at));
            }
        }
    }

    /// Returns the outcome of a transaction that began at `start`. It is linearizable, as a read, but cannot be repeated.
    fn outcome(&self, start: ReadStart, answer: TxnResponse) -> Result<Outcome, StorageError> {
        let at = header_revision(answer.header());
        self.cluster.identity().record_read(start, at);
        if answer.succeeded() {
            return Ok(Outcome::Done(at));
        }
        let found = first_read(answer.0).map(|kv| self.layout.key_value(kv));
        Ok(Outcome::Refused(found.transpose()?))
    }

    /// Returns the outcome of a condition that no key meets: no key has revision zero.
    async fn refused(&self, key: &StorageKey) -> Result<Outcome, StorageError> {
        Ok(Outcome::Refused(self.get(key).await?.0))
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
        self.wait_until_advanced().await?;
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
        self.wait_until_advanced().await?;
        let start = self.cluster.identity().read_start();
        let Some(ttl) = put.ttl else {
            let answer = self.put_once(&put, None).await;
            return self.outcome(start, answer.map_err(|failure| put_error(&put, failure))?);
        };
        let unleased = Failure::into_storage_error;
        let lease = self
            .leases
            .get(&self.cluster, ttl)
            .await
            .map_err(unleased)?;
        let mut answer = self.put_once(&put, Some(lease)).await;
        if answer
            .as_ref()
            .is_err_and(|failure| *failure == Failure::LeaseNotFound)
        {
            // It was revoked, or etcd was restored from a backup. The put was not executed.
            self.leases.forget(lease).await;
            let lease = self
                .leases
                .get(&self.cluster, ttl)
                .await
                .map_err(unleased)?;
            answer = self.put_once(&put, Some(lease)).await;
        }
        self.outcome(start, answer.map_err(|failure| put_error(&put, failure))?)
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        if expect.is_zero() {
            return self.refused(key).await;
        }
        self.wait_until_advanced().await?;
        let start = self.cluster.identity().read_start();
        let answer = self
            .delete_once(key, expect)
            .await
            .map_err(Failure::into_storage_error)?;
        self.outcome(start, answer)
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        self.open_watch(prefix, after).await
    }

    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        let probed = self.probe().await.map_err(Failure::into_storage_error)?;
        if self.cluster.identity().lost().is_none() {
            return Ok(probed);
        }
        self.wait_until_advanced().await?;
        self.probe().await.map_err(Failure::into_storage_error)
    }

    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError> {
        match self.compact_at(at).await {
            Ok(()) => Ok(()),
            Err(Failure::Future) => {
                let probed = self.probe().await;
                let current = probed.map_err(Failure::into_storage_error)?;
                let requested = at;
                Err(StorageError::Future { requested, current })
            }
            Err(failure) => Err(failure.into_storage_error()),
        }
    }

    /// Returns the database size of the member that responds; members differ, for example after a defragmentation.
    async fn size_bytes(&self) -> Result<Option<u64>, StorageError> {
        let status = self
            .cluster
            .call(RetryPolicy::Repeatable, READ_TIMEOUT, |member| {
                let mut maintenance = member.calls().maintenance;
                async move { Ok(maintenance.status().await?) }
            })
            .await
            .map_err(Failure::into_storage_error)?;
        Ok(u64::try_from(status.db_size()).ok())
    }

    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        let read = async { Ok(self.read(COMPACT_REV_KEY.into()).await?.0) };
        self.compacted.get(read).await
    }

    fn revision_times(&self) -> Option<Arc<RevisionTimes>> {
        Some(self.times.clone())
    }

    fn progress_supported(&self) -> bool {
        self.cluster.progress_is_supported()
    }

    fn incarnation(&self) -> u64 {
        self.cluster.identity().incarnation()
    }

    fn recoveries(&self) -> Option<tokio::sync::watch::Receiver<u64>> {
        Some(self.cluster.recoveries())
    }

    async fn maintain(&self, cancel: CancellationToken) {
        let compaction = async {
            if self.compaction_interval.is_zero() {
                std::future::pending().await
            } else {
                self.run_compactor(self.compaction_interval).await
            }
        };
        // Cancellation first; the others never end and are independent.
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            () = compaction => {}
            () = self.cluster.keep_probing() => {}
            () = self.sample_revisions() => {}
            () = self.keep_storing_last_seen() => {}
        }
        if let Some(file) = &self.last_seen {
            let mut file = file.lock();
            if let Err(error) = file.store(self.cluster.identity().last_seen()) {
                tracing::warn!(path = %file.path().display(), %error, "cannot store the last revision of etcd");
            }
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

/// Returns the first key-value that the `else` branch of a transaction read, if any.
fn first_read(answer: PbTxnResponse) -> Option<etcd_client::proto::PbKeyValue> {
    answer
        .responses
        .into_iter()
        .find_map(|operation| match operation.response {
            Some(PbTxnOpResponse::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        })
}
