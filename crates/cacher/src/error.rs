//! `ReadError`: the errors of get, list and watch. `http` maps each to its status.

use std::time::Duration;

use super::unreadable::Unreadable;
use watchet_api::{ContinueToken, InvalidContinueToken, InvalidKey, ResourceVersion, StorageKey};
use watchet_storage::StorageError;

/// The error of a get, list or watch.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// History does not reach back to the requested version: 410 Expired.
    #[error("too old resource version: {requested} ({oldest})")]
    Expired {
        /// The requested version.
        requested: ResourceVersion,
        /// The oldest version that can be served.
        oldest: ResourceVersion,
        /// For a continued list: a token that continues inconsistently, at the latest state.
        fresh_token: Option<String>,
    },
    /// The requested version is in the future: 504.
    #[error("Too large resource version: {requested}, current: {current}")]
    TooLargeResourceVersion {
        /// The requested version.
        requested: ResourceVersion,
        /// The cache's version.
        current: ResourceVersion,
        /// 1 s from the cache, 0 from storage.
        retry_after: Duration,
    },
    /// The cache is initializing: 429.
    #[error("storage is (re)initializing: {detail}")]
    NotReady {
        /// The last error.
        detail: String,
        /// The delay before a retry.
        retry_after: Duration,
    },
    /// The continue token is invalid: 400.
    #[error(transparent)]
    InvalidContinue(#[from] InvalidContinueToken),
    /// A continued list requests a resourceVersion besides the token's: 400.
    #[error("specifying resource version is not allowed when using continue")]
    VersionWithContinue,
    /// The name or namespace is not a valid part of a key: 400.
    #[error(transparent)]
    InvalidKey(#[from] InvalidKey),
    /// A stored object cannot be decoded: 500.
    #[error("{0}")]
    Undecodable(String),
    /// An object cannot be converted to the requested version: 500. The text has the reason.
    #[error("{0}")]
    Unconvertible(String),
    /// Objects of a list cannot be decoded: 500.
    #[error("{} object(s) of the list cannot be decoded, the first is {}", .0.objects.len(), .0.first())]
    Corrupt(CorruptObjects),
    /// The server is shutting down: 503.
    #[error("the server is shutting down")]
    Stopped,
    /// Storage failed.
    #[error(transparent)]
    Storage(StorageError),
}

/// The objects of a list that cannot be decoded.
#[derive(Debug, Clone, Default)]
pub struct CorruptObjects {
    /// The key of each object and the error; at most [`Self::MAX`].
    pub objects: Vec<(StorageKey, String)>,
    /// True if there are more.
    pub truncated: bool,
}

impl CorruptObjects {
    /// The number of reported objects (upstream's limit).
    pub const MAX: usize = 100;

    /// Adds an object; returns false if the limit is reached.
    pub(super) fn add(&mut self, Unreadable { key, detail }: Unreadable) -> bool {
        if self.objects.len() == Self::MAX {
            self.truncated = true;
        } else {
            self.objects.push((key, detail));
        }
        !self.truncated
    }

    fn first(&self) -> &str {
        self.objects
            .first()
            .map_or("unknown", |(key, _)| key.as_str())
    }
}

impl ReadError {
    /// Returns the error of a cache that has had no state for `downtime`: retry after e^(0.06 ·
    /// seconds), between 1 s and 30 s (upstream's rule, KEP-4568).
    pub(super) fn not_ready(downtime: Duration, error: Option<String>) -> Self {
        let seconds = (0.06 * downtime.as_secs_f64()).exp().clamp(1.0, 30.0) as u64;
        Self::NotReady {
            detail: error.unwrap_or_else(|| "the cache has no state yet".to_owned()),
            retry_after: Duration::from_secs(seconds),
        }
    }

    /// Converts a storage error; `start` is the start key of a continued list.
    pub(super) fn from_storage(error: StorageError, start: Option<&str>) -> Self {
        match error {
            StorageError::Compacted {
                requested,
                compacted,
            } => Self::Expired {
                requested,
                oldest: compacted,
                fresh_token: start.map(|start| {
                    let start = start.to_owned();
                    ContinueToken {
                        resource_version: None,
                        start,
                        remaining: None,
                    }
                    .encode()
                }),
            },
            StorageError::Future { requested, current } => Self::TooLargeResourceVersion {
                requested,
                current,
                retry_after: Duration::ZERO,
            },
            error => Self::Storage(error),
        }
    }
}

impl From<Unreadable> for ReadError {
    fn from(error: Unreadable) -> Self {
        Self::Undecodable(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_grows_with_the_downtime() {
        let after = |seconds| match ReadError::not_ready(Duration::from_secs(seconds), None) {
            ReadError::NotReady { retry_after, .. } => retry_after.as_secs(),
            other => panic!("{other}"),
        };
        assert_eq!(
            [after(0), after(14), after(40), after(1000)],
            [1, 2, 11, 30]
        );
    }
}
