//! Drives one HTTP/2 connection in one task. Requests run in tasks of their own; their responses
//! are sent from here, with all available data in one write. So an event costs a connection one
//! wake-up and one write, however many of its watches match.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::task::AtomicWaker;
use futures_util::{FutureExt as _, StreamExt as _};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::server::transport::connections::Connection as ConnectionState;
use crate::server::transport::corked::Corked;
use crate::server::transport::handler::{Handler, SpawningHandler};
use crate::server::transport::overdue;
use crate::tasks::{PollOnWake, Tasks};

/// The maximum number of streams per connection: an informer-heavy client multiplexes hundreds of
/// watches, and a rejected stream just waits.
const STREAMS_MAX: u32 = 1000;

/// The send buffer of a stream whose client does not read, above which its body is not polled; one
/// more piece of up to 64 KiB may be added.
const SEND_BUFFER_BYTES_MAX: usize = 64 << 10;

/// The receive window of a stream: request bodies are small, at most 3 MiB.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// The receive window of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// The maximum size of a request head, which may contain long tokens and selectors. Upstream has 1 MiB, which a client can send
/// compressed to 260 bytes: 20 connections with such requests took 343 MiB.
const HEADER_BYTES_MAX: u32 = 256 << 10;

/// The idle time after which a ping is sent.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// The time limit for the response to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The time limit for a client without open requests to confirm the end of its connection.
const SHUTDOWN_MAX: Duration = Duration::from_secs(1);

/// How often streams and connection are polled in turn before the task yields; two turns usually
/// suffice.
const TURNS_MAX: usize = 4;

const _: () = assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);

type Connection<S> = http2::Connection<TokioIo<Corked<S>>, SpawningHandler, NewStreams>;

/// Serves a connection until it ends. Its requests are tasks of the group `tasks`.
pub(in crate::server) fn serve<S>(
    stream: S,
    handler: Handler,
    tasks: Tasks,
) -> BoxFuture<'static, hyper::Result<()>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let ends = handler.connection().ends().clone();
    let mut stop = PollOnWake::new(ends.cancelled_owned());
    let mut driver = Driver::new(stream, handler, tasks);
    let serving = async move {
        let ended = poll_fn(|cx| {
            // The connection comes first, so that it completes if it can.
            match driver.poll(cx) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                Poll::Pending => stop.poll(cx).map(|()| None),
            }
        });
        match ended.await {
            Some(ended) => ended,
            None => shut_down(&mut driver).await,
        }
    };
    serving.boxed()
}

fn builder(new: &NewStreams) -> http2::Builder<NewStreams> {
    let mut builder = http2::Builder::new(new.clone());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Shuts down a connection: its streams complete. HTTP/2 then also waits for the client's
/// confirmation, which has a time limit: a vanished client would delay the shutdown.
async fn shut_down<S>(driver: &mut Driver<S>) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    driver.connection.as_mut().graceful_shutdown();
    driver.wakers.connection.store(true, Ordering::SeqCst);
    loop {
        // The connection comes first, so that it completes if it can.
        tokio::select! {
            biased;
            ended = poll_fn(|cx| driver.poll(cx)) => return ended,
            () = sleep(SHUTDOWN_MAX) => {
                if driver.streams.is_empty() {
                    return Ok(());
                }
            }
        }
    }
}

/// Streams started by hyper that the driver has not adopted yet.
#[derive(Clone)]
struct NewStreams {
    streams: Arc<Mutex<Vec<BoxFuture<'static, ()>>>>,
    /// Cancelled at the start of the shutdown.
    stop: CancellationToken,
    /// Logs and counts panics.
    tasks: Tasks,
}

impl<F> hyper::rt::Executor<F> for NewStreams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let exchange = overdue::run_within_deadline(None, self.stop.clone(), stream);
        // Unwind safety: a stream that panicked is dropped, which resets it. All streams run in the task of the
        // connection, so without this a panic would end them too.
        let ended = AssertUnwindSafe(exchange).catch_unwind();
        let tasks = self.tasks.clone();
        let stream = ended.map(move |ended| match ended {
            Ok(Some(_)) => {}
            Ok(None) => tracing::debug!("stream reset: the client does not read the response"),
            Err(panic) => tasks.record_panic("http2-stream", &*panic),
        });
        self.streams.lock().push(Box::pin(stream));
    }
}

/// Polls a connection and its streams, each only when it was woken.
struct Driver<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    connection: Pin<Box<Connection<S>>>,
    streams: FuturesUnordered<BoxFuture<'static, ()>>,
    new: NewStreams,
    io: Corked<S>,
    wakers: Arc<WakerSet>,
    connection_waker: Waker,
    streams_waker: Waker,
    state: Arc<ConnectionState>,
}

impl<S> Driver<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    fn new(stream: S, handler: Handler, tasks: Tasks) -> Self {
        let io = Corked::new(stream);
        let state = Arc::clone(handler.connection());
        let new = NewStreams {
            streams: Arc::default(),
            stop: state.ends().clone(),
            tasks: tasks.clone(),
        };
        let handler = SpawningHandler::new(handler, tasks);
        let connection = builder(&new).serve_connection(TokioIo::new(io.clone()), handler);
        let wakers = Arc::new(WakerSet {
            task: AtomicWaker::new(),
            is_polling: AtomicBool::new(false),
            connection: AtomicBool::new(true),
            streams: AtomicBool::new(false),
        });
        Self {
            connection: Box::pin(connection),
            streams: FuturesUnordered::new(),
            new,
            io,
            connection_waker: Waker::from(Arc::new(ConnectionWaker(Arc::clone(&wakers)))),
            streams_waker: Waker::from(Arc::new(StreamsWaker(Arc::clone(&wakers)))),
            wakers,
            state,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.wakers.task.register(cx.waker());
        for _ in 0..TURNS_MAX {
            self.wakers.is_polling.store(true, Ordering::SeqCst);
            self.poll_streams();
            let polled = self.poll_connection();
            // Cleared before the check below: a later wake-up wakes the task, an earlier one is
            // seen by the check.
            self.wakers.is_polling.store(false, Ordering::SeqCst);
            if polled.is_ready() {
                return polled;
            }
            if !self.wakers.are_woken() {
                self.record_activity();
                return self.poll_uncork();
            }
        }
        // Yield to other tasks, but send what is buffered first.
        cx.waker().wake_by_ref();
        self.poll_uncork()
    }

    fn record_activity(&self) {
        match (self.streams.is_empty(), self.state.is_busy()) {
            (true, true) => self.state.set_idle(),
            (false, false) => self.state.set_busy(),
            _ => {}
        }
    }

    fn poll_streams(&mut self) {
        if self.wakers.streams.swap(false, Ordering::SeqCst) {
            let mut cx = Context::from_waker(&self.streams_waker);
            while let Poll::Ready(Some(())) = self.streams.poll_next_unpin(&mut cx) {}
        }
    }

    fn poll_connection(&mut self) -> Poll<hyper::Result<()>> {
        if !self.wakers.connection.swap(false, Ordering::SeqCst) {
            return Poll::Pending;
        }
        let mut cx = Context::from_waker(&self.connection_waker);
        let polled = self.connection.as_mut().poll(&mut cx);
        let mut new = self.new.streams.lock();
        if !new.is_empty() {
            self.streams.extend(new.drain(..));
            self.wakers.streams.store(true, Ordering::SeqCst);
        }
        polled
    }

    /// Writes the buffered data. A failed write ends the connection. The stream stores only the
    /// last waker, which must be that of the connection, since hyper may wait for the same stream.
    fn poll_uncork(&self) -> Poll<hyper::Result<()>> {
        let mut cx = Context::from_waker(&self.connection_waker);
        match self.io.poll_uncork(&mut cx) {
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "connection failed: cannot write");
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }
}

/// The wake-ups of the connection and of the streams. While the driver is polling, they only set
/// flags; otherwise they wake the task.
struct WakerSet {
    task: AtomicWaker,
    is_polling: AtomicBool,
    connection: AtomicBool,
    streams: AtomicBool,
}

impl WakerSet {
    fn set_woken(&self, flag: &AtomicBool) {
        flag.store(true, Ordering::SeqCst);
        if !self.is_polling.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }

    fn are_woken(&self) -> bool {
        self.connection.load(Ordering::SeqCst) || self.streams.load(Ordering::SeqCst)
    }
}

struct ConnectionWaker(Arc<WakerSet>);

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.set_woken(&self.0.connection);
    }
}

struct StreamsWaker(Arc<WakerSet>);

impl Wake for StreamsWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.set_woken(&self.0.streams);
    }
}
