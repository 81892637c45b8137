//! `Work`: the seats that a request occupies, and the work that it causes after its response.
//!
//! The formulas are those of kube-apiserver (`pkg/util/flowcontrol/request`), with differences, because reads and watches are
//! served from memory here. The section "Priority and fairness" of `docs/operations.md` has a table of them.
//!
//! - A list occupies a seat for each 100 objects that it examines, up to ten. All lists count as lists from the cache;
//!   one with a limit and without selectors examines no more objects than its limit.
//! - A write occupies one seat. Here an event is encoded once for all watchers and the dispatcher yields to other
//!   tasks, so the write occupies no seat after its response; its flow is only charged for the event when queues are
//!   compared.

use std::time::Duration;

/// The number of objects that a list examines per seat.
const OBJECTS_PER_SEAT: usize = 100;

/// The maximum number of seats of a request; a level with few seats has a lower maximum.
const SEATS_MAX: usize = 10;

/// The CPU time of the server to send an event to one more watcher.
///
/// From `docs/benchmarks.md`: in bursts, 1.3 us per delivered event to 1,000 watchers, of which the write itself is 0.1 us
/// (0.1 ms per write). Bursts count because the charge has an effect only while requests wait. At 50 events per second,
/// each event is sent with a call of its own to each watcher and costs 16 us, but then no request waits.
const TIME_PER_WATCHER: Duration = Duration::from_nanos(1_200);

/// The work of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// The seats that it occupies while it runs, at least one.
    pub(crate) seats: usize,
    /// The work that it causes after its response, for one seat.
    pub(crate) subsequent: Duration,
}

impl Work {
    /// The work of a request that is neither a list nor a write.
    pub const SINGLE: Self = Self {
        seats: 1,
        subsequent: Duration::ZERO,
    };

    /// Returns the work of a list that examines `objects` objects.
    pub fn of_list(objects: usize) -> Self {
        Self {
            seats: objects.div_ceil(OBJECTS_PER_SEAT).clamp(1, SEATS_MAX),
            ..Self::SINGLE
        }
    }

    /// Returns the work of a write whose event `watchers` watchers may receive.
    pub fn of_write(watchers: usize) -> Self {
        let watchers = u32::try_from(watchers).unwrap_or(u32::MAX);
        Self {
            subsequent: TIME_PER_WATCHER.saturating_mul(watchers),
            ..Self::SINGLE
        }
    }

    /// Returns this work with at most `seats` seats.
    pub(crate) fn at_most(self, seats: usize) -> Self {
        Self {
            seats: self.seats.min(seats).max(1),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_of_lists_grow_with_the_objects() {
        let seats = [0, 1, 100, 101, 950, 1_000_000].map(|objects| Work::of_list(objects).seats);
        assert_eq!(seats, [1, 1, 1, 2, 10, 10]);
    }

    #[test]
    fn writes_are_charged_for_watchers_without_seats() {
        let work = Work::of_write(2_000);
        assert_eq!(
            (work.seats, work.subsequent),
            (1, Duration::from_micros(2_400))
        );
    }
}
