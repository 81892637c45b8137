//! `WorkQueue`: the keys that a controller has to look at. It dedupes, keeps a key from being looked at
//! twice at once, and lets one that failed wait longer each time. What is done about a key is the
//! controller's business.
//!
//! # Invariants
//!
//! 1. A key that is added is handed out at least once after that, never twice at the same time.
//! 2. It holds a key once among those that are to be looked at now, and once among those that wait for
//!    their time, however often it is added: its size is bounded by how many keys there are.

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
use crate::metrics::{Processing, WorkQueueMetrics};

/// The keys that a controller has to look at. Any task may add keys, and any number take them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use watchet::informer::WorkQueue;
///
/// let queue = WorkQueue::default();
/// queue.add("shop/web");
/// queue.add("shop/web");
/// queue.shut_down();
/// while let Some(key) = queue.get().await {
///     let looked_at: Result<(), String> = Ok(());
///     match looked_at {
///         Ok(()) => queue.forget(&key),
///         Err(_) => queue.add_rate_limited(key),
///     }
///     queue.done(&key);
/// }
/// # }
/// ```
pub struct WorkQueue<K> {
    keys: Mutex<Keys<K>>,
    /// Told to all who wait for a key, a time, or the end.
    news: Notify,
    metrics: Arc<WorkQueueMetrics>,
}

struct Keys<K> {
    ready: VecDeque<K>,
    /// In `ready`, or to be put there when it is no longer busy, and since when. (client-go's "dirty".)
    wanted: HashMap<K, Instant>,
    /// Handed out and not yet given back. (client-go's "processing".)
    busy: HashMap<K, Processing>,
    /// By when they are added; the number tells apart those of one moment.
    later: BTreeMap<(Instant, u64), K>,
    /// Where in `later` a key is.
    when: HashMap<K, (Instant, u64)>,
    number: u64,
    /// How often a key was added by [`WorkQueue::add_rate_limited`] since it was forgotten.
    requeues: HashMap<K, u32>,
    limiter: Box<dyn RateLimiter>,
    ending: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    NotYet,
    /// No key is added any more.
    ShutDown,
    /// The same, and somebody waits until all is done.
    Draining,
}

impl<K: Clone + Eq + Hash> Keys<K> {
    /// Whether that was news.
    fn add(&mut self, key: K) -> bool {
        if self.ending != Ending::NotYet || self.wanted.contains_key(&key) {
            return false;
        }
        self.wanted.insert(key.clone(), Instant::now());
        if !self.busy.contains_key(&key) {
            self.ready.push_back(key);
        }
        true
    }

    fn add_at(&mut self, key: K, at: Instant) {
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

    /// Adds those whose time has come; how many were news.
    fn ripen(&mut self, now: Instant) -> usize {
        let mut added = 0;
        while let Some(first) = self.later.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            self.when.remove(&key);
            added += usize::from(self.add(key));
        }
        added
    }

    fn take(&mut self, metrics: &WorkQueueMetrics) -> Option<K> {
        let key = self.ready.pop_front()?;
        let added = self.wanted.remove(&key).expect("what is ready is wanted");
        self.busy.insert(key.clone(), metrics.begin(added));
        Some(key)
    }
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// An empty one. How long a key waits that is added after a failure, the limiter says.
    pub fn new(limiter: impl RateLimiter, metrics: Arc<WorkQueueMetrics>) -> Self {
        Self {
            keys: Mutex::new(Keys {
                ready: VecDeque::new(),
                wanted: HashMap::new(),
                busy: HashMap::new(),
                later: BTreeMap::new(),
                when: HashMap::new(),
                number: 0,
                requeues: HashMap::new(),
                limiter: Box::new(limiter),
                ending: Ending::NotYet,
            }),
            news: Notify::new(),
            metrics,
        }
    }

    /// One that is called so where it is measured, with the limits that controllers of Kubernetes have: a
    /// key waits from 5 ms to 1,000 s, and all together are retried 10 times a second, or 100 at once.
    pub fn named(name: &'static str) -> Self {
        let limiter = MaxOf::new([
            Box::new(Exponential::default()) as Box<dyn RateLimiter>,
            Box::new(TokenBucket::default()),
        ]);
        Self::new(limiter, Arc::new(WorkQueueMetrics::new(name)))
    }

    /// What it counts; [`InformerMetrics`](super::InformerMetrics) tells it.
    pub fn metrics(&self) -> &Arc<WorkQueueMetrics> {
        &self.metrics
    }

    /// Has `key` looked at soon, and again if it is being looked at just now. Nothing happens when it
    /// waits already, or the queue is shut down.
    pub fn add(&self, key: K) {
        self.change(|keys| usize::from(keys.add(key)));
    }

    /// Adds `key` after this time, or at the earlier one for which it waits already.
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

    /// Adds `key`, about which something failed, when the rate limiter says so: later each time, until
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

    /// What was to be done about `key` is done, or given up: its next failure is a first one again.
    pub fn forget(&self, key: &K) {
        self.keys.lock().requeues.remove(key);
    }

    /// How often `key` was added after a failure since it was last forgotten.
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.keys.lock().requeues.get(key).copied().unwrap_or(0)
    }

    /// The next key, which has to be given back by [`Self::done`]. `None` when the queue is shut down and
    /// empty. Cancel safe.
    pub async fn get(&self) -> Option<K> {
        loop {
            // Before the look, so that what comes after it is heard.
            let news = self.news.notified();
            let later = {
                let mut keys = self.keys.lock();
                self.metrics.adds.add(keys.ripen(Instant::now()));
                let taken = keys.take(&self.metrics);
                self.tell(&keys);
                match taken {
                    Some(key) => return Some(key),
                    // What is busy and wanted again comes once more before the end.
                    None if keys.ending == Ending::Draining && !keys.wanted.is_empty() => None,
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
            // News first: they may make waiting needless.
            tokio::select! {
                biased;
                () = news => {}
                () = later => {}
            }
        }
    }

    /// Gives back a key that was looked at. When it was added meanwhile it comes again.
    pub fn done(&self, key: &K) {
        self.change(|keys| {
            if let Some(work) = keys.busy.remove(key) {
                self.metrics.finish(work);
                if keys.wanted.contains_key(key) {
                    keys.ready.push_back(key.clone());
                }
            }
            0
        });
    }

    /// How many keys are to be looked at now.
    pub fn len(&self) -> usize {
        self.keys.lock().ready.len()
    }

    /// Whether no key is to be looked at now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes no more keys and drops those that wait for their time. What is to be looked at now is still
    /// handed out, then [`Self::get`] says that there is nothing more. Ends the waiting of
    /// [`Self::shut_down_with_drain`].
    pub fn shut_down(&self) {
        self.end(Ending::ShutDown);
    }

    /// Shuts down, and waits until every key was looked at and given back. Somebody has to go on to do
    /// that.
    pub async fn shut_down_with_drain(&self) {
        self.end(Ending::Draining);
        loop {
            // Before the look, so that what comes after it is heard.
            let news = self.news.notified();
            {
                let keys = self.keys.lock();
                let is_done = keys.ready.is_empty() && keys.busy.is_empty();
                if is_done || keys.ending != Ending::Draining {
                    return;
                }
            }
            news.await;
        }
    }

    /// Whether it takes no more keys.
    pub fn is_shutting_down(&self) -> bool {
        self.keys.lock().ending != Ending::NotYet
    }

    fn end(&self, ending: Ending) {
        self.change(|keys| {
            keys.ending = ending;
            keys.later.clear();
            keys.when.clear();
            0
        });
    }

    /// Makes a change that adds so many keys as it says, and tells of it.
    fn change(&self, change: impl FnOnce(&mut Keys<K>) -> usize) {
        let mut keys = self.keys.lock();
        self.metrics.adds.add(change(&mut keys));
        self.tell(&keys);
        drop(keys);
        self.news.notify_waiters();
    }

    fn tell(&self, keys: &Keys<K>) {
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
            .field("busy", &keys.busy.keys().collect::<Vec<_>>())
            .field("later", &keys.later)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
