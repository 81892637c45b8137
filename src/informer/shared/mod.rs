//! The shared informer: one Reflector fills one indexer, and any number of handlers are told of each
//! change, each as fast as it can be. The queue between Reflector and indexer is not here, nor is the
//! source.

mod handler;
mod informer;
mod listener;
mod pending;
mod processor;
mod registration;
mod synced;
#[cfg(test)]
pub(super) mod tests;

pub use handler::{Notification, ResourceEventHandler, ResourceEventHandlerFuncs};
pub use informer::SharedInformer;
pub use listener::HandlerMetrics;
pub use registration::HandlerRegistration;
pub(super) use synced::Progress;
pub use synced::{InformerSynced, NeverSynced, wait_for_cache_sync};

/// It was started already: what is asked for has to be there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the informer has already started")]
pub struct AlreadyStarted;

/// It was stopped: a handler would hear nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the informer has stopped")]
pub struct InformerStopped;
