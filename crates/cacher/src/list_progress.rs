//! `ListProgress`: reports how far a list has come that takes longer than a second.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// A list that takes less time is not reported.
const FIRST_REPORT: Duration = Duration::from_secs(1);

/// The interval of the reports doubles up to this.
const INTERVAL_MAX: Duration = Duration::from_secs(30);

/// The progress of one list, which several threads may decode.
#[derive(Debug)]
pub(super) struct ListProgress {
    started: Instant,
    objects: AtomicUsize,
}

/// How far a list has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ListReport {
    /// The number of decoded objects.
    pub objects: usize,
    pub elapsed: Duration,
    pub objects_per_second: u64,
}

impl ListProgress {
    pub(super) fn start() -> Self {
        Self {
            started: Instant::now(),
            objects: AtomicUsize::new(0),
        }
    }

    /// Adds decoded objects.
    pub(super) fn add(&self, objects: usize) {
        self.objects.fetch_add(objects, Ordering::Relaxed);
    }

    /// Runs `list`, and meanwhile calls `show` with reports.
    pub(super) async fn report_during<T>(
        &self,
        list: impl Future<Output = T>,
        show: impl Fn(ListReport),
    ) -> T {
        let mut list = pin!(list);
        let mut interval = FIRST_REPORT;
        loop {
            match timeout(interval, &mut list).await {
                Ok(result) => return result,
                Err(_) => show(self.report()),
            }
            interval = (interval * 2).min(INTERVAL_MAX);
        }
    }

    /// Returns the report of the complete list; `None` if it took so little time that no earlier one was made.
    pub(super) fn last_report(&self) -> Option<ListReport> {
        (self.started.elapsed() >= FIRST_REPORT).then(|| self.report())
    }

    fn report(&self) -> ListReport {
        let (objects, elapsed) = (self.objects.load(Ordering::Relaxed), self.started.elapsed());
        ListReport {
            objects,
            elapsed,
            // Rounded to whole objects.
            objects_per_second: (objects as f64 / elapsed.as_secs_f64().max(0.001)) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_long_list_is_reported_at_growing_intervals() {
        let progress = ListProgress::start();
        let list = async {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_millis(800)).await;
                progress.add(2_000);
            }
            "listed"
        };
        let reports = RefCell::new(Vec::new());
        let show = |report: ListReport| {
            let seconds = report.elapsed.as_secs();
            reports
                .borrow_mut()
                .push((seconds, report.objects, report.objects_per_second));
        };
        assert_eq!(progress.report_during(list, show).await, "listed");
        assert_eq!(
            *reports.borrow(),
            [(1, 2_000, 2_000), (3, 6_000, 2_000), (7, 16_000, 2_285)]
        );
        let last = progress.last_report().expect("it took eight seconds");
        assert_eq!((last.objects, last.objects_per_second), (20_000, 2_500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_list_is_not_reported() {
        let progress = ListProgress::start();
        let list = tokio::time::sleep(Duration::from_millis(999));
        progress
            .report_during(list, |report| panic!("{report:?}"))
            .await;
        assert_eq!(progress.last_report(), None);
    }
}
