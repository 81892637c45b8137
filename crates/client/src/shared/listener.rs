//! `Listener`: the pending notifications of one handler, and the task that calls it.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::pending::{EXACT_MAX, Ordinal, Pending};
use super::synced::{InformerSynced, Progress};
use crate::{KubeObject, Notification, ResourceEventHandler};
use watchet_metrics::{Counter, Gauge};

/// The metrics of one handler.
#[derive(Debug, Default)]
pub struct HandlerMetrics {
    /// The number of pending notifications; of pending objects, if notifications are merged.
    pub pending: Gauge,
    /// Completed calls.
    pub delivered: Counter,
    /// Received notifications, before merging.
    pub received: Counter,
}

#[derive(Debug)]
pub(super) struct Listener<T> {
    state: Mutex<State<T>>,
    /// Notified when something is pending. Only the listener's own task waits for it.
    notify: Notify,
    progress: Progress,
    metrics: Arc<HandlerMetrics>,
    removed: CancellationToken,
}

#[derive(Debug)]
struct State<T> {
    pending: Pending<T>,
    /// Set once the source is synced: the handler is synced when it has processed everything before
    /// this.
    barrier: Option<Ordinal>,
    /// Whether a call is in progress.
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
            notify: Notify::new(),
            progress: Progress::default(),
            metrics: Arc::default(),
            removed: CancellationToken::new(),
        }
    }

    pub(super) fn metrics(&self) -> &Arc<HandlerMetrics> {
        &self.metrics
    }

    pub(super) fn synced(&self) -> InformerSynced {
        self.progress.subscribe()
    }

    /// Queues a notification; does not wait.
    pub(super) fn add(&self, notification: Notification<T>) {
        {
            let mut state = self.state.lock();
            if state.ended {
                return;
            }
            state.pending.push(notification);
            self.metrics.received.inc();
            self.measure(&state);
        }
        self.notify.notify_one();
    }

    /// Records that the source's first list was queued completely.
    pub(super) fn source_synced(&self) {
        let mut state = self.state.lock();
        state.barrier = Some(state.pending.next());
        self.check_progress(&state);
    }

    /// Ends the listener; a call in progress is completed.
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

    /// Calls `handler` until `stop`, or until the listener is ended. A call in progress is
    /// completed.
    pub(super) async fn run<H: ResourceEventHandler<T>>(
        &self,
        mut handler: H,
        stop: CancellationToken,
    ) {
        // Also if the handler panics, to release pending notifications.
        let _ended = EndOnDrop(self);
        loop {
            // Biased: stopping comes before further calls.
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
            // Yields to other tasks if the handler never waits.
            tokio::task::consume_budget().await;
        }
    }

    /// Returns the next notification. Cancel safe: it returns as soon as it has taken one.
    async fn next(&self) -> Notification<T> {
        loop {
            if let Some(notification) = self.take() {
                return notification;
            }
            self.notify.notified().await;
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
        self.metrics.delivered.inc();
        let mut state = self.state.lock();
        state.calling = false;
        self.check_progress(&state);
    }

    fn check_progress(&self, state: &State<T>) {
        let Some(barrier) = state.barrier else { return };
        let reached = state
            .pending
            .oldest()
            .is_none_or(|oldest| oldest >= barrier);
        if reached && !state.calling && !state.ended {
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
