//! A priority level at run time: its queues, and the requests that wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::demand::Observed;
use crate::fair_queues::{Arrival, Dispatched, Executing, FairQueues, LimitResponse, Place, Sizes};
use crate::retry_after::RetryAfter;
use crate::work::Work;
use watchet_metrics::{FlowMetrics, FlowRejection};

/// A priority level. It outlives its object while it has requests.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) name: String,
    queues: Mutex<FairQueues<Waiter>>,
    /// The most seats that a request may get.
    seats_max: AtomicUsize,
    retry_after: Mutex<RetryAfter>,
}

/// What a dispatch needs of a waiting request.
#[derive(Debug)]
struct Waiter {
    /// Receives the seats, at most once. A closed one returns them.
    sender: oneshot::Sender<Seat>,
    flow: Arc<FlowMetrics>,
    is_watch: bool,
}

/// The right of a request to run. Its seats are free again when it is dropped.
#[derive(Debug)]
pub struct Seat {
    level: Arc<Level>,
    flow: Arc<FlowMetrics>,
    executing: Executing,
    is_watch: bool,
}

/// A request was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests of this priority level, please try again in {retry_after_seconds} s")]
pub struct Rejected {
    /// When the client should try again.
    pub retry_after_seconds: u16,
}

/// A request in the queue: leaves it when dropped.
struct Ticket {
    level: Arc<Level>,
    place: Place,
    flow: Arc<FlowMetrics>,
    receiver: oneshot::Receiver<Seat>,
    is_resolved: bool,
}

/// The request for seats: its flow and its work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeatRequest {
    pub(crate) hash: u64,
    pub(crate) work: Work,
    pub(crate) is_watch: bool,
}

impl Level {
    pub(crate) fn new(name: String) -> Arc<Self> {
        Arc::new(Self {
            name,
            queues: Mutex::new(FairQueues::new(Instant::now(), LimitResponse::Reject)),
            seats_max: AtomicUsize::new(1),
            retry_after: Mutex::default(),
        })
    }

    /// Changes how requests are limited.
    pub(crate) fn configure(
        self: &Arc<Self>,
        response: LimitResponse,
        limit: usize,
        seats_max: usize,
    ) {
        self.seats_max.store(seats_max, Ordering::Relaxed);
        let now = Instant::now();
        let dispatched = self.queues.lock().configure(now, response, limit);
        self.start(dispatched);
    }

    pub(crate) fn take_demand(&self) -> Observed {
        self.queues.lock().take_demand(Instant::now())
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.queues.lock().sizes()
    }

    /// Returns true if it has no requests.
    pub(crate) fn is_idle(&self) -> bool {
        let sizes = self.sizes();
        sizes.requests_waiting == 0 && sizes.requests_executing == 0
    }

    /// Waits at most until `deadline` for seats. Cancel safe: a request that is dropped leaves the queue.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        flow: &Arc<FlowMetrics>,
        mut request: SeatRequest,
        wait_max: Duration,
    ) -> Result<Seat, Rejected> {
        request.work = request.work.at_most(self.seats_max.load(Ordering::Relaxed));
        let arrived = Instant::now();
        match self.arrive(arrived, flow, request) {
            Ok(seat) => {
                flow.dispatched(seat.executing.seats(), Duration::ZERO);
                Ok(seat)
            }
            Err(None) => Err(self.reject()),
            Err(Some(mut ticket)) => match ticket.wait(arrived + wait_max).await {
                Some(seat) => {
                    flow.dispatched(seat.executing.seats(), arrived.elapsed());
                    Ok(seat)
                }
                None => {
                    flow.rejected(FlowRejection::TimeOut, arrived.elapsed());
                    Err(self.reject())
                }
            },
        }
    }

    /// Returns the seats, or the ticket of a request that waits, or neither if it is rejected.
    fn arrive(
        self: &Arc<Self>,
        now: Instant,
        flow: &Arc<FlowMetrics>,
        request: SeatRequest,
    ) -> Result<Seat, Option<Ticket>> {
        let mut receiver = None;
        let waiter = || {
            let (sender, waiting) = oneshot::channel();
            receiver = Some(waiting);
            flow.waiting(request.work.seats as i64);
            Waiter {
                sender,
                flow: Arc::clone(flow),
                is_watch: request.is_watch,
            }
        };
        let (arrival, dispatched) =
            self.queues
                .lock()
                .arrive(now, request.hash, request.work, waiter);
        self.start(dispatched);
        match (arrival, receiver) {
            (Arrival::Execute(executing), _) => {
                Ok(self.seat(Arc::clone(flow), executing, request.is_watch))
            }
            (Arrival::Wait(place), Some(receiver)) => Err(Some(Ticket {
                level: Arc::clone(self),
                place,
                flow: Arc::clone(flow),
                receiver,
                is_resolved: false,
            })),
            (Arrival::LimitReached, _) => {
                flow.rejected(FlowRejection::ConcurrencyLimit, Duration::ZERO);
                Err(None)
            }
            (Arrival::QueueFull | Arrival::Wait(_), _) => {
                flow.rejected(FlowRejection::QueueFull, Duration::ZERO);
                Err(None)
            }
        }
    }

    fn seat(
        self: &Arc<Self>,
        flow: Arc<FlowMetrics>,
        executing: Executing,
        is_watch: bool,
    ) -> Seat {
        flow.executing(executing.seats() as i64);
        Seat {
            level: Arc::clone(self),
            flow,
            executing,
            is_watch,
        }
    }

    /// Passes their seats to requests that waited. The lock is not held: a receiver may be gone, and then its seats are
    /// returned here.
    fn start(self: &Arc<Self>, dispatched: Vec<Dispatched<Waiter>>) {
        for Dispatched { waiter, executing } in dispatched {
            waiter.flow.no_longer_waiting(executing.seats() as i64);
            let seat = self.seat(waiter.flow, executing, waiter.is_watch);
            // An error contains the seat, whose drop returns it.
            drop(waiter.sender.send(seat));
        }
    }

    fn reject(&self) -> Rejected {
        let mut retry_after = self.retry_after.lock();
        Rejected {
            retry_after_seconds: retry_after.rejected(Instant::now()),
        }
    }
}

impl Ticket {
    /// Returns the seats, or `None` at the deadline.
    async fn wait(&mut self, deadline: Instant) -> Option<Seat> {
        let received = timeout_at(deadline, &mut self.receiver).await;
        let seat = match received {
            Ok(seat) => seat.ok(),
            // It may have been dispatched at the same moment.
            Err(_) if !self.leave() => self.receiver.try_recv().ok(),
            Err(_) => None,
        };
        self.is_resolved = true;
        seat
    }

    /// Removes the request from its queue. False if it was dispatched.
    fn leave(&self) -> bool {
        let cancelled = self.level.queues.lock().cancel(Instant::now(), self.place);
        let Some((waiter, seats, dispatched)) = cancelled else {
            return false;
        };
        waiter.flow.no_longer_waiting(seats as i64);
        self.level.start(dispatched);
        true
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_resolved && self.leave() {
            self.flow.rejected(FlowRejection::Cancelled, Duration::ZERO);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let now = Instant::now();
        let dispatched = self.level.queues.lock().finish(now, &self.executing);
        self.flow.finished(
            self.executing.seats() as i64,
            self.is_watch,
            now.saturating_duration_since(self.executing.started),
        );
        self.level.start(dispatched);
    }
}
