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
        receive
            .await
            .unwrap_or_else(|_| Err(StorageError::Unavailable("shutting down".into())))
    }

    async fn ask(self: Arc<Self>) {
        loop {
            let served = {
                let mut inner = self.inner.lock();
                if inner.waiting.is_empty() {
                    inner.asking = false;
                    return;
                }
                std::mem::take(&mut inner.waiting)
            };
            let answer = self.storage.current_revision().await;
            for asker in served {
                // An asker that was dropped meanwhile wants no answer.
                asker.send(answer.clone()).ok();
            }
        }
    }
}
