//! `Queue`: the encoded events that wait for a backend, bounded by number and by bytes.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The limits of a queue and of its batches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    /// The maximum number of events that wait.
    pub(crate) events: usize,
    /// The maximum total size of the events that wait or are being written, in bytes.
    pub(crate) bytes: usize,
    /// The maximum number of events of a batch.
    pub(crate) batch_events: usize,
    /// The maximum size of a batch in bytes; a single event may be larger.
    pub(crate) batch_bytes: usize,
}

/// A queue of events with many producers and one consumer. A full queue rejects further events.
#[derive(Debug)]
pub(crate) struct Queue {
    limits: QueueLimits,
    waiting: Mutex<QueuedEvents>,
    /// Notified when the first event arrives, and when a batch is complete.
    changed: Notify,
}

#[derive(Debug, Default)]
struct QueuedEvents {
    events: VecDeque<Bytes>,
    /// The total size of `events`.
    bytes: usize,
    /// The total size in bytes of the batches that were taken and not released.
    taken_bytes: usize,
}

/// The events that [`Queue::take`] returns.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Bytes>,
    pub(crate) bytes: usize,
}

impl Queue {
    pub(crate) fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            waiting: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Adds an event; returns false if the queue is full.
    pub(crate) fn push(&self, event: Bytes) -> bool {
        let mut waiting = self.waiting.lock();
        let bytes = waiting.bytes + waiting.taken_bytes + event.len();
        if waiting.events.len() >= self.limits.events || bytes > self.limits.bytes {
            return false;
        }
        waiting.bytes += event.len();
        waiting.events.push_back(event);
        let is_due = waiting.events.len() == 1 || self.is_complete(&waiting);
        drop(waiting);
        if is_due {
            self.changed.notify_one();
        }
        true
    }

    /// Waits until there is a complete batch, or the first event has waited for `wait`. Cancel safe.
    pub(crate) async fn ready(&self, wait: Duration) {
        self.until(|waiting| !waiting.events.is_empty()).await;
        let complete = self.until(|waiting| self.is_complete(waiting));
        // A smaller batch is due after that time.
        let _elapsed = tokio::time::timeout(wait, complete).await;
    }

    /// Removes and returns the oldest events; `None` if there are none. Their bytes count against the limit until
    /// [`Self::release`].
    pub(crate) fn take(&self) -> Option<Batch> {
        let mut waiting = self.waiting.lock();
        let mut batch = Batch {
            events: Vec::new(),
            bytes: 0,
        };
        while batch.events.len() < self.limits.batch_events
            && let Some(event) = waiting.events.front()
            && (batch.events.is_empty() || batch.bytes + event.len() <= self.limits.batch_bytes)
            && let Some(event) = waiting.events.pop_front()
        {
            batch.bytes += event.len();
            batch.events.push(event);
        }
        waiting.bytes -= batch.bytes;
        waiting.taken_bytes += batch.bytes;
        (!batch.events.is_empty()).then_some(batch)
    }

    /// Stops counting a batch of `bytes` bytes against the limit.
    pub(crate) fn release(&self, bytes: usize) {
        self.waiting.lock().taken_bytes -= bytes;
    }

    async fn until(&self, holds: impl Fn(&QueuedEvents) -> bool) {
        // One task waits, so a notification between the check and the wait is stored.
        while !holds(&self.waiting.lock()) {
            self.changed.notified().await;
        }
    }

    fn is_complete(&self, waiting: &QueuedEvents) -> bool {
        waiting.events.len() >= self.limits.batch_events || waiting.bytes >= self.limits.batch_bytes
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const LIMITS: QueueLimits = QueueLimits {
        events: 5,
        bytes: 100,
        batch_events: 3,
        batch_bytes: 60,
    };

    fn event(size: usize) -> Bytes {
        vec![b'x'; size].into()
    }

    fn sizes(queue: &Queue) -> Vec<usize> {
        let batch = queue.take();
        let events = batch.map(|batch| batch.events).unwrap_or_default();
        events.iter().map(Bytes::len).collect()
    }

    #[test]
    fn events_and_bytes_are_bounded() {
        let queue = Queue::new(LIMITS);
        assert!((0..5).all(|_| queue.push(event(1))));
        assert!(!queue.push(event(1)));
        assert_eq!(sizes(&queue), [1, 1, 1]);
        assert_eq!(sizes(&queue), [1, 1]);
        assert!(queue.take().is_none());
        assert!(queue.push(event(90)) && !queue.push(event(6)));
        assert_eq!(sizes(&queue), [90]);
        assert!(!queue.push(event(6)), "batches in flight count");
        queue.release(95);
        assert!(queue.push(event(100)) && !queue.push(event(1)));
    }

    #[test]
    fn batches_are_bounded() {
        let queue = Queue::new(LIMITS);
        for size in [50, 10, 5, 30] {
            assert!(queue.push(event(size)));
        }
        assert_eq!(sizes(&queue), [50, 10]);
        assert_eq!(sizes(&queue), [5, 30]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_ready_when_complete_or_old() {
        let wait = Duration::from_secs(30);
        let queue = Queue::new(LIMITS);
        assert!(queue.ready(wait).now_or_never().is_none());
        assert!(queue.push(event(1)));
        assert!(queue.ready(wait).now_or_never().is_none());
        queue.ready(wait).await;
        assert!(queue.push(event(1)));
        assert!(queue.ready(wait).now_or_never().is_none());
        assert!(queue.push(event(1)));
        assert!(queue.ready(wait).now_or_never().is_some(), "three events");
        assert_eq!(sizes(&queue), [1, 1, 1]);
        queue.release(3);
        assert!(queue.push(event(61)));
        assert!(queue.ready(wait).now_or_never().is_some(), "many bytes");
    }
}
