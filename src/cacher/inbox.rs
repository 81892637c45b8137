//! `Inbox`: the input of one CacheWatcher, filled by the Dispatcher and emptied by the client's
//! side. It never makes the Dispatcher wait: when it is full it is *parked*, which empties it, and
//! its watcher reads what it missed from history.
//!
//! ```text
//!            offer, room            take
//!   Live ───────────────▶ Live ───────────────▶ Live
//!    │ offer, no room                            ▲
//!    └──────────────▶ Parked ── watcher rejoins ─┘   (with a new inbox)
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use super::event::Received;
use crate::api::WatchEvent;

/// Events that all watchers of a group see, in order; shared between their inboxes.
#[derive(Debug)]
pub(super) struct EventBatch {
    events: Vec<Arc<WatchEvent>>,
    bytes: usize,
    /// When the oldest change came that was dispatched with them.
    pub(super) received: Received,
}

impl EventBatch {
    pub(super) fn new(events: Vec<Arc<WatchEvent>>, received: Received) -> Arc<Self> {
        let bytes = events.iter().map(|event| event.object().memory()).sum();
        Arc::new(Self {
            events,
            bytes,
            received,
        })
    }

    pub(super) fn events(&self) -> &[Arc<WatchEvent>] {
        &self.events
    }
}

/// Events that an inbox holds before it parks. Fewer would park healthy clients in a burst, which
/// costs each a look into history.
pub(super) const INBOX_EVENTS_MAX: usize = 1024;

/// How much memory the events of an inbox may take: what is queued is kept alive for a client that
/// does not read, although history may have let go of it. Enough for the most events that it holds
/// if they are of the common size, some kilobytes; large ones park sooner.
pub(super) const INBOX_BYTES_MAX: usize = 4 << 20;

/// Sent by: the Dispatcher. Received by: one CacheWatcher. Capacity: [`INBOX_EVENTS_MAX`] events and
/// [`INBOX_BYTES_MAX`] of objects. A full one parks its watcher; nothing is lost, since history holds
/// it.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    batches: VecDeque<Arc<EventBatch>>,
    events: usize,
    bytes: usize,
    parked: bool,
    /// The reader, while it waits.
    waker: Option<Waker>,
}

/// What became of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Accepted,
    /// The inbox was full. It takes nothing any more; forget it.
    Parked,
}

/// What the reader finds.
#[derive(Debug)]
pub(super) enum Taken {
    /// Everything offered since the last time, in order; never empty.
    Batches(VecDeque<Arc<EventBatch>>),
    /// Something was not accepted: read on from history.
    Parked,
}

impl Inbox {
    /// The reader, if it waits, is to be woken: it is added to `asleep`.
    pub(super) fn offer(&self, batch: &Arc<EventBatch>, asleep: &mut VecDeque<Waker>) -> Offer {
        let mut inner = self.inner.lock();
        if inner.parked {
            return Offer::Parked;
        }
        asleep.extend(inner.waker.take());
        let events = inner.events + batch.events.len();
        let bytes = inner.bytes + batch.bytes;
        if events > INBOX_EVENTS_MAX || bytes > INBOX_BYTES_MAX {
            inner.parked = true;
            inner.batches = VecDeque::new();
            return Offer::Parked;
        }
        (inner.events, inner.bytes) = (events, bytes);
        inner.batches.push_back(batch.clone());
        Offer::Accepted
    }

    /// Parks it whatever it holds: history moved past the Dispatcher.
    pub(super) fn park(&self) {
        let waker = {
            let mut inner = self.inner.lock();
            inner.parked = true;
            inner.batches = VecDeque::new();
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn poll_take(&self, waker: &Waker) -> Poll<Taken> {
        let mut inner = self.inner.lock();
        if inner.parked {
            return Poll::Ready(Taken::Parked);
        }
        if inner.batches.is_empty() {
            inner.waker = Some(waker.clone());
            return Poll::Pending;
        }
        (inner.events, inner.bytes) = (0, 0);
        Poll::Ready(Taken::Batches(std::mem::take(&mut inner.batches)))
    }

    /// Whether everything offered was taken.
    pub(super) fn is_drained(&self) -> bool {
        let inner = self.inner.lock();
        !inner.parked && inner.batches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ColumnSet, EventType, Object, ObjectKey, ResourceVersion};

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

    /// How many batches it takes, twice: it is as empty as new once it was read.
    fn check(batch: &Arc<EventBatch>, expected: usize) {
        let inbox = Inbox::default();
        let waker = Waker::noop();
        let offer = || inbox.offer(batch, &mut VecDeque::new());
        for _ in 0..expected {
            assert_eq!(offer(), Offer::Accepted);
        }
        let Poll::Ready(Taken::Batches(taken)) = inbox.poll_take(waker) else {
            panic!("it is not empty")
        };
        assert_eq!(taken.len(), expected);
        assert!(inbox.is_drained());
        for _ in 0..expected {
            assert_eq!(offer(), Offer::Accepted);
        }
        assert_eq!(offer(), Offer::Parked);
        assert_eq!(offer(), Offer::Parked);
        assert!(!inbox.is_drained(), "parked is not drained");
        assert!(matches!(inbox.poll_take(waker), Poll::Ready(Taken::Parked)));
    }

    #[test]
    fn events_and_bytes_are_bounded() {
        check(&batch(1, 10), INBOX_EVENTS_MAX);
        check(&batch(256, 10), 4);
        // A thousand of these would be 300 MB, kept for a client that does not read.
        check(&batch(1, 300_000), 13);
        check(&batch(10, 300_000), 1);
    }
}
