//! The parts of a pod that are changed while it runs: `ephemeralcontainers`, which are added, and
//! `resize`, which gives its containers other resources. A write to one takes nothing else from its body.

use serde_json::{Map, Value};

use crate::api::StatusCause;
use crate::registry::builtin;

/// What may be given to a running container and taken from it.
const RESIZED: [&str; 2] = ["cpu", "memory"];
const EPHEMERAL: &str = "spec.ephemeralContainers";

/// Leaves of `pod` only what a write to `subresource` takes; everything else is as in `stored`.
pub(in crate::registry) fn keep(subresource: &str, stored: &Value, pod: &mut Value) {
    let mut kept = stored.clone();
    match subresource {
        "ephemeralcontainers" => {
            let given = pod["spec"]["ephemeralContainers"].take();
            match (given, kept["spec"].as_object_mut()) {
                (Value::Null, Some(spec)) => drop(spec.remove("ephemeralContainers")),
                (given, _) => kept["spec"]["ephemeralContainers"] = given,
            }
        }
        _ => {
            for list in ["containers", "initContainers"] {
                resize(&mut kept["spec"][list], &pod["spec"][list]);
            }
            let spec = kept["spec"].as_object_mut();
            // Indexing has made what there was not.
            spec.into_iter()
                .for_each(|spec| spec.retain(|_, value| !value.is_null()));
        }
    }
    *pod = kept;
}

/// Takes resources from the given containers; those that there are not are appended, to be refused.
fn resize(kept: &mut Value, given: &Value) {
    let Some(kept) = kept.as_array_mut() else {
        return;
    };
    for container in given.as_array().into_iter().flatten() {
        let Some(own) = kept.iter_mut().find(|own| own["name"] == container["name"]) else {
            kept.push(container.clone());
            continue;
        };
        let Some(own) = own.as_object_mut() else {
            continue;
        };
        for member in ["resources", "resizePolicy"] {
            match &container[member] {
                Value::Null => drop(own.remove(member)),
                given => drop(own.insert(member.to_owned(), given.clone())),
            }
        }
    }
}

/// Why `stored` may not become `pod` by a write to `subresource`.
pub(in crate::registry) fn problems(
    subresource: Option<&str>,
    stored: &Value,
    pod: &Value,
) -> Vec<StatusCause> {
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
    let new = list(pod, "ephemeralContainers");
    for own in list(stored, "ephemeralContainers") {
        let name = own["name"].as_str().unwrap_or_default();
        let what = match new.iter().find(|new| new["name"] == own["name"]) {
            None => "removed",
            Some(new) if new != own => "changed",
            Some(_) => continue,
        };
        let why = format!("existing ephemeral containers {name:?} may not be {what}\n");
        problems.push(StatusCause::forbidden(EPHEMERAL, &why));
    }
    let others = ["containers", "initContainers"];
    let named = |name: &Value| {
        let mut lists = others.iter().flat_map(|other| list(stored, other));
        lists.any(|other| other["name"] == *name)
    };
    for (index, container) in new.iter().enumerate() {
        let at = |member: &str| format!("{EPHEMERAL}[{index}].{member}");
        let name = &container["name"];
        match name.as_str() {
            None | Some("") => problems.push(StatusCause::required(&at("name"), "")),
            Some(text) => {
                let twice = new[..index].iter().any(|other| other["name"] == *name);
                if twice || named(name) {
                    problems.push(StatusCause::duplicate(&at("name"), text));
                }
            }
        }
        if container["image"].as_str().is_none_or(str::is_empty) {
            problems.push(StatusCause::required(&at("image"), ""));
        }
        let target = &container["targetContainerName"];
        if target.as_str().is_some_and(|target| !target.is_empty()) && !named(target) {
            let target = target.as_str().unwrap_or_default();
            problems.push(StatusCause::not_found(&at("targetContainerName"), target));
        }
    }
    problems
}

fn resize_problems(stored: &Value, pod: &Value) -> Vec<StatusCause> {
    if is_mirror(stored) {
        return vec![StatusCause::forbidden("", "static pods cannot be resized")];
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
        Some(spec) => builtin::service_class(spec),
        None => "",
    };
    let (old, new) = (class(stored), class(pod));
    if old != new {
        let why = "Pod QOS Class may not change as a result of resizing";
        problems.push(StatusCause::invalid("spec", new, why));
    }
    for name in ["containers", "initContainers"] {
        let stored = list(stored, name);
        for (index, container) in list(pod, name).iter().enumerate() {
            let field = format!("spec.{name}[{index}].resources");
            match stored.get(index) {
                Some(own) => resources_problems(&field, own, container, &mut problems),
                None => {
                    let why = "containers may not be added or removed on resize";
                    problems.push(StatusCause::forbidden(&format!("spec.{name}"), why));
                }
            }
        }
    }
    problems
}

/// What is wrong with the resources that `stored`, a container, would get.
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
        keep(subresource, stored, &mut body);
        let told = problems(Some(subresource), stored, &body);
        let told: Vec<(&str, &str)> = told
            .iter()
            .map(|cause| (cause.field.as_str(), cause.message.as_str()))
            .collect();
        assert_eq!(told, expect);
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
        let wrong = pod(json!({"ephemeralContainers": [
            {"name": "e", "image": "j"}, {"name": "c", "image": "i"}, {"name": "x", "targetContainerName": "y"},
        ]}));
        check(
            "ephemeralcontainers",
            &one,
            wrong,
            &[
                (
                    EPHEMERAL,
                    "Forbidden: existing ephemeral containers \"e\" may not be changed\n",
                ),
                ("spec.ephemeralContainers[1].name", "Duplicate value: \"c\""),
                ("spec.ephemeralContainers[2].image", "Required value"),
                (
                    "spec.ephemeralContainers[2].targetContainerName",
                    "Not found: \"y\"",
                ),
            ],
        );
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
        check("resize", &stored, two, &[("spec.containers", added)]);
        let mut running = stored.clone();
        running["status"] = json!({"phase": "Running", "containerStatuses": [{"name": "c"}]});
        let node = "Forbidden: Pod running on node without support for resize";
        check("resize", &running, stored.clone(), &[("spec", node)]);
    }
}
