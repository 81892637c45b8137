//! The controller that protects a persistent volume from deletion while a claim is bound to it.

use std::sync::Arc;

use serde_json::Value;

use crate::framework::Controller;
use crate::protection::protector::{PAUSES, Protector};
use crate::queue::{Next, WorkQueue};
use watchet_api::ObjectKey;
use watchet_metrics::Metrics;
use watchet_registry::{ApiError, Registry};

/// The name of the controller.
const NAME: &str = "persistentvolume-protection-controller";

/// Protects volumes that are bound to a claim.
#[derive(Debug)]
pub(crate) struct Volumes(Protector);

impl Volumes {
    pub(crate) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self(Protector {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(NAME)),
            group: "",
            plural: "persistentvolumes",
            account: "pv-protection-controller",
        })
    }
}

impl Controller for Volumes {
    type Key = ObjectKey;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 1;

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.0.queue
    }

    async fn follow(&self) {
        let mut volumes = self.0.follower("", "persistentvolumes");
        loop {
            self.0.handle_events(volumes.next().await);
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        let in_use = async |volume: &Value| Ok(volume["status"]["phase"] == "Bound");
        self.0.reconcile(key, in_use).await
    }
}
