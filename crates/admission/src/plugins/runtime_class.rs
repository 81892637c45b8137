//! RuntimeClass: a new pod gets the overhead, the node selector and the tolerations of its RuntimeClass.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::super::cluster::{Cluster, GroupResource};
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Request};
use super::plugin::AdmissionPlugin;
use watchet_schema::Quantity;

const CLASSES: GroupResource<'static> = GroupResource::new("node.k8s.io", "runtimeclasses");

/// The number of tolerations that are compared with all others before the task yields.
const TOLERATIONS_PER_TURN: usize = 16;

/// The RuntimeClass admission plugin; see the module.
#[derive(Debug)]
pub(super) struct RuntimeClass;

#[async_trait]
impl AdmissionPlugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn mutates(&self, request: Request<'_>) -> bool {
        request.creates("", "pods")
    }

    fn validates(&self, request: Request<'_>) -> bool {
        request.creates("", "pods")
    }

    async fn mutate(
        &self,
        cluster: &dyn Cluster,
        attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let Some(class) = class_of(cluster, attributes).await? else {
            return Ok(());
        };
        set_overhead(attributes, &class)?;
        set_node_selector(attributes, &class["scheduling"]["nodeSelector"])?;
        let own = list(&attributes.object["spec"]["tolerations"]);
        let more = list(&class["scheduling"]["tolerations"]);
        if !more.is_empty() {
            let merged = merged_tolerations(&[own, more].concat()).await;
            attributes.object.to_mut()["spec"]["tolerations"] = merged.into();
        }
        Ok(())
    }

    async fn validate(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let class = class_of(cluster, attributes).await?;
        let given = &attributes.object["spec"]["overhead"];
        match class.as_ref().and_then(|class| class.get("overhead")) {
            Some(overhead) if same_amounts(&overhead["podFixed"], given) => Ok(()),
            Some(_) => Err(mismatch(attributes)),
            None if given.is_null() => Ok(()),
            None => Err(attributes.forbidden(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            )),
        }
    }
}

/// Returns the RuntimeClass of a new pod, if the pod specifies one.
async fn class_of(
    cluster: &dyn Cluster,
    attributes: &AdmissionRequest<'_>,
) -> Result<Option<Value>, AdmissionError> {
    let Some(name) = attributes.object["spec"]["runtimeClassName"].as_str() else {
        return Ok(None);
    };
    match cluster.object_or_latest(CLASSES, "", name).await? {
        Some(class) => Ok(Some(class)),
        None => Err(attributes.forbidden(format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

fn mismatch(attributes: &AdmissionRequest<'_>) -> AdmissionError {
    attributes
        .forbidden("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
}

fn set_overhead(
    attributes: &mut AdmissionRequest<'_>,
    class: &Value,
) -> Result<(), AdmissionError> {
    if class["overhead"].is_null() {
        return Ok(());
    }
    let fixed = &class["overhead"]["podFixed"];
    let given = &attributes.object["spec"]["overhead"];
    let is_empty = given.as_object().is_none_or(serde_json::Map::is_empty);
    if !is_empty && !same_amounts(fixed, given) {
        return Err(mismatch(attributes));
    }
    if !fixed.is_null() {
        attributes.object.to_mut()["spec"]["overhead"] = fixed.clone();
    }
    Ok(())
}

/// Returns true if two maps of quantities are equal, in whatever notation.
fn same_amounts(one: &Value, other: &Value) -> bool {
    let amounts = |map: &Value| -> Vec<(String, Option<Quantity>)> {
        let members = map.as_object().into_iter().flatten();
        let mut amounts: Vec<_> = members
            .map(|(name, amount)| (name.clone(), Quantity::read(amount)))
            .collect();
        amounts.sort_by(|(one, _), (other, _)| one.cmp(other));
        amounts
    };
    amounts(one) == amounts(other)
}

fn set_node_selector(
    attributes: &mut AdmissionRequest<'_>,
    selector: &Value,
) -> Result<(), AdmissionError> {
    let Some(selector) = selector.as_object().filter(|map| !map.is_empty()) else {
        return Ok(());
    };
    let own = &attributes.object["spec"]["nodeSelector"];
    for (key, value) in selector {
        if let Some(own) = own[key].as_str().filter(|own| *own != value) {
            let value = value.as_str().unwrap_or_default();
            return Err(attributes.forbidden(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; \
                 pod.spec.nodeSelector[{key}] = {own}"
            )));
        }
    }
    let own = &mut attributes.object.to_mut()["spec"]["nodeSelector"];
    if !own.is_object() {
        *own = json!({});
    }
    for (key, value) in selector {
        own[key] = value.clone();
    }
    Ok(())
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// Removes the tolerations that another one includes; of equal tolerations the first remains.
///
/// Compares each toleration with each other one. There can be a hundred thousand, so the function yields to other
/// tasks.
async fn merged_tolerations(all: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let mut later = all[index + 1..].iter();
        let is_redundant = merged.iter().any(|kept| includes(kept, toleration))
            || later.any(|other| other != toleration && includes(other, toleration));
        if !is_redundant {
            merged.push(toleration.clone());
        }
        if index % TOLERATIONS_PER_TURN == TOLERATIONS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    merged
}

fn text<'a>(toleration: &'a Value, member: &str) -> &'a str {
    toleration[member].as_str().unwrap_or_default()
}

/// Returns true if `one` tolerates everything that `other` tolerates.
fn includes(one: &Value, other: &Value) -> bool {
    if one == other {
        return true;
    }
    let (operator, effect) = (text(one, "operator"), text(one, "effect"));
    let any_key = text(one, "key").is_empty() && operator == "Exists";
    if text(one, "key") != text(other, "key") && !any_key {
        return false;
    }
    if !effect.is_empty() && effect != text(other, "effect") {
        return false;
    }
    let seconds = |toleration: &Value| toleration["tolerationSeconds"].as_i64();
    if effect == "NoExecute"
        && let Some(limit) = seconds(one)
        && seconds(other).is_none_or(|seconds| seconds > limit)
    {
        return false;
    }
    match operator {
        "Exists" => true,
        "" | "Equal" => {
            text(other, "operator") == "Equal" && text(one, "value") == text(other, "value")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FakeCluster, pod, refusal};
    use super::*;

    fn cluster() -> FakeCluster {
        let mut cluster = FakeCluster::default();
        for class in [
            json!({
                "metadata": {"name": "sandbox"},
                "overhead": {"podFixed": {"cpu": "250m", "memory": "1Gi"}},
                "scheduling": {
                    "nodeSelector": {"sandbox": "yes"},
                    "tolerations": [{"key": "sandbox", "operator": "Exists"}],
                },
            }),
            json!({"metadata": {"name": "plain"}}),
        ] {
            cluster.add("node.k8s.io", "runtimeclasses", class);
        }
        cluster
    }

    #[tokio::test]
    async fn a_pod_gets_overhead_and_scheduling_of_its_class() {
        let cluster = cluster();
        let toleration = json!({"key": "x", "operator": "Exists"});
        let given = pod(json!({
            "runtimeClassName": "sandbox", "nodeSelector": {"disk": "ssd"},
            "tolerations": [toleration],
        }));
        let created = cluster.create(&RuntimeClass, "pods", given).await.unwrap();
        let expected = json!({
            "runtimeClassName": "sandbox", "overhead": {"cpu": "250m", "memory": "1Gi"},
            "nodeSelector": {"disk": "ssd", "sandbox": "yes"},
            "tolerations": [toleration, {"key": "sandbox", "operator": "Exists"}],
        });
        assert_eq!(created["spec"], expected);
        let created = cluster.validate_create(&RuntimeClass, ("", "pods"), created);
        created.await.unwrap();
        for spec in [json!({}), json!({"runtimeClassName": "plain"})] {
            let created = cluster.create(&RuntimeClass, "pods", pod(spec.clone()));
            assert_eq!(created.await.unwrap()["spec"], spec);
        }
    }

    #[tokio::test]
    async fn a_pod_cannot_contradict_its_class() {
        let cluster = cluster();
        let overhead = json!({"cpu": "1"});
        for (spec, expected) in [
            (
                json!({"runtimeClassName": "none"}),
                "pod rejected: RuntimeClass \"none\" not found",
            ),
            (
                json!({"runtimeClassName": "sandbox", "overhead": overhead}),
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            ),
            (
                json!({"runtimeClassName": "sandbox", "nodeSelector": {"sandbox": "no"}}),
                "conflict: runtimeClass.scheduling.nodeSelector[sandbox] = yes; \
                 pod.spec.nodeSelector[sandbox] = no",
            ),
        ] {
            let refused = cluster.create(&RuntimeClass, "pods", pod(spec)).await;
            let expected = format!("pods \"p\" is forbidden: {expected}");
            assert_eq!(refusal(refused), expected);
        }
        for spec in [
            json!({"overhead": overhead}),
            json!({"runtimeClassName": "plain", "overhead": overhead}),
        ] {
            let refused = cluster.validate_create(&RuntimeClass, ("", "pods"), pod(spec));
            assert_eq!(
                refusal(refused.await),
                "pods \"p\" is forbidden: pod rejected: Pod Overhead set without corresponding \
                 RuntimeClass defined Overhead"
            );
        }
        let same = json!({
            "runtimeClassName": "sandbox", "overhead": {"cpu": "0.25", "memory": "1024Mi"},
        });
        cluster
            .create(&RuntimeClass, "pods", pod(same))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn tolerations_are_merged() {
        let all = json!({"operator": "Exists"});
        let exists = json!({"key": "a", "operator": "Exists"});
        let equal = json!({"key": "a", "operator": "Equal", "value": "1"});
        let short = json!({
            "key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5,
        });
        let long = json!({
            "key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9,
        });
        for (given, expected) in [
            (vec![&equal, &exists, &equal], vec![&exists]),
            (vec![&exists, &all], vec![&all]),
            (vec![&short, &long], vec![&long]),
            (vec![&exists, &exists], vec![&exists]),
            (vec![&equal, &short], vec![&equal, &short]),
        ] {
            let given: Vec<Value> = given.into_iter().cloned().collect();
            let expected: Vec<Value> = expected.into_iter().cloned().collect();
            assert_eq!(merged_tolerations(&given).await, expected);
        }
    }

    /// One pod with very many tolerations blocked the server for minutes.
    #[tokio::test]
    async fn other_tasks_run_while_tolerations_are_merged() {
        let all: Vec<Value> = (0..TOLERATIONS_PER_TURN * 3)
            .map(|number| json!({"key": format!("k{number}"), "operator": "Exists"}))
            .collect();
        let merging = std::pin::pin!(merged_tolerations(&all));
        assert!(futures::poll!(merging).is_pending());
    }
}
