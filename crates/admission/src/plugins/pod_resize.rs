//! PodResizeValidator: rejects a resize of a pod beyond the allocatable resources of its node, or on a node that does
//! not run Linux.

use async_trait::async_trait;

use super::super::cluster::{Cluster, Freshness, GroupResource};
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Request};
use super::plugin::AdmissionPlugin;
use super::resources::{RequestsOrLimits, ResourceList, parse, total_of_pod};
use watchet_api::StatusCause;
use watchet_schema::Quantity;

const NODES: GroupResource<'static> = GroupResource::new("", "nodes");

/// The PodResizeValidator admission plugin; see the module.
#[derive(Debug)]
pub(super) struct PodResizeValidator;

#[async_trait]
impl AdmissionPlugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn validates(&self, request: Request<'_>) -> bool {
        request.is_of_subresource("", "pods", "resize")
    }

    async fn validate(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let (old, new) = (&attributes.old_object["spec"], &attributes.object["spec"]);
        let name = new["nodeName"].as_str().unwrap_or_default();
        if name.is_empty() || old == new {
            return Ok(());
        }
        let found = cluster.object(NODES, "", name, Freshness::Cached).await?;
        let Some(node) = found else {
            return Err(attributes.forbidden(format!("node {name:?} not found")));
        };
        let os = node["metadata"]["labels"]["kubernetes.io/os"].as_str();
        if let Some(os) = os.filter(|os| *os != "linux") {
            let why =
                format!("pod resize is only supported on linux nodes, node {name:?} is {os:?}");
            let error = attributes.forbidden(why);
            return Err(error.with_cause(cause("UnsupportedPlatform")));
        }
        let requests = total_of_pod(new, RequestsOrLimits::Requests, |container| {
            RequestsOrLimits::Requests.of(container)
        });
        let problems = problems(&requests, &parse(&node["status"]["allocatable"]));
        if problems.is_empty() {
            return Ok(());
        }
        let why = format!(
            "node didn't have enough allocatable resources: {}",
            problems.join("; ")
        );
        Err(attributes.forbidden(why).with_cause(cause("NodeCapacity")))
    }
}

fn cause(reason: &str) -> StatusCause {
    StatusCause {
        reason: reason.to_owned(),
        message: String::new(),
        field: String::new(),
    }
}

/// Returns the requests that exceed the allocatable resources of the node.
fn problems(requests: &ResourceList, allocatable: &ResourceList) -> Vec<String> {
    let mut problems = Vec::new();
    let none = Quantity::of_count(0);
    for name in ["cpu", "memory"] {
        let number = |quantity: &Quantity| match name {
            "cpu" => quantity.milli_value(),
            _ => quantity.value(),
        };
        let amount = |list: &ResourceList| list.get(name).unwrap_or(&none).clone();
        let (requested, limit) = (amount(requests), amount(allocatable));
        if requested > limit {
            let (requested, limit) = (number(&requested), number(&limit));
            problems.push(format!(
                "{name}, requested: {requested}, allocatable: {limit}"
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::request::Operation;
    use super::super::testing::{FakeCluster, attributes, pod, status_of};
    use super::*;

    fn sized(node: &str, cpu: &str, memory: &str) -> Value {
        pod(json!({"nodeName": node, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}},
        ]}))
    }

    async fn resize(new: Value) -> Result<(), AdmissionError> {
        let mut cluster = FakeCluster::default();
        for (name, os) in [("linux", "linux"), ("windows", "windows")] {
            let node = json!({
                "metadata": {"name": name, "labels": {"kubernetes.io/os": os}},
                "status": {"allocatable": {"cpu": "2", "memory": "1Ki"}},
            });
            cluster.add("", "nodes", node);
        }
        let mut old = new.clone();
        old["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "1"});
        let mut request = attributes(Operation::Update, ("", "pods"), &new, &old);
        request.subresource = "resize";
        cluster.validate(&PodResizeValidator, request).await
    }

    #[tokio::test]
    async fn resize_is_limited_by_the_node() {
        resize(sized("linux", "2", "1Ki")).await.unwrap();
        resize(sized("", "9", "9Ki")).await.unwrap();
        for (pod, why, reason) in [
            (
                sized("linux", "2500m", "2Ki"),
                "node didn't have enough allocatable resources: cpu, requested: 2500, allocatable: \
                 2000; memory, requested: 2048, allocatable: 1024",
                "NodeCapacity",
            ),
            (
                sized("windows", "2", "0"),
                "pod resize is only supported on linux nodes, node \"windows\" is \"windows\"",
                "UnsupportedPlatform",
            ),
        ] {
            let status = status_of(resize(pod).await);
            assert_eq!(status.message, format!("pods \"p\" is forbidden: {why}"));
            let causes = status.details.expect("details").causes;
            assert_eq!(causes[0].reason, reason);
        }
        let status = status_of(resize(sized("missing", "2", "0")).await);
        assert!(status.message.ends_with("node \"missing\" not found"));
    }
}
