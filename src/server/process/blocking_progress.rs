//! Reports blocking work that takes longer than a second, from a thread of its own.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

/// Work that takes less time is not reported.
const FIRST_REPORT: Duration = Duration::from_secs(1);

/// The interval of the reports doubles up to this.
const INTERVAL_MAX: Duration = Duration::from_secs(30);

/// Runs `work` and returns its result. Meanwhile calls `report` after a second and then at growing intervals, with the time since
/// the start.
pub(super) fn with_reports<T>(report: impl Fn(Duration) + Send, work: impl FnOnce() -> T) -> T {
    with_reports_after(FIRST_REPORT, report, work)
}

fn with_reports_after<T>(
    first: Duration,
    report: impl Fn(Duration) + Send,
    work: impl FnOnce() -> T,
) -> T {
    let (done, ended) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let started = Instant::now();
            let mut interval = first;
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                report(started.elapsed());
                interval = (interval * 2).min(INTERVAL_MAX);
            }
        });
        // Dropped with the work, also if it panics: the scope waits for the thread.
        let _done = done;
        work()
    })
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn long_work_is_reported_at_growing_intervals() {
        let times = Mutex::new(Vec::new());
        let first = Duration::from_millis(10);
        let report = |elapsed| times.lock().push(elapsed);
        let result = with_reports_after(first, report, || {
            while times.lock().len() < 3 {
                thread::yield_now();
            }
            7
        });
        assert_eq!(result, 7);
        let times = times.into_inner();
        assert!(times.is_sorted() && times[2] >= 7 * first, "{times:?}");
    }

    #[test]
    fn short_work_is_not_reported() {
        let minute = Duration::from_secs(60);
        let started = Instant::now();
        with_reports_after(minute, |elapsed| panic!("{elapsed:?}"), || ());
        assert!(started.elapsed() < minute, "it waited for the next report");
    }

    #[test]
    fn a_panic_ends_the_reports() {
        let panics = || with_reports(|_| (), || panic!("on purpose"));
        assert!(std::panic::catch_unwind(panics).is_err());
    }
}
