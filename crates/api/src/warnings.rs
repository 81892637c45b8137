//! `Warnings`: messages for the client besides the response, sent by `http` as `Warning` headers.

use std::sync::Arc;

use parking_lot::Mutex;

/// A list of distinct warnings. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl PartialEq for Warnings {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.texts() == other.texts()
    }
}

impl Eq for Warnings {}

impl Warnings {
    /// Adds a warning unless the list has it.
    pub fn add(&self, text: String) {
        let mut texts = self.0.lock();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }

    /// Removes all warnings, before a write is retried.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// Returns all warnings in order.
    pub fn texts(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}
