//! TaintNodesByCondition: a new node gets the not-ready taint, so that no pod is scheduled on it before the
//! node controller has seen it ready.

use async_trait::async_trait;
use serde_json::json;

use super::super::cluster::Cluster;
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Request};
use super::plugin::AdmissionPlugin;

/// The TaintNodesByCondition admission plugin; see the module.
#[derive(Debug)]
pub(super) struct TaintNodesByCondition;

#[async_trait]
impl AdmissionPlugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn mutates(&self, request: Request<'_>) -> bool {
        request.creates("", "nodes")
    }

    async fn mutate(
        &self,
        _cluster: &dyn Cluster,
        attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let node = attributes.object.to_mut();
        if !node["spec"].is_object() {
            node["spec"] = json!({});
        }
        let taints = &mut node["spec"]["taints"];
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        match taints.as_array_mut() {
            Some(list) => {
                let is_same = |other: &serde_json::Value| {
                    other["key"] == taint["key"] && other["effect"] == taint["effect"]
                };
                if !list.iter().any(is_same) {
                    list.push(taint);
                }
            }
            None => *taints = json!([taint]),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::testing::FakeCluster;
    use super::*;

    async fn check(spec: Value, expected: Value) {
        let node = json!({"metadata": {"name": "n"}, "spec": spec});
        let cluster = FakeCluster::default();
        let created = cluster.create(&TaintNodesByCondition, "nodes", node).await;
        assert_eq!(created.unwrap()["spec"]["taints"], expected);
    }

    #[tokio::test]
    async fn a_new_node_is_not_ready() {
        let ours = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let execute = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"});
        let with_time = json!({
            "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "value": "x",
        });
        check(Value::Null, json!([ours])).await;
        check(json!({"taints": [execute]}), json!([execute, ours])).await;
        check(json!({"taints": [with_time]}), json!([with_time])).await;
    }
}
