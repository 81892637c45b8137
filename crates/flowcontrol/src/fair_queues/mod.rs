//! Fair queuing for server requests (KEP-1040): selects the request of a priority level that runs next. It has no
//! locks, clocks or tasks; [`Level`](crate::level::Level) has those.
//!
//! # Definitions
//!
//! - A *seat* is the right to use one unit of the level's concurrency. A request occupies one or more.
//! - The *progress* is the work, in seat-nanoseconds, that the level has offered to each active queue since the start. A
//!   queue is active if it has a request that waits or runs.
//! - The *next dispatch* of a queue is the progress at which its next request would begin if the queues were served in
//!   turn, a tiny slice at a time. A dispatched request advances it by the work that the request is expected to take,
//!   and the end of the request corrects that to the work that it took. In comparisons, requests that run longer than
//!   expected count with the work that they have taken. Upstream's do not, so there a queue of slow requests may get
//!   many seats in a row.
//!
//! # Invariants
//!
//! - The queue whose oldest request would finish first is served first; equal queues take turns.
//! - While the oldest request of that queue does not fit into the free seats, nothing else is dispatched: requests that
//!   need many seats are not overtaken forever.
//! - The next dispatch of a queue is at least the progress at the arrival of its oldest request: an idle queue collects
//!   no credit.
//! - Idle queues have no state, so their number costs nothing.

mod queue;

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::FixedState;
use tokio::time::Instant;

use self::queue::{Queue, QueuedRequest};
use crate::demand::{DemandMeter, Observed};
use crate::shuffle_sharding::Dealer;
use crate::work::Work;

/// The expected duration of a request.
const EXPECTED: Duration = Duration::from_millis(3);

/// The treatment of requests for which no seat is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitResponse {
    /// There is no limit.
    Unlimited,
    Reject,
    Queue {
        dealer: Dealer,
        /// The maximum number of waiting requests of a queue.
        length_max: usize,
    },
}

/// The requests of a priority level. `T` is the data that the owner needs to start a waiting request.
#[derive(Debug)]
pub(crate) struct FairQueues<T> {
    response: LimitResponse,
    limit: usize,
    /// The active queues.
    queues: HashMap<usize, Queue<T>, FixedState>,
    /// When the level was created.
    created: Instant,
    progress: i128,
    /// When `progress` was computed.
    computed: Instant,
    /// The queue of the last dispatch.
    last: usize,
    arrivals: usize,
    requests_waiting: usize,
    requests_executing: usize,
    seats_waiting: usize,
    seats_in_use: usize,
    demand: DemandMeter,
}

/// A request that runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Executing {
    queue: Option<usize>,
    seats: usize,
    pub(crate) started: Instant,
}

impl Executing {
    /// Returns the queue that dispatched it, if the level has queues.
    pub(crate) fn queue(&self) -> Option<usize> {
        self.queue
    }

    pub(crate) fn seats(&self) -> usize {
        self.seats
    }
}

/// A request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    queue: usize,
    number: usize,
}

/// The result of the arrival of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Execute(Executing),
    /// The request waits, or is already among the [`Dispatched`].
    Wait(Place),
    /// The limit is reached, and the level has no queues.
    LimitReached,
    QueueFull,
}

/// A request that waited and runs now.
#[derive(Debug)]
pub(crate) struct Dispatched<T> {
    pub(crate) waiter: T,
    pub(crate) executing: Executing,
}

/// The sizes of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) active_queues: usize,
    pub(crate) requests_waiting: usize,
    pub(crate) requests_executing: usize,
    pub(crate) seats_in_use: usize,
    pub(crate) limit: usize,
}

/// The state of an active queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueDump<T> {
    pub(crate) index: usize,
    /// The requests that wait, the oldest first.
    pub(crate) waiting: Vec<T>,
    pub(crate) seats_waiting: usize,
    /// In seat-nanoseconds, as `next_dispatch`.
    pub(crate) work_waiting: i128,
    pub(crate) next_dispatch: i128,
    pub(crate) executing: usize,
    pub(crate) seats_in_use: usize,
}

impl<T> FairQueues<T> {
    pub(crate) fn new(now: Instant, response: LimitResponse) -> Self {
        Self {
            response,
            limit: 0,
            queues: HashMap::default(),
            created: now,
            progress: 0,
            computed: now,
            last: 0,
            arrivals: 0,
            requests_waiting: 0,
            requests_executing: 0,
            seats_waiting: 0,
            seats_in_use: 0,
            demand: DemandMeter::new(now),
        }
    }

    /// Changes the treatment of requests that arrive from now on, and the number of seats.
    pub(crate) fn configure(
        &mut self,
        now: Instant,
        response: LimitResponse,
        limit: usize,
    ) -> Vec<Dispatched<T>> {
        self.advance(now);
        self.response = response;
        self.limit = limit;
        self.dispatch(now)
    }

    /// Returns the demand since the last call.
    pub(crate) fn take_demand(&mut self, now: Instant) -> Observed {
        self.demand.take(now)
    }

    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            active_queues: self.queues.len(),
            requests_waiting: self.requests_waiting,
            requests_executing: self.requests_executing,
            seats_in_use: self.seats_in_use,
            limit: self.limit,
        }
    }

    /// Returns the active queues by index, with the result of `of_waiter` for each waiting request.
    pub(crate) fn dump<U>(&self, of_waiter: impl Fn(&T) -> U) -> Vec<QueueDump<U>> {
        let queues = self.queues.iter().map(|(index, queue)| {
            let waiting = queue.waiting.iter();
            QueueDump {
                index: *index,
                seats_waiting: waiting.clone().map(|request| request.seats).sum(),
                waiting: waiting.map(|request| of_waiter(&request.waiter)).collect(),
                work_waiting: queue.work_waiting,
                next_dispatch: queue.next_dispatch,
                executing: queue.executing,
                seats_in_use: queue.seats_in_use,
            }
        });
        let mut queues: Vec<_> = queues.collect();
        queues.sort_unstable_by_key(|queue| queue.index);
        queues
    }

    /// Adds a request of the flow with this hash. Calls `waiter` if the request waits.
    pub(crate) fn arrive(
        &mut self,
        now: Instant,
        hash: u64,
        work: Work,
        waiter: impl FnOnce() -> T,
    ) -> (Arrival, Vec<Dispatched<T>>) {
        self.advance(now);
        let seats = work.seats;
        let (dealer, length_max) = match self.response {
            LimitResponse::Queue { dealer, length_max } => (dealer, length_max),
            LimitResponse::Reject if !self.fits(seats) => return (Arrival::LimitReached, vec![]),
            LimitResponse::Reject | LimitResponse::Unlimited => {
                self.requests_executing += 1;
                self.seats_in_use += seats;
                self.note_demand(now);
                let executing = Executing {
                    queue: None,
                    seats,
                    started: now,
                };
                return (Arrival::Execute(executing), vec![]);
            }
        };
        self.arrivals += 1;
        let number = self.choose_queue(dealer, hash);
        let queue = self.queues.entry(number).or_insert_with(Queue::new);
        if self.seats_in_use >= self.limit && queue.waiting.len() >= length_max {
            // It is active, because it has waiting requests, unless the limit of its length is 0.
            self.remove_if_idle(number);
            return (Arrival::QueueFull, vec![]);
        }
        if queue.is_idle() {
            queue.next_dispatch = self.progress;
        }
        let request_work = work_of(work);
        // Nothing else could be dispatched.
        if self.requests_waiting == 0
            && self.seats_in_use < self.limit
            && fits(
                seats,
                self.seats_in_use,
                self.requests_executing,
                self.limit,
            )
        {
            queue.bound(self.progress);
            queue.begin(since(self.created, now), seats, request_work);
            self.last = number;
            let executing = self.count_begin(now, number, seats);
            return (Arrival::Execute(executing), vec![]);
        }
        queue.push(QueuedRequest {
            number: self.arrivals,
            seats,
            work: request_work,
            arrival: self.progress,
            waiter: waiter(),
        });
        self.requests_waiting += 1;
        self.seats_waiting += seats;
        self.note_demand(now);
        let place = Place {
            queue: number,
            number: self.arrivals,
        };
        (Arrival::Wait(place), self.dispatch(now))
    }

    /// Ends a request.
    pub(crate) fn finish(&mut self, now: Instant, executing: &Executing) -> Vec<Dispatched<T>> {
        self.advance(now);
        self.requests_executing -= 1;
        self.seats_in_use -= executing.seats;
        if let Some(number) = executing.queue
            && let Some(queue) = self.queues.get_mut(&number)
        {
            let ran = now.saturating_duration_since(executing.started);
            let excess = ran.as_nanos() as i128 - EXPECTED.as_nanos() as i128;
            let begin = since(self.created, executing.started);
            queue.end(begin, executing.seats, excess * executing.seats as i128);
            self.remove_if_idle(number);
        }
        self.note_demand(now);
        self.dispatch(now)
    }

    /// Removes a waiting request. Returns `None` if it does not wait any more.
    pub(crate) fn cancel(
        &mut self,
        now: Instant,
        place: Place,
    ) -> Option<(T, usize, Vec<Dispatched<T>>)> {
        self.advance(now);
        let queue = self.queues.get_mut(&place.queue)?;
        let waiting = queue.remove(place.number)?;
        self.requests_waiting -= 1;
        self.seats_waiting -= waiting.seats;
        self.remove_if_idle(place.queue);
        self.note_demand(now);
        Some((waiting.waiter, waiting.seats, self.dispatch(now)))
    }

    /// Dispatches requests as long as the next one fits.
    fn dispatch(&mut self, now: Instant) -> Vec<Dispatched<T>> {
        let mut dispatched = Vec::new();
        while self.requests_waiting > 0 && self.seats_in_use < self.limit {
            let Some(number) = self.next_queue(now) else {
                break;
            };
            let (in_use, executing) = (self.seats_in_use, self.requests_executing);
            let queue = self.queues.get_mut(&number);
            let Some(waiting) = queue.and_then(|queue| {
                let seats = queue.waiting.front()?.seats;
                fits(seats, in_use, executing, self.limit)
                    .then(|| queue.pop(since(self.created, now)))?
            }) else {
                break;
            };
            self.last = number;
            self.requests_waiting -= 1;
            self.seats_waiting -= waiting.seats;
            dispatched.push(Dispatched {
                executing: self.count_begin(now, number, waiting.seats),
                waiter: waiting.waiter,
            });
        }
        dispatched
    }

    /// Returns the queue whose oldest request would finish first; if several are equal, the first after the queue of
    /// the last dispatch.
    fn next_queue(&self, now: Instant) -> Option<usize> {
        let now = since(self.created, now);
        let finishes = self.queues.iter().filter_map(|(number, queue)| {
            let finish = queue.finish(now, EXPECTED.as_nanos() as i128)?;
            let turn = number.wrapping_sub(self.last).wrapping_sub(1);
            Some((finish, turn, *number))
        });
        finishes.min().map(|(_, _, number)| number)
    }

    /// Returns the queue of the flow's hand with the least waiting work.
    fn choose_queue(&self, dealer: Dealer, hash: u64) -> usize {
        let hand = dealer.deal(hash);
        let hand = hand.queues();
        let first = self.arrivals % hand.len();
        // Each arrival begins with another queue, so that equal queues take turns.
        let in_turn = hand[first..].iter().chain(&hand[..first]).copied();
        let work = |number: &usize| {
            let queue = self.queues.get(number);
            queue.map_or(0, |queue| queue.work_waiting)
        };
        in_turn.min_by_key(work).unwrap_or_default()
    }

    fn count_begin(&mut self, now: Instant, number: usize, seats: usize) -> Executing {
        self.requests_executing += 1;
        self.seats_in_use += seats;
        self.note_demand(now);
        Executing {
            queue: Some(number),
            seats,
            started: now,
        }
    }

    fn fits(&self, seats: usize) -> bool {
        fits(
            seats,
            self.seats_in_use,
            self.requests_executing,
            self.limit,
        )
    }

    fn remove_if_idle(&mut self, number: usize) {
        if self.queues.get(&number).is_some_and(Queue::is_idle) {
            self.queues.remove(&number);
        }
    }

    /// Advances the progress by the work that was offered to each active queue since the last call.
    fn advance(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.computed);
        self.computed = self.computed.max(now);
        let active = self.queues.len() as i128;
        if active > 0 {
            let seats = (self.seats_in_use + self.seats_waiting).min(self.limit);
            self.progress += elapsed.as_nanos() as i128 * seats as i128 / active;
        }
    }

    fn note_demand(&mut self, now: Instant) {
        self.demand.set(now, self.seats_in_use + self.seats_waiting);
    }
}

/// Returns true if a request of `seats` seats may begin. A request that needs more than all seats runs alone.
fn fits(seats: usize, in_use: usize, executing: usize, limit: usize) -> bool {
    match seats > limit {
        true => executing == 0,
        false => in_use + seats <= limit,
    }
}

/// Returns the nanoseconds from `start` to `now`.
fn since(start: Instant, now: Instant) -> i128 {
    now.saturating_duration_since(start).as_nanos() as i128
}

/// Returns the work that a request is expected to take, in seat-nanoseconds.
fn work_of(work: Work) -> i128 {
    EXPECTED.as_nanos() as i128 * work.seats as i128 + work.subsequent.as_nanos() as i128
}

#[cfg(test)]
mod tests;
