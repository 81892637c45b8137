//! Limits the number of open watches of each user.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::HttpError;

/// The open watches of the users that have any.
#[derive(Debug)]
pub(crate) struct WatchCounts {
    /// `None` is no limit; then nothing is counted.
    max: Option<usize>,
    open: Mutex<HashMap<Arc<str>, usize>>,
}

/// Counts an open watch of a user until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedWatch {
    counts: Arc<WatchCounts>,
    user: Arc<str>,
}

impl WatchCounts {
    pub(crate) fn new(max: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            max,
            open: Mutex::default(),
        })
    }

    /// Counts a watch of `user`; `None` without limit.
    ///
    /// # Errors
    /// 429 if the user has as many open watches as allowed.
    pub(crate) fn open(self: &Arc<Self>, user: &str) -> Result<Option<CountedWatch>, HttpError> {
        let Some(max) = self.max else {
            return Ok(None);
        };
        let mut open = self.open.lock();
        let present = open.get_key_value(user);
        let (user, count) = match present {
            Some((user, count)) => (Arc::clone(user), *count),
            None => (user.into(), 0),
        };
        if count >= max {
            return Err(HttpError::TooManyWatches {
                user: user.to_string(),
                max,
            });
        }
        open.insert(Arc::clone(&user), count + 1);
        Ok(Some(CountedWatch {
            counts: Arc::clone(self),
            user,
        }))
    }
}

impl Drop for CountedWatch {
    fn drop(&mut self) {
        let mut open = self.counts.open.lock();
        match open.get_mut(&self.user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.user)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_limit() {
        let counts = WatchCounts::new(Some(2));
        let first = counts.open("ann").unwrap();
        let _second = counts.open("ann").unwrap();
        let status = counts.open("ann").unwrap_err().status();
        assert_eq!(status.code, 429);
        assert_eq!(
            status.message,
            "user \"ann\" has 2 open watches, the maximum of --max-watches-per-user: end one of them, or raise the limit"
        );
        let _other = counts.open("bob").unwrap();
        drop(first);
        drop(counts.open("ann").unwrap());
        let _again = counts.open("ann").unwrap();
        drop(_other);
        assert_eq!(
            counts.open.lock().len(),
            1,
            "users without watches are forgotten"
        );
    }

    #[test]
    fn without_limit_nothing_is_counted() {
        let counts = WatchCounts::new(None);
        assert!(counts.open("ann").unwrap().is_none());
        assert!(counts.open.lock().is_empty());
    }
}
