//! `Inbox`: the bounded input of one CacheWatcher, filled by the Dispatcher and emptied by the
//! watcher. It never blocks the Dispatcher: a full inbox is *parked*, which empties it, and its
//! watcher reads the missed events from history.
//!
//! ```text
//!            offer, space           take
//!   Live ───────────────▶ Live ───────────────▶ Live
//!    │ offer, no space                           ▲
//!    └──────────────▶ Parked ── watcher rejoins ─┘   (with a new inbox)
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::event::EventTimes;
use super::watch_status::WatchLag;
use watchet_api::WatchEvent;
use watchet_metrics::{GaugeGuard, ResourceMetrics};

/// Matching events of a group, in order; its inboxes share them.
#[derive(Debug)]
pub(super) struct EventBatch {
    events: Vec<Arc<WatchEvent>>,
    bytes: usize,
    /// The times of the oldest change.
    pub(super) received: EventTimes,
    /// The time from the arrival of the oldest change until the cache applied it. Computed once for all watchers.
    pub(super) to_cache: Duration,
}

impl EventBatch {
    pub(super) fn new(events: Vec<Arc<WatchEvent>>, received: EventTimes) -> Arc<Self> {
        let bytes = events.iter().map(|event| event.object().memory()).sum();
        Arc::new(Self {
            events,
            bytes,
            received,
            to_cache: received.at - received.arrived,
        })
    }

    pub(super) fn events(&self) -> &[Arc<WatchEvent>] {
        &self.events
    }
}

/// Maximum memory of an inbox's events: queued events stay in memory for a client that does not
/// read, even after history has dropped them. The limit allows a thousand events of a few kilobytes.
pub(super) const INBOX_BYTES_MAX: usize = 4 << 20;

/// Sender: the Dispatcher. Receiver: one CacheWatcher. Capacity: a number of events and
/// [`INBOX_BYTES_MAX`] bytes of objects. A full inbox parks its watcher, which loses nothing
/// because history retains the events.
#[derive(Debug)]
pub(super) struct Inbox {
    events_max: usize,
    inner: Mutex<Inner>,
    metrics: Arc<ResourceMetrics>,
    /// True if a relist does not park the inbox.
    #[cfg(feature = "planted-bugs")]
    stays_live: std::sync::atomic::AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    batches: VecDeque<Arc<EventBatch>>,
    events: usize,
    bytes: usize,
    /// Counts the watcher as parked.
    parked: Option<GaugeGuard>,
    /// The waker of the watcher while it waits.
    waker: Option<Waker>,
}

impl Inner {
    fn park(&mut self, metrics: &ResourceMetrics) {
        if self.parked.is_none() {
            metrics.times_parked.inc();
            self.parked = Some(metrics.parked_watchers.hold());
        }
        self.batches = VecDeque::new();
    }
}

/// The result of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfferResult {
    Accepted,
    /// The inbox was full and accepts nothing more; remove it.
    Parked,
}

/// What an inbox contains that its watcher has not read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueuedEvents {
    /// The events in the inbox.
    Live(WatchLag),
    /// The watcher continues from history.
    Parked,
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum TakeResult {
    /// Everything offered since the last read, in order; not empty.
    Batches(VecDeque<Arc<EventBatch>>),
    /// An offer was rejected: continue from history.
    Parked,
}

impl Inbox {
    /// Returns an empty inbox for up to `events_max` events.
    pub(super) fn new(events_max: usize, metrics: Arc<ResourceMetrics>) -> Self {
        Self {
            events_max,
            inner: Mutex::default(),
            metrics,
            #[cfg(feature = "planted-bugs")]
            stays_live: Default::default(),
        }
    }

    /// Offers a batch; adds the waker of a waiting watcher to `to_wake`.
    pub(super) fn offer(
        &self,
        batch: &Arc<EventBatch>,
        to_wake: &mut VecDeque<Waker>,
    ) -> OfferResult {
        let mut inner = self.inner.lock();
        if inner.parked.is_some() {
            return OfferResult::Parked;
        }
        to_wake.extend(inner.waker.take());
        let events = inner.events + batch.events.len();
        let bytes = inner.bytes + batch.bytes;
        if events > self.events_max || bytes > INBOX_BYTES_MAX {
            inner.park(&self.metrics);
            return OfferResult::Parked;
        }
        (inner.events, inner.bytes) = (events, bytes);
        inner.batches.push_back(batch.clone());
        OfferResult::Accepted
    }

    /// Parks the inbox regardless of its content: history skipped past the Dispatcher.
    pub(super) fn park(&self) {
        let waker = {
            let mut inner = self.inner.lock();
            inner.park(&self.metrics);
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Lets the watcher continue after a relist as if nothing was missed.
    #[cfg(feature = "planted-bugs")]
    pub(super) fn keep_live(&self) {
        self.stays_live
            .store(true, std::sync::atomic::Ordering::Relaxed);
    }

    #[cfg(feature = "planted-bugs")]
    pub(super) fn stays_live(&self) -> bool {
        self.stays_live.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(super) fn poll_take(&self, waker: &Waker) -> Poll<TakeResult> {
        let mut inner = self.inner.lock();
        if inner.parked.is_some() {
            return Poll::Ready(TakeResult::Parked);
        }
        if inner.batches.is_empty() {
            inner.waker = Some(waker.clone());
            return Poll::Pending;
        }
        (inner.events, inner.bytes) = (0, 0);
        Poll::Ready(TakeResult::Batches(std::mem::take(&mut inner.batches)))
    }

    /// Returns what the watcher has not read yet.
    pub(super) fn queued(&self) -> QueuedEvents {
        let inner = self.inner.lock();
        if inner.parked.is_some() {
            return QueuedEvents::Parked;
        }
        QueuedEvents::Live(WatchLag {
            events: inner.events,
            bytes: inner.bytes,
            since: inner.batches.front().map(|batch| batch.received.at),
        })
    }

    /// Returns true if everything offered was read.
    pub(super) fn is_drained(&self) -> bool {
        let inner = self.inner.lock();
        inner.parked.is_none() && inner.batches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchet_api::{ColumnSet, EventType, Object, ObjectKey, ResourceVersion};
    use watchet_metrics::Metrics;

    fn batch(events: usize, event_bytes: usize) -> Arc<EventBatch> {
        let stored = format!(r#"{{"metadata":{{}},"x":"{}"}}"#, "x".repeat(event_bytes));
        let object = Object::decode(
            ObjectKey::from("a"),
            ResourceVersion::new(1),
            EventType::Added,
            stored.as_bytes(),
            &ColumnSet::default(),
        );
        let object = Arc::new(object.unwrap());
        let event = || Arc::new(WatchEvent::new(EventType::Added, object.clone()));
        let events = (0..events).map(|_| event()).collect();
        EventBatch::new(events, tokio::time::Instant::now().into())
    }

    /// Asserts the number of batches that fit, twice: reading an inbox restores its full capacity.
    fn check(batch: &Arc<EventBatch>, expected: usize) {
        let metrics = Metrics::new().resource("", "pods");
        let inbox = Inbox::new(1024, metrics.clone());
        let waker = Waker::noop();
        let offer = || inbox.offer(batch, &mut VecDeque::new());
        for _ in 0..expected {
            assert_eq!(offer(), OfferResult::Accepted);
        }
        let Poll::Ready(TakeResult::Batches(batches)) = inbox.poll_take(waker) else {
            panic!("the inbox is empty")
        };
        assert_eq!(batches.len(), expected);
        assert!(inbox.is_drained());
        assert_eq!(inbox.queued(), QueuedEvents::Live(WatchLag::default()));
        for _ in 0..expected {
            assert_eq!(offer(), OfferResult::Accepted);
        }
        assert_eq!(offer(), OfferResult::Parked);
        assert_eq!(offer(), OfferResult::Parked);
        assert!(!inbox.is_drained(), "parked is not drained");
        assert_eq!(metrics.parked_watchers.get(), 1);
        assert_eq!(metrics.times_parked.get(), 1, "counted once");
        assert_eq!(inbox.queued(), QueuedEvents::Parked);
        assert!(matches!(
            inbox.poll_take(waker),
            Poll::Ready(TakeResult::Parked)
        ));
        drop(inbox);
        assert_eq!(metrics.parked_watchers.get(), 0);
    }

    #[test]
    fn events_and_bytes_are_bounded() {
        check(&batch(1, 10), 1024);
        check(&batch(256, 10), 4);
        // A thousand of these would retain 300 MB for a client that does not read.
        check(&batch(1, 300_000), 13);
        check(&batch(10, 300_000), 1);
    }
}
