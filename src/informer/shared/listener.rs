//! `Listener`: one handler's side of the processor: what it has yet to be told, and the task that tells
//! it. Which handlers there are, and what they are told, is the processor's business.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::pending::{EXACT_MAX, Ordinal, Pending};
use super::synced::{InformerSynced, Progress};
use crate::informer::{KubeObject, Notification, ResourceEventHandler};
use crate::metrics::{Counter, Gauge};

/// What one handler is measured by.
#[derive(Debug, Default)]
pub struct HandlerMetrics {
    /// Its lag: how many notifications it has yet to be told; of how many objects, when it is so far
    /// behind that those of the same object are told as one.
    pub pending: Gauge,
    /// Calls that have returned.
    pub told: Counter,
    /// Notifications that came for it, before any were folded.
    pub came: Counter,
}

#[derive(Debug)]
pub(super) struct Listener<T> {
    state: Mutex<State<T>>,
    /// Something is pending. Its only waiter is the listener's own task.
    news: Notify,
    progress: Progress,
    metrics: Arc<HandlerMetrics>,
    removed: CancellationToken,
}

#[derive(Debug)]
struct State<T> {
    pending: Pending<T>,
    /// Once the source is synced: the handler is when it was told all that came before this.
    barrier: Option<Ordinal>,
    /// A call is in progress.
    calling: bool,
    ended: bool,
}

impl<T: KubeObject> Listener<T> {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                pending: Pending::new(EXACT_MAX),
                barrier: None,
                calling: false,
                ended: false,
            }),
            news: Notify::new(),
            progress: Progress::default(),
            metrics: Arc::default(),
            removed: CancellationToken::new(),
        }
    }

    pub(super) fn metrics(&self) -> &Arc<HandlerMetrics> {
        &self.metrics
    }

    pub(super) fn synced(&self) -> InformerSynced {
        self.progress.told()
    }

    /// To be told when its turn comes. Waits for nobody.
    pub(super) fn add(&self, notification: Notification<T>) {
        {
            let mut state = self.state.lock();
            if state.ended {
                return;
            }
            state.pending.push(notification);
            self.metrics.came.inc();
            self.measure(&state);
        }
        self.news.notify_one();
    }

    /// All that the source had at first was added by now.
    pub(super) fn source_synced(&self) {
        let mut state = self.state.lock();
        state.barrier = Some(state.pending.next());
        self.check_progress(&state);
    }

    /// It is told nothing more, but for a call that is in progress.
    pub(super) fn end(&self) {
        {
            let mut state = self.state.lock();
            state.ended = true;
            state.pending.clear();
            self.measure(&state);
        }
        self.progress.end();
        self.removed.cancel();
    }

    /// Tells `handler` until `stop`, or until the listener was ended. A call in progress is finished.
    pub(super) async fn run<H: ResourceEventHandler<T>>(
        &self,
        mut handler: H,
        stop: CancellationToken,
    ) {
        // Also when the handler panics: nothing is kept for it then.
        let _ended = EndOnDrop(self);
        loop {
            // Biased: stopping comes before any more calls.
            let notification = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.removed.cancelled() => return,
                notification = self.next() => notification,
            };
            match notification {
                Notification::Added {
                    object,
                    is_in_initial_list,
                } => handler.on_add(object, is_in_initial_list).await,
                Notification::Updated { old, new } => handler.on_update(old, new).await,
                Notification::Deleted(deleted) => handler.on_delete(deleted).await,
            }
            self.returned();
            // A handler that never waits gives way to others now and then.
            tokio::task::consume_budget().await;
        }
    }

    /// Cancel safe: what it has taken it returns at once.
    async fn next(&self) -> Notification<T> {
        loop {
            if let Some(notification) = self.take() {
                return notification;
            }
            self.news.notified().await;
        }
    }

    fn take(&self) -> Option<Notification<T>> {
        let mut state = self.state.lock();
        let taken = state.pending.pop()?;
        state.calling = true;
        self.measure(&state);
        Some(taken)
    }

    fn returned(&self) {
        self.metrics.told.inc();
        let mut state = self.state.lock();
        state.calling = false;
        self.check_progress(&state);
    }

    fn check_progress(&self, state: &State<T>) {
        let Some(barrier) = state.barrier else { return };
        let told = state
            .pending
            .oldest()
            .is_none_or(|oldest| oldest >= barrier);
        if told && !state.calling && !state.ended {
            self.progress.sync();
        }
    }

    fn measure(&self, state: &State<T>) {
        let pending = i64::try_from(state.pending.len()).unwrap_or(i64::MAX);
        self.metrics.pending.set(pending);
    }
}

struct EndOnDrop<'a, T: KubeObject>(&'a Listener<T>);

impl<T: KubeObject> Drop for EndOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.end();
    }
}
