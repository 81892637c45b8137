//! The demand of a priority level for seats: those in use and those that waiting requests need, over time.

use tokio::time::Instant;

/// The factor by which a smoothed demand falls at each adjustment: to a half in five minutes.
const SMOOTHING: f64 = 0.977;

/// Measures the demand during a period.
#[derive(Debug)]
pub(crate) struct DemandMeter {
    seats: f64,
    /// The time up to which the integrals are computed.
    until: Instant,
    seconds: f64,
    /// The integral of the seats over time, in seat-seconds.
    integral: f64,
    /// The integral of the squared seats over time.
    squares: f64,
    max: f64,
}

/// The observations of a [`DemandMeter`] during a period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Observed {
    pub(crate) max: f64,
    /// `None` if no time has passed.
    pub(crate) average_and_deviation: Option<(f64, f64)>,
}

impl DemandMeter {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            seats: 0.0,
            until: now,
            seconds: 0.0,
            integral: 0.0,
            squares: 0.0,
            max: 0.0,
        }
    }

    /// Sets the demand from now on.
    pub(crate) fn set(&mut self, now: Instant, seats: usize) {
        self.integrate(now);
        self.seats = seats as f64;
        self.max = self.max.max(self.seats);
    }

    /// Returns the observations since the last call, and begins another period.
    pub(crate) fn take(&mut self, now: Instant) -> Observed {
        self.integrate(now);
        let average_and_deviation = (self.seconds > 0.0).then(|| {
            let average = self.integral / self.seconds;
            let variance = self.squares / self.seconds - average * average;
            (average, variance.max(0.0).sqrt())
        });
        let observed = Observed {
            max: self.max,
            average_and_deviation,
        };
        (self.seconds, self.integral, self.squares) = (0.0, 0.0, 0.0);
        self.max = self.seats;
        observed
    }

    fn integrate(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.until).as_secs_f64();
        self.until = self.until.max(now);
        self.seconds += seconds;
        self.integral += self.seats * seconds;
        self.squares += self.seats * self.seats * seconds;
    }
}

/// The demand over many periods.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct DemandHistory {
    /// The highest demand of the last period.
    pub(crate) high_watermark: f64,
    /// Follows a rising demand immediately and a falling one slowly.
    pub(crate) smoothed: f64,
}

impl DemandHistory {
    /// Adds a period.
    pub(crate) fn add(&mut self, observed: Observed) {
        self.high_watermark = observed.max;
        if let Some((average, deviation)) = observed.average_and_deviation {
            let envelope = average + deviation;
            let decayed = SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope;
            self.smoothed = envelope.max(decayed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn averages_are_weighted_by_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut meter = DemandMeter::new(start);
        meter.set(at(2), 4);
        meter.set(at(4), 8);
        meter.set(at(4), 2);
        let observed = meter.take(at(8));
        // 0 for 2 s, 4 for 2 s, 2 for 4 s.
        assert_eq!(observed.max, 8.0);
        let (average, deviation) = observed.average_and_deviation.unwrap();
        assert_eq!(average, 2.0);
        assert!((deviation - 2f64.sqrt()).abs() < 1e-9, "{deviation}");
        let next = meter.take(at(8));
        assert_eq!((next.max, next.average_and_deviation), (2.0, None));
    }

    #[test]
    fn demand_rises_immediately_and_falls_slowly() {
        let mut history = DemandHistory::default();
        let period = |average| Observed {
            max: average,
            average_and_deviation: Some((average, 0.0)),
        };
        history.add(period(100.0));
        assert_eq!(history.smoothed, 100.0);
        for _ in 0..30 {
            history.add(period(0.0));
        }
        assert!((45.0..55.0).contains(&history.smoothed), "{history:?}");
        assert_eq!(history.high_watermark, 0.0);
    }
}
