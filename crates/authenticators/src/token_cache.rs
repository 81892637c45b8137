//! `TokenCache`: the results of authenticating tokens. Concurrent requests with the same token share one computation; if
//! its caller is cancelled, another one begins it again.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use watchet_auth::InvalidToken;

/// The maximum number of results.
const ENTRIES_MAX: usize = 4096;

/// The digest of a token and its requested audiences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey([u8; 32]);

impl CacheKey {
    pub(crate) fn new(token: &str, audiences: &[String]) -> Self {
        let mut digest = Sha256::new();
        // The lengths separate the texts.
        for text in [token]
            .into_iter()
            .chain(audiences.iter().map(String::as_str))
        {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text);
        }
        Self(digest.finalize().into())
    }
}

type Entry<T> = Arc<OnceCell<(Result<T, InvalidToken>, Instant)>>;

/// Results by token, at most [`ENTRIES_MAX`].
pub(crate) struct TokenCache<T>(Mutex<HashMap<CacheKey, Entry<T>>>);

impl<T> Default for TokenCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> fmt::Debug for TokenCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCache").finish_non_exhaustive()
    }
}

impl<T: Clone> TokenCache<T> {
    /// Returns the result for `key`, or computes it and how long it is valid.
    pub(crate) async fn get_or_compute<F>(
        &self,
        key: CacheKey,
        compute: impl FnOnce() -> F,
    ) -> Result<T, InvalidToken>
    where
        F: Future<Output = (Result<T, InvalidToken>, Instant)>,
    {
        let entry = self.entry(key);
        entry.get_or_init(compute).await.0.clone()
    }

    fn entry(&self, key: CacheKey) -> Entry<T> {
        let mut entries = self.0.lock();
        let now = Instant::now();
        let is_valid = |entry: &Entry<T>| entry.get().is_none_or(|(_, until)| *until > now);
        if let Some(entry) = entries.get(&key).filter(|entry| is_valid(entry)) {
            return Arc::clone(entry);
        }
        if entries.len() >= ENTRIES_MAX {
            entries.retain(|_, entry| is_valid(entry));
            if entries.len() >= ENTRIES_MAX {
                // All are valid: they are computed again when they are requested.
                entries.clear();
            }
        }
        let entry = Entry::default();
        entries.insert(key, Arc::clone(&entry));
        entry
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn key(token: &str) -> CacheKey {
        CacheKey::new(token, &[])
    }

    #[test]
    fn keys_differ_by_token_and_audiences() {
        let of = |token: &str, audiences: &[&str]| {
            let audiences: Vec<String> = audiences.iter().map(|one| (*one).to_owned()).collect();
            CacheKey::new(token, &audiences)
        };
        let keys = [
            of("a", &[]),
            of("b", &[]),
            of("a", &["b"]),
            of("ab", &[]),
            of("a", &["b", ""]),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[index + 1..].contains(key), "{index}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn results_are_computed_once_until_they_expire() {
        let cache = TokenCache::default();
        let count = AtomicUsize::new(0);
        let get = |token: &'static str, result: Result<(), InvalidToken>, ttl: u64| {
            let count = &count;
            cache.get_or_compute(key(token), move || async move {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                (result, Instant::now() + Duration::from_secs(ttl))
            })
        };
        let (first, second) = tokio::join!(get("a", Ok(()), 10), get("a", Ok(()), 10));
        assert_eq!((first, second), (Ok(()), Ok(())));
        assert_eq!(count.load(Ordering::SeqCst), 1);
        assert_eq!(
            get("b", Err(InvalidToken::Unknown), 0).await,
            Err(InvalidToken::Unknown)
        );
        assert_eq!(get("b", Ok(()), 10).await, Ok(()));
        assert_eq!(count.load(Ordering::SeqCst), 3);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(get("a", Ok(()), 10).await, Ok(()));
        assert_eq!(count.load(Ordering::SeqCst), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_computation_begins_again() {
        let cache = TokenCache::default();
        let hanging = cache.get_or_compute(key("a"), std::future::pending);
        let ended: Result<Result<(), _>, _> =
            tokio::time::timeout(Duration::from_secs(1), hanging).await;
        assert!(ended.is_err());
        let result = cache.get_or_compute(key("a"), || async { (Ok(()), Instant::now()) });
        assert_eq!(result.await, Ok(()));
    }

    #[tokio::test]
    async fn the_number_of_results_is_limited() {
        let cache = TokenCache::default();
        let until = Instant::now() + Duration::from_secs(60);
        for number in 0..ENTRIES_MAX * 2 {
            let key = key(&number.to_string());
            assert_eq!(
                cache
                    .get_or_compute(key, || async { (Ok(number), until) })
                    .await,
                Ok(number)
            );
        }
        assert!(cache.0.lock().len() <= ENTRIES_MAX);
    }
}
