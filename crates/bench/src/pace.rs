//! The schedule of requests. It is fixed at the start: a slow server makes later writes late, which
//! is reported, but does not reduce their rate.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// A schedule of numbered turns, shared by several tasks.
#[derive(Debug)]
pub(super) struct Pace {
    begin: Instant,
    /// `None`: every turn is due immediately.
    interval_s: Option<f64>,
    turns: u32,
    next: AtomicU32,
}

/// A turn that a task has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    /// The number of the turn, from 0.
    pub number: u32,
    /// The delay after the scheduled time.
    pub late: Duration,
}

impl Pace {
    /// Starts a schedule of `turns` turns, `rate` per second; 0 is without a pause.
    pub(super) fn start(turns: u32, rate: f64) -> Self {
        Self {
            begin: Instant::now(),
            interval_s: (rate > 0.0).then(|| rate.recip()),
            turns,
            next: AtomicU32::new(0),
        }
    }

    /// Returns the number of turns that are taken.
    pub(super) fn taken(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// Waits for the next turn and takes it; `None` if all are taken. A turn whose wait is
    /// cancelled is lost.
    pub(super) async fn turn(&self) -> Option<Turn> {
        let take = |next| (next < self.turns).then(|| next + 1);
        let number = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .ok()?;
        let Some(interval_s) = self.interval_s else {
            let late = Duration::ZERO;
            return Some(Turn { number, late });
        };
        let due = self.begin + Duration::from_secs_f64(f64::from(number) * interval_s);
        sleep_until(due).await;
        let late = due.elapsed();
        Some(Turn { number, late })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_come_at_the_rate_and_end() {
        let pace = Pace::start(5, 50.0);
        let begin = Instant::now();
        for number in 0..5 {
            let turn = pace.turn().await.unwrap();
            assert_eq!(turn.number, number);
            let expected = 20.0 * f64::from(number);
            let elapsed = begin.elapsed().as_secs_f64() * 1e3;
            assert!((elapsed - expected).abs() < 1.5, "{number}: {elapsed} ms");
        }
        assert_eq!(pace.turn().await, None);
        assert_eq!(pace.turn().await, None);
        assert_eq!(pace.taken(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_write_does_not_stretch_the_schedule() {
        let pace = Pace::start(100, 100.0);
        let begin = Instant::now();
        pace.turn().await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let turn = pace.turn().await.unwrap();
        assert!(turn.late >= Duration::from_millis(489), "{turn:?}");
        while pace.turn().await.is_some() {}
        let elapsed = begin.elapsed();
        assert!(elapsed < Duration::from_millis(993), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_turns_are_due_immediately() {
        let pace = Pace::start(1_000, 0.0);
        let begin = Instant::now();
        let take = async || {
            let mut taken = Vec::new();
            while let Some(turn) = pace.turn().await {
                taken.push(turn.number);
                tokio::task::yield_now().await;
            }
            taken
        };
        let (one, other) = tokio::join!(take(), take());
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert!(!one.is_empty() && !other.is_empty());
        let mut all = [one, other].concat();
        all.sort_unstable();
        assert_eq!(all, (0..1_000).collect::<Vec<_>>(), "each is taken once");
    }
}
