//! The configuration of an embedded store.

use std::path::Path;
use std::time::Duration;

/// When a write is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Before it is acknowledged.
    #[default]
    Fsync,
    /// At most this long after it is acknowledged, while `maintain` runs, and at shutdown. A crash
    /// of the process or machine loses the writes since the last flush. Their revisions are not
    /// reused: the store continues at a later one without history, so that clients that have seen
    /// lost writes list again. Zero is `Fsync`.
    Interval(Duration),
    /// At shutdown, and about once a minute, which bounds the loss in a crash.
    None,
}

/// The record of the last revision outside of the directory of a store, so that a directory that was
/// replaced by an older copy, or that is missing, is detected: the store then continues at a revision
/// that no client has seen, without history, so that clients list again.
#[derive(Debug, Clone, Copy)]
pub struct LastRevision<'a> {
    /// The file, outside of the directory of the store, in which the store records its last durable
    /// revision.
    pub file: &'a Path,
    /// True if a server has used the store before, so that a new store replaces one that is lost,
    /// even if the file has no revision.
    pub was_used: bool,
}

/// How much history a store retains: that of `time`, but at most `bytes_max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryRetention {
    /// The age of the oldest state that can be read.
    pub time: Duration,
    /// Maximum size of the retained changes. If the changes of `time` take more, older ones are
    /// compacted.
    pub bytes_max: u64,
}

/// The configuration of an embedded store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddedConfig {
    /// When a write is on disk.
    pub durability: Durability,
    /// At each interval, history is compacted to the revision of the previous interval, so that it
    /// is one to two intervals long, as kube-apiserver's
    /// [compactor](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/storage/etcd3/compact.go)
    /// does. Zero disables compaction.
    pub compaction_interval: Duration,
    /// If set, history is compacted by its age and size instead, while `maintain` runs.
    pub retention: Option<HistoryRetention>,
}

impl Default for EmbeddedConfig {
    /// `Fsync`, and five minutes, the default of the API server's `--etcd-compaction-interval`.
    fn default() -> Self {
        Self {
            durability: Durability::Fsync,
            compaction_interval: Duration::from_secs(5 * 60),
            retention: None,
        }
    }
}
