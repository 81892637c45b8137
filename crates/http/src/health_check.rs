//! A named check of `/healthz` and `/readyz`, which concurrent probes share: probes need no credentials, so their
//! number must not decide how often storage is read.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

/// The time limit of one check; probes usually have the same timeout.
pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a success is used for further probes. A failure is not, so that a recovery is seen by the next probe.
const SUCCESS_VALID_FOR: Duration = Duration::from_millis(250);

type CheckResult = Result<(), String>;
type Run = BoxFuture<'static, CheckResult>;

/// One named check of `/healthz` and `/readyz`. Concurrent calls of [`HealthCheck::run`] wait for the same run, and
/// calls within 250 ms of its success succeed. Clones are the same check.
///
/// ```
/// # use watchet_http::HealthCheck;
/// let check = HealthCheck::new("database", || async { Err("no connection".to_owned()) });
/// assert_eq!(check.name(), "database");
/// ```
#[derive(Clone)]
pub struct HealthCheck {
    name: Arc<str>,
    start: Arc<dyn Fn() -> Run + Send + Sync>,
    latest: Arc<Mutex<Option<Latest>>>,
}

/// The most recent run of a check.
enum Latest {
    /// Callers wait for it. Once all callers have stopped waiting, the run is dropped and this reference is dead.
    Running(WeakShared<Run>),
    /// It succeeded at this time.
    Succeeded(Instant),
}

impl HealthCheck {
    /// Creates a check named `name`; an error is the reason of the failure and goes to the log
    /// only. A run that takes longer than two seconds fails.
    pub fn new<F, Checked>(name: &str, run: F) -> Self
    where
        F: Fn() -> Checked + Send + Sync + 'static,
        Checked: Future<Output = CheckResult> + Send + 'static,
    {
        let start = move || {
            let limited = timeout(CHECK_TIMEOUT, run());
            let result = limited.map(|result| {
                result.unwrap_or_else(|_| Err(format!("no response within {CHECK_TIMEOUT:?}")))
            });
            result.boxed()
        };
        Self {
            name: name.into(),
            start: Arc::new(start),
            latest: Arc::default(),
        }
    }

    /// Returns the name, as in `/readyz/<name>`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Succeeds if the check has succeeded within 250 ms. Otherwise waits for the run in progress, which starts if
    /// necessary.
    ///
    /// # Errors
    /// The reason of the failure.
    pub async fn run(&self) -> CheckResult {
        let Some(run) = self.join() else {
            return Ok(());
        };
        let result = run.clone().await;
        let mut latest = self.latest.lock();
        if result.is_ok() && latest.as_ref().is_some_and(|latest| latest.is(&run)) {
            *latest = Some(Latest::Succeeded(Instant::now()));
        }
        result
    }

    /// Returns the run in progress, which starts if necessary; `None` if the check has succeeded recently.
    fn join(&self) -> Option<Shared<Run>> {
        let mut latest = self.latest.lock();
        match &*latest {
            Some(Latest::Succeeded(at)) if at.elapsed() < SUCCESS_VALID_FOR => return None,
            Some(Latest::Running(run)) => {
                // A run that has ended here has failed.
                let running = run.upgrade().filter(|run| run.peek().is_none());
                if running.is_some() {
                    return running;
                }
            }
            Some(Latest::Succeeded(_)) | None => {}
        }
        let run = (self.start)().shared();
        *latest = run.downgrade().map(Latest::Running);
        Some(run)
    }
}

impl Latest {
    /// Returns true if this is `run`, and it is in progress.
    fn is(&self, run: &Shared<Run>) -> bool {
        match self {
            Self::Running(latest) => latest.upgrade().is_some_and(|latest| latest.ptr_eq(run)),
            Self::Succeeded(_) => false,
        }
    }
}

impl fmt::Debug for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HealthCheck").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use tokio::time::{advance, sleep};

    use super::*;

    /// Returns a check that takes a second, and the number of its runs.
    fn slow(result: CheckResult) -> (HealthCheck, Arc<AtomicUsize>) {
        let runs = Arc::new(AtomicUsize::new(0));
        let counter = runs.clone();
        let check = HealthCheck::new("slow", move || {
            counter.fetch_add(1, Ordering::Relaxed);
            let result = result.clone();
            async move {
                sleep(Duration::from_secs(1)).await;
                result
            }
        });
        (check, runs)
    }

    /// Each anonymous `/readyz` used to read storage.
    #[tokio::test(start_paused = true)]
    async fn probes_share_runs_and_recent_successes() {
        for result in [Ok(()), Err("no response".to_owned())] {
            let (check, runs) = slow(result.clone());
            let results = join_all((0..1000).map(|_| check.run())).await;
            assert!(results.iter().all(|each| *each == result));
            assert_eq!(runs.load(Ordering::Relaxed), 1);
            // After a failure the next probe runs the check again.
            advance(SUCCESS_VALID_FOR - Duration::from_millis(1)).await;
            assert_eq!(check.clone().run().await, result);
            let expected = if result.is_ok() { 1 } else { 2 };
            assert_eq!(runs.load(Ordering::Relaxed), expected);
            advance(Duration::from_millis(1)).await;
            assert_eq!(check.run().await, result);
            assert_eq!(runs.load(Ordering::Relaxed), expected + 1);
        }
    }

    /// If the probes disconnect, the run ends too: the next probe must not get a result of long ago.
    #[tokio::test(start_paused = true)]
    async fn a_run_without_probes_ends() {
        let (check, runs) = slow(Ok(()));
        let disconnected = timeout(Duration::from_millis(500), check.run()).await;
        disconnected.expect_err("the check takes a second");
        advance(Duration::from_secs(60)).await;
        check.run().await.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_has_a_time_limit() {
        let check = HealthCheck::new("stuck", std::future::pending);
        let started = Instant::now();
        assert_eq!(check.run().await, Err("no response within 2s".to_owned()));
        assert_eq!(started.elapsed(), CHECK_TIMEOUT);
    }
}
