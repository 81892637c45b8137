//! The shared informer: one Reflector fills one indexer, and any number of handlers are notified of
//! its changes, each at its own speed.

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

/// The informer was already started; the setting must be made before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the informer has already started")]
pub struct AlreadyStarted;

/// The informer was stopped and has no more notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the informer has stopped")]
pub struct InformerStopped;
