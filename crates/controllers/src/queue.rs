//! The result of a reconcile, applied to the [`WorkQueue`] of the client library.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

pub(super) use watchet_client::{Exponential as Pauses, WorkQueue};

/// The result of a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The key is done until it is added again.
    Done,
    /// The key is added again after this time.
    After(Duration),
    /// The key is added again with backoff.
    Again,
}

impl Next {
    /// Returns a key to its queue.
    pub(super) fn apply<K: Clone + Eq + Hash + Debug>(self, queue: &WorkQueue<K>, key: K) {
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
    use watchet_metrics::WorkQueueMetrics;

    const PAUSES: Pauses = Pauses {
        first: Duration::from_millis(10),
        max: Duration::from_secs(1),
    };

    #[tokio::test(start_paused = true)]
    async fn results_are_applied_to_the_queue() {
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
            let key = queue.get().await.expect("the queue is not shut down");
            assert_eq!(before.elapsed().as_millis(), wait, "before {next:?}");
            next.apply(&queue, key);
        }
        assert_eq!(queue.num_requeues(&"a"), 0);
        assert_eq!((metrics.adds.get(), metrics.retries.get()), (6, 3));
        let more = tokio::time::timeout(Duration::from_secs(99), queue.get()).await;
        more.expect_err("the key is done");
    }
}
