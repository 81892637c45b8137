//! Tasks with an owner: the one place that spawns. A task has a name, a parent and a cancellation
//! token; whoever drains the parent waits for it. It holds no queue and knows no work of any room.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

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
}

/// Some tasks had not ended when the grace period was over.
#[derive(Debug, thiserror::Error)]
#[error("{count} task(s) still running after {grace:?}")]
pub struct DrainTimeout {
    /// How many.
    pub count: usize,
    /// How long they were given.
    pub grace: Duration,
}

impl Tasks {
    /// An empty group that nothing cancels but itself.
    pub fn new() -> Self {
        Self::default()
    }

    /// The token that is cancelled when the group is to stop.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// A group that stops with this one, or alone before it. Draining this one waits for its tasks.
    pub fn child(&self) -> Self {
        Self {
            tracker: self.tracker.clone(),
            token: self.token.child_token(),
        }
    }

    /// Runs `future` as a task of the group. It must end soon after [`Self::token`] is cancelled.
    #[allow(clippy::disallowed_methods, reason = "the one place that spawns")]
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let span = tracing::debug_span!("task", name);
        tokio::spawn(self.tracker.track_future(future.instrument(span)))
    }

    /// Runs blocking `work` on a thread of its own as a task of the group.
    #[allow(clippy::disallowed_methods, reason = "the one place that spawns")]
    pub fn spawn_blocking<F, T>(&self, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.tracker.spawn_blocking(work)
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
                count: self.tracker.len(),
                grace,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn draining_waits_for_children_and_names_what_hangs() {
        let tasks = Tasks::new();
        let token = tasks.child().token();
        tasks
            .child()
            .spawn("child", async move { token.cancelled().await });
        tasks.drain(Duration::from_secs(1)).await.unwrap();

        let tasks = Tasks::new();
        tasks.spawn("hangs", std::future::pending::<()>());
        let error = tasks.drain(Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(error.count, 1);
    }
}
