//! A periodic activity that runs only while it is needed, at multiples of its period.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Ticker {
    epoch: Instant,
    period: Duration,
    due: Option<Instant>,
}

impl Ticker {
    pub(super) fn new(epoch: Instant, period: Duration) -> Self {
        let due = None;
        Self { epoch, period, due }
    }

    /// Returns true if the activity should run now. While it is needed, the next multiple of the period is due.
    pub(super) fn is_due(&mut self, needed: bool, now: Instant) -> bool {
        let is_due = needed && self.due.is_some_and(|due| due <= now);
        if !needed {
            self.due = None;
        } else if is_due || self.due.is_none() {
            let periods = (now - self.epoch).as_nanos() / self.period.as_nanos();
            let periods = u32::try_from(periods + 1).unwrap_or(u32::MAX);
            self.due = Some(self.epoch + self.period * periods);
        }
        is_due
    }

    /// Returns when it is due, if it is needed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}
