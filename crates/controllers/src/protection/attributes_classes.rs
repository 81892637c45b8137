//! The controller that protects a VolumeAttributesClass from deletion while a volume or a claim refers to it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use memchr::memmem;
use parking_lot::Mutex;
use serde_json::Value;

use crate::follower::FollowerEvent;
use crate::framework::Controller;
use crate::protection::protector::{PAUSES, Protector, parse};
use crate::queue::{Next, WorkQueue};
use watchet_api::{ListOptions, Object, ObjectKey};
use watchet_metrics::Metrics;
use watchet_registry::{ApiError, Registry};

/// The name of the controller.
const NAME: &str = "volumeattributesclass-protection-controller";

/// Resources whose objects name attributes classes.
const USERS: [&str; 2] = ["persistentvolumes", "persistentvolumeclaims"];

/// Protects the attributes classes that volumes and claims refer to.
#[derive(Debug)]
pub(crate) struct AttributesClasses {
    protector: Protector,
    /// The classes that a volume or a claim refers to; objects without a class have no entry.
    named: Mutex<HashMap<(&'static str, ObjectKey), BTreeSet<String>>>,
}

impl AttributesClasses {
    pub(crate) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self {
            protector: Protector {
                registry,
                queue: WorkQueue::new(PAUSES, metrics.work_queue(NAME)),
                group: "storage.k8s.io",
                plural: "volumeattributesclasses",
                account: "volumeattributesclass-protection-controller",
            },
            named: Mutex::default(),
        }
    }

    /// Queues the classes that a volume or a claim has stopped referring to.
    fn apply(&self, plural: &'static str, event: FollowerEvent) {
        let (object, names) = match event {
            FollowerEvent::Object(object) => {
                let names = names(&object);
                (object, names)
            }
            FollowerEvent::Deleted(object) => (object, BTreeSet::new()),
            FollowerEvent::SyncStarted => {
                // The objects that still exist follow.
                let mut named = self.named.lock();
                let removed = named.extract_if(|(of, _), _| *of == plural);
                return removed.for_each(|(_, names)| self.queue(&names));
            }
            FollowerEvent::SyncComplete => return,
        };
        let key = (plural, object.key().clone());
        let mut named = self.named.lock();
        let before = match names.is_empty() {
            true => named.remove(&key),
            false => named.insert(key, names.clone()),
        };
        self.queue(&(&before.unwrap_or_default() - &names));
    }

    fn queue(&self, names: &BTreeSet<String>) {
        for name in names {
            self.protector.queue.add(ObjectKey::new(None, name));
        }
    }

    /// Returns true if a volume or a claim in storage refers to the class.
    async fn is_used(&self, class: &str) -> Result<bool, ApiError> {
        let all = ListOptions::default();
        for plural in USERS {
            let resource = self.protector.resource("", plural);
            let registry = &self.protector.registry;
            let users = registry.list(&resource, None, &all).await?;
            if users.items.iter().any(|user| names(user).contains(class)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns the present, former and requested classes of a volume or a claim.
fn names(object: &Object) -> BTreeSet<String> {
    // Most objects have no class.
    if memmem::find(object.body_slice(), b"olumeAttributesClassName\"").is_none() {
        return BTreeSet::new();
    }
    let value = parse(object);
    let names: [&Value; 3] = [
        &value["spec"]["volumeAttributesClassName"],
        &value["status"]["currentVolumeAttributesClassName"],
        &value["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
    ];
    let names = names.into_iter().filter_map(Value::as_str);
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

impl Controller for AttributesClasses {
    type Key = ObjectKey;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 1;

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.protector.queue
    }

    async fn follow(&self) {
        let [volumes, claims] = USERS;
        let protector = &self.protector;
        let mut classes = protector.follower(protector.group, protector.plural);
        let mut all_volumes = protector.follower("", volumes);
        let mut all_claims = protector.follower("", claims);
        loop {
            // Classes come first: they are fewest.
            tokio::select! {
                biased;
                events = classes.next() => protector.handle_events(events),
                events = all_volumes.next() => {
                    events.into_iter().for_each(|event| self.apply(volumes, event));
                }
                events = all_claims.next() => {
                    events.into_iter().for_each(|event| self.apply(claims, event));
                }
            }
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        let in_use = async |_: &Value| self.is_used(key.name()).await;
        self.protector.reconcile(key, in_use).await
    }
}
