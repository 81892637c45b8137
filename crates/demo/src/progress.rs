//! `Progress`: counters of the simulation for its status line.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of changes so far, and of pods at the last change.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    changes: AtomicU64,
    pods: AtomicUsize,
    running: AtomicUsize,
}

impl Progress {
    /// Adds changes, and sets the number of pods that exist and of those that run.
    pub(crate) fn add(&self, changes: usize, pods: usize, running: usize) {
        self.changes.fetch_add(changes as u64, Ordering::Relaxed);
        self.pods.store(pods, Ordering::Relaxed);
        self.running.store(running, Ordering::Relaxed);
    }

    /// Returns the number of changes of pods.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns the number of pods that exist, and of those that run.
    pub(crate) fn pods(&self) -> (usize, usize) {
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (load(&self.pods), load(&self.running))
    }
}
