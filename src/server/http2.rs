//! One HTTP/2 connection as one task. Requests are carried out by tasks of their own; their answers
//! are sent from here, where all that is ready goes out in one write. So an event costs a connection
//! one wake and one write, however many of its watches it meets. What HTTP/2 is, hyper knows.

use std::future::{Future, poll_fn};
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

use super::connection::{Handler, SpawningHandler};
use super::corked::Corked;
use super::overdue;
use crate::tasks::{PollOnWake, Tasks};

/// Streams of a connection: an informer-heavy client multiplexes hundreds of watches, and one that is
/// refused a stream waits without a word.
const STREAMS_MAX: u32 = 1000;

/// What a stream buffers for a client that does not read before its body is asked for no more; what a
/// body says in one go, 256 KiB of a watch or list, may come on top.
const SEND_BUFFER_BYTES_MAX: usize = 64 << 10;

/// What a client may send on one stream before it is read: request bodies are small, and at most
/// 3 MiB.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// The same for all streams of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// Request heads: tokens and selectors are long at times; upstream allows as much in all.
const HEADER_BYTES_MAX: u32 = 1 << 20;

/// A silent connection is asked for a sign of life after this time.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// And is dead when none comes in this.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a client that has no request open may take to confirm the end of its connection.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// How often streams and connection take turns before others may run: what one gives the other to do
/// is mostly done in two.
const TURNS_MAX: usize = 4;

const _: () = assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);

type Connection<S> = http2::Connection<TokioIo<Corked<S>>, SpawningHandler, NewStreams>;

/// Serves a connection until it ends. When the group of `tasks` is cancelled it finishes the requests
/// in progress and ends.
pub(super) fn serve<S>(
    stream: S,
    handler: Handler,
    tasks: Tasks,
) -> BoxFuture<'static, hyper::Result<()>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut stop = PollOnWake::new(tasks.token().cancelled_owned());
    let mut driver = Driver::new(stream, handler, tasks);
    let serving = async move {
        let ended = poll_fn(|cx| {
            // The connection first: what it can finish now needs no draining.
            match driver.poll(cx) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                Poll::Pending => stop.poll(cx).map(|()| None),
            }
        });
        match ended.await {
            Some(ended) => ended,
            None => goodbye(&mut driver).await,
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

/// Ends a connection: its streams go on to their ends. HTTP/2 then also waits for the client to
/// confirm that it has heard; one that is gone without a trace would hold up the shutdown for nothing.
async fn goodbye<S>(driver: &mut Driver<S>) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    driver.connection.as_mut().graceful_shutdown();
    driver.bells.connection.store(true, Ordering::SeqCst);
    loop {
        // The connection first: what it can finish now needs no patience.
        tokio::select! {
            biased;
            ended = poll_fn(|cx| driver.poll(cx)) => return ended,
            () = sleep(GOODBYE_MAX) => {
                if driver.streams.is_empty() {
                    return Ok(());
                }
            }
        }
    }
}

/// Streams that hyper has begun and nobody polls yet.
#[derive(Clone, Default)]
struct NewStreams(Arc<Mutex<Vec<BoxFuture<'static, ()>>>>);

impl<F> hyper::rt::Executor<F> for NewStreams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        self.0.lock().push(Box::pin(async move {
            if overdue::in_time(stream).await.is_none() {
                tracing::debug!("stream reset: its answer is not taken");
            }
        }));
    }
}

/// Polls a connection and its streams, each when it has something to do.
struct Driver<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    connection: Pin<Box<Connection<S>>>,
    streams: FuturesUnordered<BoxFuture<'static, ()>>,
    new: NewStreams,
    io: Corked<S>,
    bells: Arc<Bells>,
    connection_waker: Waker,
    streams_waker: Waker,
}

impl<S> Driver<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    fn new(stream: S, handler: Handler, tasks: Tasks) -> Self {
        let io = Corked::new(stream);
        let new = NewStreams::default();
        let handler = SpawningHandler::new(handler, tasks);
        let connection = builder(&new).serve_connection(TokioIo::new(io.clone()), handler);
        let bells = Arc::new(Bells {
            task: AtomicWaker::new(),
            attended: AtomicBool::new(false),
            connection: AtomicBool::new(true),
            streams: AtomicBool::new(false),
        });
        Self {
            connection: Box::pin(connection),
            streams: FuturesUnordered::new(),
            new,
            io,
            connection_waker: Waker::from(Arc::new(ConnectionBell(Arc::clone(&bells)))),
            streams_waker: Waker::from(Arc::new(StreamsBell(Arc::clone(&bells)))),
            bells,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.bells.task.register(cx.waker());
        for _ in 0..TURNS_MAX {
            self.bells.attended.store(true, Ordering::SeqCst);
            self.poll_streams();
            let polled = self.poll_connection();
            // In this order: who rings from here on wakes the task, who rang before is seen below.
            self.bells.attended.store(false, Ordering::SeqCst);
            if polled.is_ready() {
                return polled;
            }
            if !self.bells.have_rung() {
                return self.poll_uncork();
            }
        }
        // Others first. What was said by now does not wait for one that always has more to say.
        cx.waker().wake_by_ref();
        self.poll_uncork()
    }

    fn poll_streams(&mut self) {
        if self.bells.streams.swap(false, Ordering::SeqCst) {
            let mut cx = Context::from_waker(&self.streams_waker);
            while let Poll::Ready(Some(())) = self.streams.poll_next_unpin(&mut cx) {}
        }
    }

    fn poll_connection(&mut self) -> Poll<hyper::Result<()>> {
        if !self.bells.connection.swap(false, Ordering::SeqCst) {
            return Poll::Pending;
        }
        let mut cx = Context::from_waker(&self.connection_waker);
        let polled = self.connection.as_mut().poll(&mut cx);
        let mut new = self.new.0.lock();
        if !new.is_empty() {
            self.streams.extend(new.drain(..));
            self.bells.streams.store(true, Ordering::SeqCst);
        }
        polled
    }

    /// Sends what was gathered. A stream that cannot be written is the end of the connection. A stream
    /// that can be written again wakes one only, the last who tried: that has to be the connection,
    /// which may be waiting for the same.
    fn poll_uncork(&self) -> Poll<hyper::Result<()>> {
        let mut cx = Context::from_waker(&self.connection_waker);
        match self.io.poll_uncork(&mut cx) {
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "connection broke: it cannot be written");
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }
}

/// Who of the two is to be polled. They ring for each other at every event, while they are attended
/// to; only what comes from outside wakes the task.
struct Bells {
    task: AtomicWaker,
    attended: AtomicBool,
    connection: AtomicBool,
    streams: AtomicBool,
}

impl Bells {
    fn ring(&self, bell: &AtomicBool) {
        bell.store(true, Ordering::SeqCst);
        if !self.attended.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }

    fn have_rung(&self) -> bool {
        self.connection.load(Ordering::SeqCst) || self.streams.load(Ordering::SeqCst)
    }
}

struct ConnectionBell(Arc<Bells>);

impl Wake for ConnectionBell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.ring(&self.0.connection);
    }
}

struct StreamsBell(Arc<Bells>);

impl Wake for StreamsBell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.ring(&self.0.streams);
    }
}
