//! `Warnings`: what a client should be told besides the answer it gets. Whoever notices adds to the
//! list; how it is sent is `http`'s business.

use std::sync::Arc;

use parking_lot::Mutex;

/// A list of warnings, each once. Clones are the same list.
#[derive(Debug, Clone, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl PartialEq for Warnings {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.texts() == other.texts()
    }
}

impl Eq for Warnings {}

impl Warnings {
    /// One more, unless it was told.
    pub fn add(&self, text: String) {
        let mut texts = self.0.lock();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }

    /// Takes back what was told of an attempt that came to nothing.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// All so far, in order.
    pub fn texts(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}
