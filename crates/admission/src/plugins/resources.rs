//! Lists of resources (`{"cpu": "1"}`), and the total requests and limits of a pod.

use std::collections::BTreeMap;

use serde_json::Value;

use watchet_schema::Quantity;

/// Amounts by the name of the resource.
pub type ResourceList = BTreeMap<String, Quantity>;

/// Parses a list of resources. Omits invalid quantities, which validation rejects.
pub fn parse(list: &Value) -> ResourceList {
    let members = list.as_object().into_iter().flatten();
    members
        .filter_map(|(name, amount)| Some((name.clone(), Quantity::read(amount)?)))
        .collect()
}

/// Adds the amounts of `other` to those of `list`.
pub(crate) fn add(list: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        let sum = match list.remove(name) {
            Some(own) => own + amount.clone(),
            None => amount.clone(),
        };
        list.insert(name.clone(), sum);
    }
}

/// Raises the amounts of `list` to those of `other`.
pub(crate) fn raise(list: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        if list.get(name).is_none_or(|own| own < amount) {
            list.insert(name.clone(), amount.clone());
        }
    }
}

/// Joins messages as upstream's aggregated errors do.
pub(super) fn aggregate(messages: Vec<String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for message in messages {
        if !distinct.contains(&message) {
            distinct.push(message);
        }
    }
    match distinct.len() {
        1 => distinct.remove(0),
        _ => format!("[{}]", distinct.join(", ")),
    }
}

/// One of the two lists in the `resources` of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestsOrLimits {
    Requests,
    Limits,
}

impl RequestsOrLimits {
    fn member(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }

    pub(super) fn of(self, container: &Value) -> ResourceList {
        parse(&container["resources"][self.member()])
    }
}

/// Returns the total requests or limits of a pod: the amounts of the pod, or else those of its containers, and the
/// overhead.
pub(super) fn total_of_pod(
    spec: &Value,
    bound: RequestsOrLimits,
    of_container: impl Fn(&Value) -> ResourceList,
) -> ResourceList {
    let mut total = sum_of_containers(spec, of_container);
    let mut of_pod = bound.of(spec);
    of_pod.retain(|name, _| is_pod_level(name));
    total.extend(of_pod);
    let mut overhead = parse(&spec["overhead"]);
    if bound == RequestsOrLimits::Limits {
        // The overhead does not limit a resource that the pod does not limit.
        overhead.retain(|name, _| total.get(name).is_some_and(|limit| !limit.is_zero()));
    }
    add(&mut total, &overhead);
    total
}

/// Returns true if a pod can specify this resource for the whole pod.
pub(super) fn is_pod_level(name: &str) -> bool {
    ["cpu", "memory"].contains(&name) || name.starts_with("hugepages-")
}

/// Returns the sum over a pod's containers. `of_container` returns the amounts of one container.
///
/// Init containers run one after the other, before the other containers: the largest of them counts if it exceeds the
/// sum of all containers that run later. Restartable init containers continue to run beside all later containers.
pub(super) fn sum_of_containers(
    spec: &Value,
    of_container: impl Fn(&Value) -> ResourceList,
) -> ResourceList {
    let containers = |member: &str| spec[member].as_array().into_iter().flatten();
    let mut sum = ResourceList::new();
    for container in containers("containers") {
        add(&mut sum, &of_container(container));
    }
    let mut sidecars = ResourceList::new();
    let mut initial = ResourceList::new();
    for container in containers("initContainers") {
        let own = of_container(container);
        let mut at_its_time = sidecars.clone();
        add(&mut at_its_time, &own);
        if container["restartPolicy"] == "Always" {
            add(&mut sum, &own);
            sidecars.clone_from(&at_its_time);
        }
        raise(&mut initial, &at_its_time);
    }
    raise(&mut sum, &initial);
    sum
}
