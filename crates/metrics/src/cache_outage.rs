//! `CacheOutage`: which caches cannot follow storage. Logs this once, at growing intervals, and when all follow again.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::LogInterval;

/// The maximum number of resources that a message names.
const NAMED_MAX: usize = 5;

/// The first message is delayed by this time, in which all caches notice the outage, so that it has their number. Shorter
/// outages are not logged.
const FIRST_MESSAGE_AFTER: Duration = Duration::from_millis(500);

/// The caches of a server that cannot follow storage. One outage affects all of them within moments, so they are
/// reported together.
#[derive(Debug)]
pub struct CacheOutage {
    state: Mutex<State>,
    log: LogInterval,
    history_log: LogInterval,
}

#[derive(Debug, Default)]
struct State {
    /// The resources of the caches that cannot follow.
    lost: BTreeSet<String>,
    /// Those of the whole outage.
    affected: BTreeSet<String>,
    since: Option<Instant>,
    is_logged: bool,
}

impl Default for CacheOutage {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            log: LogInterval::growing(),
            history_log: LogInterval::growing(),
        }
    }
}

impl CacheOutage {
    /// Records that the cache of `resource` cannot follow storage because of `error`.
    pub fn lost(&self, resource: &str, error: &str) {
        let mut state = self.state.lock();
        let down_for = state.since.get_or_insert_with(Instant::now).elapsed();
        if state.lost.insert(resource.to_owned()) {
            state.affected.insert(resource.to_owned());
        }
        if down_for >= FIRST_MESSAGE_AFTER && self.log.next().is_some() {
            state.is_logged = true;
            let (caches, resources) = (state.lost.len(), names(&state.lost));
            tracing::warn!(
                caches,
                resources,
                ?down_for,
                error,
                "caches cannot follow storage: they serve their last state, and the server is not ready"
            );
        }
    }

    /// Records that the cache of `resource` was at the version `was` and is at `now`, and that it cannot derive the
    /// events between them.
    pub fn history_lost(&self, resource: &str, was: u64, now: u64) {
        if let Some(suppressed) = self.history_log.next() {
            tracing::warn!(
                resource,
                was,
                now,
                suppressed,
                "a cache has lost the history of its resource and has listed again: its watches end with 410 Expired. \
                 Other caches may have done the same"
            );
        } else {
            tracing::debug!(resource, was, now, "history lost");
        }
    }

    /// Records that the cache of `resource` follows storage, or has been stopped.
    pub fn ended(&self, resource: &str) {
        let mut state = self.state.lock();
        if !state.lost.remove(resource) || !state.lost.is_empty() {
            return;
        }
        self.log.reset();
        let ended = std::mem::take(&mut *state);
        if !ended.is_logged {
            return;
        }
        let down_for = ended.since.map_or(Duration::ZERO, |since| since.elapsed());
        let (caches, resources) = (ended.affected.len(), names(&ended.affected));
        tracing::info!(
            caches,
            resources,
            ?down_for,
            "all caches follow storage again"
        );
    }
}

/// Returns the first names, and the number of the others.
fn names(resources: &BTreeSet<String>) -> String {
    let named: Vec<&str> = resources
        .iter()
        .take(NAMED_MAX)
        .map(String::as_str)
        .collect();
    match resources.len().saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        others => format!("{} and {others} others", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_ends_when_the_last_cache_follows_storage() {
        let outage = CacheOutage::default();
        for resource in ["pods", "secrets"] {
            outage.lost(resource, "unreachable");
        }
        assert!(!outage.state.lock().is_logged, "others may follow");
        tokio::time::advance(FIRST_MESSAGE_AFTER).await;
        outage.lost("pods", "unreachable");
        assert!(outage.state.lock().is_logged);
        outage.ended("nodes");
        outage.ended("pods");
        assert_eq!(outage.state.lock().affected.len(), 2);
        outage.ended("secrets");
        assert_eq!(outage.state.lock().since, None);
        assert_eq!(outage.log.next(), Some(0), "the next outage is logged");
    }

    #[test]
    fn messages_name_some_resources() {
        let resources: BTreeSet<String> = ('a'..='g').map(String::from).collect();
        assert_eq!(names(&resources), "a, b, c, d, e and 2 others");
    }
}
