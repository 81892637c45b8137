//! `ReadError`: every way in which a get, a list or a watch is not answered. What the wire says of
//! each is decided in `http`.

use std::time::Duration;

use super::source::Unreadable;
use crate::api::{ContinueToken, InvalidContinueToken, InvalidKey, ResourceVersion, StorageKey};
use crate::storage::StorageError;

/// Why a read was not answered. Matched once to a Status, in `http`.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// History no longer reaches back so far: 410 Expired.
    #[error("too old resource version: {requested} ({oldest})")]
    Expired {
        /// What was asked.
        requested: ResourceVersion,
        /// The oldest that can be served.
        oldest: ResourceVersion,
        /// For a continued list: a token that goes on inconsistently, at the latest state.
        fresh_token: Option<String>,
    },
    /// The version asked for has not happened yet: 504.
    #[error("Too large resource version: {requested}, current: {current}")]
    TooLargeResourceVersion {
        /// What was asked.
        requested: ResourceVersion,
        /// Where the cache is.
        current: ResourceVersion,
        /// 1 s from the cache, 0 from storage.
        retry_after: Duration,
    },
    /// The cache is (re)initializing: 429.
    #[error("storage is (re)initializing: {detail}")]
    NotReady {
        /// The last error.
        detail: String,
        /// When to come back.
        retry_after: Duration,
    },
    /// 400.
    #[error(transparent)]
    InvalidContinue(#[from] InvalidContinueToken),
    /// A list goes on from a token and asks for another version than the token's: 400.
    #[error("specifying resource version is not allowed when using continue")]
    VersionWithContinue,
    /// The name or the namespace is not part of a key: 400.
    #[error(transparent)]
    InvalidKey(#[from] InvalidKey),
    /// A stored object cannot be decoded: 500.
    #[error("{0}")]
    Undecodable(String),
    /// An object cannot be shown in the version that was asked for: 500. Who shows it tells why.
    #[error("{0}")]
    Unconvertible(String),
    /// Objects of a list cannot be decoded: 500.
    #[error("{} object(s) of the list cannot be decoded, the first is {}", .0.objects.len(), .0.first())]
    Corrupt(CorruptObjects),
    /// The server is shutting down: 503.
    #[error("the server is shutting down")]
    Stopped,
    /// Storage itself was asked, and failed.
    #[error(transparent)]
    Storage(StorageError),
}

/// The objects of a list that cannot be decoded.
#[derive(Debug, Clone, Default)]
pub struct CorruptObjects {
    /// Where each is and what is wrong with it; at most [`Self::MAX`].
    pub objects: Vec<(StorageKey, String)>,
    /// There are more.
    pub truncated: bool,
}

impl CorruptObjects {
    /// How many are told (upstream's number).
    pub const MAX: usize = 100;

    /// One more; whether to look on.
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
    /// After `downtime` without a first state: come back in e^(0.06 · seconds), between 1 s and 30 s
    /// (upstream's rule, KEP-4568).
    pub(super) fn not_ready(downtime: Duration, error: Option<String>) -> Self {
        let seconds = (0.06 * downtime.as_secs_f64()).exp().clamp(1.0, 30.0) as u64;
        Self::NotReady {
            detail: error.unwrap_or_else(|| "no state yet".to_owned()),
            retry_after: Duration::from_secs(seconds),
        }
    }

    /// What a failed look into storage means to a reader; `start` is where a continued list went on.
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
