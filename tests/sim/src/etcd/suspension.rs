//! Connections of a process that can be suspended: while it is suspended, reads and writes wait.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Debug, Default)]
struct Shared {
    is_suspended: bool,
    waiting: Vec<Waker>,
}

/// Suspends the connections of a process. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(super) struct Suspension(Arc<Mutex<Shared>>);

impl Suspension {
    pub(super) fn suspend(&self) {
        self.0.lock().is_suspended = true;
    }

    pub(super) fn resume(&self) {
        let waiting = {
            let mut shared = self.0.lock();
            shared.is_suspended = false;
            std::mem::take(&mut shared.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    fn poll_resumed(&self, cx: &Context<'_>) -> Poll<()> {
        let mut shared = self.0.lock();
        if !shared.is_suspended {
            return Poll::Ready(());
        }
        let waker = cx.waker();
        if !shared.waiting.iter().any(|other| other.will_wake(waker)) {
            shared.waiting.push(waker.clone());
        }
        Poll::Pending
    }
}

/// A stream of bytes of a process that can be suspended.
#[derive(Debug)]
pub(super) struct Suspendable<S> {
    stream: S,
    suspension: Suspension,
}

impl<S> Suspendable<S> {
    pub(super) fn new(stream: S, suspension: Suspension) -> Self {
        Self { stream, suspension }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Suspendable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.suspension.poll_resumed(cx).is_pending() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Suspendable<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.suspension.poll_resumed(cx).is_pending() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.suspension.poll_resumed(cx).is_pending() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
