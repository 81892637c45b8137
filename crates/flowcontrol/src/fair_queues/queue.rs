//! One of the queues of a priority level.

use std::collections::VecDeque;

/// A queue with its waiting requests, and sums over the requests that it has dispatched and that still run.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// The waiting requests, the oldest first.
    pub(super) waiting: VecDeque<QueuedRequest<T>>,
    /// The sum of the work of the waiting requests, in seat-nanoseconds.
    pub(super) work_waiting: i128,
    pub(super) executing: usize,
    pub(super) seats_in_use: usize,
    /// The sum, over the requests that run, of the start time in nanoseconds since the creation of the level, times the
    /// seats.
    begins: i128,
    /// See the module's documentation.
    pub(super) next_dispatch: i128,
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct QueuedRequest<T> {
    pub(super) number: usize,
    pub(super) seats: usize,
    /// The expected work in seat-nanoseconds.
    pub(super) work: i128,
    /// The progress of the level when it arrived.
    pub(super) arrival: i128,
    pub(super) waiter: T,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            work_waiting: 0,
            executing: 0,
            seats_in_use: 0,
            begins: 0,
            next_dispatch: 0,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.executing == 0
    }

    pub(super) fn push(&mut self, waiting: QueuedRequest<T>) {
        self.work_waiting += waiting.work;
        self.waiting.push_back(waiting);
        self.bound_by_oldest();
    }

    /// Removes the oldest request, which begins to run at `now`.
    pub(super) fn pop(&mut self, now: i128) -> Option<QueuedRequest<T>> {
        let waiting = self.waiting.pop_front()?;
        self.work_waiting -= waiting.work;
        self.begin(now, waiting.seats, waiting.work);
        self.bound_by_oldest();
        Some(waiting)
    }

    /// Removes the request with this number.
    pub(super) fn remove(&mut self, number: usize) -> Option<QueuedRequest<T>> {
        let at = self.waiting.partition_point(|other| other.number < number);
        if self.waiting.get(at)?.number != number {
            return None;
        }
        let waiting = self.waiting.remove(at)?;
        self.work_waiting -= waiting.work;
        self.bound_by_oldest();
        Some(waiting)
    }

    pub(super) fn begin(&mut self, now: i128, seats: usize, work: i128) {
        self.begins += now * seats as i128;
        self.executing += 1;
        self.seats_in_use += seats;
        self.next_dispatch += work;
    }

    /// Ends a request that began at `begin` and took `excess` more work than expected.
    pub(super) fn end(&mut self, begin: i128, seats: usize, excess: i128) {
        self.begins -= begin * seats as i128;
        self.executing -= 1;
        self.seats_in_use -= seats;
        self.next_dispatch += excess;
        self.bound_by_oldest();
    }

    /// Returns the progress at which the oldest request would end, if each request took `expected`. A request that has
    /// already run for longer counts with that time.
    pub(super) fn finish(&self, now: i128, expected: i128) -> Option<i128> {
        let oldest = self.waiting.front()?;
        let ran = now * self.seats_in_use as i128 - self.begins;
        let excess = ran - expected * self.seats_in_use as i128;
        Some(self.next_dispatch + excess.max(0) + oldest.work)
    }

    /// Raises the next dispatch to `progress`, unless it is higher.
    pub(super) fn bound(&mut self, progress: i128) {
        self.next_dispatch = self.next_dispatch.max(progress);
    }

    fn bound_by_oldest(&mut self) {
        if let Some(oldest) = self.waiting.front() {
            let arrival = oldest.arrival;
            self.bound(arrival);
        }
    }
}
