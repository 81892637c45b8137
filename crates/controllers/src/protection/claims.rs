//! The controller that protects persistent volume claims from deletion while a pod uses them.

use std::sync::Arc;

use memchr::memmem;
use serde_json::Value;

use crate::follower::FollowerEvent;
use crate::framework::Controller;
use crate::protection::protector::{PAUSES, Protector, parse};
use crate::queue::{Next, WorkQueue};
use watchet_api::{ListOptions, Object, ObjectKey};
use watchet_metrics::Metrics;
use watchet_registry::{ApiError, Registry};

/// The name of the controller.
const NAME: &str = "persistentvolumeclaim-protection-controller";

/// Protects claims that pods use.
#[derive(Debug)]
pub(crate) struct Claims(Protector);

impl Claims {
    pub(crate) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self(Protector {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(NAME)),
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
        let contains = |word: &[u8]| memmem::find(pod.body_slice(), word).is_some();
        if !contains(b"\"persistentVolumeClaim\"") && !contains(b"\"ephemeral\"") {
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
    const NAME: &'static str = NAME;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

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
