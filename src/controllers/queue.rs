//! What becomes of a key that a controller looked at, in the words of the client library's [`WorkQueue`],
//! where the keys wait. What a look finds and does is the controller's.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

pub(super) use crate::informer::{Exponential as Pauses, WorkQueue};

/// What becomes of a key that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// There is nothing to do until it is added again.
    Done,
    /// It is looked at again after this time.
    After(Duration),
    /// It is looked at again, later each time.
    Again,
}

impl Next {
    /// Gives back a key to its queue.
    pub(super) fn settle<K: Clone + Eq + Hash + Debug>(self, queue: &WorkQueue<K>, key: K) {
        match self {
            Self::Done => queue.forget(&key),
            Self::After(wait) => {
                queue.forget(&key);
                queue.add_after(key.clone(), wait);
            }
            Self::Again => queue.add_rate_limited(key.clone()),
        }
        queue.done(&key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::metrics::WorkQueueMetrics;

    const PAUSES: Pauses = Pauses {
        first: Duration::from_millis(10),
        max: Duration::from_secs(1),
    };

    #[tokio::test(start_paused = true)]
    async fn what_becomes_of_a_key() {
        let metrics = Arc::new(WorkQueueMetrics::new("test"));
        let queue = WorkQueue::new(PAUSES, metrics.clone());
        queue.add("a");
        let steps = [
            (0, Next::Again),
            (10, Next::Again),
            (20, Next::After(Duration::from_secs(9))),
            (9_000, Next::Again),
            (10, Next::After(Duration::ZERO)),
            (0, Next::Done),
        ];
        for (wait, next) in steps {
            let before = Instant::now();
            let key = queue.get().await.expect("it is not shut down");
            assert_eq!(before.elapsed().as_millis(), wait, "before {next:?}");
            next.settle(&queue, key);
        }
        assert_eq!(queue.num_requeues(&"a"), 0);
        assert_eq!((metrics.adds.get(), metrics.retries.get()), (6, 3));
        let more = tokio::time::timeout(Duration::from_secs(99), queue.get()).await;
        more.expect_err("it is done");
    }
}
