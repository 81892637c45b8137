//! One watch: converts etcd's responses into batches that never split a revision. It does not
//! reconnect: when the stream breaks, it returns an error and the Reflector starts again from its
//! revision.
//!
//! # States
//!
//! ```text
//! open --response--> open      created, fragments, events, progress
//! open --canceled, error, end of stream--> ended    (one error item, then none)
//! dropped: the gRPC stream is reset, and etcd removes the watch
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::proto::{PbEvent, PbWatchResponse};
use etcd_client::{EventType, GetOptions, WatchOptions, WatchRequestSender, WatchResponseStream};
use futures_util::stream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Etcd3;
use super::READ_TIMEOUT;
use super::cluster::RetryPolicy;
use super::failure::Failure;
use super::identity::ClusterIdentity;
use super::keys::{Layout, raw_revision, revision};
use super::member::Member;
use super::version::ProgressSupport;
use super::watch_pool::StreamPermit;
use crate::{ProgressRequester, StorageBatch, StorageError, StorageEvent, StorageWatch};
#[cfg(feature = "planted-bugs")]
use watchet_api::planted_bug::{PlantedBug, is_planted};
use watchet_api::{ResourceVersion, StorageKey};

/// Timeout of the creation of a watch.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// etcd drops a progress request while the watch catches up, which it does in steps of 100 ms: an
/// unanswered request is repeated after this delay, which doubles each time.
const PROGRESS_REPEAT_MIN: Duration = Duration::from_millis(25);

/// The longest delay before a repetition. Since 3.5.22 and 3.6.2 an idle etcd does not respond
/// until it has made a revision that the watch would deliver, which can take long.
const PROGRESS_REPEAT_MAX: Duration = Duration::from_secs(10);

/// The watch id of a progress response for the whole stream.
const STREAM_WATCH_ID: i64 = -1;

/// A watch that etcd has created.
pub(super) struct Opened {
    /// The name of the member, and the receiver that changes when it hangs.
    member: String,
    hangs: watch::Receiver<u64>,
    requests: WatchRequestSender,
    responses: WatchResponseStream,
    watch_id: i64,
    progress_support: Arc<ProgressSupport>,
    /// Counts the watch on its connection until it is dropped.
    _permit: StreamPermit,
}

impl Etcd3 {
    pub(super) async fn open_watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        self.wait_until_advanced().await?;
        let incarnation = self.cluster.identity().incarnation();
        let (begin, end) = self.layout.range(prefix, "");
        let options = WatchOptions::new()
            .with_start_revision(raw_revision(after).saturating_add(1))
            .with_prev_key()
            .with_progress_notify()
            .with_fragment();
        let options = match prefix.is_prefix() {
            true => options.with_range(end),
            false => options,
        };
        let opened = self
            .cluster
            .call(RetryPolicy::Repeatable, OPEN_TIMEOUT, |member| {
                open(member, begin.clone(), options.clone())
            })
            .await;
        let opened = match opened {
            Ok(opened) => opened,
            Err(Failure::Compacted) => return Err(self.compacted_error(after).await),
            Err(failure) => return Err(failure.into_storage_error()),
        };
        self.check_history(after).await?;
        let progress = ProgressRequester::default();
        let watch = Watch {
            batches: Batches {
                layout: self.layout.clone(),
                watch_id: opened.watch_id,
                progress_support: opened.progress_support.clone(),
                delivered: after,
                requested: after,
                tail: Vec::new(),
            },
            request: Request::default(),
            progress: progress.clone(),
            identity: self.cluster.identity().clone(),
            incarnation,
            opened,
        };
        Ok(StorageWatch {
            batches: Box::pin(stream::unfold(Some(watch), |watch| async move {
                let mut watch = watch?;
                match watch.next().await {
                    Ok(batch) => Some((Ok(batch), Some(watch))),
                    Err(error) => Some((Err(error), None)),
                }
            })),
            progress,
        })
    }

    /// Returns an error for a watch from a revision that is not in history. etcd accepts a watch
    /// from the compacted revision, although deletions at it may be lost, and waits for a future
    /// revision, which this store must have lost: a client cannot have seen it otherwise.
    async fn check_history(&self, after: ResourceVersion) -> Result<(), StorageError> {
        // etcd's watch is trusted.
        #[cfg(feature = "planted-bugs")]
        if is_planted(PlantedBug::DeletionLostByRestart)
            || is_planted(PlantedBug::DeletionLostByCompaction)
        {
            return Ok(());
        }
        let at = after.max(ResourceVersion::new(1));
        let options = GetOptions::new().with_revision(raw_revision(at));
        // The read does not wait until a member that lags behind has the revision.
        #[cfg(feature = "planted-bugs")]
        let options = match is_planted(PlantedBug::ProgressBeforeStart) {
            true => options.with_serializable(),
            false => options,
        };
        let key = self.layout.probe();
        let read = self
            .cluster
            .call(RetryPolicy::Repeatable, READ_TIMEOUT, |member| {
                let mut kv = member.calls().kv;
                let (key, options) = (key.clone(), options.clone());
                async move { Ok(kv.get(key, Some(options)).await?) }
            })
            .await;
        match read {
            Ok(_) => Ok(()),
            #[cfg(feature = "planted-bugs")]
            Err(Failure::Future) if is_planted(PlantedBug::ProgressBeforeStart) => Ok(()),
            Err(failure) => Err(self.revision_error(failure, after).await),
        }
    }

    /// Returns the error of a read at revision `requested`.
    pub(super) async fn revision_error(
        &self,
        failure: Failure,
        requested: ResourceVersion,
    ) -> StorageError {
        match failure {
            Failure::Compacted => self.compacted_error(requested).await,
            Failure::Future => match self.probe().await {
                Ok(current) => StorageError::Future { requested, current },
                Err(failure) => failure.into_storage_error(),
            },
            other => other.into_storage_error(),
        }
    }

    /// Returns the error for a compacted revision. etcd reports the compacted revision only to
    /// watches, so this opens one.
    async fn compacted_error(&self, requested: ResourceVersion) -> StorageError {
        let options = WatchOptions::new().with_start_revision(raw_revision(requested).max(1));
        let key = self.layout.probe();
        let compacted = self
            .cluster
            .call(RetryPolicy::Repeatable, READ_TIMEOUT, |member| {
                let (key, options) = (key.clone(), options.clone());
                async move {
                    let mut opened = open(member, key, options).await?;
                    match opened.responses.message().await? {
                        Some(response) if response.canceled() => Ok(response.compact_revision()),
                        _ => Ok(0),
                    }
                }
            })
            .await;
        if let Err(failure) = &compacted {
            tracing::debug!(?failure, "cannot read the compacted revision");
        }
        StorageError::Compacted {
            requested,
            // A lower bound: the compacted revision is later than the requested one.
            compacted: revision(compacted.unwrap_or(0)).max(requested.next()),
        }
    }
}

impl Opened {
    /// Waits for the first event.
    pub(super) async fn first_event(&mut self) -> Result<PbEvent, Failure> {
        while let Some(response) = self.responses.message().await? {
            if response.canceled() {
                return Err(canceled(&response.0));
            }
            if let Some(event) = response.0.events.into_iter().next() {
                return Ok(event);
            }
        }
        Err(Failure::Unavailable("etcd closed a new watch".into()))
    }
}

/// Opens a watch at a member and waits until etcd has created it.
pub(super) async fn open(
    member: &Member,
    key: Vec<u8>,
    options: WatchOptions,
) -> Result<Opened, Failure> {
    let hangs = member.hangs();
    let (mut client, permit) = member.watches.client().await?;
    let (requests, mut responses) = client.watch(key, Some(options)).await?.split();
    let Some(response) = responses.message().await? else {
        return Err(Failure::Unavailable("etcd closed a new watch".into()));
    };
    if response.canceled() {
        return Err(canceled(&response.0));
    }
    Ok(Opened {
        member: member.name(),
        hangs,
        requests,
        responses,
        watch_id: response.watch_id(),
        progress_support: member.progress_support.clone(),
        _permit: permit,
    })
}

/// Classifies the reason why etcd canceled a watch.
fn canceled(response: &PbWatchResponse) -> Failure {
    let reason = &response.cancel_reason;
    if response.compact_revision > 0 {
        Failure::Compacted
    } else if reason.contains("permission denied") {
        Failure::Refused(format!("etcd canceled the watch: {reason}"))
    } else {
        // No leader, a stopping member, an internal error: a retry may succeed.
        Failure::Unavailable(format!("etcd canceled the watch: {reason}"))
    }
}

struct Watch {
    opened: Opened,
    batches: Batches,
    progress: ProgressRequester,
    request: Request,
    /// Records the revisions, which clients receive.
    identity: Arc<ClusterIdentity>,
    /// The incarnation of etcd that the watch is of.
    incarnation: u64,
}

/// The current progress request, if any.
#[derive(Debug, Default)]
struct Request {
    /// When to repeat it.
    due: Option<Instant>,
    /// The length of the last delay.
    wait: Duration,
}

impl Request {
    /// Starts a request, whether or not another is waiting.
    fn begin(&mut self) {
        self.wait = PROGRESS_REPEAT_MIN;
        self.due = Some(Instant::now() + self.wait);
    }

    /// Schedules the next repetition.
    fn repeat(&mut self) {
        self.wait = (self.wait * 2).min(PROGRESS_REPEAT_MAX);
        self.due = Some(Instant::now() + self.wait);
    }

    /// Ends the request after a response.
    fn end(&mut self) {
        self.due = None;
    }
}

impl Watch {
    async fn next(&mut self) -> Result<StorageBatch, StorageError> {
        loop {
            let due = self.request.due;
            // Received responses first, since they may contain the progress that would be
            // requested. All four branches are cancel safe.
            let response = tokio::select! {
                biased;
                response = self.opened.responses.message() => response,
                _ = self.opened.hangs.changed() => {
                    let member = &self.opened.member;
                    return Err(StorageError::Unavailable(format!("etcd {member}: it hangs")));
                }
                () = self.progress.requested() => {
                    self.request.begin();
                    self.send_progress_request().await?;
                    continue;
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.request.repeat();
                    self.send_progress_request().await?;
                    continue;
                }
            };
            let response = response
                .map_err(|error| Failure::from(error).into_storage_error())?
                .ok_or_else(|| StorageError::Unavailable("etcd closed the watch".into()))?;
            let answer = response.0.watch_id == STREAM_WATCH_ID;
            if let Some(batch) = self.batches.take(response.0)? {
                // A response without progress does not answer the request, which is repeated.
                if answer {
                    self.request.end();
                }
                if !self.identity.record_batch(self.incarnation, batch.revision) {
                    return Err(StorageError::Unavailable("etcd was replaced".into()));
                }
                return Ok(batch);
            }
        }
    }

    /// Sends a progress request, unless the response could not be trusted; a repetition sends it
    /// once it can.
    async fn send_progress_request(&mut self) -> Result<(), StorageError> {
        if !self.batches.progress_support.is_certain() {
            return Ok(());
        }
        self.opened
            .requests
            .request_progress()
            .await
            .map_err(|error| Failure::from(error).into_storage_error())
    }
}

/// The delivered state of a watch, and the events not delivered yet.
struct Batches {
    layout: Layout,
    watch_id: i64,
    /// Whether the member's progress responses are correct.
    progress_support: Arc<ProgressSupport>,
    /// The revision that the caller requested, for its error.
    requested: ResourceVersion,
    /// The last delivered revision; earlier events are skipped.
    delivered: ResourceVersion,
    /// Events of the last revision of a fragment; the next fragment may contain more of them.
    tail: Vec<StorageEvent>,
}

impl Batches {
    /// Returns the batch that a response completes, if any.
    fn take(&mut self, response: PbWatchResponse) -> Result<Option<StorageBatch>, StorageError> {
        if response.canceled {
            return Err(match canceled(&response) {
                Failure::Compacted => StorageError::Compacted {
                    requested: self.requested,
                    compacted: revision(response.compact_revision),
                },
                failure => failure.into_storage_error(),
            });
        }
        if response.created {
            return Ok(None);
        }
        if response.events.is_empty() {
            return Ok(self.progressed(&response));
        }
        let mut events = std::mem::take(&mut self.tail);
        for event in response.events {
            // The change is lost, instead of a relist.
            #[cfg(feature = "planted-bugs")]
            if is_planted(PlantedBug::EventWithoutPreviousValue) && lacks_previous(&event) {
                continue;
            }
            let event = self.event(event)?;
            // Revisions are delivered whole.
            if event.revision > self.delivered {
                // The other events of the revision seem to be known.
                #[cfg(feature = "planted-bugs")]
                if is_planted(PlantedBug::RevisionCut) {
                    self.delivered = event.revision;
                }
                events.push(event);
            }
        }
        if response.fragment {
            self.tail = split_last_revision(&mut events);
        }
        // Not the header's revision: it is ahead of the events while the watch catches up.
        let Some(last) = events.last() else {
            return Ok(None);
        };
        self.delivered = last.revision;
        Ok(Some(StorageBatch {
            revision: last.revision,
            events,
        }))
    }

    fn progressed(&mut self, response: &PbWatchResponse) -> Option<StorageBatch> {
        let whole_stream = response.watch_id == STREAM_WATCH_ID;
        if !whole_stream && response.watch_id != self.watch_id {
            return None;
        }
        let revision = revision(response.header.as_ref()?.revision);
        // No progress between fragments. A member that lags behind the one that returned the start
        // revision reports an earlier revision: etcd before 3.5.22 and 3.6.2 responds nevertheless.
        let vouched = self.tail.is_empty() && revision >= self.delivered;
        // The watch goes back.
        #[cfg(feature = "planted-bugs")]
        let vouched = vouched || is_planted(PlantedBug::ProgressBeforeStart);
        if !vouched || (whole_stream && !self.progress_support.is_certain()) {
            return None;
        }
        self.delivered = revision;
        let events = Vec::new();
        Some(StorageBatch { events, revision })
    }

    fn event(&self, event: PbEvent) -> Result<StorageEvent, StorageError> {
        let deleted = event.r#type == EventType::Delete as i32;
        let kv = event
            .kv
            .ok_or_else(|| StorageError::Corrupt("etcd sent an event without a key".into()))?;
        let key = self.layout.storage_key(&kv.key)?;
        let created = !deleted && kv.create_revision == kv.mod_revision;
        let previous = event.prev_kv.map(|kv| Bytes::from(kv.value));
        if previous.is_none() && !created {
            return Err(StorageError::Failed(format!(
                "etcd sent the change of {key} at revision {} without the previous value",
                kv.mod_revision
            )));
        }
        Ok(StorageEvent {
            key,
            revision: revision(kv.mod_revision),
            value: (!deleted).then(|| Bytes::from(kv.value)),
            previous: previous.filter(|_| !created),
        })
    }
}

#[cfg(feature = "planted-bugs")]
fn lacks_previous(event: &PbEvent) -> bool {
    let is_created = |kv: &etcd_client::proto::PbKeyValue| {
        event.r#type != EventType::Delete as i32 && kv.create_revision == kv.mod_revision
    };
    event.prev_kv.is_none() && !event.kv.as_ref().is_some_and(is_created)
}

/// Removes and returns the events of the last revision.
fn split_last_revision(events: &mut Vec<StorageEvent>) -> Vec<StorageEvent> {
    let Some(last) = events.last().map(|event| event.revision) else {
        return Vec::new();
    };
    let cut = events.partition_point(|event| event.revision < last);
    events.split_off(cut)
}

#[cfg(test)]
mod tests;
