//! Answers that nobody takes. A client that does not read holds what its answer holds: a seat among
//! the requests in flight, and memory. HTTP asks for no more of a body while the client takes none,
//! so the body cannot end by itself: the exchange around it is given up. It knows no answer; `http`
//! says which have a limit.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::Response;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::http::{GuardedBody, SendDeadline};
use crate::tasks::{PollOnWake, WakeFlag};

tokio::task_local! {
    /// Of the exchange that the present task carries out.
    static LIMIT: Limit;
}

/// By when the present answer of an exchange must have been taken, if there is one with a limit.
#[derive(Debug, Clone)]
struct Limit(Arc<Mutex<Option<SendDeadline>>>, WakeFlag);

impl Limit {
    /// Only the exchange's own task does this, which looks at it next: nobody needs to be woken.
    fn set(&self, limit: Option<SendDeadline>) {
        *self.0.lock() = limit;
        self.1.mark();
    }
}

/// How long after its end, when the server stops, a watch waits for a client that has not read up to
/// there: others read at once, and a stop should not wait for who does not read at all.
const TAKEN_AFTER_END: Duration = Duration::from_secs(2);

/// Runs an exchange: a connection of HTTP/1.1, which carries one answer at a time, or a stream of
/// HTTP/2. `None` when it was given up because an answer was not taken in time.
pub(super) async fn in_time<F: Future>(exchange: F) -> Option<F::Output> {
    let limit: Arc<Mutex<Option<SendDeadline>>> = Arc::default();
    let mut patience = PollOnWake::new(Patience {
        limit: limit.clone(),
        present: None,
    });
    let limit = Limit(limit, patience.wake_flag());
    let mut exchange = pin!(LIMIT.scope(limit, exchange));
    poll_fn(|cx| {
        // The exchange first: what has been taken by now is not overdue.
        match exchange.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => patience.poll(cx).map(|()| None),
        }
    })
    .await
}

/// Ends when the limit that there is has passed.
struct Patience {
    limit: Arc<Mutex<Option<SendDeadline>>>,
    present: Option<Wait>,
}

/// For one answer.
struct Wait {
    /// Which limit.
    until: Instant,
    timer: Pin<Box<Sleep>>,
    /// Of a watch, as long as it goes on.
    ends: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Future for Patience {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit.lock().clone();
        let Some(limit) = limit else {
            self.present = None;
            return Poll::Pending;
        };
        // An answer may follow another without a pause.
        let present = match self.present.take() {
            Some(present) if present.until == limit.deadline => present,
            _ => Wait::new(limit),
        };
        self.present.insert(present).poll(cx)
    }
}

impl Wait {
    fn new(limit: SendDeadline) -> Self {
        Self {
            until: limit.deadline,
            timer: Box::pin(tokio::time::sleep_until(limit.deadline)),
            ends: limit.end.map(|end| Box::pin(end.cancelled_owned())),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ends = self.ends.as_mut();
        if ends.is_some_and(|ends| ends.as_mut().poll(cx).is_ready()) {
            self.ends = None;
            let soon = Instant::now() + TAKEN_AFTER_END;
            let until = self.timer.deadline().min(soon);
            self.timer.as_mut().reset(until);
        }
        self.timer.as_mut().poll(cx)
    }
}

/// Has the present exchange end when `response`, if it has a limit, is not taken in time.
pub(super) fn limited(response: Response<Body>) -> Response<Body> {
    let Some(taken_by) = response.extensions().get::<SendDeadline>().cloned() else {
        return response;
    };
    let Ok(limit) = LIMIT.try_with(Clone::clone) else {
        return response;
    };
    limit.set(Some(taken_by));
    response.map(|body| GuardedBody::wrap(body, Lift(limit)))
}

/// Lifts the limit when the body that holds it has been taken.
struct Lift(Limit);

impl Drop for Lift {
    fn drop(&mut self) {
        self.0.set(None);
    }
}
