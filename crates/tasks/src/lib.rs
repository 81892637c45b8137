//! Task groups: the only crate that spawns tasks. A task has a name, a group and a cancellation token;
//! draining a group waits for its tasks, and a panic is reported to the group.

mod blocking_polls;
mod coarse_clock;
mod inline_blocking;
mod panics;
mod poll_on_wake;
mod slow_work;

use std::any::Any;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use watchet_metrics::TaskMetrics;

pub use inline_blocking::run_blocking_work_inline;
pub use panics::panic_message;
pub use poll_on_wake::{PollOnWake, WakeFlag};
pub use slow_work::report_slow;

/// A group of tasks that are cancelled and drained together. Clones share the group.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use watchet_tasks::Tasks;
/// let tasks = Tasks::new();
/// let token = tasks.token();
/// tasks.spawn("waits", async move { token.cancelled().await });
/// assert!(tasks.drain(Duration::from_secs(1)).await.is_ok());
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    token: CancellationToken,
    state: Arc<GroupState>,
}

/// Some tasks were still running after the grace period.
#[derive(Debug, thiserror::Error)]
#[error("still running after {grace:?}: {}", tasks.join(", "))]
pub struct DrainTimeout {
    /// The names of the tasks, with their number if there are several.
    pub tasks: Vec<String>,
    /// The grace period.
    pub grace: Duration,
}

/// A task panicked, which is a bug.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the task {task:?} panicked: {message}")]
pub struct TaskFailed {
    /// The task's name.
    pub task: &'static str,
    /// The panic message.
    pub message: String,
}

/// The state of a group.
#[derive(Debug, Default)]
struct GroupState {
    /// The number of running tasks by name.
    running: Mutex<BTreeMap<&'static str, usize>>,
    /// The first task that panicked.
    failed: watch::Sender<Option<TaskFailed>>,
    /// Records long polls; `None` outside of a server.
    metrics: Option<Arc<TaskMetrics>>,
}

/// Runs hyper's connection futures as tasks of the group.
impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let token = self.token();
        let task = async move { token.run_until_cancelled_owned(future).await };
        drop(self.spawn("http-connection", task));
    }
}

impl Tasks {
    /// Returns an empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty group that records long polls of its tasks in `metrics`.
    pub fn with_metrics(metrics: &Arc<TaskMetrics>) -> Self {
        let state = GroupState {
            metrics: Some(metrics.clone()),
            ..GroupState::default()
        };
        Self {
            state: Arc::new(state),
            ..Self::default()
        }
    }

    /// Returns a subgroup that can be cancelled by itself and is cancelled and drained with its
    /// parent.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            token: self.token.child_token(),
            ..self.clone()
        }
    }

    /// Returns the token that is cancelled when the group should stop.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Spawns `future` as a task of the group. It must end soon after [`Self::token`] is cancelled.
    /// A panic is logged, reported by [`Self::failed`] and propagated to the handle.
    #[allow(clippy::disallowed_methods, reason = "the one place that spawns")]
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let span = tracing::debug_span!("task", name);
        let running = Running::enter(&self.state, name);
        let task = async move {
            // Unwind safety: the state of a panicked future is observed only by tasks that learn of
            // the failure from `failed`.
            let mut future = pin!(AssertUnwindSafe(future).catch_unwind());
            let result = poll_fn(|cx| match &running.state.metrics {
                Some(metrics) => {
                    let began = coarse_clock::now();
                    let polled = future.as_mut().poll(cx);
                    metrics.observe_poll(name, coarse_clock::now().saturating_sub(began));
                    polled
                }
                None => future.as_mut().poll(cx),
            });
            let result = result.await;
            running.ended_with(result)
        };
        tokio::spawn(self.tracker.track_future(task.instrument(span)))
    }

    /// Runs blocking `work` on its own thread as a task of the group.
    #[allow(clippy::disallowed_methods, reason = "the one place that spawns")]
    pub fn spawn_blocking<F, T>(&self, name: &'static str, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let running = Running::enter(&self.state, name);
        // Unwind safety: as in `spawn`.
        let task = move || running.ended_with(catch_unwind(AssertUnwindSafe(work)));
        if inline_blocking::is_enabled() {
            return tokio::spawn(self.tracker.track_future(async move { task() }));
        }
        self.tracker.spawn_blocking(task)
    }

    /// Waits until a task of the group has panicked. Cancel safe.
    pub async fn failed(&self) -> TaskFailed {
        let mut failed = self.state.failed.subscribe();
        let first = failed.wait_for(Option::is_some).await;
        first
            .ok()
            .and_then(|failed| failed.clone())
            .expect("`self` owns the sender, and `wait_for` returned a failure")
    }

    /// Cancels every task of the group.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Cancels the group and waits until its tasks have ended.
    ///
    /// # Errors
    /// Returns [`DrainTimeout`] if tasks are still running after `grace`.
    pub async fn drain(&self, grace: Duration) -> Result<(), DrainTimeout> {
        self.cancel();
        self.tracker.close();
        tokio::time::timeout(grace, self.tracker.wait())
            .await
            .map_err(|_| DrainTimeout {
                tasks: self.state.names(),
                grace,
            })
    }

    /// Logs and counts a panic that the caller has caught. It ended only a part of a task, which is named `task` in the log
    /// and the metric, so it is no failure of the group.
    pub fn record_panic(&self, task: &'static str, panic: &(dyn Any + Send)) {
        self.state.record_panic(task, panic);
    }
}

impl GroupState {
    fn record_panic(&self, task: &'static str, panic: &(dyn Any + Send)) {
        panics::record_panic(self.metrics.as_deref(), task, panic);
    }

    fn names(&self) -> Vec<String> {
        let running = self.running.lock();
        let name = |(name, count): (&&str, &usize)| match count {
            1 => (*name).to_owned(),
            count => format!("{name} ({count} of them)"),
        };
        running.iter().map(name).collect()
    }
}

/// Counts a task under its name until it is dropped.
struct Running {
    state: Arc<GroupState>,
    name: &'static str,
}

impl Running {
    fn enter(state: &Arc<GroupState>, name: &'static str) -> Self {
        *state.running.lock().entry(name).or_default() += 1;
        Self {
            state: state.clone(),
            name,
        }
    }

    /// Returns the result of the task, or resumes its panic.
    fn ended_with<T>(self, result: Result<T, Box<dyn Any + Send>>) -> T {
        let panic = match result {
            Ok(output) => return output,
            Err(panic) => panic,
        };
        self.state.record_panic(self.name, &*panic);
        let failed = TaskFailed {
            task: self.name,
            message: panic_message(&*panic).to_owned(),
        };
        self.state.failed.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                *first = Some(failed);
            }
            is_first
        });
        drop(self);
        resume_unwind(panic)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = self.state.running.lock();
        let count = running
            .get_mut(self.name)
            .expect("the task was counted when it was spawned");
        *count -= 1;
        if *count == 0 {
            running.remove(self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use watchet_metrics::{Format, Metrics};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn drain_waits_for_every_task() {
        let tasks = Tasks::new();
        let ended = Arc::new(AtomicBool::new(false));
        let (token, done) = (tasks.token(), ended.clone());
        tasks.clone().spawn("cleans up", async move {
            token.cancelled().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            done.store(true, Ordering::SeqCst);
        });
        tasks.drain(Duration::from_secs(1)).await.unwrap();
        assert!(ended.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn long_polls_are_recorded_by_task() {
        let metrics = watchet_metrics::Metrics::new();
        let tasks = Tasks::with_metrics(metrics.tasks());
        let blocks = async { std::thread::sleep(Duration::from_millis(120)) };
        let waits = async { tokio::time::sleep(Duration::from_millis(120)).await };
        let aside =
            tasks.spawn_blocking("aside", || std::thread::sleep(Duration::from_millis(120)));
        let tasks = [
            tasks.child().spawn("blocks", blocks),
            tasks.spawn("waits", waits),
            aside,
        ];
        for task in tasks {
            task.await.unwrap();
        }
        let text = metrics.render(watchet_metrics::Format::Prometheus);
        let name = "watchet_task_long_poll_duration_seconds";
        let has = |sample: &str| text.contains(&format!("{name}{sample}"));
        assert!(has("_count{task=\"blocks\"} 1\n"), "{text}");
        assert!(has("_bucket{task=\"blocks\",le=\"0.1\"} 0\n"), "{text}");
        assert!(!text.contains("waits") && !text.contains("aside"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn drain_timeout_names_hanging_tasks() {
        let tasks = Tasks::new();
        let token = tasks.token();
        tasks.spawn("ends", async move { token.cancelled().await });
        for name in ["hangs", "hangs", "waits"] {
            tasks.spawn(name, std::future::pending::<()>());
        }
        let error = tasks.drain(Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "still running after 1s: hangs (2 of them), waits"
        );
    }

    /// A panic of the Reflector's task must be detected; otherwise the server would serve a stale
    /// cache.
    #[tokio::test(start_paused = true)]
    async fn panic_is_reported_with_the_name_of_its_task() {
        let tasks = Tasks::new();
        let quiet = tokio::time::timeout(Duration::from_secs(1), tasks.failed()).await;
        assert!(quiet.is_err(), "{quiet:?}");
        let panics = tasks.spawn("reflector", async {
            tokio::task::yield_now().await;
            panic!("revision {}", 7)
        });
        let failed = tasks.failed().await;
        assert_eq!(
            failed.to_string(),
            "the task \"reflector\" panicked: revision 7"
        );
        let passed_on: Result<(), _> = panics.await;
        assert!(passed_on.unwrap_err().is_panic());
        let blocking = tasks.spawn_blocking("list", || panic!("later"));
        let passed_on: Result<(), _> = blocking.await;
        assert!(passed_on.unwrap_err().is_panic());
        assert_eq!(tasks.clone().failed().await, failed, "the first counts");
        tasks.drain(Duration::from_secs(1)).await.unwrap();
    }
    /// A panic was only logged, and no alert can be made of a log.
    #[tokio::test]
    async fn panics_are_counted_by_task() {
        let metrics = Metrics::new();
        let tasks = Tasks::with_metrics(metrics.tasks());
        let panics = tasks.spawn("panics", async { panic!("{}", "on purpose") });
        let panicked = panics.await;
        let panic = panicked.map_err(|error| error.into_panic());
        let panic = panic.map(|()| "no panic").unwrap_err();
        assert_eq!(panic_message(&*panic), "on purpose");
        tasks.child().record_panic("part", &*panic);
        tasks.record_panic("part", &"text");
        let text = metrics.render(Format::Prometheus);
        for (task, count) in [("panics", 1), ("part", 2)] {
            let sample = format!("watchet_task_panics_total{{task=\"{task}\"}} {count}\n");
            assert!(text.contains(&sample), "{sample}: {text}");
        }
        assert_eq!(tasks.failed().await.task, "panics", "only that task failed");
    }
}
