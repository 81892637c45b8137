//! Reports work that takes longer than a second.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// Work that takes less time is not reported.
const FIRST_REPORT: Duration = Duration::from_secs(1);

/// The interval of the reports doubles up to this.
const INTERVAL_MAX: Duration = Duration::from_secs(30);

/// Runs `work` and returns its result. If `work` takes longer than a second, calls `report` after the first second, then at
/// intervals that grow from 2 to 30 seconds, and at the end. The arguments of `report` are the time since the start and whether
/// the work is done.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let result = watchet_tasks::report_slow(async { 7 }, |_, _| panic!("it is fast")).await;
/// assert_eq!(result, 7);
/// # }
/// ```
pub async fn report_slow<T>(work: impl Future<Output = T>, report: impl Fn(Duration, bool)) -> T {
    let (mut work, started) = (pin!(work), Instant::now());
    let (mut interval, mut is_reported) = (FIRST_REPORT, false);
    loop {
        match timeout(interval, &mut work).await {
            Ok(result) => {
                if is_reported {
                    report(started.elapsed(), true);
                }
                return result;
            }
            Err(_) => report(started.elapsed(), false),
        }
        is_reported = true;
        interval = (interval * 2).min(INTERVAL_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reports_come_at_growing_intervals() {
        let reports = RefCell::new(Vec::new());
        let report = |elapsed: Duration, is_done| {
            reports.borrow_mut().push((elapsed.as_secs(), is_done));
        };
        report_slow(sleep(Duration::from_secs(95)), report).await;
        let times: Vec<u64> = reports.borrow().iter().map(|report| report.0).collect();
        assert_eq!(times, [1, 3, 7, 15, 31, 61, 91, 95]);
        assert_eq!(reports.borrow().iter().filter(|report| report.1).count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn fast_work_is_not_reported() {
        let report = |elapsed, _| panic!("{elapsed:?}");
        report_slow(sleep(Duration::from_millis(999)), report).await;
    }
}
