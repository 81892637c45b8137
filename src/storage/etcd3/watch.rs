//! One watch: etcd's responses made into batches that never cut a revision in two. It resumes
//! nothing: when the stream breaks, the batches end with an error and the Reflector starts over
//! from the revision it has.
//!
//! # States
//!
//! ```text
//! open --response--> open      created, fragments, events, progress
//! open --canceled, error, end of stream--> ended    (one error item, then none)
//! dropped: the gRPC stream is reset, and etcd forgets the watch
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::proto::{PbEvent, PbWatchResponse};
use etcd_client::{EventType, GetOptions, WatchOptions, WatchRequestSender, WatchResponseStream};
use futures_util::stream;
use tokio::time::{Instant, sleep_until};

use super::Etcd3;
use super::READ_TIMEOUT;
use super::cluster::{Member, Repeat};
use super::failure::Failure;
use super::keys::{Layout, raw_revision, revision};
use super::version::Truthfulness;
use super::watch_pool::Seat;
use crate::api::{ResourceVersion, StorageKey};
use crate::storage::{ProgressRequester, StorageBatch, StorageError, StorageEvent, StorageWatch};

/// How long etcd may take to confirm a new watch.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// etcd drops a progress request while the watch is catching up, which it does in steps of 100 ms:
/// an unanswered request is repeated after this, then after twice as long, and so on.
const PROGRESS_REPEAT_MIN: Duration = Duration::from_millis(25);

/// The longest wait before a progress request is repeated. An idle etcd answers none (since 3.5.22 and
/// 3.6.2) before it has made a revision that the watch would deliver, and that can be long.
const PROGRESS_REPEAT_MAX: Duration = Duration::from_secs(10);

/// The watch id of an answer to a progress request: it speaks for the whole stream.
const STREAM_WATCH_ID: i64 = -1;

/// A watch that etcd has confirmed.
struct Opened {
    requests: WatchRequestSender,
    responses: WatchResponseStream,
    watch_id: i64,
    truthfulness: Arc<Truthfulness>,
    /// Held, not read: it keeps the watch counted on its connection.
    _seat: Seat,
}

impl Etcd3 {
    pub(super) async fn open_watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
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
            .call(Repeat::Freely, OPEN_TIMEOUT, |member| {
                open(member, begin.clone(), options.clone())
            })
            .await;
        let opened = match opened {
            Ok(opened) => opened,
            Err(Failure::Compacted) => return Err(self.compacted_error(after).await),
            Err(failure) => return Err(failure.into_storage_error()),
        };
        self.refuse_unless_history(after).await?;
        let progress = ProgressRequester::default();
        let watch = Watch {
            batches: Batches {
                layout: self.layout.clone(),
                watch_id: opened.watch_id,
                truthfulness: opened.truthfulness.clone(),
                delivered: after,
                requested: after,
                tail: Vec::new(),
            },
            request: Request::default(),
            progress: progress.clone(),
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

    /// Refuses a watch after a revision that is not in history. etcd itself lets a watch start at
    /// the compacted revision, although a deletion made at it can be gone; and it waits for a
    /// revision in the future, which is one that it has lost: nobody watches after what never was.
    async fn refuse_unless_history(&self, after: ResourceVersion) -> Result<(), StorageError> {
        let at = after.max(ResourceVersion::new(1));
        let options = GetOptions::new().with_revision(raw_revision(at));
        let key = self.layout.probe();
        let read = self
            .cluster
            .call(Repeat::Freely, READ_TIMEOUT, |member| {
                let mut kv = member.calls().kv;
                let (key, options) = (key.clone(), options.clone());
                async move { Ok(kv.get(key, Some(options)).await?) }
            })
            .await;
        match read {
            Ok(_) => Ok(()),
            Err(failure) => Err(self.revision_error(failure, after).await),
        }
    }

    /// The error of a read at revision `requested`.
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

    /// The error for a revision that etcd says is compacted. Only a watch is told where history
    /// begins, so one is opened for the purpose.
    async fn compacted_error(&self, requested: ResourceVersion) -> StorageError {
        let options = WatchOptions::new().with_start_revision(raw_revision(requested).max(1));
        let key = self.layout.probe();
        let told = self
            .cluster
            .call(Repeat::Freely, READ_TIMEOUT, |member| {
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
        if let Err(failure) = &told {
            tracing::debug!(?failure, "etcd does not tell the compacted revision");
        }
        StorageError::Compacted {
            requested,
            // What is certain without an answer: it is later than what was asked.
            compacted: revision(told.unwrap_or(0)).max(requested.next()),
        }
    }
}

/// Opens a watch at a member and waits until etcd has confirmed it.
async fn open(member: &Member, key: Vec<u8>, options: WatchOptions) -> Result<Opened, Failure> {
    let (mut client, seat) = member.watches.client().await?;
    let (requests, mut responses) = client.watch(key, Some(options)).await?.split();
    let Some(response) = responses.message().await? else {
        return Err(Failure::Unavailable("etcd closed a new watch".into()));
    };
    if response.canceled() {
        return Err(canceled(&response.0));
    }
    Ok(Opened {
        requests,
        responses,
        watch_id: response.watch_id(),
        truthfulness: member.truthfulness.clone(),
        _seat: seat,
    })
}

/// Why etcd canceled a watch.
fn canceled(response: &PbWatchResponse) -> Failure {
    let reason = &response.cancel_reason;
    if response.compact_revision > 0 {
        Failure::Compacted
    } else if reason.contains("permission denied") {
        Failure::Refused(format!("etcd canceled the watch: {reason}"))
    } else {
        // No leader, a member that stops, an internal trouble: another try may succeed.
        Failure::Unavailable(format!("etcd canceled the watch: {reason}"))
    }
}

struct Watch {
    opened: Opened,
    batches: Batches,
    progress: ProgressRequester,
    request: Request,
}

/// The progress request that waits for an answer, if one does.
#[derive(Debug, Default)]
struct Request {
    /// When to repeat it.
    due: Option<Instant>,
    /// How long the last wait was to be.
    wait: Duration,
}

impl Request {
    /// Somebody asks, whether others wait or not.
    fn begin(&mut self) {
        self.wait = PROGRESS_REPEAT_MIN;
        self.due = Some(Instant::now() + self.wait);
    }

    /// It is repeated.
    fn repeat(&mut self) {
        self.wait = (self.wait * 2).min(PROGRESS_REPEAT_MAX);
        self.due = Some(Instant::now() + self.wait);
    }

    /// It was answered.
    fn end(&mut self) {
        self.due = None;
    }
}

impl Watch {
    async fn next(&mut self) -> Result<StorageBatch, StorageError> {
        loop {
            let due = self.request.due;
            // What has arrived goes first: it may be the progress that is about to be asked for.
            // All three can be dropped half-way without losing anything.
            let response = tokio::select! {
                biased;
                response = self.opened.responses.message() => response,
                () = self.progress.requested() => {
                    self.request.begin();
                    self.ask_progress().await?;
                    continue;
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.request.repeat();
                    self.ask_progress().await?;
                    continue;
                }
            };
            let response = response
                .map_err(|error| Failure::from(error).into_storage_error())?
                .ok_or_else(|| StorageError::Unavailable("etcd closed the watch".into()))?;
            let answer = response.0.watch_id == STREAM_WATCH_ID;
            if let Some(batch) = self.batches.take(response.0)? {
                // An answer that says nothing is none: the request stands, and is repeated.
                if answer {
                    self.request.end();
                }
                return Ok(batch);
            }
        }
    }

    /// Asks, unless the answer would not be believed: then a repetition asks once it would be.
    async fn ask_progress(&mut self) -> Result<(), StorageError> {
        if !self.batches.truthfulness.is_certain() {
            return Ok(());
        }
        self.opened
            .requests
            .request_progress()
            .await
            .map_err(|error| Failure::from(error).into_storage_error())
    }
}

/// What was delivered of one watch, and what its responses add to that.
struct Batches {
    layout: Layout,
    watch_id: i64,
    /// Whether the member's answers to progress requests can be believed.
    truthfulness: Arc<Truthfulness>,
    /// What the caller asked for, for its error.
    requested: ResourceVersion,
    /// Nothing at or below this is delivered again.
    delivered: ResourceVersion,
    /// Events of the revision that a fragment ended in; the next one may hold more of it.
    tail: Vec<StorageEvent>,
}

impl Batches {
    /// What one response has to say, if it completes anything.
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
            let event = self.event(event)?;
            // A revision that was delivered was delivered whole.
            if event.revision > self.delivered {
                events.push(event);
            }
        }
        if response.fragment {
            self.tail = split_last_revision(&mut events);
        }
        // Not the header's revision: while a watch catches up, that is ahead of the events.
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
        // Between fragments nothing can be vouched for. A member that is behind the one that told
        // where to begin speaks of the past: etcd before 3.5.22 and 3.6.2 answers all the same.
        let vouched = self.tail.is_empty() && revision >= self.delivered;
        if !vouched || (whole_stream && !self.truthfulness.is_certain()) {
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
                "etcd sent the change of {key} at revision {} without the value before it",
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

/// Takes the events of the last revision off the end.
fn split_last_revision(events: &mut Vec<StorageEvent>) -> Vec<StorageEvent> {
    let Some(last) = events.last().map(|event| event.revision) else {
        return Vec::new();
    };
    let cut = events.partition_point(|event| event.revision < last);
    events.split_off(cut)
}

#[cfg(test)]
mod tests;
