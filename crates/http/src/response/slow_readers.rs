//! `SlowReaders`: the responses in progress of lists and watches, and which of them wait for a client that does not read. Under
//! memory pressure those that hold most memory are aborted, and all wait while memory is full.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use watchet_api::ServerMemory;

/// The estimated memory in bytes of a response that its client does not read, besides the piece that was produced last. The buffers
/// can have more; a low estimate releases enough.
const BUFFER_BYTES: usize = 16 << 10;

/// The copies of a piece that are in memory at the same time, at most: the piece, the HTTP frames, the encrypted records.
const BUFFERED_COPIES: usize = 3;

/// A response whose last piece has this size in bytes waits while memory is full; the others, such as watches with few events, only
/// when it is exhausted.
const LARGE_PIECE_BYTES: usize = 16 << 10;

/// The estimated memory in bytes of a response before its first piece.
const RESPONSE_BYTES: usize = 32 << 10;

/// [`Reader::unread_since_ms`] of a response that waits for data, not for its client.
const READS: u64 = u64::MAX;

/// The responses in progress.
#[derive(Debug)]
pub struct SlowReaders {
    created: Instant,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_number: HashMap<u64, Arc<Reader>>,
}

/// The client of a response.
#[derive(Debug)]
struct Reader {
    /// When the last piece was produced, in milliseconds after the creation of the set, while the connection has not asked for
    /// more; or [`READS`].
    unread_since_ms: AtomicU64,
    /// The size of that piece.
    bytes: AtomicUsize,
    /// Aborts the response.
    abort: CancellationToken,
}

/// The responses that were aborted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClosedReaders {
    /// How many.
    pub count: usize,
    /// The estimate of their memory in bytes.
    pub bytes: usize,
}

impl Default for SlowReaders {
    fn default() -> Self {
        Self {
            created: Instant::now(),
            open: Mutex::default(),
        }
    }
}

impl SlowReaders {
    /// Adds the client of a response, which `abort` aborts.
    pub(crate) fn add(
        self: &Arc<Self>,
        abort: CancellationToken,
        memory: &Arc<ServerMemory>,
    ) -> TrackedReader {
        let reader = Arc::new(Reader {
            unread_since_ms: AtomicU64::new(READS),
            // It is unknown, and the first piece of a list or of a state is large.
            bytes: AtomicUsize::new(LARGE_PIECE_BYTES),
            abort,
        });
        memory.count_allocated(RESPONSE_BYTES);
        let mut open = self.open.lock();
        let number = open.next;
        open.next += 1;
        open.by_number.insert(number, Arc::clone(&reader));
        TrackedReader {
            number,
            reader,
            readers: Arc::clone(self),
            memory: Arc::clone(memory),
        }
    }

    /// Aborts responses whose clients have not read for `time`, those with the most memory first, until they release `bytes` by
    /// estimate.
    pub fn close(&self, time: Duration, bytes: usize) -> ClosedReaders {
        let now = self.now_ms();
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut unread: Vec<(usize, u64, Arc<Reader>)> = {
            let open = self.open.lock();
            let unread = open.by_number.values().filter_map(|reader| {
                let since = reader.unread_since_ms.load(Ordering::Relaxed);
                let is_unread = since != READS && now.saturating_sub(since) >= time;
                let is_open = !reader.abort.is_cancelled();
                let held = reader.bytes.load(Ordering::Relaxed) + BUFFER_BYTES;
                (is_unread && is_open).then(|| (held, since, Arc::clone(reader)))
            });
            unread.collect()
        };
        unread.sort_unstable_by_key(|(held, since, _)| (std::cmp::Reverse(*held), *since));
        let mut closed = ClosedReaders::default();
        for (held, _, reader) in unread {
            if closed.bytes >= bytes {
                break;
            }
            reader.abort.cancel();
            closed.count += 1;
            closed.bytes += held;
        }
        closed
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.created.elapsed().as_millis()).unwrap_or(READS - 1)
    }
}

/// The client of one response among [`SlowReaders`], until this is dropped.
#[derive(Debug)]
pub(crate) struct TrackedReader {
    number: u64,
    reader: Arc<Reader>,
    readers: Arc<SlowReaders>,
    memory: Arc<ServerMemory>,
}

impl TrackedReader {
    /// Records that the client has read what was produced, except for the buffers.
    pub(crate) fn set_read(&self) {
        self.reader.unread_since_ms.store(READS, Ordering::Relaxed);
    }

    /// Records that a piece of `bytes` was produced, which the client has to read before the next one.
    pub(crate) fn set_unread(&self, bytes: usize) {
        self.memory.count_allocated(BUFFERED_COPIES * bytes);
        self.reader.bytes.store(bytes, Ordering::Relaxed);
        let now = self.readers.now_ms();
        self.reader.unread_since_ms.store(now, Ordering::Relaxed);
    }

    /// Returns true if there is no memory for the next piece.
    fn must_wait(&self) -> bool {
        match self.is_large() {
            true => self.memory.is_full(),
            false => self.memory.is_exhausted(),
        }
    }

    /// Returns true if the next piece is probably large, because the last one was.
    fn is_large(&self) -> bool {
        self.reader.bytes.load(Ordering::Relaxed) >= LARGE_PIECE_BYTES
    }

    /// Returns a wait until there is memory for the next piece.
    pub(crate) fn memory_wait(&self) -> impl Future<Output = ()> + Send + use<> {
        let (memory, is_large) = (Arc::clone(&self.memory), self.is_large());
        async move {
            match is_large {
                true => memory.until_not_full().await,
                false => memory.until_not_exhausted().await,
            }
        }
    }

    /// Returns a body that waits for memory before each piece, and records when the connection asks for more of it.
    pub(crate) fn track(self, body: Body) -> Body {
        Body::new(TrackedBody {
            inner: body,
            reader: self,
            wait: None,
        })
    }
}

impl Drop for TrackedReader {
    fn drop(&mut self) {
        self.readers.open.lock().by_number.remove(&self.number);
    }
}

struct TrackedBody {
    inner: Body,
    reader: TrackedReader,
    /// The wait for memory, if the body waits.
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl TrackedBody {
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.wait.is_none() && self.reader.must_wait() {
            self.wait = Some(Box::pin(self.reader.memory_wait()));
        }
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        Poll::Ready(())
    }
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // A connection polls a body only while the client has read what is before it, except for the buffers.
        self.reader.set_read();
        ready!(self.poll_wait(cx));
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.reader.set_unread(bytes);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream::{self, StreamExt as _};
    use http_body_util::BodyExt as _;

    use super::*;

    /// Returns a body with one piece of `bytes`, which then waits forever, and the token that aborts it.
    fn tracked(
        readers: &Arc<SlowReaders>,
        memory: &Arc<ServerMemory>,
        bytes: usize,
    ) -> (Body, CancellationToken) {
        let abort = CancellationToken::new();
        let pieces = stream::iter([Ok::<_, axum::Error>(Bytes::from(vec![b'x'; bytes]))]);
        let body = Body::from_stream(pieces.chain(stream::pending()));
        let reader = readers.add(abort.clone(), memory);
        (reader.track(body), abort)
    }

    #[tokio::test(start_paused = true)]
    async fn only_clients_that_do_not_read_are_ended_the_largest_first() {
        let readers: Arc<SlowReaders> = Arc::default();
        let mut bodies = Vec::new();
        for bytes in [1_000, 500_000, 400_000, 300_000] {
            let (mut body, end) = tracked(&readers, &Arc::default(), bytes);
            let piece = body.frame().await.expect("a piece").expect("no error");
            assert_eq!(piece.data_ref().map(Bytes::len), Some(bytes));
            bodies.push((body, end));
        }
        // The client of the second one reads: its connection waits for the next piece.
        let waits = tokio::time::timeout(Duration::from_millis(1), bodies[1].0.frame()).await;
        waits.expect_err("no further piece");
        let unread = Duration::from_secs(5);
        assert_eq!(readers.close(unread, usize::MAX).count, 0, "all are recent");
        tokio::time::advance(unread).await;
        let closed = readers.close(unread, 400_001 + BUFFER_BYTES);
        assert_eq!(
            (closed.count, closed.bytes),
            (2, 700_000 + 2 * BUFFER_BYTES)
        );
        let ended = |bodies: &[(Body, CancellationToken)]| -> Vec<bool> {
            bodies.iter().map(|(_, end)| end.is_cancelled()).collect()
        };
        assert_eq!(ended(&bodies), [false, false, true, true]);
        let closed = readers.close(unread, usize::MAX);
        assert_eq!(closed.count, 1, "none is ended twice, and none that reads");
        assert_eq!(ended(&bodies), [true, false, true, true]);
        drop(bodies);
        assert!(readers.open.lock().by_number.is_empty());
    }

    /// The responses to many clients that do not read grew from 230 to 277 MiB before the next measurement.
    #[tokio::test(start_paused = true)]
    async fn large_responses_wait_while_memory_is_full() {
        let (readers, memory) = (Arc::default(), ServerMemory::new(Some(100 << 20)));
        memory.record(94 << 20);
        let (mut first, _) = tracked(&readers, &memory, 1 << 20);
        first.frame().await.expect("a piece").expect("no error");
        let (mut second, _) = tracked(&readers, &memory, 1 << 20);
        let waits = tokio::time::timeout(Duration::from_secs(1), second.frame()).await;
        waits.expect_err("the first piece has taken the rest");
        memory.record(94 << 20);
        second.frame().await.expect("a piece").expect("no error");
        let abort = CancellationToken::new();
        let events = stream::iter(["a", "b"]).map(|event| Ok::<_, axum::Error>(Bytes::from(event)));
        let mut events = readers.add(abort, &memory).track(Body::from_stream(events));
        memory.record(94 << 20);
        events.frame().await.expect("an event").expect("no error");
        memory.record(97 << 20);
        events.frame().await.expect("an event").expect("no error");
    }
}
