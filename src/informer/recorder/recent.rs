//! A map that forgets what was used longest ago when it is full.

use std::collections::HashMap;
use std::hash::Hash;

/// At most so many entries.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    entries: HashMap<K, (V, u64)>,
    max: usize,
    /// Counts uses.
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

    /// The entry of `key`, made by `make` if there is none.
    pub(super) fn entry(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.clock += 1;
        if self.entries.len() >= self.max && !self.entries.contains_key(&key) {
            // Looking at all of them is cheap beside the request that is made for each event.
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
    fn what_was_used_longest_ago_is_forgotten() {
        let mut recent = Recent::new(2);
        for (key, expected) in [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("a", 3), ("b", 1)] {
            let count = recent.entry(key, || 0);
            *count += 1;
            assert_eq!(*count, expected, "{key}");
        }
    }
}
