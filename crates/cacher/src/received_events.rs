//! [`ReceivedEvents`]: how many live events a watch has returned, and since when the oldest was on its way.

use tokio::time::Instant;

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
    /// Adds `count` events, of which the oldest arrived at `arrived`. They are later than those before.
    pub(super) fn add(&mut self, arrived: Instant, count: usize) {
        match &mut self.0 {
            Some(received) => received.count += count,
            None => self.0 = Some(ReceivedEvents { arrived, count }),
        }
    }

    /// Returns the events since the last call; `None` if there were none.
    pub(super) fn take(&mut self) -> Option<ReceivedEvents> {
        self.0.take()
    }
}
