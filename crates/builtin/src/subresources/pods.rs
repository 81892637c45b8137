//! The subresources by which a running pod is changed: `ephemeralcontainers` adds containers, `resize` changes the
//! resources of containers. A write to one ignores the rest of its body. [`validation`](crate::validation) validates the result.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

use watchet_api::StatusCause;

/// The resources of a running container that a resize may change.
const RESIZED: [&str; 2] = ["cpu", "memory"];
const EPHEMERAL: &str = "spec.ephemeralContainers";

/// Replaces everything in `pod` except the fields that a write to `subresource` changes by the content of `stored`.
pub(crate) fn retain_unwritable_fields(subresource: &str, stored: &Value, pod: &mut Value) {
    let mut result = stored.clone();
    match subresource {
        "ephemeralcontainers" => {
            let given = pod["spec"]["ephemeralContainers"].take();
            match (given, result["spec"].as_object_mut()) {
                (Value::Null, Some(spec)) => drop(spec.remove("ephemeralContainers")),
                (given, _) => result["spec"]["ephemeralContainers"] = given,
            }
        }
        _ => {
            for list in ["containers", "initContainers"] {
                resize(&mut result["spec"][list], &pod["spec"][list]);
            }
            result["spec"]["resources"] = pod["spec"]["resources"].take();
            let spec = result["spec"].as_object_mut();
            // Indexing has made what there was not.
            spec.into_iter()
                .for_each(|spec| spec.retain(|_, value| !value.is_null()));
        }
    }
    *pod = result;
}

/// Copies the resources of the given containers. If the containers differ, or their order, `result` becomes the given
/// list, which validation then rejects.
fn resize(result: &mut Value, given: &Value) {
    if !names(result).eq(names(given)) {
        *result = given.clone();
        return;
    }
    let result = result.as_array_mut().into_iter().flatten();
    for (own, given) in result.zip(given.as_array().into_iter().flatten()) {
        let Some(own) = own.as_object_mut() else {
            continue;
        };
        for member in ["resources", "resizePolicy"] {
            match &given[member] {
                Value::Null => drop(own.remove(member)),
                given => drop(own.insert(member.to_owned(), given.clone())),
            }
        }
    }
}

fn names(containers: &Value) -> impl Iterator<Item = &Value> {
    let containers = containers.as_array().into_iter().flatten();
    containers.map(|container| &container["name"])
}

/// Returns the reasons why a write to `subresource` must not change `stored` to `pod`.
pub(crate) fn problems(subresource: Option<&str>, stored: &Value, pod: &Value) -> Vec<StatusCause> {
    match subresource {
        Some("ephemeralcontainers") => ephemeral_problems(stored, pod),
        Some("resize") => resize_problems(stored, pod),
        _ => Vec::new(),
    }
}

fn list<'a>(pod: &'a Value, name: &str) -> &'a [Value] {
    pod["spec"][name].as_array().map_or(&[], Vec::as_slice)
}

fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string()
}

fn ephemeral_problems(stored: &Value, pod: &Value) -> Vec<StatusCause> {
    if is_mirror(stored) {
        let why = "static pods do not support ephemeral containers";
        return vec![StatusCause::forbidden("", why)];
    }
    let mut problems = Vec::new();
    let named = |container: &'_ Value| container["name"].as_str().unwrap_or_default().to_owned();
    let new = list(pod, "ephemeralContainers").iter();
    let new: HashMap<String, &Value> = new.map(|new| (named(new), new)).collect();
    for own in list(stored, "ephemeralContainers") {
        let name = named(own);
        let what = match new.get(&name) {
            None => "removed",
            Some(new) if *new != own => "changed",
            Some(_) => continue,
        };
        let why = format!("existing ephemeral containers {name:?} may not be {what}\n");
        problems.push(StatusCause::forbidden(EPHEMERAL, &why));
    }
    problems
}

fn resize_problems(stored: &Value, pod: &Value) -> Vec<StatusCause> {
    if is_mirror(stored) {
        return vec![StatusCause::forbidden("", "static pods cannot be resized")];
    }
    if stored["spec"]["os"]["name"] == "windows" {
        let why = "windows pods cannot be resized";
        return vec![StatusCause::forbidden("", why)];
    }
    let mut problems = Vec::new();
    let statuses = stored["status"]["containerStatuses"].as_array();
    let unsupported = |status: &Value| status["resources"].is_null();
    if stored["status"]["phase"] == "Running"
        && statuses.is_some_and(|statuses| statuses.iter().any(unsupported))
    {
        let why = "Pod running on node without support for resize";
        problems.push(StatusCause::forbidden("spec", why));
    }
    let class = |pod: &Value| match pod["spec"].as_object() {
        Some(spec) => crate::service_class(spec),
        None => "",
    };
    let (old, new) = (class(stored), class(pod));
    if old != new {
        let why = "Pod QOS Class may not change as a result of resizing";
        problems.push(StatusCause::invalid("spec", new, why));
    }
    let others = other_containers(stored, pod);
    if !others.is_empty() {
        problems.extend(others);
        return problems;
    }
    for name in ["containers", "initContainers"] {
        let pairs = list(stored, name).iter().zip(list(pod, name));
        for (index, (own, container)) in pairs.enumerate() {
            let field = format!("spec.{name}[{index}].resources");
            resources_problems(&field, own, container, &mut problems);
            if name == "initContainers" && own != container && is_restarted_to_resize(container) {
                let why = "non-sidecar init containers with a resize policy of RestartContainer \
                           cannot be resized";
                let field = format!("spec.{name}[{index}]");
                problems.push(StatusCause::forbidden(&field, why));
            }
        }
    }
    pod_resources_problems(stored, pod, &mut problems);
    problems
}

/// Returns true for an init container that is no sidecar and would be restarted by a resize.
fn is_restarted_to_resize(container: &Value) -> bool {
    let policies = container["resizePolicy"].as_array().into_iter().flatten();
    let mut policies = policies.filter(|policy| policy["restartPolicy"] == "RestartContainer");
    container["restartPolicy"] != "Always" && policies.next().is_some()
}

/// Reports what is wrong with a change of `spec.resources`.
fn pod_resources_problems(stored: &Value, pod: &Value, problems: &mut Vec<StatusCause>) {
    let (old, new) = (&stored["spec"]["resources"], &pod["spec"]["resources"]);
    if new.is_null() && !old.is_null() {
        let why = "pod-level resources cannot be removed";
        problems.push(StatusCause::forbidden("spec.resources", why));
        return;
    }
    let mut others = [old.clone(), new.clone()];
    for kind in ["requests", "limits"] {
        let names = |resources: &Value| {
            let amounts = resources[kind].as_object().into_iter();
            amounts
                .flat_map(Map::keys)
                .cloned()
                .collect::<BTreeSet<_>>()
        };
        if !names(old).is_subset(&names(new)) {
            let why = format!("pod-level resource {kind} cannot be removed");
            let field = format!("spec.resources.{kind}");
            problems.push(StatusCause::forbidden(&field, &why));
        }
        for resources in &mut others {
            remove_resized(resources, kind);
        }
    }
    if others[0] != others[1] {
        let why = "only cpu and memory resources are mutable at pod-level";
        problems.push(StatusCause::forbidden("spec", why));
    }
}

/// Removes the amounts that a resize may change, and members that are empty without them.
fn remove_resized(resources: &mut Value, kind: &str) {
    let Some(members) = resources.as_object_mut() else {
        return;
    };
    if let Some(amounts) = members.get_mut(kind).and_then(Value::as_object_mut) {
        RESIZED.iter().for_each(|name| drop(amounts.remove(*name)));
        if amounts.is_empty() {
            members.remove(kind);
        }
    }
    if members.is_empty() {
        *resources = Value::Null;
    }
}

/// Reports containers that were added, removed, renamed or reordered.
fn other_containers(stored: &Value, pod: &Value) -> Vec<StatusCause> {
    let mut problems = Vec::new();
    for name in ["containers", "initContainers"] {
        let (stored, new) = (&stored["spec"][name], &pod["spec"][name]);
        if names(stored).count() != names(new).count() {
            let why = format!("{name} may not be added or removed on resize");
            problems.push(StatusCause::forbidden(&format!("spec.{name}"), &why));
            continue;
        }
        for (index, (old, new)) in names(stored).zip(names(new)).enumerate() {
            if old != new {
                let why = format!("{name} may not be renamed or reordered on resize");
                let field = format!("spec.{name}[{index}].name");
                problems.push(StatusCause::forbidden(&field, &why));
            }
        }
    }
    problems
}

/// Validates the new resources of the container `stored`.
fn resources_problems(
    field: &str,
    stored: &Value,
    container: &Value,
    problems: &mut Vec<StatusCause>,
) {
    for kind in ["requests", "limits"] {
        let of = |container: &Value| -> Map<String, Value> {
            let amounts = container["resources"][kind].as_object();
            amounts.cloned().unwrap_or_default()
        };
        let (mut old, mut new) = (of(stored), of(container));
        let removed = RESIZED
            .iter()
            .any(|name| old.contains_key(*name) && !new.contains_key(*name));
        let at = format!("{field}.{kind}");
        if removed {
            let why = format!("resource {kind} cannot be removed");
            problems.push(StatusCause::forbidden(&at, &why));
        }
        for name in RESIZED {
            old.remove(name);
            new.remove(name);
        }
        if old != new {
            let why = "only cpu and memory resources are mutable";
            problems.push(StatusCause::forbidden(&at, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": spec})
    }

    fn check(subresource: &str, stored: &Value, mut body: Value, expect: &[(&str, &str)]) -> Value {
        retain_unwritable_fields(subresource, stored, &mut body);
        let causes = problems(Some(subresource), stored, &body);
        let problems: Vec<(&str, &str)> = causes
            .iter()
            .map(|cause| (cause.field.as_str(), cause.message.as_str()))
            .collect();
        assert_eq!(problems, expect);
        body
    }

    #[test]
    fn ephemeral_containers_are_added() {
        let stored = pod(json!({"containers": [{"name": "c"}]}));
        let body = json!({
            "metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {"ephemeralContainers": [{"name": "e", "image": "i", "targetContainerName": "c"}]},
        });
        let one = check("ephemeralcontainers", &stored, body, &[]);
        let expect = json!({
            "containers": [{"name": "c"}],
            "ephemeralContainers": [{"name": "e", "image": "i", "targetContainerName": "c"}],
        });
        assert_eq!(one, pod(expect));
        let removed = r#"Forbidden: existing ephemeral containers "e" may not be removed
"#;
        let gone = check(
            "ephemeralcontainers",
            &one,
            pod(json!({})),
            &[(EPHEMERAL, removed)],
        );
        assert_eq!(gone, stored);
        let wrong = pod(json!({"ephemeralContainers": [{"name": "e", "image": "j"}]}));
        let changed = r#"Forbidden: existing ephemeral containers "e" may not be changed
"#;
        check("ephemeralcontainers", &one, wrong, &[(EPHEMERAL, changed)]);
    }

    /// Each container of a body of the maximum size was searched for among all others, which would take minutes.
    #[test]
    fn many_containers_are_compared_in_linear_time() {
        let many = |from: usize| {
            let named = |at: usize| json!({"name": format!("c{at}"), "image": "i"});
            let all: Vec<Value> = (from..from + 100_000).map(named).collect();
            Value::from(all)
        };
        let stored = pod(json!({"containers": [{"name": "c"}]}));
        let mut added = pod(json!({"ephemeralContainers": many(0)}));
        retain_unwritable_fields("ephemeralcontainers", &stored, &mut added);
        assert_eq!(ephemeral_problems(&stored, &added), []);
        assert_eq!(ephemeral_problems(&added, &added), []);
        let mut resized = pod(json!({"containers": many(1)}));
        retain_unwritable_fields("resize", &stored, &mut resized);
        assert_eq!(resize_problems(&stored, &resized).len(), 1);
    }

    #[test]
    fn a_resize_changes_cpu_and_memory() {
        let with = |requests: Value| {
            pod(
                json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}),
            )
        };
        let stored = with(json!({"cpu": "1", "gpu": "1"}));
        let mut body = with(json!({"cpu": "2", "memory": "1Gi", "gpu": "1"}));
        body["spec"]["containers"][0]["image"] = "j".into();
        body["spec"]["nodeName"] = "n".into();
        let resized = check("resize", &stored, body, &[]);
        assert_eq!(
            resized,
            with(json!({"cpu": "2", "memory": "1Gi", "gpu": "1"}))
        );
        let requests = "spec.containers[0].resources.requests";
        let only = "Forbidden: only cpu and memory resources are mutable";
        check(
            "resize",
            &stored,
            with(json!({"cpu": "1", "gpu": "2"})),
            &[(requests, only)],
        );
        let removed = "Forbidden: resource requests cannot be removed";
        let twice = [
            (
                "spec",
                "Invalid value: \"BestEffort\": Pod QOS Class may not change as a result of resizing",
            ),
            (requests, removed),
        ];
        check("resize", &stored, with(json!({"gpu": "1"})), &twice);
        let two = pod(json!({"containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1", "gpu": "1"}}}, {"name": "d"},
        ]}));
        let added = "Forbidden: containers may not be added or removed on resize";
        check(
            "resize",
            &stored,
            two.clone(),
            &[("spec.containers", added)],
        );
        check(
            "resize",
            &two,
            stored.clone(),
            &[("spec.containers", added)],
        );
        let mut swapped = two.clone();
        swapped["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .reverse();
        let order = "Forbidden: containers may not be renamed or reordered on resize";
        let names = ["spec.containers[0].name", "spec.containers[1].name"];
        check("resize", &two, swapped, &names.map(|name| (name, order)));
        let init = |policy: &str, cpu: &str| {
            pod(
                json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                "initContainers": [{"name": "i", "restartPolicy": policy,
                    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
                    "resources": {"requests": {"cpu": cpu}}}]}),
            )
        };
        check("resize", &init("Always", "1"), init("Always", "2"), &[]);
        check("resize", &init("Never", "1"), init("Never", "1"), &[]);
        let restarted = "Forbidden: non-sidecar init containers with a resize policy of \
                         RestartContainer cannot be resized";
        check(
            "resize",
            &init("Never", "1"),
            init("Never", "2"),
            &[("spec.initContainers[0]", restarted)],
        );
        let mut running = stored.clone();
        running["status"] = json!({"phase": "Running", "containerStatuses": [{"name": "c"}]});
        let node = "Forbidden: Pod running on node without support for resize";
        check("resize", &running, stored.clone(), &[("spec", node)]);
    }

    #[test]
    fn resize_changes_cpu_and_memory_of_the_pod() {
        let with = |resources: Value| {
            pod(
                json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                "resources": resources}),
            )
        };
        let requests = |requests: Value| with(json!({ "requests": requests }));
        let stored = requests(json!({"cpu": "1"}));
        let resized = check(
            "resize",
            &stored,
            requests(json!({"cpu": "2", "memory": "1Gi"})),
            &[],
        );
        assert_eq!(resized, requests(json!({"cpu": "2", "memory": "1Gi"})));
        for (body, field, problem) in [
            (
                with(json!(null)),
                "spec.resources",
                "pod-level resources cannot be removed",
            ),
            (
                requests(json!({"memory": "1Gi"})),
                "spec.resources.requests",
                "pod-level resource requests cannot be removed",
            ),
            (
                requests(json!({"cpu": "1", "hugepages-2Mi": "2Mi"})),
                "spec",
                "only cpu and memory resources are mutable at pod-level",
            ),
        ] {
            let problem = format!("Forbidden: {problem}");
            check("resize", &stored, body, &[(field, &problem)]);
        }
    }
}
