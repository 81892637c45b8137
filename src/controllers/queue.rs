//! A work queue: the keys that a controller has to look at. It dedupes, keeps a key from being looked
//! at twice at once, and lets one that failed wait longer each time. What is done about a key is the
//! controller's business.
//!
//! # Invariants
//!
//! 1. A key that is added is handed out at least once after that, never twice at the same time.
//! 2. It holds a key once, however often it is added: its size is bounded by how many there are.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::WorkQueueMetrics;

/// How long a key waits after it failed: the first time, and at most. Each time it is twice as long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pauses {
    pub(super) first: Duration,
    pub(super) max: Duration,
}

impl Pauses {
    /// After so many failures in a row, of which there is one at least.
    fn after(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        (self.first * (1 << doublings)).min(self.max)
    }
}

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

/// The keys that wait. One task takes them, any may add.
#[derive(Debug)]
pub(super) struct WorkQueue<K> {
    keys: Mutex<Keys<K>>,
    /// A key may be ready, or ready earlier than the one that was waited for.
    news: Notify,
    pauses: Pauses,
    metrics: Arc<WorkQueueMetrics>,
}

#[derive(Debug)]
struct Keys<K> {
    ready: VecDeque<K>,
    /// In `ready`, or to be put there when it is no longer busy.
    wanted: HashSet<K>,
    /// Handed out and not yet given back.
    busy: HashSet<K>,
    /// By when they are ready; the number tells apart those of one moment.
    later: BTreeMap<(Instant, u64), K>,
    /// Where in `later` a key is.
    when: HashMap<K, (Instant, u64)>,
    failures: HashMap<K, u32>,
    number: u64,
}

impl<K: Clone + Eq + Hash + Debug> Keys<K> {
    /// Whether that was news.
    fn add(&mut self, key: K) -> bool {
        if !self.wanted.insert(key.clone()) {
            return false;
        }
        if let Some(place) = self.when.remove(&key) {
            self.later.remove(&place);
        }
        if !self.busy.contains(&key) {
            self.ready.push_back(key);
        }
        true
    }

    fn add_at(&mut self, key: K, at: Instant) {
        if self.wanted.contains(&key) {
            return;
        }
        if let Some(earlier) = self.when.get(&key).copied() {
            if earlier.0 <= at {
                return;
            }
            self.later.remove(&earlier);
        }
        self.number += 1;
        self.later.insert((at, self.number), key.clone());
        self.when.insert(key, (at, self.number));
    }

    /// The next that is ready at `now`, else when the next one will be.
    fn take(&mut self, now: Instant) -> Result<K, Option<Instant>> {
        while let Some(first) = self.later.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            self.when.remove(&key);
            self.add(key);
        }
        match self.ready.pop_front() {
            Some(key) => {
                self.wanted.remove(&key);
                self.busy.insert(key.clone());
                Ok(key)
            }
            None => Err(self.later.first_key_value().map(|((at, _), _)| *at)),
        }
    }
}

impl<K: Clone + Eq + Hash + Debug> WorkQueue<K> {
    /// An empty one.
    pub(super) fn new(pauses: Pauses, metrics: Arc<WorkQueueMetrics>) -> Self {
        Self {
            keys: Mutex::new(Keys {
                ready: VecDeque::new(),
                wanted: HashSet::new(),
                busy: HashSet::new(),
                later: BTreeMap::new(),
                when: HashMap::new(),
                failures: HashMap::new(),
                number: 0,
            }),
            news: Notify::new(),
            pauses,
            metrics,
        }
    }

    /// Has `key` looked at soon, also when it is being looked at just now.
    pub(super) fn add(&self, key: K) {
        let mut keys = self.keys.lock();
        if keys.add(key) {
            self.metrics.adds.inc();
        }
        self.tell(&keys);
        drop(keys);
        self.news.notify_one();
    }

    /// Has `key` looked at after this time, or earlier if it is added meanwhile.
    pub(super) fn add_after(&self, key: K, wait: Duration) {
        self.keys.lock().add_at(key, Instant::now() + wait);
        self.news.notify_one();
    }

    /// The next key; it has to be given back by [`Self::done`]. Cancel safe. For one taker.
    pub(super) async fn next(&self) -> K {
        loop {
            let later = {
                let mut keys = self.keys.lock();
                let taken = keys.take(Instant::now());
                self.tell(&keys);
                match taken {
                    Ok(key) => return key,
                    Err(later) => later,
                }
            };
            let later = async {
                match later {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // News first: they may make waiting needless.
            tokio::select! {
                biased;
                () = self.news.notified() => {}
                () = later => {}
            }
        }
    }

    /// Gives back a key, and says what is to become of it.
    pub(super) fn done(&self, key: K, next: Next) {
        let mut keys = self.keys.lock();
        keys.busy.remove(&key);
        if next != Next::Again {
            keys.failures.remove(&key);
        }
        match next {
            _ if keys.wanted.contains(&key) => keys.ready.push_back(key),
            Next::Done => {}
            Next::After(wait) => keys.add_at(key, Instant::now() + wait),
            Next::Again => {
                let failures = keys.failures.entry(key.clone()).or_default();
                *failures = failures.saturating_add(1);
                let pause = self.pauses.after(*failures);
                keys.add_at(key, Instant::now() + pause);
                self.metrics.retries.inc();
            }
        }
        self.tell(&keys);
        drop(keys);
        self.news.notify_one();
    }

    fn tell(&self, keys: &Keys<K>) {
        self.metrics.depth.set(keys.ready.len() as i64);
    }

    /// Whether nothing waits and nothing is being looked at.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let keys = self.keys.lock();
        keys.ready.is_empty() && keys.busy.is_empty() && keys.later.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    const PAUSES: Pauses = Pauses {
        first: Duration::from_millis(10),
        max: Duration::from_millis(35),
    };

    fn queue() -> WorkQueue<&'static str> {
        WorkQueue::new(PAUSES, Metrics::new().work_queue("test"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_handed_out_once_however_often_it_is_added() {
        let queue = queue();
        queue.add("a");
        queue.add("b");
        queue.add("a");
        assert_eq!(queue.metrics.depth.get(), 2);
        assert_eq!((queue.next().await, queue.next().await), ("a", "b"));
        queue.done("a", Next::Done);
        queue.done("b", Next::Done);
        assert!(queue.is_idle());
        assert_eq!(queue.metrics.adds.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_while_it_is_busy_comes_again_and_not_at_once() {
        let queue = queue();
        queue.add("a");
        assert_eq!(queue.next().await, "a");
        queue.add("a");
        let early = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        early.expect_err("it is being looked at");
        queue.done("a", Next::After(Duration::from_secs(9)));
        assert_eq!(queue.next().await, "a");
        queue.done("a", Next::Done);
        assert!(queue.is_idle(), "the later look was taken for the sooner");
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_waits_longer_each_time_until_it_succeeds() {
        let queue = queue();
        queue.add("a");
        let start = Instant::now();
        for wait in [0, 10, 20, 35, 35] {
            let before = Instant::now();
            let key = queue.next().await;
            assert_eq!(before.elapsed().as_millis(), wait, "{:?}", start.elapsed());
            queue.done(key, Next::Again);
        }
        assert_eq!(queue.metrics.retries.get(), 5);
        let key = queue.next().await;
        queue.done(key, Next::Done);
        queue.add("a");
        let key = queue.next().await;
        queue.done(key, Next::Again);
        let before = Instant::now();
        assert_eq!(queue.next().await, "a");
        assert_eq!(before.elapsed().as_millis(), 10, "it has been forgiven");
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_of_several_times_counts() {
        let queue = queue();
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(2));
        queue.add_after("a", Duration::from_secs(9));
        queue.add_after("b", Duration::from_secs(1));
        let start = Instant::now();
        assert_eq!(queue.next().await, "b");
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed(), Duration::from_secs(2));
        queue.done("a", Next::Done);
        queue.done("b", Next::Done);
        assert!(queue.is_idle());
    }
}
