//! [`AuthorizedWatch`]: a watch that ends when its client loses access, and that reports why it ended.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::response::response_tracker::ResponseAbortHandle;
use crate::response::watch_body::WatchSource;
use crate::verbs::watch_events::Events;
use crate::watch_access::WatchAccess;
use crate::watch_counts::CountedWatch;
use watchet_api::Status;
use watchet_metrics::{WatchEnd, WatchMetrics};
use watchet_registry::{OpenWatch, ReadError, ReceivedEvents, WatchItem, WatchPhase, WatchRecord};

/// A watch of a client. When it is dropped, it counts and logs why it ended.
pub(super) struct AuthorizedWatch {
    pub(super) events: Events,
    pub(super) access: WatchAccess,
    /// `None` for the history of storage, which ends by itself.
    pub(super) open: Option<OpenWatch>,
    /// Shows whether the response was aborted because its client does not read.
    pub(super) abort: ResponseAbortHandle,
    /// Cancelled when the server stops.
    pub(super) stop: CancellationToken,
    pub(super) metrics: Arc<WatchMetrics>,
    pub(super) _counted: Option<CountedWatch>,
}

impl WatchSource for AuthorizedWatch {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<WatchItem>>> {
        self.events.poll_next(cx)
    }

    fn take_received(&mut self) -> Option<ReceivedEvents> {
        self.events.take_received()
    }

    fn denial(&self) -> Option<&Status> {
        self.access.denial()
    }
}

impl AuthorizedWatch {
    /// Returns why the watch of `record` ended.
    fn end(&self, record: &WatchRecord) -> WatchEnd {
        let is_late = Instant::now() >= self.events.deadline();
        if self.access.denial().is_some() {
            return WatchEnd::Access;
        }
        match record.error() {
            Some(ReadError::Expired { .. }) => return WatchEnd::Expired,
            Some(_) => return WatchEnd::Error,
            None => {}
        }
        // The stop of the server also cancels the token of the watch.
        if self.stop.is_cancelled() {
            WatchEnd::Shutdown
        } else if record.was_ended() {
            WatchEnd::Deleted
        } else if self.abort.is_aborted() {
            WatchEnd::Aborted
        } else if is_late {
            WatchEnd::Timeout
        } else if record.status().phase == WatchPhase::Ended {
            WatchEnd::Definition
        } else {
            WatchEnd::Client
        }
    }
}

impl Drop for AuthorizedWatch {
    fn drop(&mut self) {
        let Some(open) = &self.open else {
            return;
        };
        let record = open.record();
        let end = self.end(record);
        self.metrics.ended(end);
        let reason = end.as_str();
        let origin = record.origin();
        let (user, resource) = (&origin.user.name, origin.resource.qualified());
        let namespace = origin.namespace.as_deref().unwrap_or_default();
        let (position, sent) = (record.status().position, record.sent_frames());
        let error = record.error().map(tracing::field::display);
        match end {
            // The usual ends, which would fill the log.
            WatchEnd::Timeout | WatchEnd::Client | WatchEnd::Shutdown => tracing::debug!(
                reason, user, resource, namespace, %position, sent, "watch ended"
            ),
            _ => tracing::info!(
                reason, user, resource, namespace, %position, sent, error, "watch ended"
            ),
        }
    }
}
