//! `RevisionProbe`: which revision must a cache have reached to answer a consistent read? It asks
//! storage, once for all who asked before the question was put; it does not wait for the cache.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::api::ResourceVersion;
use crate::storage::{Storage, StorageError};
use crate::tasks::Tasks;

type Answer = Result<ResourceVersion, StorageError>;

/// Coalesced [`Storage::current_revision`].
#[derive(Debug)]
pub(super) struct RevisionProbe {
    storage: Arc<dyn Storage>,
    tasks: Tasks,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// A task is asking; it takes `waiting` before each question. Those in it came after the
    /// question that is under way, whose answer could be older than their arrival.
    asking: bool,
    waiting: Vec<oneshot::Sender<Answer>>,
}

impl RevisionProbe {
    pub(super) fn new(storage: Arc<dyn Storage>, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self {
            storage,
            tasks,
            inner: Mutex::default(),
        })
    }

    /// A revision that includes every write acknowledged before the call.
    pub(super) async fn current_revision(self: &Arc<Self>) -> Answer {
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
            // In a task of its own: the asker may be dropped, the others' answer must still come.
            self.tasks.spawn("revision probe", self.clone().ask());
        }
        receive.await.unwrap_or_else(|_| Err(shutting_down()))
    }

    async fn ask(self: Arc<Self>) {
        let stop = self.tasks.token();
        loop {
            let served = {
                let mut inner = self.inner.lock();
                if inner.waiting.is_empty() {
                    inner.asking = false;
                    return;
                }
                std::mem::take(&mut inner.waiting)
            };
            // Biased: an answer that is there is given, also at the end; but it is not waited for.
            let answer = tokio::select! {
                biased;
                answer = self.storage.current_revision() => answer,
                () = stop.cancelled() => Err(shutting_down()),
            };
            for asker in served {
                // An asker that was dropped meanwhile wants no answer.
                asker.send(answer.clone()).ok();
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

    /// A storage that does not answer once held up the flush at the end for longer than that may take.
    #[tokio::test(start_paused = true)]
    async fn a_stop_does_not_wait_for_an_answer() {
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
