//! PodTopologyLabels: a pod gets the zone and the region of its node as labels, when it is bound or when it is
//! created on a node.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::super::cluster::{Cluster, Freshness, GroupResource};
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Operation, Request};
use super::plugin::AdmissionPlugin;

const LABELS: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

const NODES: GroupResource<'static> = GroupResource::new("", "nodes");

/// The PodTopologyLabels admission plugin; see the module.
#[derive(Debug)]
pub(super) struct PodTopologyLabels;

#[async_trait]
impl AdmissionPlugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn mutates(&self, request: Request<'_>) -> bool {
        request.operation == Operation::Create
            && request.group.is_empty()
            && request.resource == "pods"
            && matches!(request.subresource, "" | "binding")
    }

    async fn mutate(
        &self,
        cluster: &dyn Cluster,
        attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let object = &attributes.object;
        let node = match attributes.subresource {
            "binding" if object["target"]["kind"] != "Node" => return Ok(()),
            "binding" => &object["target"]["name"],
            _ => &object["spec"]["nodeName"],
        };
        let Some(node) = node.as_str().filter(|name| !name.is_empty()) else {
            return Ok(());
        };
        let found = cluster.object(NODES, "", node, Freshness::Cached).await;
        let Some(node) = found? else {
            return Ok(());
        };
        for label in LABELS {
            if let Some(value) = node["metadata"]["labels"].get(label) {
                let labels = &mut attributes.object.to_mut()["metadata"]["labels"];
                if !labels.is_object() {
                    *labels = json!({});
                }
                labels[label] = Value::clone(value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FakeCluster, attributes, pod};
    use super::*;

    fn cluster() -> FakeCluster {
        let mut cluster = FakeCluster::default();
        let labels = json!({LABELS[0]: "z", LABELS[1]: "r", "other": "x"});
        let node = json!({"metadata": {"name": "n1", "labels": labels}});
        cluster.add("", "nodes", node);
        cluster
    }

    #[tokio::test]
    async fn a_bound_pod_has_the_topology_of_its_node() {
        let expected = json!({LABELS[0]: "z", LABELS[1]: "r"});
        for (kind, name, expected) in [
            ("Node", "n1", &expected),
            ("Node", "n2", &Value::Null),
            ("", "n1", &Value::Null),
        ] {
            let target = json!({"kind": kind, "name": name});
            let binding = json!({"metadata": {"name": "p"}, "target": target});
            let mut write = attributes(Operation::Create, ("", "pods"), &binding, &Value::Null);
            write.subresource = "binding";
            let bound = cluster().mutate(&PodTopologyLabels, write).await.unwrap();
            assert_eq!(bound["metadata"]["labels"], *expected, "{kind} {name}");
        }
        let on_node = pod(json!({"nodeName": "n1"}));
        let created = cluster().create(&PodTopologyLabels, "pods", on_node).await;
        assert_eq!(created.unwrap()["metadata"]["labels"], expected);
        let cluster = cluster();
        let created = cluster.create(&PodTopologyLabels, "pods", pod(json!({})));
        assert_eq!(created.await.unwrap()["metadata"]["labels"], Value::Null);
    }
}
