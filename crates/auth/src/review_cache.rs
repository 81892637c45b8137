//! `ReviewCache`: the responses of programs that review tokens or requests. Concurrent calls with the same key share one
//! review; if its caller is cancelled, another one begins it again.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// A digest of what is reviewed.
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

/// Responses by what was reviewed, until they expire. The least recently used ones are forgotten when there are too
/// many.
pub struct ReviewCache<R> {
    generations: Mutex<Generations<R>>,
    /// The maximum number of responses in a generation.
    generation_max: usize,
}

/// The entries used since `old` was replaced, and the others.
struct Generations<R> {
    recent: Entries<R>,
    old: Entries<R>,
}

impl<R> fmt::Debug for ReviewCache<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReviewCache").finish_non_exhaustive()
    }
}

impl<R: Clone> ReviewCache<R> {
    /// Creates a cache of at most `responses_max` responses.
    ///
    /// # Panics
    /// If `responses_max` is less than 2.
    pub fn new(responses_max: usize) -> Self {
        assert!(responses_max >= 2, "a cache of {responses_max} responses");
        Self {
            generations: Mutex::new(Generations {
                recent: Entries::new(),
                old: Entries::new(),
            }),
            generation_max: responses_max / 2,
        }
    }

    /// Returns the response for `key`, or computes it and until when it is valid.
    pub async fn get_or_compute<F>(&self, key: ReviewKey, compute: impl FnOnce() -> F) -> R
    where
        F: Future<Output = (R, Instant)>,
    {
        let entry = self.entry(key);
        let (response, until) = entry.get_or_init(compute).await;
        if *until <= Instant::now() {
            self.remove(key, &entry);
        }
        response.clone()
    }

    /// Removes `entry` if it is still the one of `key`: clients may choose the size of a response that is valid no longer.
    fn remove(&self, key: ReviewKey, entry: &Entry<R>) {
        let mut generations = self.generations.lock();
        let Generations { recent, old } = &mut *generations;
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
        let Generations { recent, old } = &mut *generations;
        let now = Instant::now();
        let is_valid = |entry: &Entry<R>| entry.get().is_none_or(|(_, until)| *until > now);
        if let Some(entry) = recent.get(&key).filter(|entry| is_valid(entry)) {
            return Arc::clone(entry);
        }
        let entry = old.remove(&key).filter(is_valid).unwrap_or_default();
        if recent.len() >= self.generation_max {
            *old = std::mem::take(recent);
        }
        recent.insert(key, Arc::clone(&entry));
        entry
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
        let cache = ReviewCache::new(RESPONSES_MAX);
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
        let cache = ReviewCache::new(RESPONSES_MAX);
        let hanging = cache.get_or_compute(key("a"), std::future::pending);
        let ended = tokio::time::timeout(Duration::from_secs(1), hanging).await;
        assert!(ended.is_err());
        let response = cache.get_or_compute(key("a"), || async { (1, Instant::now()) });
        assert_eq!(response.await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn responses_that_are_not_valid_later_are_not_stored() {
        let cache = ReviewCache::new(RESPONSES_MAX);
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

    #[tokio::test]
    async fn the_least_recently_used_responses_are_forgotten() {
        let cache = ReviewCache::new(RESPONSES_MAX);
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
