//! `AuditAnnotations`: what admission records about a request for the audit log.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// The audit annotations of one request, by key. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct AuditAnnotations(Arc<Mutex<BTreeMap<String, String>>>);

impl PartialEq for AuditAnnotations {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.all() == other.all()
    }
}

impl Eq for AuditAnnotations {}

impl AuditAnnotations {
    /// Records `value`, unless the key has one: as upstream, an annotation is never overwritten.
    pub fn add(&self, key: impl Into<String>, value: impl Into<String>) {
        self.0
            .lock()
            .entry(key.into())
            .or_insert_with(|| value.into());
    }

    /// Returns the annotations so far without a copy. Until the guard is dropped, [`Self::add`] waits.
    pub fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock()
    }

    /// Returns the annotations so far.
    pub fn all(&self) -> BTreeMap<String, String> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_of_a_key_stays() {
        let annotations = AuditAnnotations::default();
        annotations.clone().add("k", "first");
        annotations.add("k", "second");
        let expected = BTreeMap::from([("k".to_owned(), "first".to_owned())]);
        assert_eq!(annotations.all(), expected);
    }
}
