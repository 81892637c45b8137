//! Tasks with an owner: the one place that spawns. A task has a name, a group and a cancellation
//! token; whoever drains the group waits for it, and hears of it when it panics. It holds no queue and
//! knows no work of any room.

mod on_call;

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

pub use on_call::{Bell, OnCall};

/// A group of tasks that stop and drain together. Clones are the same group.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use watchet::tasks::Tasks;
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
    known: Arc<Known>,
}

/// Some tasks had not ended when the grace period was over.
#[derive(Debug, thiserror::Error)]
#[error("still running after {grace:?}: {}", tasks.join(", "))]
pub struct DrainTimeout {
    /// Which, by name; those that share one with their number.
    pub tasks: Vec<String>,
    /// How long they were given.
    pub grace: Duration,
}

/// A task panicked, which is a bug: what it did for the others is no longer done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the task {task:?} panicked: {message}")]
pub struct TaskFailed {
    /// Its name.
    pub task: &'static str,
    /// What it said.
    pub message: String,
}

/// What a group knows of its tasks.
#[derive(Debug, Default)]
struct Known {
    /// How many run under each name.
    running: Mutex<BTreeMap<&'static str, usize>>,
    /// The first that panicked.
    failed: watch::Sender<Option<TaskFailed>>,
}

/// What hyper wants run beside the requests of a connection, as tasks of the group: they end with the
/// connection, and what fails is told to whoever waits for an answer.
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
    /// An empty group that nothing cancels but itself.
    pub fn new() -> Self {
        Self::default()
    }

    /// A part of the group that can be told to stop by itself, and stops with the group, which alone
    /// is drained.
    pub fn child(&self) -> Self {
        Self {
            token: self.token.child_token(),
            ..self.clone()
        }
    }

    /// The token that is cancelled when the group is to stop.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Runs `future` as a task of the group. It must end soon after [`Self::token`] is cancelled. A
    /// panic is logged, told to [`Self::failed`] and passed on to the handle.
    #[allow(clippy::disallowed_methods, reason = "the one place that spawns")]
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let span = tracing::debug_span!("task", name);
        let running = Running::enter(&self.known, name);
        let task = async move {
            // Unwind safety: nobody looks at what the future leaves behind but those whom `failed`
            // tells that it cannot be trusted.
            let result = AssertUnwindSafe(future).catch_unwind().await;
            running.ended_with(result)
        };
        tokio::spawn(self.tracker.track_future(task.instrument(span)))
    }

    /// Runs blocking `work` on a thread of its own as a task of the group.
    #[allow(clippy::disallowed_methods, reason = "the one place that spawns")]
    pub fn spawn_blocking<F, T>(&self, name: &'static str, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let running = Running::enter(&self.known, name);
        // Unwind safety: as in `spawn`.
        let task = move || running.ended_with(catch_unwind(AssertUnwindSafe(work)));
        self.tracker.spawn_blocking(task)
    }

    /// Waits until a task of the group has panicked: for ever, if all is well. Cancel safe.
    pub async fn failed(&self) -> TaskFailed {
        let mut failed = self.known.failed.subscribe();
        let first = failed.wait_for(Option::is_some).await;
        first
            .ok()
            .and_then(|failed| failed.clone())
            .expect("the sender lives in `self`, and it was waited for")
    }

    /// Tells every task of the group to stop.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Cancels the group and waits until its tasks have ended.
    ///
    /// # Errors
    /// [`DrainTimeout`] when some still run after `grace`.
    pub async fn drain(&self, grace: Duration) -> Result<(), DrainTimeout> {
        self.cancel();
        self.tracker.close();
        tokio::time::timeout(grace, self.tracker.wait())
            .await
            .map_err(|_| DrainTimeout {
                tasks: self.known.names(),
                grace,
            })
    }
}

impl Known {
    fn names(&self) -> Vec<String> {
        let running = self.running.lock();
        let name = |(name, count): (&&str, &usize)| match count {
            1 => (*name).to_owned(),
            count => format!("{name} ({count} of them)"),
        };
        running.iter().map(name).collect()
    }
}

/// A task under its name, until it is dropped.
struct Running {
    known: Arc<Known>,
    name: &'static str,
}

impl Running {
    fn enter(known: &Arc<Known>, name: &'static str) -> Self {
        *known.running.lock().entry(name).or_default() += 1;
        Self {
            known: known.clone(),
            name,
        }
    }

    /// The result of the task, or its panic once more.
    fn ended_with<T>(self, result: Result<T, Box<dyn Any + Send>>) -> T {
        let panic = match result {
            Ok(output) => return output,
            Err(panic) => panic,
        };
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a message");
        let failed = TaskFailed {
            task: self.name,
            message: message.to_owned(),
        };
        tracing::error!(
            task = failed.task,
            panic = failed.message,
            "a task panicked"
        );
        self.known.failed.send_if_modified(|first| {
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
        let mut running = self.known.running.lock();
        let count = running.get_mut(self.name).expect("it was entered");
        *count -= 1;
        if *count == 0 {
            running.remove(self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn draining_waits_for_every_task() {
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

    #[tokio::test(start_paused = true)]
    async fn draining_names_what_hangs() {
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

    /// The Reflector's task went down once, and the process served a cache that stood still.
    #[tokio::test(start_paused = true)]
    async fn a_panic_is_told_by_the_name_of_its_task() {
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
}
