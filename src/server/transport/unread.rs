//! Discards request bodies that a response leaves unread, because the request was rejected early.
//! If the server closed or reset the stream immediately, a client that is still sending would see a
//! reset instead of the response. So the rest is read and discarded: first before the response and
//! up to a limit, as in Go's server, then for a short time after it.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONNECTION, EXPECT};
use http::{HeaderValue, Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep, timeout};

use crate::http::GuardedBody;
use crate::tasks::Tasks;

/// The maximum number of bytes discarded before the response, as in Go's server.
const DISCARD_BYTES_MAX: usize = 256 << 10;

/// The time limit of that.
const DISCARD_TIME_MAX: Duration = Duration::from_millis(500);

/// The maximum number of bytes discarded after the response: several times the maximum body size.
const CLOSE_DELAY_BYTES_MAX: usize = 16 << 20;

/// The time limit of that.
const CLOSE_DELAY_MAX: Duration = Duration::from_secs(2);

/// The size of a single read from a connection.
const SCRATCH_BYTES: usize = 16 << 10;

/// The body of a request, which returns to [`Unread`] if it is dropped before its end.
struct SharedBody {
    body: Option<Incoming>,
    started: bool,
    unread: Unread,
}

/// The rest of a request's body, once the handler has dropped it.
#[derive(Clone, Default)]
pub(in crate::server) struct Unread(Arc<Mutex<Option<Rest>>>);

struct Rest {
    body: Incoming,
    /// Whether the body was polled, so that a client that waits for `100 Continue` got that.
    started: bool,
}

/// Prepares a request for the router. Also returns the handle to the rest of its body, if it has
/// one.
pub(in crate::server) fn share_body(request: Request<Incoming>) -> (Request<Body>, Option<Unread>) {
    if http_body::Body::is_end_stream(request.body()) {
        return (request.map(|_| Body::empty()), None);
    }
    let unread = Unread::default();
    let shared = request.map(|body| {
        Body::new(SharedBody {
            body: Some(body),
            started: false,
            unread: unread.clone(),
        })
    });
    (shared, Some(unread))
}

impl http_body::Body for SharedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.started = true;
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body
            .as_ref()
            .is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let none = || SizeHint::with_exact(0);
        self.body
            .as_ref()
            .map_or_else(none, http_body::Body::size_hint)
    }
}

impl Drop for SharedBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take()
            && !http_body::Body::is_end_stream(&body)
        {
            let started = self.started;
            *self.unread.0.lock() = Some(Rest { body, started });
        }
    }
}

/// Returns true if the client sends the body only after `100 Continue`.
pub(in crate::server) fn is_awaited<B>(request: &Request<B>) -> bool {
    let expect = request.headers().get(EXPECT);
    expect.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

impl Unread {
    /// Discards the rest of the body within the limits. Returns what remains.
    async fn discard(self, awaited: bool) -> Option<Incoming> {
        let Rest { mut body, started } = self.0.lock().take()?;
        let announced = http_body::Body::size_hint(&body).lower();
        if announced > DISCARD_BYTES_MAX as u64 || (awaited && !started) {
            return Some(body);
        }
        let ended = timeout(DISCARD_TIME_MAX, discard(&mut body, DISCARD_BYTES_MAX)).await;
        (ended != Ok(true)).then_some(body)
    }

    /// Finishes an HTTP/1.1 response. If the body does not end soon, the connection is closed after
    /// the response, with delay; see [`DelayedClose`].
    pub(in crate::server) async fn before_http1(
        self,
        mut response: Response<Body>,
        awaited: bool,
        delays_close: &DelaysClose,
    ) -> Response<Body> {
        if self.discard(awaited).await.is_some() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
            delays_close.0.store(true, Ordering::Relaxed);
        }
        response
    }

    /// Finishes an HTTP/2 response. A task discards the remaining body after the response; then the
    /// stream is reset with NO_ERROR (RFC 9113, section 8.1).
    pub(in crate::server) async fn before_http2(
        self,
        response: Response<Body>,
        tasks: &Tasks,
    ) -> Response<Body> {
        let Some(body) = self.discard(false).await else {
            return response;
        };
        let remainder = Remainder(Some(body), tasks.clone());
        response.map(|body| GuardedBody::wrap(body, remainder))
    }
}

/// Reads at most `bytes_max` bytes of `body`. Returns true if it has ended or failed.
async fn discard(body: &mut Incoming, bytes_max: usize) -> bool {
    let mut left = bytes_max;
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.into_data().map_or(0, |data| data.len());
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    true
}

/// Starts to discard a body when dropped.
struct Remainder(Option<Incoming>, Tasks);

impl Drop for Remainder {
    fn drop(&mut self) {
        let Some(mut body) = self.0.take() else {
            return;
        };
        let stopped = self.1.token().cancelled_owned();
        self.1.spawn("unread-body", async move {
            let discarded = timeout(CLOSE_DELAY_MAX, discard(&mut body, CLOSE_DELAY_BYTES_MAX));
            let mut discarded = pin!(discarded);
            tokio::select! {
                // Stopping comes first: the response was sent.
                biased;
                () = stopped => {}
                _ended = &mut discarded => {}
            }
        });
    }
}

/// Whether a [`DelayedClose`] delays the close.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct DelaysClose(Arc<AtomicBool>);

/// A connection that still reads for a short time after its writing side was closed. If it were
/// closed while the client sends, the reset would make the client's system drop received data.
pub(in crate::server) struct DelayedClose<S> {
    io: S,
    delays_close: DelaysClose,
    /// Set when the writing side is closed: the deadline, and how many more bytes to read.
    reading: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<S> DelayedClose<S> {
    pub(in crate::server) fn new(io: S, delays_close: DelaysClose) -> Self {
        Self {
            io,
            delays_close,
            reading: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for DelayedClose<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for DelayedClose<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some((until, left)) = &mut this.reading else {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            if !this.delays_close.0.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
            this.reading = Some((Box::pin(sleep(CLOSE_DELAY_MAX)), CLOSE_DELAY_BYTES_MAX));
            return Pin::new(this).poll_shutdown(cx);
        };
        let mut scratch = [0; SCRATCH_BYTES];
        loop {
            if *left == 0 || until.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut this.io).poll_read(cx, &mut buffer));
            let bytes = buffer.filled().len();
            // The client has closed its side too, or disconnected.
            if read.is_err() || bytes == 0 {
                return Poll::Ready(Ok(()));
            }
            *left = left.saturating_sub(bytes);
        }
    }
}
