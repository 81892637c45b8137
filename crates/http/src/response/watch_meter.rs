//! Metrics of the frames that a watch sends.

use std::sync::Arc;

use tokio::time::Instant;

use watchet_metrics::{RequestScope, UnsentEvents, WatchMetrics};
use watchet_registry::{ReceivedEvents, WatchItem, WatchRecord};

/// Counts the frames and bytes that a watch sends.
#[derive(Debug)]
pub(crate) struct WatchMeter {
    pub(crate) metrics: Arc<WatchMetrics>,
    pub(crate) scope: RequestScope,
    /// When the watch request arrived.
    pub(crate) started: Instant,
    /// The watch in the list of open watches; `None` in tests.
    pub(crate) record: Option<Arc<WatchRecord>>,
    /// The events that the client's connection has not written yet; `None` if the server does not measure its writes.
    pub(crate) unsent_events: Option<Arc<UnsentEvents>>,
    /// The number of frames and bytes so far.
    pub(crate) sent: (u64, u64),
}

impl WatchMeter {
    /// Records that the connection writes the frames of these events next.
    pub(crate) fn record_unsent(&self, received: ReceivedEvents) {
        if let Some(unsent_events) = &self.unsent_events {
            unsent_events.add(&self.metrics, received.arrived, received.count);
        }
    }

    /// Counts a frame of `bytes` bytes that encodes `item`.
    pub(crate) fn count(&mut self, item: &WatchItem, bytes: usize) {
        self.metrics.sent(bytes);
        self.sent = (self.sent.0 + 1, self.sent.1 + bytes as u64);
        if let Some(record) = &self.record {
            record.set_sent(self.sent.0, self.sent.1);
        }
        let initial_events_end = matches!(
            item,
            WatchItem::Bookmark {
                initial_events_end: true,
                ..
            }
        );
        if initial_events_end {
            let elapsed = self.started.elapsed();
            self.metrics.initial_state_sent(self.scope, elapsed);
        }
    }
}
