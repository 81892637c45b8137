//! The subresource `binding` of pods, by which a scheduler assigns a pod to a node. The binding itself is not stored;
//! it sets fields of the pod.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::conditions;
use watchet_api::{Status, StatusCause, StatusDetails, WriteOptions};
use watchet_registry::{ApiError, Registry, Target, metadata};
use watchet_registry::{Change, Current, Decide, ObjectLocation};

/// Binds a pod: the one that `target` names, or for the resource `bindings` the one that the body names.
///
/// # Errors
/// 409 if the pod is already bound, is being deleted, has scheduling gates, or has another uid than the binding.
pub(super) async fn bind(
    registry: &Registry,
    target: &Target,
    binding: &Value,
    options: &WriteOptions,
) -> Result<Status, ApiError> {
    let name = metadata::text(binding, "name");
    if target.subresource.is_some() && name != target.name {
        return Err(ApiError::BadRequest(
            "name in URL does not match name in Binding object".to_owned(),
        ));
    }
    let problems = problems(binding);
    if !problems.is_empty() {
        return Err(ApiError::invalid(&target.of_bodies(), name, problems));
    }
    let pods = registry
        .resource("", "v1", "pods")
        .expect("the table has pods");
    let location = ObjectLocation::new(&pods, target.namespace.as_deref(), name)?;
    let mut write = Binding {
        location: &location,
        binding,
    };
    registry
        .guaranteed_write(&location, options.dry_run, &mut write)
        .await?;
    Ok(done())
}

/// Returns the success `Status` of a POST that creates no object.
pub(super) fn done() -> Status {
    Status {
        details: None,
        code: 201,
        ..Status::success(StatusDetails::default())
    }
}

fn problems(binding: &Value) -> Vec<StatusCause> {
    let text = |member: &str| binding["target"][member].as_str().unwrap_or_default();
    let mut problems = Vec::new();
    if !matches!(text("kind"), "" | "Node") {
        let known = ["Node", "<empty>"];
        problems.push(StatusCause::not_supported(
            "target.kind",
            text("kind"),
            &known,
        ));
    }
    if text("name").is_empty() {
        problems.push(StatusCause::required("target.name", ""));
    }
    problems
}

struct Binding<'a> {
    location: &'a ObjectLocation,
    binding: &'a Value,
}

impl Decide for Binding<'_> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let current = current.ok_or_else(|| self.location.not_found())?;
        let refused = |detail: String| ApiError::Conflict {
            resource: "pods/binding".to_owned(),
            name: self.location.name.clone(),
            detail,
        };
        let version = current.at.to_string();
        for (member, what, own) in [
            ("uid", "UID", metadata::text(&current.value, "uid")),
            ("resourceVersion", "ResourceVersion", &version),
        ] {
            let given = metadata::text(self.binding, member);
            if !given.is_empty() && given != own {
                return Err(refused(format!(
                    "Precondition failed: {what} in precondition: {given}, {what} in object meta: \
                     {own}"
                )));
            }
        }
        let pod = bound(&current.value, self.binding, metadata::now());
        pod.map(Change::Put).map_err(refused)
    }
}

/// Returns the pod as it is once bound, or the error if it cannot be bound.
fn bound(pod: &Value, binding: &Value, now: Timestamp) -> Result<Value, String> {
    let name = metadata::text(pod, "name");
    if metadata::is_terminating(pod) {
        return Err(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ));
    }
    match pod["spec"]["nodeName"].as_str() {
        None | Some("") => {}
        Some(node) => return Err(format!("pod {name} is already assigned to node {node:?}")),
    }
    let gates = pod["spec"]["schedulingGates"].as_array();
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut pod = pod.clone();
    if !pod["spec"].is_object() {
        pod["spec"] = json!({});
    }
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    for member in ["annotations", "labels"] {
        let given = metadata::of(binding)[member].as_object();
        for (key, value) in given.into_iter().flatten() {
            pod["metadata"][member][key] = value.clone();
        }
    }
    let scheduled = json!({"type": "PodScheduled", "status": "True"});
    conditions::set(&mut pod, scheduled, now);
    Ok(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: Value) -> Value {
        json!({"metadata": {"name": "p", "labels": {"a": "1", "b": "1"}}, "spec": spec})
    }

    fn check(pod: &Value, refusal: &str) {
        let binding = json!({"target": {"name": "n"}});
        assert_eq!(
            bound(pod, &binding, Timestamp::UNIX_EPOCH).unwrap_err(),
            refusal
        );
    }

    #[test]
    fn binding_sets_node_labels_annotations_and_condition() {
        let binding = json!({
            "metadata": {"name": "p", "labels": {"b": "2", "c": "2"}, "annotations": {"x": "y"}},
            "target": {"kind": "Node", "name": "n"},
        });
        let bound_pod = bound(&pod(json!({"x": 1})), &binding, Timestamp::UNIX_EPOCH).unwrap();
        let labels = json!({"a": "1", "b": "2", "c": "2"});
        assert_eq!(
            bound_pod,
            json!({
                "metadata": {"name": "p", "labels": labels, "annotations": {"x": "y"}},
                "spec": {"x": 1, "nodeName": "n"},
                "status": {"conditions": [{
                    "type": "PodScheduled", "status": "True",
                    "lastTransitionTime": "1970-01-01T00:00:00Z",
                }]},
            })
        );
    }

    #[test]
    fn assigned_gated_and_terminating_pods_cannot_be_bound() {
        check(
            &pod(json!({"nodeName": "m"})),
            "pod p is already assigned to node \"m\"",
        );
        check(
            &pod(json!({"schedulingGates": [{"name": "g"}]})),
            "pod p has non-empty .spec.schedulingGates",
        );
        let mut going = pod(json!({}));
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        check(
            &going,
            "pod p is being deleted, cannot be assigned to a host",
        );
    }

    #[test]
    fn binding_without_a_node_is_invalid() {
        let problems_of = |binding: Value| -> Vec<(String, String)> {
            let problems = problems(&binding).into_iter();
            problems.map(|cause| (cause.field, cause.message)).collect()
        };
        assert_eq!(problems_of(json!({"target": {"name": "n"}})), []);
        let wrong = problems_of(json!({"target": {"kind": "Sofa"}}));
        assert_eq!(
            wrong,
            [
                (
                    "target.kind".to_owned(),
                    r#"Unsupported value: "Sofa": supported values: "Node", "<empty>""#.to_owned()
                ),
                ("target.name".to_owned(), "Required value".to_owned()),
            ]
        );
    }
}
