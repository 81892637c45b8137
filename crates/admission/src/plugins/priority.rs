//! Priority: a new pod gets the priority and the preemption policy of its PriorityClass, and at most one PriorityClass
//! is the global default.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::super::cluster::{Cluster, Freshness, GroupResource};
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Operation, Request};
use super::object::name_of;
use super::plugin::AdmissionPlugin;

const GROUP: &str = "scheduling.k8s.io";
const CLASSES: GroupResource<'static> = GroupResource::new(GROUP, "priorityclasses");

/// The names and values of the classes that every cluster has, even if they are not stored.
const SYSTEM_CLASSES: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

const PREEMPT_LOWER_PRIORITY: &str = "PreemptLowerPriority";

/// The Priority admission plugin; see the module.
#[derive(Debug)]
pub(super) struct Priority;

#[async_trait]
impl AdmissionPlugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn mutates(&self, request: Request<'_>) -> bool {
        request.creates("", "pods") || request.updates("", "pods")
    }

    fn validates(&self, request: Request<'_>) -> bool {
        let resource = CLASSES.resource;
        request.creates(GROUP, resource) || request.updates(GROUP, resource)
    }

    async fn mutate(
        &self,
        cluster: &dyn Cluster,
        attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        match attributes.operation {
            Operation::Create => set_priority(cluster, attributes).await,
            _ => {
                copy_old_priority(attributes);
                Ok(())
            }
        }
    }

    /// Rejects a second global default.
    async fn validate(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        if attributes.object["globalDefault"] != true {
            return Ok(());
        }
        let others = defaults(cluster, Freshness::Latest).await?;
        let own = name_of(&attributes.object);
        match others.iter().map(name_of).find(|name| *name != own) {
            None => Ok(()),
            Some(name) => Err(attributes.forbidden(format!(
                "PriorityClass {name} is already marked as default. Only one default can exist"
            ))),
        }
    }
}

/// Sets the priority and the preemption policy of a new pod.
async fn set_priority(
    cluster: &dyn Cluster,
    attributes: &mut AdmissionRequest<'_>,
) -> Result<(), AdmissionError> {
    let spec = &attributes.object["spec"];
    if !spec.is_object() {
        return Ok(());
    }
    let named = spec["priorityClassName"].as_str().unwrap_or_default();
    let class = match named {
        "" => default_class(cluster).await?,
        name => match find(cluster, name).await? {
            Some(class) => Some(class),
            None => {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(attributes.forbidden(why));
            }
        },
    };
    let class = class.unwrap_or_else(|| json!({"value": 0}));
    let value = class["value"].as_i64().unwrap_or_default();
    let policy = class["preemptionPolicy"].as_str();
    let policy = policy.unwrap_or(PREEMPT_LOWER_PRIORITY);
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != value) {
        return Err(attributes.forbidden(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority \
             admission controller computed {value} from the given PriorityClass name"
        )));
    }
    let given = spec["preemptionPolicy"].as_str();
    if let Some(given) = given.filter(|given| *given != policy) {
        return Err(attributes.forbidden(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority \
             admission controller computed {policy} from the given PriorityClass name"
        )));
    }
    let spec = &mut attributes.object.to_mut()["spec"];
    if let Some(name) = class["metadata"]["name"].as_str() {
        spec["priorityClassName"] = name.into();
    }
    spec["priority"] = value.into();
    spec["preemptionPolicy"] = policy.into();
    Ok(())
}

/// Copies the priority and the preemption policy from the old pod if an update omits them: clients of older versions do not
/// send them.
fn copy_old_priority(attributes: &mut AdmissionRequest<'_>) {
    for member in ["priority", "preemptionPolicy"] {
        let Some(old) = attributes.old_object["spec"].get(member) else {
            continue;
        };
        let spec = &attributes.object["spec"];
        if spec.is_object() && spec[member].is_null() {
            attributes.object.to_mut()["spec"][member] = old.clone();
        }
    }
}

/// Returns the class of pods that specify no class. If concurrent requests have created several global defaults, returns
/// the one with the lowest value.
async fn default_class(cluster: &dyn Cluster) -> Result<Option<Value>, AdmissionError> {
    let defaults = defaults(cluster, Freshness::Cached).await?;
    Ok(defaults
        .into_iter()
        .min_by_key(|class| class["value"].as_i64()))
}

async fn defaults(
    cluster: &dyn Cluster,
    freshness: Freshness,
) -> Result<Vec<Value>, AdmissionError> {
    let classes = cluster.objects(CLASSES, "", freshness).await;
    let mut classes = classes.map_err(|error| {
        let failed = |why| format!("failed to get default priority class: {why}");
        error.or_failed(|why| AdmissionError::Internal(failed(why)))
    })?;
    classes.retain(|class| class["globalDefault"] == true);
    Ok(classes)
}

async fn find(cluster: &dyn Cluster, name: &str) -> Result<Option<Value>, AdmissionError> {
    if let Some((name, value)) = SYSTEM_CLASSES.iter().find(|(system, _)| *system == name) {
        return Ok(Some(json!({"metadata": {"name": name}, "value": value})));
    }
    let found = cluster.object_or_latest(CLASSES, "", name).await;
    found.map_err(|error| {
        let failed = |why| format!("failed to resolve PriorityClass with name {name}: {why}");
        error.or_failed(|why| AdmissionError::Internal(failed(why)))
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FakeCluster, pod, refusal};
    use super::*;

    fn class(name: &str, value: i64, more: Value) -> Value {
        let mut class = json!({"metadata": {"name": name}, "value": value});
        class
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().cloned().unwrap_or_default());
        class
    }

    fn cluster(classes: &[Value]) -> FakeCluster {
        let mut cluster = FakeCluster::default();
        for class in classes {
            cluster.add(GROUP, "priorityclasses", class.clone());
        }
        cluster
    }

    /// Asserts the spec of a new pod with `spec`, or the error.
    async fn check(classes: &[Value], spec: Value, expected: Result<Value, &str>) {
        let cluster = cluster(classes);
        let mutated = cluster.create(&Priority, "pods", pod(spec)).await;
        match (mutated, expected) {
            (Ok(pod), Ok(expected)) => assert_eq!(pod["spec"], expected),
            (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected),
            (other, _) => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_pod_gets_the_priority_of_its_class() {
        let none = json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"});
        check(&[], json!({}), Ok(none)).await;
        let classes = [
            class("high", 10, json!({"preemptionPolicy": "Never"})),
            class("other", 9, json!({"globalDefault": true})),
            class("usual", 7, json!({"globalDefault": true})),
        ];
        let usual = json!({
            "priorityClassName": "usual", "priority": 7, "preemptionPolicy": "PreemptLowerPriority",
        });
        check(&classes, json!({}), Ok(usual)).await;
        let high =
            json!({"priorityClassName": "high", "priority": 10, "preemptionPolicy": "Never"});
        check(
            &classes,
            json!({"priorityClassName": "high"}),
            Ok(high.clone()),
        )
        .await;
        check(&classes, high.clone(), Ok(high)).await;
        let system = json!({
            "priorityClassName": "system-node-critical", "priority": 2_000_001_000,
            "preemptionPolicy": "PreemptLowerPriority",
        });
        let named = json!({"priorityClassName": "system-node-critical"});
        check(&[], named, Ok(system)).await;
    }

    #[tokio::test]
    async fn priority_that_differs_from_the_class_is_rejected() {
        let classes = [class("high", 10, json!({}))];
        let named = json!({"priorityClassName": "low"});
        let expected = "pods \"p\" is forbidden: no PriorityClass with name low was found";
        check(&classes, named, Err(expected)).await;
        let own = json!({"priorityClassName": "high", "priority": 11});
        let expected = "pods \"p\" is forbidden: the integer value of priority (11) must not be provided \
                        in pod spec; priority admission controller computed 10 from the given \
                        PriorityClass name";
        check(&classes, own, Err(expected)).await;
        let own = json!({"priorityClassName": "high", "preemptionPolicy": "Never"});
        let expected = "pods \"p\" is forbidden: the string value of PreemptionPolicy (Never) must not be \
                        provided in pod spec; priority admission controller computed \
                        PreemptLowerPriority from the given PriorityClass name";
        check(&classes, own, Err(expected)).await;
    }

    #[tokio::test]
    async fn an_update_retains_the_priority() {
        let old = pod(json!({"priority": 7, "preemptionPolicy": "Never"}));
        let new = pod(json!({"preemptionPolicy": "PreemptLowerPriority"}));
        let cluster = cluster(&[]);
        let updated = cluster.update(&Priority, "pods", old, new).await.unwrap();
        let expected = json!({"priority": 7, "preemptionPolicy": "PreemptLowerPriority"});
        assert_eq!(updated["spec"], expected);
    }

    #[tokio::test]
    async fn second_global_default_is_rejected() {
        let cluster = cluster(&[class("usual", 7, json!({"globalDefault": true}))]);
        let validate = async |class: Value| {
            let created = cluster.validate_create(&Priority, (GROUP, "priorityclasses"), class);
            created.await
        };
        validate(class("usual", 7, json!({"globalDefault": true})))
            .await
            .unwrap();
        validate(class("new", 7, json!({}))).await.unwrap();
        let second = validate(class("new", 7, json!({"globalDefault": true}))).await;
        assert_eq!(
            refusal(second),
            "priorityclasses.scheduling.k8s.io \"new\" is forbidden: PriorityClass usual is already \
             marked as default. Only one default can exist"
        );
    }
}
