//! [`ReceivedEvents`]: the number of live events that a watch has returned, and the arrival time of the oldest.

use tokio::time::Instant;

/// The live events that a watch has received from its inbox and returned to its caller.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedEvents {
    /// When the oldest of their changes arrived from storage.
    pub arrived: Instant,
    /// The number of events, at least 1.
    pub count: usize,
}

/// Counts the returned live events until [`Received::take`].
#[derive(Debug, Default)]
pub(super) struct Received(Option<ReceivedEvents>);

impl Received {
    /// Adds `count` events. The change of the oldest arrived at `arrived`, which is not before the arrival of earlier events.
    pub(super) fn add(&mut self, arrived: Instant, count: usize) {
        match &mut self.0 {
            Some(received) => received.count += count,
            None => self.0 = Some(ReceivedEvents { arrived, count }),
        }
    }

    /// Returns the events since the last call; `None` if there are none.
    pub(super) fn take(&mut self) -> Option<ReceivedEvents> {
        self.0.take()
    }
}
