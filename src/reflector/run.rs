//! The Reflector's loop: list, watch, resume, and list again when the source's history is gone.

use std::future::Future;
use std::sync::Arc;

use super::{ChangeBatch, ListerWatcher};
use crate::api::ResourceVersion;

/// What a Reflector keeps equal to its source. One writer by construction: `&mut self`.
pub trait ReflectorStore: Send + 'static {
    /// What it holds.
    type Object: Send + Sync + 'static;

    /// The collection is now exactly `objects`, as of `at`.
    fn replace(
        &mut self,
        objects: Vec<Arc<Self::Object>>,
        at: ResourceVersion,
    ) -> impl Future<Output = ()> + Send;

    /// These changes happened, in order. A batch without changes only moves the version.
    fn apply(&mut self, batch: ChangeBatch<Self::Object>) -> impl Future<Output = ()> + Send;

    /// The source cannot be followed right now.
    fn failed(&mut self, error: &super::SourceError) -> impl Future<Output = ()> + Send;
}

/// Keeps a store equal to a source.
#[derive(Debug)]
pub struct Reflector<L, S> {
    source: L,
    store: S,
}

impl<L: ListerWatcher, S: ReflectorStore<Object = L::Object>> Reflector<L, S> {
    /// A Reflector from `source` into `store`.
    pub fn new(source: L, store: S) -> Self {
        Self { source, store }
    }
}
