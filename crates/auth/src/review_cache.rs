//! `ReviewCache`: caches the results of reviews of tokens and requests. Concurrent calls with the same key share one
//! review; if the caller that runs it is cancelled, another caller starts it again.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// The digest of a review, by which its response is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReviewKey([u8; 32]);

impl ReviewKey {
    /// Returns the key of `texts`; different lists of texts have different keys.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut digest = Sha256::new();
        // The lengths separate the texts.
        for text in texts {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text);
        }
        Self(digest.finalize().into())
    }
}

/// A response and when it expires; empty while the review is in progress.
type Entry<R> = Arc<OnceCell<(R, Instant)>>;
type Entries<R> = HashMap<ReviewKey, Entry<R>>;

/// The maximum size of all responses in bytes. A response may have 1 MiB, and a malicious program can return a
/// different one for each review.
const BYTES_MAX: usize = 32 << 20;

/// Caches responses until they expire. The least recently used responses are evicted when there are too many, or when
/// they take more than 32 MiB.
pub struct ReviewCache<R> {
    generations: Mutex<Generations<R>>,
    /// The maximum number of responses in a generation.
    generation_max: usize,
    /// Returns the size of a response in bytes.
    size: fn(&R) -> usize,
}

/// The entries that were used since `old` was replaced, and those that were not.
struct Generations<R> {
    recent: Entries<R>,
    /// The size in bytes of the responses that were added to `recent`, including those that were removed since.
    recent_bytes: usize,
    old: Entries<R>,
}

impl<R> fmt::Debug for ReviewCache<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReviewCache").finish_non_exhaustive()
    }
}

impl<R: Clone> ReviewCache<R> {
    /// Creates a cache of at most `responses_max` responses, whose sizes in bytes `size` returns.
    ///
    /// # Panics
    /// If `responses_max` is less than 2.
    pub fn new(responses_max: usize, size: fn(&R) -> usize) -> Self {
        assert!(responses_max >= 2, "a cache of {responses_max} responses");
        Self {
            generations: Mutex::new(Generations {
                recent: Entries::new(),
                recent_bytes: 0,
                old: Entries::new(),
            }),
            generation_max: responses_max / 2,
            size,
        }
    }

    /// Returns the cached response for `key`. If there is none, calls `compute`, which returns the response and the
    /// time at which it expires. Cancel safe.
    pub async fn get_or_compute<F>(&self, key: ReviewKey, compute: impl FnOnce() -> F) -> R
    where
        F: Future<Output = (R, Instant)>,
    {
        let entry = self.entry(key);
        let mut is_computed = false;
        let computing = || {
            is_computed = true;
            compute()
        };
        let (response, until) = entry.get_or_init(computing).await;
        if *until <= Instant::now() {
            self.remove(key, &entry);
        } else if is_computed {
            self.count_bytes((self.size)(response));
        }
        response.clone()
    }

    /// Counts the size of a response that was computed after its entry was inserted.
    fn count_bytes(&self, bytes: usize) {
        let mut generations = self.generations.lock();
        generations.recent_bytes += bytes;
        if generations.recent_bytes > BYTES_MAX / 2 {
            generations.start();
        }
    }

    /// Removes `entry`, which has expired, unless another entry has replaced it: clients can influence the size of
    /// responses.
    fn remove(&self, key: ReviewKey, entry: &Entry<R>) {
        let mut generations = self.generations.lock();
        let Generations { recent, old, .. } = &mut *generations;
        for entries in [recent, old] {
            if entries
                .get(&key)
                .is_some_and(|present| Arc::ptr_eq(present, entry))
            {
                entries.remove(&key);
            }
        }
    }

    fn entry(&self, key: ReviewKey) -> Entry<R> {
        let mut generations = self.generations.lock();
        let now = Instant::now();
        let is_valid = |entry: &Entry<R>| entry.get().is_none_or(|(_, until)| *until > now);
        let recent = generations.recent.get(&key);
        if let Some(entry) = recent.filter(|entry| is_valid(entry)) {
            return Arc::clone(entry);
        }
        let entry = generations.old.remove(&key).filter(is_valid);
        let entry = entry.unwrap_or_default();
        let bytes = entry.get().map_or(0, |(response, _)| (self.size)(response));
        let is_full = generations.recent.len() >= self.generation_max;
        if is_full || generations.recent_bytes + bytes > BYTES_MAX / 2 {
            generations.start();
        }
        generations.recent_bytes += bytes;
        generations.recent.insert(key, Arc::clone(&entry));
        entry
    }
}

impl<R> Generations<R> {
    /// Starts a generation, and evicts the responses that were not used in the previous one.
    fn start(&mut self) {
        self.old = std::mem::take(&mut self.recent);
        self.recent_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    const RESPONSES_MAX: usize = 8;

    fn key(text: &str) -> ReviewKey {
        ReviewKey::new([text])
    }

    fn in_a_minute() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn keys_differ_by_texts() {
        let keys = [
            ReviewKey::new(["a"]),
            ReviewKey::new(["b"]),
            ReviewKey::new(["a", "b"]),
            ReviewKey::new(["ab"]),
            ReviewKey::new(["a", "b", ""]),
            ReviewKey::new([]),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[index + 1..].contains(key), "{index}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn responses_are_computed_once_until_they_expire() {
        let cache = ReviewCache::new(RESPONSES_MAX, |_| 1);
        let count = AtomicUsize::new(0);
        let get = |text: &'static str, response: u32, ttl: u64| {
            let count = &count;
            cache.get_or_compute(key(text), move || async move {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                (response, Instant::now() + Duration::from_secs(ttl))
            })
        };
        assert_eq!(tokio::join!(get("a", 1, 10), get("a", 2, 10)), (1, 1));
        assert_eq!(count.load(Ordering::SeqCst), 1);
        assert_eq!(get("b", 3, 0).await, 3);
        assert_eq!(get("b", 4, 10).await, 4);
        assert_eq!(count.load(Ordering::SeqCst), 3);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(get("a", 5, 10).await, 5);
        assert_eq!(count.load(Ordering::SeqCst), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_computation_begins_again() {
        let cache = ReviewCache::new(RESPONSES_MAX, |_| 1);
        let hanging = cache.get_or_compute(key("a"), std::future::pending);
        let ended = tokio::time::timeout(Duration::from_secs(1), hanging).await;
        assert!(ended.is_err());
        let response = cache.get_or_compute(key("a"), || async { (1, Instant::now()) });
        assert_eq!(response.await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn responses_that_are_not_valid_later_are_not_stored() {
        let cache = ReviewCache::new(RESPONSES_MAX, |_| 1);
        for number in 0..RESPONSES_MAX {
            let compute = || async { (number, Instant::now()) };
            assert_eq!(
                cache
                    .get_or_compute(key(&number.to_string()), compute)
                    .await,
                number
            );
        }
        let generations = cache.generations.lock();
        assert_eq!((generations.recent.len(), generations.old.len()), (0, 0));
    }

    /// A token webhook that gave each token another user of a mebibyte used to fill gibibytes.
    #[tokio::test]
    async fn large_responses_are_forgotten_earlier() {
        let cache = ReviewCache::new(4096, |response: &usize| *response);
        let get = |text: String| {
            let cache = &cache;
            async move {
                let compute = || async { (1 << 20, in_a_minute()) };
                cache.get_or_compute(key(&text), compute).await
            }
        };
        for number in 0..100 {
            get(number.to_string()).await;
            get("used".to_owned()).await;
            let generations = cache.generations.lock();
            let stored = generations.recent.len() + generations.old.len();
            assert!(stored <= 32 + 2, "{stored} after {number}");
            assert!(
                generations.recent.contains_key(&key("used"))
                    || generations.old.contains_key(&key("used"))
            );
        }
    }

    #[tokio::test]
    async fn the_least_recently_used_responses_are_forgotten() {
        let cache = ReviewCache::new(RESPONSES_MAX, |_| 1);
        let get = |text: String, response: usize| {
            let cache = &cache;
            async move {
                let compute = || async { (response, in_a_minute()) };
                cache.get_or_compute(key(&text), compute).await
            }
        };
        assert_eq!(get("used".to_owned(), usize::MAX).await, usize::MAX);
        for number in 0..RESPONSES_MAX * 3 {
            assert_eq!(get(number.to_string(), number).await, number);
            assert_eq!(get("used".to_owned(), 0).await, usize::MAX, "{number}");
        }
        let last = RESPONSES_MAX * 3 - 1;
        assert_eq!(get(last.to_string(), 0).await, last);
        assert_eq!(get("0".to_owned(), 1000).await, 1000);
        let generations = cache.generations.lock();
        let stored = generations.recent.len() + generations.old.len();
        assert!(stored <= RESPONSES_MAX, "{stored}");
    }
}
