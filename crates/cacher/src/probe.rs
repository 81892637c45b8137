//! `RevisionProbe`: reads the revision that a cache must reach to answer a consistent read. One
//! request to storage serves all callers that arrived before it was sent.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use watchet_api::ResourceVersion;
#[cfg(feature = "planted-bugs")]
use watchet_api::planted_bug::{PlantedBug, is_planted};
use watchet_storage::{Storage, StorageError};
use watchet_tasks::Tasks;

type ProbeResult = Result<ResourceVersion, StorageError>;

/// Coalesced [`Storage::current_revision`].
#[derive(Debug)]
pub(super) struct RevisionProbe {
    storage: Arc<dyn Storage>,
    tasks: Tasks,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Whether a task is asking storage. It takes `waiting` before each request. Callers in `waiting`
    /// arrived after the current request was sent, so its response may be too old for them.
    asking: bool,
    waiting: Vec<oneshot::Sender<ProbeResult>>,
}

impl RevisionProbe {
    pub(super) fn new(storage: Arc<dyn Storage>, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self {
            storage,
            tasks,
            inner: Mutex::default(),
        })
    }

    /// Returns a revision that includes every write acknowledged before the call.
    pub(super) async fn current_revision(self: &Arc<Self>) -> ProbeResult {
        if let Some(known) = self.storage.known_revision() {
            return known;
        }
        let (send, receive) = oneshot::channel();
        let start = {
            let mut inner = self.inner.lock();
            inner.waiting.push(send);
            !std::mem::replace(&mut inner.asking, true)
        };
        if start {
            // Runs in its own task, because dropping one caller must not cancel the request of the
            // others.
            self.tasks
                .spawn("revision probe", self.clone().send_requests());
        }
        receive.await.unwrap_or_else(|_| Err(shutting_down()))
    }

    async fn send_requests(self: Arc<Self>) {
        let stop = self.tasks.token();
        loop {
            // Yields once, so that requests already queued on the runtime share this call to storage.
            tokio::task::yield_now().await;
            let served = {
                let mut inner = self.inner.lock();
                if inner.waiting.is_empty() {
                    inner.asking = false;
                    return;
                }
                std::mem::take(&mut inner.waiting)
            };
            // Biased: a response that is ready is delivered even at shutdown.
            let answer = tokio::select! {
                biased;
                answer = self.storage.current_revision() => answer,
                () = stop.cancelled() => Err(shutting_down()),
            };
            // Callers that arrived after the request was sent are served by it, too.
            #[cfg(feature = "planted-bugs")]
            let served = match is_planted(PlantedBug::ProbeAlreadySent) {
                true => {
                    let later = std::mem::take(&mut self.inner.lock().waiting);
                    served.into_iter().chain(later).collect()
                }
                false => served,
            };
            for sender in served {
                // The receiver may have been dropped.
                sender.send(answer.clone()).ok();
            }
        }
    }
}

fn shutting_down() -> StorageError {
    StorageError::Unavailable("shutting down".into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{FakeStorage, Silent};
    use super::*;

    /// A storage that does not respond must not delay shutdown.
    #[tokio::test(start_paused = true)]
    async fn shutdown_does_not_wait_for_a_response() {
        let tasks = Tasks::new();
        let silent = Silent {
            probes: true,
            ..Silent::over(FakeStorage::new())
        };
        let probe = RevisionProbe::new(Arc::new(silent), tasks.clone());
        let stop = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            tasks.drain(Duration::from_secs(1)).await.unwrap();
        };
        let (first, second, ()) =
            tokio::join!(probe.current_revision(), probe.current_revision(), stop);
        for answer in [first, second] {
            assert!(
                matches!(answer, Err(StorageError::Unavailable(_))),
                "{answer:?}"
            );
        }
    }
}
