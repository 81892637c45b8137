//! `Interrupts`: what a watch waits for besides the events of its inbox.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;

/// Events besides those of the inbox.
#[derive(Debug)]
pub(super) struct Interrupts {
    pub(super) ends: Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Fires at the deadline or at the next bookmark, whichever is earlier.
    pub(super) timer: Pin<Box<Sleep>>,
}

/// What an interrupt means.
pub(super) enum Interrupt {
    /// The watch ends.
    End,
    /// The deadline or the time of the next bookmark.
    Timer,
}

impl Future for Interrupts {
    type Output = Interrupt;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Interrupt> {
        let mut ends = self.ends.iter_mut();
        if ends.any(|end| end.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Interrupt::End);
        }
        self.timer.as_mut().poll(cx).map(|()| Interrupt::Timer)
    }
}
