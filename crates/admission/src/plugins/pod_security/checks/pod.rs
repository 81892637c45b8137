//! The pod that checks read, and the texts of violations.

use std::collections::BTreeSet;

use serde_json::Value;

/// A pod, or the pod template of a workload.
#[derive(Debug, Clone, Copy)]
pub(in crate::plugins::pod_security) struct Pod<'a> {
    pub(in crate::plugins::pod_security) metadata: &'a Value,
    pub(in crate::plugins::pod_security) spec: &'a Value,
}

/// A violation of a check by a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::plugins::pod_security) struct Violation {
    /// The kind of violation.
    pub(in crate::plugins::pod_security) reason: String,
    /// The part of the pod.
    pub(in crate::plugins::pod_security) detail: String,
}

pub(super) fn violation(reason: &str, detail: String) -> Option<Violation> {
    Some(Violation {
        reason: reason.to_owned(),
        detail,
    })
}

pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl<'a> Pod<'a> {
    /// Returns the pod of a pod template, or the pod itself.
    pub(in crate::plugins::pod_security) fn of(template: &'a Value) -> Self {
        Self {
            metadata: &template["metadata"],
            spec: &template["spec"],
        }
    }

    /// Returns all containers: init, main and ephemeral ones.
    pub(super) fn containers(self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        let kinds = ["initContainers", "containers", "ephemeralContainers"];
        kinds.into_iter().flat_map(|kind| items(&spec[kind]))
    }

    /// Returns the names of the containers for which `is_bad` returns true.
    pub(super) fn names(self, mut is_bad: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        let bad = self.containers().filter(|container| is_bad(container));
        bad.map(|container| text(&container["name"])).collect()
    }

    pub(super) fn annotation(self, name: &str) -> Option<&'a str> {
        self.metadata["annotations"].get(name)?.as_str()
    }

    pub(super) fn is_for_windows(self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    pub(super) fn has_user_namespace(self) -> bool {
        self.spec["hostUsers"] == false
    }
}

/// `container "a"`, `containers "a", "b"`
pub(super) fn containers(names: &[&str]) -> String {
    counted("container", names)
}

/// Returns the noun, in the plural unless there is one name, and the names.
pub(super) fn counted(noun: &str, names: &[&str]) -> String {
    format!("{} {}", plural(noun, names.len()), quoted(names))
}

pub(super) fn plural(noun: &str, count: usize) -> String {
    match count {
        1 => noun.to_owned(),
        _ => format!("{noun}s"),
    }
}

/// Returns the verb for `count` subjects.
pub(super) fn uses(count: usize) -> &'static str {
    match count {
        1 => "uses",
        _ => "use",
    }
}

pub(super) fn quoted<T: AsRef<str>>(names: &[T]) -> String {
    let each = names.iter().map(|name| format!("\"{}\"", name.as_ref()));
    each.collect::<Vec<_>>().join(", ")
}

pub(super) fn sorted<'a>(names: &BTreeSet<&'a str>) -> Vec<&'a str> {
    names.iter().copied().collect()
}

/// Returns the subjects of a violation: the pod, containers, or both.
pub(super) fn setters(pod: bool, names: &[&str]) -> Vec<String> {
    let pod = pod.then(|| "pod".to_owned());
    let of_containers = (!names.is_empty()).then(|| containers(names));
    pod.into_iter().chain(of_containers).collect()
}
