//! The common part of the protection controllers.

use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;
use serde_json::{Value, json};

use crate::follower::{Follower, FollowerEvent};
use crate::framework;
use crate::queue::{Next, Pauses, WorkQueue};
use watchet_api::{GetOptions, Object, ObjectKey};
use watchet_registry::{ApiError, Registry, Resource, Target, protection_finalizer};

pub(super) const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(50),
    max: Duration::from_secs(10),
};

/// How often an object in use is checked again, in case an event of its users was missed.
const IN_USE: Duration = Duration::from_secs(30);

/// The common part of the protection controllers: adds and removes the finalizer.
#[derive(Debug)]
pub(super) struct Protector {
    pub(super) registry: Arc<Registry>,
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    /// The name of upstream's service account for the controller.
    pub(super) account: &'static str,
}

impl Protector {
    pub(super) fn resource(&self, group: &str, plural: &str) -> Arc<Resource> {
        let resource = self.registry.resource(group, "v1", plural);
        resource.expect("the table of built-ins has it")
    }

    pub(super) fn follower(&self, group: &str, plural: &str) -> Follower {
        Follower::new(self.registry.clone(), self.resource(group, plural))
    }

    /// Queues objects that may need the finalizer added or removed.
    pub(super) fn handle_events(&self, events: Vec<FollowerEvent>) {
        for event in events {
            if let FollowerEvent::Object(object) = event {
                let contains =
                    |word: &str| memmem::find(object.body_slice(), word.as_bytes()).is_some();
                let has_finalizer =
                    contains(protection_finalizer(self.group, self.plural).unwrap_or_default());
                if contains("\"deletionTimestamp\"") || !has_finalizer {
                    self.queue.add(object.key().clone());
                }
            }
        }
    }

    pub(super) async fn reconcile(
        &self,
        key: &ObjectKey,
        in_use: impl AsyncFnOnce(&Value) -> Result<bool, ApiError>,
    ) -> Result<Next, ApiError> {
        let resource = self.resource(self.group, self.plural);
        let target = Target {
            namespace: resource.namespaced.then(|| key.namespace().to_owned()),
            resource,
            name: key.name().to_owned(),
            subresource: None,
        };
        let object = match self.registry.get(&target, GetOptions::default()).await {
            Ok(object) => object,
            Err(error) if error.is_not_found() => return Ok(Next::Done),
            Err(error) => return Err(error),
        };
        let value = parse(&object);
        let finalizer =
            protection_finalizer(self.group, self.plural).expect("the resource is protected");
        let metadata = &value["metadata"];
        let finalizers = metadata["finalizers"].as_array();
        let mut finalizers = finalizers.cloned().unwrap_or_default();
        let has_finalizer = finalizers.iter().any(|other| other == finalizer);
        match (metadata["deletionTimestamp"].is_string(), has_finalizer) {
            (true, true) if in_use(&value).await? => return Ok(Next::After(IN_USE)),
            (true, true) => finalizers.retain(|other| other != finalizer),
            (false, false) => finalizers.push(finalizer.into()),
            _ => return Ok(Next::Done),
        }
        let finalizers = json!({"finalizers": finalizers});
        let patched =
            framework::patch_metadata(&self.registry, self.account, &target, &object, finalizers);
        match patched.await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(Next::Done),
        }
    }
}

/// Parses an object; null if that is not possible.
pub(super) fn parse(object: &Object) -> Value {
    serde_json::from_slice(object.body_slice()).unwrap_or_default()
}
