//! `HandlerRegistration`: a handle to observe and remove a handler. It owns neither the handler
//! nor its informer.

use std::sync::Arc;

use super::listener::{HandlerMetrics, Listener};
use super::synced::{InformerSynced, NeverSynced};
use crate::KubeObject;

/// Identifies a handler of an informer.
pub(super) type HandlerId = u64;

/// A registered handler of an informer.
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

    /// Returns true if it is this listener's: IDs of different informers may be equal.
    pub(super) fn is_of<T: KubeObject>(&self, listener: &Listener<T>) -> bool {
        Arc::ptr_eq(&self.metrics, listener.metrics())
    }

    /// Returns true if the handler has processed every object that existed when it was added.
    ///
    pub fn has_synced(&self) -> bool {
        self.synced.has_synced()
    }

    /// Returns the same as a future to wait for.
    pub fn synced(&self) -> InformerSynced {
        self.synced.clone()
    }

    /// Waits until the handler has synced. Cancel safe.
    ///
    /// # Errors
    /// [`NeverSynced`] if it is removed, or its informer stopped, before.
    pub async fn wait_for_sync(&self) -> Result<(), NeverSynced> {
        self.synced().wait().await
    }

    /// Returns the metrics of the handler.
    pub fn metrics(&self) -> &HandlerMetrics {
        &self.metrics
    }
}
