//! A connection of the simulated network: two pipes whose bytes arrive later.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::{Network, Node};

/// The direction of a pipe.
pub(super) struct Link {
    pub(super) network: Network,
    pub(super) from: Node,
    pub(super) to: Node,
}

/// One direction of a connection.
pub(super) struct Pipe {
    link: Link,
    state: Mutex<PipeState>,
}

#[derive(Default)]
struct PipeState {
    /// What was written, and when it arrives.
    chunks: VecDeque<(Instant, Bytes)>,
    bytes: usize,
    /// When the end of the stream arrives, after the chunks.
    end: Option<Instant>,
    is_reset: bool,
    /// True after the reader was dropped.
    has_no_reader: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    pub(super) fn new(link: Link) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self { link, state })
    }

    /// Makes reads and writes fail.
    pub(super) fn reset(&self) {
        self.state.lock().is_reset = true;
        self.wake();
    }

    /// Wakes the reader and the writer.
    pub(super) fn wake(&self) {
        let wakers = {
            let mut state = self.state.lock();
            [state.reader.take(), state.writer.take()]
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Returns the time at which something that is sent now arrives: not before what was sent earlier.
    fn arrival(&self, state: &PipeState) -> Instant {
        let now = Instant::now() + self.link.network.delay();
        state.chunks.back().map_or(now, |(last, _)| now.max(*last))
    }

    fn is_cut(&self) -> bool {
        let Link { network, from, to } = &self.link;
        network.is_cut(from, to)
    }
}

/// A connection. Dropping it closes both directions.
pub struct Stream {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    /// Wakes the reader when the next chunk arrives.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    pub(super) fn new(incoming: Arc<Pipe>, outgoing: Arc<Pipe>) -> Self {
        Self {
            incoming,
            outgoing,
            timer: None,
        }
    }

    fn close(&self) {
        let mut state = self.outgoing.state.lock();
        if state.end.is_none() {
            state.end = Some(self.outgoing.arrival(&state));
        }
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Link { from, to, .. } = &self.outgoing.link;
        write!(f, "Stream({from} to {to})")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.close();
        self.incoming.state.lock().has_no_reader = true;
        self.incoming.wake();
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let pipe = Arc::clone(&self.incoming);
        loop {
            let mut state = pipe.state.lock();
            if state.is_reset {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            state.reader = Some(cx.waker().clone());
            let is_end = state.chunks.is_empty();
            let next = state.chunks.front().map(|(at, _)| *at).or(state.end);
            let Some(next) = next else {
                return Poll::Pending;
            };
            if pipe.is_cut() {
                return Poll::Pending;
            }
            if next > Instant::now() {
                drop(state);
                let timer = self.timer.insert(Box::pin(tokio::time::sleep_until(next)));
                match timer.as_mut().poll(cx) {
                    Poll::Ready(()) => continue,
                    Poll::Pending => return Poll::Pending,
                }
            }
            if is_end {
                return Poll::Ready(Ok(()));
            }
            let Some((_, chunk)) = state.chunks.front_mut() else {
                unreachable!("there is a chunk");
            };
            let count = chunk.len().min(buffer.remaining());
            let Link { network, from, to } = &pipe.link;
            network.record(from, to, &chunk[..count]);
            buffer.put_slice(&chunk[..count]);
            chunk.advance(count);
            if chunk.is_empty() {
                state.chunks.pop_front();
            }
            state.bytes -= count;
            let writer = state.writer.take();
            drop(state);
            writer.into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let pipe = &self.outgoing;
        let mut state = pipe.state.lock();
        if state.is_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if state.has_no_reader || state.end.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.bytes >= pipe.link.network.buffer_bytes() {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        // What is written in one call is not split: a client whose connection broke between two events of one transaction would
        // miss the second, because it resumes at their common version. Kubernetes has no such transactions.
        let arrival = pipe.arrival(&state);
        state
            .chunks
            .push_back((arrival, Bytes::copy_from_slice(bytes)));
        state.bytes += bytes.len();
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}
