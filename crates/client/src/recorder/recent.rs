//! A small LRU map.

use std::collections::HashMap;
use std::hash::Hash;

/// A map of bounded size that evicts the least recently used entry.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    entries: HashMap<K, (V, u64)>,
    max: usize,
    /// The number of uses.
    clock: u64,
}

impl<K: Hash + Eq + Clone, V> Recent<K, V> {
    pub(super) fn new(max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            max,
            clock: 0,
        }
    }

    /// Returns the entry of `key`, created by `make` if absent.
    pub(super) fn entry(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.clock += 1;
        if self.entries.len() >= self.max && !self.entries.contains_key(&key) {
            // A linear search is cheap compared with the request for each event.
            let oldest = self.entries.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&oldest);
            }
        }
        let (value, used) = self.entries.entry(key).or_insert_with(|| (make(), 0));
        *used = self.clock;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted() {
        let mut recent = Recent::new(2);
        for (key, expected) in [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("a", 3), ("b", 1)] {
            let count = recent.entry(key, || 0);
            *count += 1;
            assert_eq!(*count, expected, "{key}");
        }
    }
}
