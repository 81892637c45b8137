//! [`Events`]: the events of a watch, from the cache or from the history of storage.

use std::task::{Context, Poll};

use futures_util::StreamExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use watchet_registry::{ReceivedEvents, StorageHistory, Watch, WatchItem};

/// The events of a watch.
pub(super) enum Events {
    /// From the cache, without an end.
    Live(Box<Watch>),
    /// From storage, up to the present. Boxed, because it is rare.
    Past(Box<PastEvents>),
}

/// The events of a watch of the history of storage.
pub(super) struct PastEvents {
    pub(super) events: StorageHistory,
    pub(super) deadline: Instant,
}

impl Events {
    /// Returns the time at which the events end at the latest.
    pub(super) fn deadline(&self) -> Instant {
        match self {
            Self::Live(watch) => watch.deadline(),
            Self::Past(past) => past.deadline,
        }
    }

    /// Ends the events when `token` is cancelled.
    pub(super) fn end_with(self, token: CancellationToken) -> Self {
        match self {
            Self::Live(mut watch) => {
                watch.end_with(token);
                Self::Live(watch)
            }
            Self::Past(past) => {
                let PastEvents { events, deadline } = *past;
                let events = Box::pin(events.take_until(token.cancelled_owned()));
                Self::Past(Box::new(PastEvents { events, deadline }))
            }
        }
    }

    /// Returns the live events that [`Self::poll_next`] has returned since the last call; `None` if there are none.
    pub(super) fn take_received(&mut self) -> Option<ReceivedEvents> {
        match self {
            Self::Live(watch) => watch.take_received(),
            Self::Past(_) => None,
        }
    }

    /// Polls for the next events, as [`Watch::poll_next`].
    #[inline]
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<WatchItem>>> {
        match self {
            Self::Live(watch) => watch.poll_next(cx),
            Self::Past(past) => past.events.as_mut().poll_next(cx),
        }
    }
}
