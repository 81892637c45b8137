//! DefaultTolerationSeconds: a pod tolerates nodes that are not ready or not reachable for five minutes,
//! unless it says otherwise.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::super::cluster::Cluster;
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Request};
use super::plugin::AdmissionPlugin;

const TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

const TOLERATION_SECONDS: u32 = 300;

/// The DefaultTolerationSeconds admission plugin; see the module.
#[derive(Debug)]
pub(super) struct DefaultTolerationSeconds;

#[async_trait]
impl AdmissionPlugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn mutates(&self, request: Request<'_>) -> bool {
        request.creates("", "pods") || request.updates("", "pods")
    }

    async fn mutate(
        &self,
        _cluster: &dyn Cluster,
        attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let missing: Vec<&str> = {
            let given = attributes.object["spec"]["tolerations"].as_array();
            let given = given.map_or(&[][..], Vec::as_slice);
            let is_missing = |key: &&str| !given.iter().any(|given| tolerates(given, key));
            TAINTS.into_iter().filter(is_missing).collect()
        };
        if missing.is_empty() || !attributes.object["spec"].is_object() {
            return Ok(());
        }
        let tolerations = &mut attributes.object.to_mut()["spec"]["tolerations"];
        if !tolerations.is_array() {
            *tolerations = json!([]);
        }
        let new = missing.into_iter().map(|key| {
            json!({
                "effect": "NoExecute", "key": key, "operator": "Exists",
                "tolerationSeconds": TOLERATION_SECONDS,
            })
        });
        if let Some(list) = tolerations.as_array_mut() {
            list.extend(new);
        }
        Ok(())
    }
}

/// Returns true if a toleration matches the taint `key` with the effect NoExecute. The empty key and the empty effect
/// match all.
fn tolerates(toleration: &Value, key: &str) -> bool {
    let is = |member: &str, expected: &str| {
        let value = toleration[member].as_str().unwrap_or_default();
        value.is_empty() || value == expected
    };
    is("key", key) && is("effect", "NoExecute")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FakeCluster, pod};
    use super::*;

    /// Returns the taints for which a pod with `tolerations` gets a default toleration.
    async fn check(tolerations: Value, expected: &[&str]) {
        let cluster = FakeCluster::default();
        let given = tolerations.as_array().cloned().unwrap_or_default();
        let old = pod(json!({"tolerations": tolerations}));
        let created = cluster.create(&DefaultTolerationSeconds, "pods", old.clone());
        let created = created.await.unwrap();
        let updated = cluster.update(&DefaultTolerationSeconds, "pods", old.clone(), old);
        assert_eq!(created, updated.await.unwrap());
        let mut all = given;
        all.extend(expected.iter().map(|key| {
            json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            })
        }));
        let tolerations = created["spec"]["tolerations"].as_array().cloned();
        assert_eq!(tolerations.unwrap_or_default(), all);
    }

    #[tokio::test]
    async fn pods_tolerate_failing_nodes_for_five_minutes() {
        let [not_ready, unreachable] = TAINTS;
        check(Value::Null, &TAINTS).await;
        check(json!([{"key": "x", "operator": "Exists"}]), &TAINTS).await;
        check(json!([{"key": not_ready, "effect": "NoSchedule"}]), &TAINTS).await;
        check(
            json!([{"key": not_ready, "effect": "NoExecute"}]),
            &[unreachable],
        )
        .await;
        check(json!([{"key": unreachable}]), &[not_ready]).await;
        check(json!([{"operator": "Exists"}]), &[]).await;
        check(
            json!([{"operator": "Exists", "effect": "NoSchedule"}]),
            &TAINTS,
        )
        .await;
    }
}
