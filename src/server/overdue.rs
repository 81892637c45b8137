//! Answers that nobody takes. A client that does not read holds what its answer holds: a seat among
//! the requests in flight, and memory. HTTP asks for no more of a body while the client takes none,
//! so the body cannot end by itself: the exchange around it is given up. It knows no answer; `http`
//! says which have a limit.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::Response;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::http::{HeldBody, TakenBy};
use crate::tasks::OnCall;

tokio::task_local! {
    /// Of the exchange that the present task carries out.
    static DEADLINE: Deadline;
}

/// By when the present answer of an exchange must have been taken, if there is one with a limit. Only
/// the exchange's own task sets it, which then looks at it again: nobody needs to be woken.
#[derive(Debug, Clone, Default)]
struct Deadline(Arc<Mutex<Option<TakenBy>>>);

/// How long after its end, when the server stops, a watch waits for a client that has not read up to
/// there: others read at once, and a stop should not wait for who does not read at all.
const TAKEN_AFTER_END: Duration = Duration::from_secs(2);

/// Runs an exchange: a connection of HTTP/1.1, which carries one answer at a time, or a stream of
/// HTTP/2. `None` when it was given up because an answer was not taken in time.
pub(super) async fn in_time<F: Future>(exchange: F) -> Option<F::Output> {
    let deadline = Deadline::default();
    let mut patience = None;
    let mut exchange = pin!(DEADLINE.scope(deadline.clone(), exchange));
    poll_fn(|cx| {
        // The exchange first: what has been taken by now is not overdue.
        if let Poll::Ready(output) = exchange.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        match deadline.0.lock().as_ref() {
            Some(limit) => {
                // An answer may follow another without a pause.
                if patience
                    .as_ref()
                    .is_none_or(|known: &Patience| known.until != limit.until)
                {
                    patience = Some(Patience::new(limit));
                }
                let patience = patience
                    .as_mut()
                    .expect("there is one, or it was just made");
                patience.poll(cx).map(|()| None)
            }
            None => {
                patience = None;
                Poll::Pending
            }
        }
    })
    .await
}

/// Waits for the limit of one answer. It is polled with all that its exchange sends.
struct Patience {
    /// Which limit.
    until: Instant,
    timer: OnCall<Sleep>,
    /// Of a watch, as long as it goes on.
    ends: Option<OnCall<WaitForCancellationFutureOwned>>,
}

impl Patience {
    fn new(limit: &TakenBy) -> Self {
        let ends = limit.ends.clone();
        Self {
            until: limit.until,
            timer: OnCall::new(tokio::time::sleep_until(limit.until)),
            ends: ends.map(|ends| OnCall::new(ends.cancelled_owned())),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ended = self.ends.as_mut().is_some_and(|e| e.poll(cx).is_ready());
        if ended {
            self.ends = None;
            let until = self.timer.get().deadline();
            let until = until.min(Instant::now() + TAKEN_AFTER_END);
            self.timer.change(|timer| timer.reset(until));
        }
        self.timer.poll(cx)
    }
}

/// Has the present exchange end when `response`, if it has a limit, is not taken in time.
pub(super) fn limited(response: Response<Body>) -> Response<Body> {
    let Some(taken_by) = response.extensions().get::<TakenBy>().cloned() else {
        return response;
    };
    let Ok(deadline) = DEADLINE.try_with(Clone::clone) else {
        return response;
    };
    *deadline.0.lock() = Some(taken_by);
    response.map(|body| HeldBody::around(body, Lift(deadline)))
}

/// Lifts the limit when the body that holds it has been taken.
struct Lift(Deadline);

impl Drop for Lift {
    fn drop(&mut self) {
        *self.0.0.lock() = None;
    }
}
