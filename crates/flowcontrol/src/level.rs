//! A priority level at run time: its queues, and the requests that wait or run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::demand::Observed;
use crate::fair_queues::{
    Arrival, Dispatched, Executing, FairQueues, LimitResponse, Place, QueueDump, Sizes,
};
use crate::retry_after::RetryAfter;
use crate::tracked_requests::{Origin, TrackedRequest};
use crate::work::Work;
use watchet_metrics::{FlowMetrics, FlowRejection};

/// A priority level. It exists until its object is deleted and its last request has ended.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) name: String,
    state: Mutex<State>,
    /// The maximum number of seats of a request.
    seats_max: AtomicUsize,
    retry_after: Mutex<RetryAfter>,
}

/// The queues and the requests of a level.
#[derive(Debug)]
struct State {
    queues: FairQueues<Waiter>,
    /// The requests that wait or run.
    requests: Slab<TrackedRequest>,
    totals: Totals,
}

/// The numbers of requests since the level was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) dispatched: u64,
    /// Rejected for any reason, including the two below.
    pub(crate) rejected: u64,
    pub(crate) timed_out: u64,
    pub(crate) cancelled: u64,
}

/// The state of a level at one moment.
#[derive(Debug)]
pub(crate) struct LevelDump {
    pub(crate) sizes: Sizes,
    pub(crate) totals: Totals,
    pub(crate) queues: Vec<QueueDump<TrackedRequest>>,
    /// The requests that run.
    pub(crate) executing: Vec<TrackedRequest>,
}

/// The data that a dispatch needs of a waiting request.
#[derive(Debug)]
struct Waiter {
    /// Its key among the requests of the level.
    key: usize,
    /// Receives the seats, at most once. A closed one returns them.
    sender: oneshot::Sender<Seat>,
    flow: Arc<FlowMetrics>,
    is_watch: bool,
}

/// The right of a request to run. Its seats are free again when it is dropped.
#[derive(Debug)]
pub struct Seat {
    level: Arc<Level>,
    /// The key of the request among those of the level.
    key: usize,
    flow: Arc<FlowMetrics>,
    executing: Executing,
    is_watch: bool,
}

/// The error of a request that was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests of this priority level, please try again in {retry_after_seconds} s")]
pub struct Rejected {
    /// The number of seconds after which the client should retry.
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
#[derive(Debug)]
pub(crate) struct SeatRequest {
    pub(crate) origin: Origin,
    pub(crate) hash: u64,
    pub(crate) work: Work,
    pub(crate) is_watch: bool,
}

impl Level {
    pub(crate) fn new(name: String) -> Arc<Self> {
        Arc::new(Self {
            name,
            state: Mutex::new(State {
                queues: FairQueues::new(Instant::now(), LimitResponse::Reject),
                requests: Slab::new(),
                totals: Totals::default(),
            }),
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
        let dispatched = self
            .state
            .lock()
            .dispatched_by(|queues| queues.configure(now, response, limit));
        self.start(dispatched);
    }

    pub(crate) fn take_demand(&self) -> Observed {
        self.state.lock().queues.take_demand(Instant::now())
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.state.lock().queues.sizes()
    }

    /// Returns true if no request waits or runs.
    pub(crate) fn is_idle(&self) -> bool {
        let sizes = self.sizes();
        sizes.requests_waiting == 0 && sizes.requests_executing == 0
    }

    /// Returns the state of the queues and the requests.
    pub(crate) fn dump(&self) -> LevelDump {
        let state = self.state.lock();
        let requests = state.requests.iter().map(|(_, request)| request);
        LevelDump {
            sizes: state.queues.sizes(),
            totals: state.totals,
            queues: state
                .queues
                .dump(|waiter| state.requests[waiter.key].clone()),
            executing: requests
                .filter(|request| request.started.is_some())
                .cloned()
                .collect(),
        }
    }

    /// Waits until `deadline` for seats. Cancel safe: a dropped request leaves its queue.
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
        let mut state = self.state.lock();
        let State {
            queues,
            requests,
            totals,
        } = &mut *state;
        let mut receiver = None;
        let mut tracked = Some(TrackedRequest::new(request.origin, request.work));
        let waiter = || {
            let (sender, waiting) = oneshot::channel();
            receiver = Some(waiting);
            flow.waiting(request.work.seats as i64);
            let tracked = tracked.take().expect("a request waits at most once");
            Waiter {
                key: requests.insert(tracked),
                sender,
                flow: Arc::clone(flow),
                is_watch: request.is_watch,
            }
        };
        let (arrival, dispatched) = queues.arrive(now, request.hash, request.work, waiter);
        let key = match (&arrival, tracked) {
            (Arrival::Execute(executing), Some(mut tracked)) => {
                totals.dispatched += 1;
                tracked.start(executing.queue());
                Some(requests.insert(tracked))
            }
            (Arrival::LimitReached | Arrival::QueueFull, _) => {
                totals.rejected += 1;
                None
            }
            _ => None,
        };
        state.mark(&dispatched);
        drop(state);
        self.start(dispatched);
        match (arrival, receiver) {
            (Arrival::Execute(executing), _) => {
                let key = key.expect("a request that runs is tracked");
                Ok(self.seat(key, Arc::clone(flow), executing, request.is_watch))
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
        key: usize,
        flow: Arc<FlowMetrics>,
        executing: Executing,
        is_watch: bool,
    ) -> Seat {
        flow.executing(executing.seats() as i64);
        Seat {
            level: Arc::clone(self),
            key,
            flow,
            executing,
            is_watch,
        }
    }

    /// Passes seats to dispatched requests. The caller must not hold the lock: if a receiver was dropped, its seats are
    /// released here, which locks the level.
    fn start(self: &Arc<Self>, dispatched: Vec<Dispatched<Waiter>>) {
        for Dispatched { waiter, executing } in dispatched {
            waiter.flow.no_longer_waiting(executing.seats() as i64);
            let seat = self.seat(waiter.key, waiter.flow, executing, waiter.is_watch);
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

impl State {
    /// Performs an operation that dispatches requests.
    fn dispatched_by(
        &mut self,
        operation: impl FnOnce(&mut FairQueues<Waiter>) -> Vec<Dispatched<Waiter>>,
    ) -> Vec<Dispatched<Waiter>> {
        let dispatched = operation(&mut self.queues);
        self.mark(&dispatched);
        dispatched
    }

    /// Marks the dispatched requests as running.
    fn mark(&mut self, dispatched: &[Dispatched<Waiter>]) {
        for Dispatched { waiter, executing } in dispatched {
            self.totals.dispatched += 1;
            self.requests[waiter.key].start(executing.queue());
        }
    }
}

/// The reason why a request stops waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    TimeOut,
    Cancelled,
}

impl Ticket {
    /// Returns the seats, or `None` at the deadline.
    async fn wait(&mut self, deadline: Instant) -> Option<Seat> {
        let received = timeout_at(deadline, &mut self.receiver).await;
        let seat = match received {
            Ok(seat) => seat.ok(),
            // It may have been dispatched at the same moment.
            Err(_) if !self.leave(Leave::TimeOut) => self.receiver.try_recv().ok(),
            Err(_) => None,
        };
        self.is_resolved = true;
        seat
    }

    /// Removes the request from its queue. Returns false if it was dispatched.
    fn leave(&self, reason: Leave) -> bool {
        let mut state = self.level.state.lock();
        let cancelled = state.queues.cancel(Instant::now(), self.place);
        let Some((waiter, seats, dispatched)) = cancelled else {
            return false;
        };
        state.requests.remove(waiter.key);
        state.totals.rejected += 1;
        match reason {
            Leave::TimeOut => state.totals.timed_out += 1,
            Leave::Cancelled => state.totals.cancelled += 1,
        }
        state.mark(&dispatched);
        drop(state);
        waiter.flow.no_longer_waiting(seats as i64);
        self.level.start(dispatched);
        true
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_resolved && self.leave(Leave::Cancelled) {
            self.flow.rejected(FlowRejection::Cancelled, Duration::ZERO);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.level.state.lock();
        state.requests.remove(self.key);
        let dispatched = state.dispatched_by(|queues| queues.finish(now, &self.executing));
        drop(state);
        self.flow.finished(
            self.executing.seats() as i64,
            self.is_watch,
            now.saturating_duration_since(self.executing.started),
        );
        self.level.start(dispatched);
    }
}
