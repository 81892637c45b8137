//! The state that the cluster's handle, its task and its connections share.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;
use watchet_tasks::Tasks;

use super::state::State;

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) changed: Notify,
    pub(super) started: Instant,
    pub(super) tasks: Tasks,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the state and does what has become due.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let now = Instant::now();
        let mut state = self.state.lock();
        let result = change(&mut state, now);
        state.advance(now);
        self.changed.notify_one();
        result
    }

    /// Sends a line of the trace to the observer.
    pub(super) fn trace(&self, line: impl FnOnce() -> String) {
        let observer = self.state.lock().config.observer.clone();
        if let Some(observer) = observer {
            observer(&format!("{:?} {}", self.started.elapsed(), line()));
        }
    }
}

/// Advances the state whenever something is due.
pub(super) async fn drive(shared: Arc<Shared>) {
    loop {
        let due = {
            let now = Instant::now();
            let mut state = shared.lock();
            state.advance(now);
            state.next_due(now)
        };
        let sleep = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        // A change first: it may have moved the time.
        tokio::select! {
            biased;
            () = shared.changed.notified() => {}
            () = sleep => {}
        }
    }
}
