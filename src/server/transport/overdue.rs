//! Aborts responses that the client does not read. Such a client occupies an in-flight permit and
//! memory, and its body cannot time out by itself because it is not polled. So the exchange around
//! it is aborted at the response's [`SendDeadline`], or before that by its [`ResponseAbortHandle`].

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::http::{GuardedBody, ResponseAbortHandle, SendDeadline};
use crate::server::transport::connections::Connection;
use crate::tasks::{PollOnWake, WakeFlag};

tokio::task_local! {
    /// The limit of the exchange that the current task runs.
    static LIMIT: Limit;
}

/// The time limit of the current response of an exchange. There is none between responses.
#[derive(Debug, Clone)]
struct Limit {
    change: Arc<Mutex<Option<LimitChange>>>,
    timer: WakeFlag,
    /// The HTTP/1.1 connection that is the exchange: it is idle after each response.
    connection: Option<Arc<Connection>>,
}

/// A change of the limit that the timer has not applied yet.
#[derive(Debug)]
enum LimitChange {
    Begin(SendDeadline),
    End,
}

impl Limit {
    /// Changes the limit. Only the exchange's own task calls this, and polls the timer afterwards, so
    /// no wake-up is needed.
    fn set(&self, change: LimitChange) {
        *self.change.lock() = Some(change);
        self.timer.mark();
    }

    fn response_ended(&self) {
        self.set(LimitChange::End);
        if let Some(connection) = &self.connection {
            connection.set_idle();
        }
    }
}

/// How long after the end of a watch at shutdown its client may take to receive the rest: clients
/// that read do so immediately, and others must not delay the shutdown.
const SEND_AFTER_END_MAX: Duration = Duration::from_secs(2);

/// How long after the start of the shutdown the client of any other response may take to receive the rest.
const SEND_AFTER_STOP_MAX: Duration = Duration::from_secs(5);

/// Runs an exchange until `stop` and the bounds that apply after that: an HTTP/1.1 `connection`, which has one response
/// at a time, or an HTTP/2 stream. Returns `None` if it was aborted because a response exceeded its deadline.
///
/// Not an async function: its future would contain `exchange` twice, as the argument and pinned.
pub(in crate::server) fn run_within_deadline<F: Future>(
    connection: Option<Arc<Connection>>,
    stop: CancellationToken,
    exchange: F,
) -> impl Future<Output = Option<F::Output>> {
    let change: Arc<Mutex<Option<LimitChange>>> = Arc::default();
    let mut timer = PollOnWake::new(DeadlineTimer {
        change: Arc::clone(&change),
        stop,
        current: None,
    });
    let limit = Limit {
        change,
        timer: timer.wake_flag(),
        connection,
    };
    let mut exchange = Box::pin(LIMIT.scope(limit, exchange));
    // Moved into the block, so that the exchange is dropped while the block is polled, where the caller catches a panic in `drop`.
    async move {
        poll_fn(|cx| {
            // The exchange comes first: a response that completes now is in time.
            match exchange.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => timer.poll(cx).map(|()| None),
            }
        })
        .await
    }
}

/// Completes when the current limit has passed.
struct DeadlineTimer {
    change: Arc<Mutex<Option<LimitChange>>>,
    /// Cancelled at the start of the shutdown.
    stop: CancellationToken,
    current: Option<Timer>,
}

/// The timer of one response.
struct Timer {
    timer: Pin<Box<Sleep>>,
    abort: Option<ResponseAbortHandle>,
    /// The end of a watch, or the start of the shutdown for other responses, and the time from then on.
    end: Option<(Pin<Box<WaitForCancellationFutureOwned>>, Duration)>,
}

impl Future for DeadlineTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let change = self.change.lock().take();
        match change {
            Some(LimitChange::Begin(deadline)) => {
                self.current = Some(Timer::new(deadline, &self.stop));
            }
            Some(LimitChange::End) => self.current = None,
            None => {}
        }
        match &mut self.current {
            Some(current) => current.poll(cx),
            None => Poll::Pending,
        }
    }
}

impl Timer {
    fn new(limit: SendDeadline, stop: &CancellationToken) -> Self {
        let (end, time) = match limit.end {
            Some(end) => (end, SEND_AFTER_END_MAX),
            None => (stop.clone(), SEND_AFTER_STOP_MAX),
        };
        Self {
            timer: Box::pin(tokio::time::sleep_until(limit.deadline)),
            abort: limit.abort,
            end: Some((Box::pin(end.cancelled_owned()), time)),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(abort) = &self.abort
            && abort.poll_aborted(cx).is_ready()
        {
            return Poll::Ready(());
        }
        if let Some((end, time)) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            let soon = Instant::now() + *time;
            self.end = None;
            let deadline = self.timer.deadline().min(soon);
            self.timer.as_mut().reset(deadline);
        }
        self.timer.as_mut().poll(cx)
    }
}

/// Applies the deadline of `response`, if it has one, to the current exchange.
pub(in crate::server) fn limited(response: Response<Body>) -> Response<Body> {
    let Ok(limit) = LIMIT.try_with(Clone::clone) else {
        return response;
    };
    // The connection of a WebSocket stays busy.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return response;
    }
    let Some(deadline) = response.extensions().get::<SendDeadline>().cloned() else {
        limit.response_ended();
        return response;
    };
    limit.set(LimitChange::Begin(deadline));
    response.map(|body| GuardedBody::wrap(body, ClearOnDrop(limit)))
}

/// Clears the limit when the body that holds this has been sent or dropped.
struct ClearOnDrop(Limit);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.response_ended();
    }
}
