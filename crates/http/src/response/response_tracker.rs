//! `ResponseTracker`: the responses in progress of lists and watches, and which of them wait for a client that does not read. Under
//! memory pressure those that hold most memory are aborted, and all wait while memory is full.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
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

/// [`TrackedResponse::unread_since_ms`] of a response that waits for data, not for its client.
const NOT_BLOCKED: u64 = u64::MAX;

/// The responses in progress.
#[derive(Debug)]
pub struct ResponseTracker {
    created: Instant,
    /// The time of the last [`Self::measure_time`], in milliseconds after `created`. Reading the clock for each piece would cost
    /// more than the rest of the tracking.
    now_ms: AtomicU64,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_number: HashMap<u64, Arc<TrackedResponse>>,
}

/// A response in progress.
#[derive(Debug)]
struct TrackedResponse {
    /// When the last piece was produced, in milliseconds after the creation of the tracker, while the connection has not asked for
    /// more; or [`NOT_BLOCKED`].
    unread_since_ms: AtomicU64,
    /// The size of that piece.
    bytes: AtomicUsize,
    is_aborted: AtomicBool,
    /// The waker of the task that sends the response.
    waker: AtomicWaker,
}

impl TrackedResponse {
    fn abort(&self) {
        self.is_aborted.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::SeqCst)
    }
}

/// A handle that aborts a response. Only one task can wait for the abort: the task that sends the response. A `CancellationToken`, which
/// allows several waiters, needs about 190 bytes more for each watch.
#[derive(Debug, Clone)]
pub struct ResponseAbortHandle(Arc<TrackedResponse>);

impl ResponseAbortHandle {
    /// Aborts the response.
    pub(crate) fn abort(&self) {
        self.0.abort();
    }

    /// Returns true after [`Self::abort`].
    pub(crate) fn is_aborted(&self) -> bool {
        self.0.is_aborted()
    }

    /// Returns `Ready` if the response is aborted, and otherwise registers the task to be woken. Only the task that polled last is
    /// woken.
    pub fn poll_aborted(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Registered before the check, so that no abort is missed.
        self.0.waker.register(cx.waker());
        match self.is_aborted() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

/// The responses that were aborted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AbortedResponses {
    /// The number of responses.
    pub count: usize,
    /// The estimate of their memory in bytes.
    pub bytes: usize,
}

impl Default for ResponseTracker {
    fn default() -> Self {
        Self {
            created: Instant::now(),
            now_ms: AtomicU64::default(),
            open: Mutex::default(),
        }
    }
}

impl ResponseTracker {
    /// Adds a response.
    pub(crate) fn add(self: &Arc<Self>, memory: &Arc<ServerMemory>) -> TrackedResponseGuard {
        let response = Arc::new(TrackedResponse {
            unread_since_ms: AtomicU64::new(NOT_BLOCKED),
            // It is unknown, and the first piece of a list or of a state is large.
            bytes: AtomicUsize::new(LARGE_PIECE_BYTES),
            is_aborted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        memory.count_allocated(RESPONSE_BYTES);
        let mut open = self.open.lock();
        let number = open.next;
        open.next += 1;
        open.by_number.insert(number, Arc::clone(&response));
        TrackedResponseGuard {
            number,
            response,
            tracker: Arc::clone(self),
            memory: Arc::clone(memory),
        }
    }

    /// Aborts responses whose clients have not read for `time`, those with the most memory first, until they release `bytes` by
    /// estimate.
    pub fn abort_unread(&self, time: Duration, bytes: usize) -> AbortedResponses {
        let now = self.measure_time();
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut unread: Vec<(usize, u64, Arc<TrackedResponse>)> = {
            let open = self.open.lock();
            let unread = open.by_number.values().filter_map(|response| {
                let since = response.unread_since_ms.load(Ordering::Relaxed);
                let is_unread = since != NOT_BLOCKED && now.saturating_sub(since) >= time;
                let is_open = !response.is_aborted();
                let held = response.bytes.load(Ordering::Relaxed) + BUFFER_BYTES;
                (is_unread && is_open).then(|| (held, since, Arc::clone(response)))
            });
            unread.collect()
        };
        unread.sort_unstable_by_key(|(held, since, _)| (std::cmp::Reverse(*held), *since));
        let mut aborted = AbortedResponses::default();
        for (held, _, response) in unread {
            if aborted.bytes >= bytes {
                break;
            }
            response.abort();
            aborted.count += 1;
            aborted.bytes += held;
        }
        aborted
    }

    /// Measures and returns the time since the creation, in milliseconds. Unread pieces get the time of the last call, so their age is
    /// exact to the interval of the calls.
    pub fn measure_time(&self) -> u64 {
        let elapsed = self.created.elapsed().as_millis();
        let now = u64::try_from(elapsed).unwrap_or(NOT_BLOCKED - 1);
        self.now_ms.store(now, Ordering::Relaxed);
        now
    }
}

/// One response of a [`ResponseTracker`], until this is dropped.
#[derive(Debug)]
pub(crate) struct TrackedResponseGuard {
    number: u64,
    response: Arc<TrackedResponse>,
    tracker: Arc<ResponseTracker>,
    memory: Arc<ServerMemory>,
}

impl TrackedResponseGuard {
    /// Returns the handle that aborts the response.
    pub(crate) fn abort_handle(&self) -> ResponseAbortHandle {
        ResponseAbortHandle(Arc::clone(&self.response))
    }

    /// Records that the client has read what was produced, except for the buffers.
    pub(crate) fn set_read(&self) {
        self.response
            .unread_since_ms
            .store(NOT_BLOCKED, Ordering::Relaxed);
    }

    /// Records that a piece of `bytes` was produced, which the client has to read before the next one.
    pub(crate) fn set_unread(&self, bytes: usize) {
        self.memory.count_allocated(BUFFERED_COPIES * bytes);
        self.response.bytes.store(bytes, Ordering::Relaxed);
        let now = self.tracker.now_ms.load(Ordering::Relaxed);
        self.response.unread_since_ms.store(now, Ordering::Relaxed);
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
        self.response.bytes.load(Ordering::Relaxed) >= LARGE_PIECE_BYTES
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

    /// Returns a wait until the client has read nothing for `time`, give or take a second.
    pub(crate) fn until_unread_for(
        &self,
        time: Duration,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (tracker, response) = (Arc::clone(&self.tracker), Arc::clone(&self.response));
        async move {
            loop {
                let now = tracker.measure_time();
                let unread = match response.unread_since_ms.load(Ordering::Relaxed) {
                    NOT_BLOCKED => Duration::ZERO,
                    since => Duration::from_millis(now.saturating_sub(since)),
                };
                let Some(rest) = time.checked_sub(unread).filter(|rest| !rest.is_zero()) else {
                    return;
                };
                // The next piece is produced at the time that was measured last.
                tokio::time::sleep(rest.min(Duration::from_secs(1))).await;
            }
        }
    }

    /// Returns a body that waits for memory before each piece, and records when the connection asks for more of it.
    pub(crate) fn track<B>(self, body: B) -> Body
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
    {
        Body::new(TrackedBody {
            inner: body,
            response: self,
            wait: None,
        })
    }
}

impl Drop for TrackedResponseGuard {
    fn drop(&mut self) {
        self.tracker.open.lock().by_number.remove(&self.number);
    }
}

struct TrackedBody<B> {
    inner: B,
    response: TrackedResponseGuard,
    /// The wait for memory, if the body waits.
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<B> TrackedBody<B> {
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.wait.is_none() && self.response.must_wait() {
            self.wait = Some(Box::pin(self.response.memory_wait()));
        }
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        Poll::Ready(())
    }
}

impl<B: http_body::Body<Data = Bytes> + Unpin> http_body::Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        // A connection polls a body only while the client has read what is before it, except for the buffers.
        self.response.set_read();
        ready!(self.poll_wait(cx));
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.response.set_unread(bytes);
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
    use std::task::Wake;

    use futures_util::stream::{self, StreamExt as _};
    use http_body_util::BodyExt as _;

    use super::*;

    /// Returns a body with one piece of `bytes`, which then waits forever, and the handle that aborts it.
    fn tracked(
        tracker: &Arc<ResponseTracker>,
        memory: &Arc<ServerMemory>,
        bytes: usize,
    ) -> (Body, ResponseAbortHandle) {
        let pieces = stream::iter([Ok::<_, axum::Error>(Bytes::from(vec![b'x'; bytes]))]);
        let body = Body::from_stream(pieces.chain(stream::pending()));
        let response = tracker.add(memory);
        let abort = response.abort_handle();
        (response.track(body), abort)
    }

    #[tokio::test(start_paused = true)]
    async fn only_responses_that_are_not_read_are_aborted_the_largest_first() {
        let tracker: Arc<ResponseTracker> = Arc::default();
        let mut bodies = Vec::new();
        for bytes in [1_000, 500_000, 400_000, 300_000] {
            let (mut body, abort) = tracked(&tracker, &Arc::default(), bytes);
            let piece = body.frame().await.expect("a piece").expect("no error");
            assert_eq!(piece.data_ref().map(Bytes::len), Some(bytes));
            bodies.push((body, abort));
        }
        // The client of the second one reads: its connection waits for the next piece.
        let waits = tokio::time::timeout(Duration::from_millis(1), bodies[1].0.frame()).await;
        waits.expect_err("no further piece");
        let unread = Duration::from_secs(5);
        assert_eq!(
            tracker.abort_unread(unread, usize::MAX).count,
            0,
            "all are recent"
        );
        tokio::time::advance(unread).await;
        let aborted = tracker.abort_unread(unread, 400_001 + BUFFER_BYTES);
        assert_eq!(
            (aborted.count, aborted.bytes),
            (2, 700_000 + 2 * BUFFER_BYTES)
        );
        let is_aborted = |bodies: &[(Body, ResponseAbortHandle)]| -> Vec<bool> {
            bodies.iter().map(|(_, abort)| abort.is_aborted()).collect()
        };
        assert_eq!(is_aborted(&bodies), [false, false, true, true]);
        let aborted = tracker.abort_unread(unread, usize::MAX);
        assert_eq!(
            aborted.count, 1,
            "none is aborted twice, and none that is read"
        );
        assert_eq!(is_aborted(&bodies), [true, false, true, true]);
        drop(bodies);
        assert!(tracker.open.lock().by_number.is_empty());
    }

    /// The responses to many clients that do not read grew from 230 to 277 MiB before the next measurement.
    #[tokio::test(start_paused = true)]
    async fn large_responses_wait_while_memory_is_full() {
        let (tracker, memory) = (Arc::default(), ServerMemory::new(Some(100 << 20)));
        memory.record(94 << 20);
        let (mut first, _) = tracked(&tracker, &memory, 1 << 20);
        first.frame().await.expect("a piece").expect("no error");
        let (mut second, _) = tracked(&tracker, &memory, 1 << 20);
        let waits = tokio::time::timeout(Duration::from_secs(1), second.frame()).await;
        waits.expect_err("the first piece has taken the rest");
        memory.record(94 << 20);
        second.frame().await.expect("a piece").expect("no error");
        let events = stream::iter(["a", "b"]).map(|event| Ok::<_, axum::Error>(Bytes::from(event)));
        let mut events = tracker.add(&memory).track(Body::from_stream(events));
        memory.record(94 << 20);
        events.frame().await.expect("an event").expect("no error");
        memory.record(97 << 20);
        events.frame().await.expect("an event").expect("no error");
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// The connection waits while the client does not read, so the abort must wake it.
    #[test]
    fn an_abort_wakes_the_task_that_waits_for_it() {
        let tracker: Arc<ResponseTracker> = Arc::default();
        let response = tracker.add(&Arc::default());
        let woken: Arc<Woken> = Arc::default();
        let waker = Arc::clone(&woken).into();
        let poll = || {
            response
                .abort_handle()
                .poll_aborted(&mut Context::from_waker(&waker))
        };
        assert!(poll().is_pending());
        response.abort_handle().abort();
        assert!(woken.0.load(Ordering::SeqCst));
        assert!(poll().is_ready());
    }
}
