//! `HandlerRegistration`: what one gets for a handler, to see how far it is and to remove it. It keeps
//! neither the handler nor its informer alive.

use std::sync::Arc;

use super::listener::{HandlerMetrics, Listener};
use super::processor::HandlerId;
use super::synced::{InformerSynced, NeverSynced};
use crate::informer::KubeObject;

/// A handler of an informer.
#[derive(Debug, Clone)]
pub struct HandlerRegistration {
    id: HandlerId,
    synced: InformerSynced,
    metrics: Arc<HandlerMetrics>,
}

impl HandlerRegistration {
    pub(super) fn new<T: KubeObject>(id: HandlerId, listener: &Listener<T>) -> Self {
        Self {
            id,
            synced: listener.synced(),
            metrics: listener.metrics().clone(),
        }
    }

    pub(super) fn id(&self) -> HandlerId {
        self.id
    }

    /// Whether it is this listener's: another informer may have one of the same number.
    pub(super) fn is_of<T: KubeObject>(&self, listener: &Listener<T>) -> bool {
        Arc::ptr_eq(&self.metrics, listener.metrics())
    }

    /// Whether the handler was told of every object that there was when it began, and has returned from
    /// that.
    pub fn has_synced(&self) -> bool {
        self.synced.has_synced()
    }

    /// The same, to be waited for together with others.
    pub fn synced(&self) -> InformerSynced {
        self.synced.clone()
    }

    /// Waits until it was. Cancel safe.
    ///
    /// # Errors
    /// [`NeverSynced`] when it is removed, or its informer stopped, before.
    pub async fn wait_for_sync(&self) -> Result<(), NeverSynced> {
        self.synced().wait().await
    }

    /// How far behind it is.
    pub fn metrics(&self) -> &HandlerMetrics {
        &self.metrics
    }
}
