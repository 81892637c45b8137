//! The protection controllers: a persistent volume claim is not deleted before the pods that use
//! it, a persistent volume not before its claim, a volume attributes class not before the volumes and
//! claims that name it. All are protected by a finalizer that new objects
//! get at creation; these controllers add it to objects without it and remove it from objects that
//! are no longer in use.

mod attributes_classes;

use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;
use serde_json::{Value, json};

pub(super) use self::attributes_classes::AttributesClasses;
use super::follower::{Follower, FollowerEvent};
use super::framework::{self, Controller};
use super::queue::{Next, Pauses, WorkQueue};
use crate::api::{GetOptions, ListOptions, Object, ObjectKey};
use crate::metrics::Metrics;
use crate::registry::{ApiError, Registry, Resource, Target, protection_finalizer};

pub(super) const CLAIMS: &str = "persistentvolumeclaim-protection-controller";
pub(super) const VOLUMES: &str = "persistentvolume-protection-controller";
pub(super) const ATTRIBUTES_CLASSES: &str = "volumeattributesclass-protection-controller";

const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(50),
    max: Duration::from_secs(10),
};

/// How often an object in use is checked again, in case an event of its users was missed.
const IN_USE: Duration = Duration::from_secs(30);

/// The common part of both controllers.
#[derive(Debug)]
struct Protector {
    registry: Arc<Registry>,
    queue: WorkQueue<ObjectKey>,
    group: &'static str,
    plural: &'static str,
    /// The name of upstream's service account for the controller.
    account: &'static str,
}

impl Protector {
    fn resource(&self, group: &str, plural: &str) -> Arc<Resource> {
        let resource = self.registry.resource(group, "v1", plural);
        resource.expect("the table of built-ins has it")
    }

    fn follower(&self, group: &str, plural: &str) -> Follower {
        Follower::new(self.registry.clone(), self.resource(group, plural))
    }

    /// Queues objects that may need the finalizer added or removed.
    fn handle_events(&self, events: Vec<FollowerEvent>) {
        for event in events {
            if let FollowerEvent::Object(object) = event {
                let says =
                    |word: &str| memmem::find(object.body_slice(), word.as_bytes()).is_some();
                let has_finalizer =
                    says(protection_finalizer(self.group, self.plural).unwrap_or_default());
                if says("\"deletionTimestamp\"") || !has_finalizer {
                    self.queue.add(object.key().clone());
                }
            }
        }
    }

    async fn reconcile(
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
        let ours =
            protection_finalizer(self.group, self.plural).expect("the resource is protected");
        let metadata = &value["metadata"];
        let finalizers = metadata["finalizers"].as_array();
        let mut finalizers = finalizers.cloned().unwrap_or_default();
        let has_finalizer = finalizers.iter().any(|finalizer| finalizer == ours);
        match (metadata["deletionTimestamp"].is_string(), has_finalizer) {
            (true, true) if in_use(&value).await? => return Ok(Next::After(IN_USE)),
            (true, true) => finalizers.retain(|finalizer| finalizer != ours),
            (false, false) => finalizers.push(ours.into()),
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

/// Protects claims that pods use.
#[derive(Debug)]
pub(super) struct Claims(Protector);

impl Claims {
    pub(super) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self(Protector {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(CLAIMS)),
            group: "",
            plural: "persistentvolumeclaims",
            account: "pvc-protection-controller",
        })
    }

    /// Queues the claims of a pod that may no longer use them.
    fn handle_pod_event(&self, event: FollowerEvent) {
        let (pod, is_deleted) = match event {
            FollowerEvent::Object(pod) => (pod, false),
            FollowerEvent::Deleted(pod) => (pod, true),
            FollowerEvent::SyncStarted | FollowerEvent::SyncComplete => return,
        };
        // Most pods have no claims, and pods change often.
        let says = |word: &[u8]| memmem::find(pod.body_slice(), word).is_some();
        if !says(b"\"persistentVolumeClaim\"") && !says(b"\"ephemeral\"") {
            return;
        }
        let value = parse(&pod);
        for claim in claims(&value) {
            if is_deleted || !uses(&value, claim.kind) {
                let key = ObjectKey::new(Some(pod.key().namespace()), &claim.name);
                self.0.queue.add(key);
            }
        }
    }

    /// Returns whether a pod in the namespace uses `claim`, according to storage.
    async fn is_used(&self, namespace: &str, claim: &Value) -> Result<bool, ApiError> {
        let all = ListOptions::default();
        let pods = self.0.resource("", "pods");
        let pods = self.0.registry.list(&pods, Some(namespace), &all).await?;
        let name = claim["metadata"]["name"].as_str().unwrap_or_default();
        Ok(pods.items.iter().any(|pod| is_user(pod, name, claim)))
    }
}

/// Returns whether the pod uses the claim of this name.
fn is_user(pod: &Object, name: &str, claim: &Value) -> bool {
    // The name of an ephemeral volume's claim is composed; the pod contains only its last part.
    let part = name.rsplit('-').next().unwrap_or(name);
    if memmem::find(pod.body_slice(), part.as_bytes()).is_none() {
        return false;
    }
    let pod = parse(pod);
    claims(&pod).any(|of_pod| {
        of_pod.name == name
            && uses(&pod, of_pod.kind)
            && (of_pod.kind == ClaimKind::Named || is_owned_by(claim, &pod))
    })
}

fn is_owned_by(claim: &Value, pod: &Value) -> bool {
    let owners = claim["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    owners.any(|owner| owner["controller"] == true && owner["uid"] == pod["metadata"]["uid"])
}

/// How a pod refers to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimKind {
    Named,
    /// Created for this pod (ephemeral volume).
    Ephemeral,
}

struct Claim {
    name: String,
    kind: ClaimKind,
}

/// Returns the claims that a pod refers to.
fn claims(pod: &Value) -> impl Iterator<Item = Claim> {
    let own = pod["metadata"]["name"].as_str().unwrap_or_default();
    let volumes = pod["spec"]["volumes"].as_array();
    volumes.into_iter().flatten().filter_map(move |volume| {
        if let Some(name) = volume["persistentVolumeClaim"]["claimName"].as_str() {
            let name = name.to_owned();
            let kind = ClaimKind::Named;
            return Some(Claim { name, kind });
        }
        volume["ephemeral"].as_object()?;
        let name = format!("{own}-{}", volume["name"].as_str()?);
        let kind = ClaimKind::Ephemeral;
        Some(Claim { name, kind })
    })
}

/// Returns whether a pod uses its claims: volumes are mounted only after it has a node, and an
/// ephemeral volume is unmounted when it has terminated.
fn uses(pod: &Value, kind: ClaimKind) -> bool {
    let metadata = &pod["metadata"];
    let shut_down = metadata["deletionTimestamp"].is_string()
        && metadata["deletionGracePeriodSeconds"].as_i64() == Some(0);
    let scheduled = pod["spec"]["nodeName"]
        .as_str()
        .is_some_and(|node| !node.is_empty());
    scheduled && !(shut_down && kind == ClaimKind::Ephemeral)
}

impl Controller for Claims {
    type Key = ObjectKey;
    const NAME: &'static str = CLAIMS;
    const WORKERS: usize = 2;

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.0.queue
    }

    async fn follow(&self) {
        let mut claims = self.0.follower("", "persistentvolumeclaims");
        let mut pods = self.0.follower("", "pods");
        loop {
            // Claims come first: they are fewer.
            tokio::select! {
                biased;
                events = claims.next() => self.0.handle_events(events),
                events = pods.next() => events.into_iter().for_each(|event| self.handle_pod_event(event)),
            }
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        let in_use = async |claim: &Value| self.is_used(key.namespace(), claim).await;
        self.0.reconcile(key, in_use).await
    }
}

/// Protects volumes that are bound to a claim.
#[derive(Debug)]
pub(super) struct Volumes(Protector);

impl Volumes {
    pub(super) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self(Protector {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(VOLUMES)),
            group: "",
            plural: "persistentvolumes",
            account: "pv-protection-controller",
        })
    }
}

impl Controller for Volumes {
    type Key = ObjectKey;
    const NAME: &'static str = VOLUMES;
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

fn parse(object: &Object) -> Value {
    serde_json::from_slice(object.body_slice()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_uses_its_claims_while_it_runs_on_a_node() {
        let volumes = json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "scratch", "ephemeral": {}},
            {"name": "other", "emptyDir": {}},
        ]);
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"volumes": volumes}});
        let names: Vec<String> = claims(&pod).map(|claim| claim.name).collect();
        assert_eq!(names, ["c", "p-scratch"]);
        assert!(!uses(&pod, ClaimKind::Named), "the pod has no node");
        pod["spec"]["nodeName"] = json!("n");
        assert!(uses(&pod, ClaimKind::Named) && uses(&pod, ClaimKind::Ephemeral));
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        assert!(uses(&pod, ClaimKind::Named) && !uses(&pod, ClaimKind::Ephemeral));
    }
}
