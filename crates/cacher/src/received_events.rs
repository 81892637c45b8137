//! [`ReceivedEvents`]: how many live events a watch has returned, and since when the oldest was on its way.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::inbox::EventBatch;

/// Live events that a watch has returned.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedEvents {
    /// When the oldest of their changes arrived from storage.
    pub arrived: Instant,
    /// The number of events, at least 1.
    pub count: usize,
}

/// The live events since they were last taken.
#[derive(Debug, Default)]
pub(super) struct Received(Option<ReceivedEvents>);

impl Received {
    /// Adds `count` events of `batches`.
    pub(super) fn add(&mut self, batches: &VecDeque<Arc<EventBatch>>, count: usize) {
        let oldest = batches.iter().map(|batch| batch.received.arrived).min();
        let Some(oldest) = oldest.filter(|_| count > 0) else {
            return;
        };
        let before = self.0.take();
        self.0 = Some(ReceivedEvents {
            arrived: before.map_or(oldest, |before| before.arrived.min(oldest)),
            count: before.map_or(0, |before| before.count) + count,
        });
    }

    /// Returns the events since the last call; `None` if there were none.
    pub(super) fn take(&mut self) -> Option<ReceivedEvents> {
        self.0.take()
    }
}
