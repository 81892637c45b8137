//! `WorkQueue`: the keys that a controller has to process. It deduplicates keys, never returns a
//! key to two workers at the same time, and delays failed keys.
//!
//! # Invariants
//!
//! 1. A key that is added is returned by `get` at least once after that, and never twice
//!    concurrently.
//! 2. A key is at most once in the queue and at most once among the delayed ones, however often it
//!    is added: the size is bounded by the number of keys.

mod rate_limiter;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use rate_limiter::{Exponential, MaxOf, RateLimiter, TokenBucket};

use super::FOREVER;
use watchet_metrics::{Processing, WorkQueueMetrics};

/// A rate-limited queue of keys. Any task may add keys, and any number of workers may process them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use watchet_client::WorkQueue;
///
/// let queue = WorkQueue::default();
/// queue.add("shop/web");
/// queue.add("shop/web");
/// queue.shut_down();
/// while let Some(key) = queue.get().await {
///     let result: Result<(), String> = Ok(());
///     match result {
///         Ok(()) => queue.forget(&key),
///         Err(_) => queue.add_rate_limited(key),
///     }
///     queue.done(&key);
/// }
/// # }
/// ```
pub struct WorkQueue<K> {
    keys: Mutex<Keys<K>>,
    /// Notified when a key is ready or the state changes.
    notify: Notify,
    metrics: Arc<WorkQueueMetrics>,
}

struct Keys<K> {
    ready: VecDeque<K>,
    /// Keys in `ready`, or to be added there when done; with the time of the addition. (client-go's
    /// "dirty".)
    dirty: HashMap<K, Instant>,
    /// Keys that a worker is processing.
    processing: HashMap<K, Processing>,
    /// Delayed keys by due time; the number distinguishes equal times.
    later: BTreeMap<(Instant, u64), K>,
    /// The positions of keys in `later`.
    positions: HashMap<K, (Instant, u64)>,
    number: u64,
    /// The number of [`WorkQueue::add_rate_limited`] calls for a key since it was forgotten.
    requeues: HashMap<K, u32>,
    limiter: Box<dyn RateLimiter>,
    ending: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    NotYet,
    /// No more keys are accepted.
    ShutDown,
    /// As `ShutDown`, and a caller waits until all keys are done.
    Draining,
}

impl<K: Clone + Eq + Hash> Keys<K> {
    /// Adds a key; returns whether it was absent.
    fn add(&mut self, key: K) -> bool {
        if self.ending != Ending::NotYet || self.dirty.contains_key(&key) {
            return false;
        }
        self.dirty.insert(key.clone(), Instant::now());
        if !self.processing.contains_key(&key) {
            self.ready.push_back(key);
        }
        true
    }

    fn add_at(&mut self, key: K, at: Instant) {
        if let Some(earlier) = self.positions.get(&key).copied() {
            if earlier.0 <= at {
                return;
            }
            self.later.remove(&earlier);
        }
        self.number += 1;
        self.later.insert((at, self.number), key.clone());
        self.positions.insert(key, (at, self.number));
    }

    /// Adds the delayed keys that are due; returns how many were absent.
    fn add_due(&mut self, now: Instant) -> usize {
        let mut added = 0;
        while let Some(first) = self.later.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            self.positions.remove(&key);
            added += usize::from(self.add(key));
        }
        added
    }

    fn take(&mut self, metrics: &WorkQueueMetrics) -> Option<K> {
        let key = self.ready.pop_front()?;
        let added = self.dirty.remove(&key).expect("ready keys are dirty");
        self.processing.insert(key.clone(), metrics.begin(added));
        Some(key)
    }
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// Creates an empty queue; `limiter` determines the delay of failed keys.
    pub fn new(limiter: impl RateLimiter, metrics: Arc<WorkQueueMetrics>) -> Self {
        Self {
            keys: Mutex::new(Keys {
                ready: VecDeque::new(),
                dirty: HashMap::new(),
                processing: HashMap::new(),
                later: BTreeMap::new(),
                positions: HashMap::new(),
                number: 0,
                requeues: HashMap::new(),
                limiter: Box::new(limiter),
                ending: Ending::NotYet,
            }),
            notify: Notify::new(),
            metrics,
        }
    }

    /// Creates a queue with a name for metrics and client-go's default limits: per key 5 ms to
    /// 1,000 s, overall 10 retries per second with bursts of 100.
    pub fn named(name: &'static str) -> Self {
        let limiter = MaxOf::new([
            Box::new(Exponential::default()) as Box<dyn RateLimiter>,
            Box::new(TokenBucket::default()),
        ]);
        Self::new(limiter, Arc::new(WorkQueueMetrics::new(name)))
    }

    /// Returns the metrics, which [`InformerMetrics`](super::InformerMetrics) renders.
    pub fn metrics(&self) -> &Arc<WorkQueueMetrics> {
        &self.metrics
    }

    /// Adds `key`; if it is being processed, it is added again when done. No effect if it is queued
    /// already, or after shutdown.
    pub fn add(&self, key: K) {
        self.change(|keys| usize::from(keys.add(key)));
    }

    /// Adds `key` after a delay; if it is delayed already, the earlier time counts.
    pub fn add_after(&self, key: K, wait: Duration) {
        self.change(|keys| {
            if wait.is_zero() {
                return usize::from(keys.add(key));
            }
            if keys.ending == Ending::NotYet {
                keys.add_at(key, Instant::now() + wait.min(FOREVER));
            }
            0
        });
    }

    /// Adds `key` after a failure, with the delay of the rate limiter, which increases until
    /// [`Self::forget`].
    pub fn add_rate_limited(&self, key: K) {
        let wait = {
            let mut keys = self.keys.lock();
            let requeues = keys.requeues.entry(key.clone()).or_default();
            let before = *requeues;
            *requeues = requeues.saturating_add(1);
            keys.limiter.when(before)
        };
        self.metrics.retries.inc();
        self.add_after(key, wait);
    }

    /// Resets the failures of `key`, after success or when it is abandoned.
    pub fn forget(&self, key: &K) {
        self.keys.lock().requeues.remove(key);
    }

    /// Returns the number of failures of `key` since it was last forgotten.
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.keys.lock().requeues.get(key).copied().unwrap_or(0)
    }

    /// Returns the next key, which must be passed to [`Self::done`]; `None` after shutdown, once
    /// the queue is empty. Cancel safe.
    pub async fn get(&self) -> Option<K> {
        loop {
            // Registered before the check, so that no notification is missed.
            let notify = self.notify.notified();
            let later = {
                let mut keys = self.keys.lock();
                self.metrics.adds.add(keys.add_due(Instant::now()));
                let taken = keys.take(&self.metrics);
                self.update_depth(&keys);
                match taken {
                    Some(key) => return Some(key),
                    // Keys that are dirty while processing will be ready once more.
                    None if keys.ending == Ending::Draining && !keys.dirty.is_empty() => None,
                    None if keys.ending != Ending::NotYet => return None,
                    None => keys.later.first_key_value().map(|((at, _), _)| *at),
                }
            };
            let later = async {
                match later {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // Notifications first: they may make the timer unnecessary.
            tokio::select! {
                biased;
                () = notify => {}
                () = later => {}
            }
        }
    }

    /// Marks a key as done. If it was added meanwhile, it becomes ready again.
    pub fn done(&self, key: &K) {
        self.change(|keys| {
            if let Some(work) = keys.processing.remove(key) {
                self.metrics.finish(work);
                if keys.dirty.contains_key(key) {
                    keys.ready.push_back(key.clone());
                }
            }
            0
        });
    }

    /// Returns the number of ready keys.
    pub fn len(&self) -> usize {
        self.keys.lock().ready.len()
    }

    /// Returns true if no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shuts down: rejects new keys and drops delayed ones. Ready keys are still returned, then
    /// [`Self::get`] returns `None`. Also ends [`Self::shut_down_with_drain`].
    pub fn shut_down(&self) {
        self.end(Ending::ShutDown);
    }

    /// Shuts down and waits until all keys are done, for which workers must continue.
    pub async fn shut_down_with_drain(&self) {
        self.end(Ending::Draining);
        loop {
            // Registered before the check, so that no notification is missed.
            let notify = self.notify.notified();
            {
                let keys = self.keys.lock();
                let is_done = keys.ready.is_empty() && keys.processing.is_empty();
                if is_done || keys.ending != Ending::Draining {
                    return;
                }
            }
            notify.await;
        }
    }

    /// Returns true after a shutdown.
    pub fn is_shutting_down(&self) -> bool {
        self.keys.lock().ending != Ending::NotYet
    }

    fn end(&self, ending: Ending) {
        self.change(|keys| {
            keys.ending = ending;
            keys.later.clear();
            keys.positions.clear();
            0
        });
    }

    /// Applies a change, which returns the number of added keys, and notifies waiters.
    fn change(&self, change: impl FnOnce(&mut Keys<K>) -> usize) {
        let mut keys = self.keys.lock();
        self.metrics.adds.add(change(&mut keys));
        self.update_depth(&keys);
        drop(keys);
        self.notify.notify_waiters();
    }

    fn update_depth(&self, keys: &Keys<K>) {
        self.metrics.depth.set(keys.ready.len() as i64);
    }
}

/// [`WorkQueue::named`], without a name.
impl<K: Clone + Eq + Hash> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::named("")
    }
}

impl<K: fmt::Debug> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.keys.lock();
        f.debug_struct("WorkQueue")
            .field("ready", &keys.ready)
            .field("processing", &keys.processing.keys().collect::<Vec<_>>())
            .field("later", &keys.later)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
