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
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use super::event::Received;
use crate::api::WatchEvent;

/// Events that all watchers of a group see, in order; shared between their inboxes.
#[derive(Debug, Clone)]
pub(super) struct EventBatch {
    events: Arc<[Arc<WatchEvent>]>,
    /// When the oldest change came that was dispatched with them.
    pub(super) received: Received,
}

impl EventBatch {
    pub(super) fn new(events: Vec<Arc<WatchEvent>>, received: Received) -> Self {
        Self {
            events: events.into(),
            received,
        }
    }
}

impl Deref for EventBatch {
    type Target = [Arc<WatchEvent>];

    fn deref(&self) -> &Self::Target {
        &self.events
    }
}

/// Events that an inbox holds before it parks. More costs memory for each client that reads slowly
/// (what is queued is kept alive although history may have let go of it); fewer parks healthy clients
/// in a burst, which costs each a look into history.
pub(super) const INBOX_EVENTS_MAX: usize = 1024;

/// Sent by: the Dispatcher. Received by: one CacheWatcher. Capacity: [`INBOX_EVENTS_MAX`] events. A
/// full one parks its watcher; nothing is lost, since history holds it.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    batches: VecDeque<EventBatch>,
    events: usize,
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
    Batches(VecDeque<EventBatch>),
    /// Something was not accepted: read on from history.
    Parked,
}

impl Inbox {
    pub(super) fn offer(&self, batch: &EventBatch) -> Offer {
        let (offer, waker) = {
            let mut inner = self.inner.lock();
            if inner.parked {
                return Offer::Parked;
            }
            let offer = if inner.events + batch.len() > INBOX_EVENTS_MAX {
                inner.parked = true;
                inner.batches = VecDeque::new();
                Offer::Parked
            } else {
                inner.events += batch.len();
                inner.batches.push_back(batch.clone());
                Offer::Accepted
            };
            (offer, inner.waker.take())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        offer
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
        inner.events = 0;
        Poll::Ready(Taken::Batches(std::mem::take(&mut inner.batches)))
    }

    /// Whether everything offered was taken.
    pub(super) fn is_drained(&self) -> bool {
        let inner = self.inner.lock();
        !inner.parked && inner.batches.is_empty()
    }
}
