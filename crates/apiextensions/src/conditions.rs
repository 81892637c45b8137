//! The status of a definition: whether its names are accepted and whether it is served. It is computed from the definition and
//! the names in use by other resources of its group. `follow` writes it to storage.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::definition::{Definition, Names};

/// Conditions of a definition.
pub(super) const NAMES_ACCEPTED: &str = "NamesAccepted";
pub(super) const ESTABLISHED: &str = "Established";
pub(super) const TERMINATING: &str = "Terminating";
const NON_STRUCTURAL: &str = "NonStructuralSchema";

/// The annotation that definitions in Kubernetes' own groups require.
pub(super) const APPROVAL: &str = "api-approved.kubernetes.io";

/// The names that other resources of a group use.
#[derive(Debug, Default)]
pub(super) struct UsedNames {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl UsedNames {
    /// Adds the names of a resource.
    pub(super) fn add(&mut self, names: &Names) {
        let resources = [&names.plural, &names.singular].into_iter();
        self.resources
            .extend(resources.chain(&names.short_names).cloned());
        self.kinds
            .extend([&names.kind, &names.list_kind].into_iter().cloned());
    }
}

/// The computed status of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ComputedStatus {
    /// The accepted names.
    pub(super) names: Names,
    /// The first name that is not accepted.
    conflict: Option<Conflict>,
    /// True if the server serves the definition; never becomes false again.
    pub(super) established: bool,
    /// The value of the approval annotation, if the group requires it.
    approval: Option<String>,
    /// The structural problems of the schemas. This server never stores such a definition, and serves one as far as
    /// possible.
    pub(super) violations: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Conflict {
    reason: &'static str,
    message: String,
}

/// Computes the status of a definition. `used` contains the names of other resources.
pub(super) fn compute(definition: &Definition, used: &UsedNames) -> ComputedStatus {
    let requested = &definition.spec.names;
    let mut names = definition.status.accepted_names.clone();
    let mut conflict = None;
    let mut accept = |reason, name: &str, accepted: &mut String, used: &BTreeSet<String>| {
        if name != accepted && used.contains(name) {
            let message = in_use(name);
            conflict = Some(Conflict { reason, message });
        } else {
            name.clone_into(accepted);
        }
    };
    let (resources, kinds) = (&used.resources, &used.kinds);
    accept(
        "PluralConflict",
        &requested.plural,
        &mut names.plural,
        resources,
    );
    accept(
        "SingularConflict",
        &requested.singular,
        &mut names.singular,
        resources,
    );
    accept("KindConflict", &requested.kind, &mut names.kind, kinds);
    accept(
        "ListKindConflict",
        &requested.list_kind,
        &mut names.list_kind,
        kinds,
    );
    let short: Vec<String> = requested
        .short_names
        .iter()
        .filter(|name| !names.short_names.contains(name) && resources.contains(*name))
        .map(|name| in_use(name))
        .collect();
    match short.as_slice() {
        [] => names.short_names.clone_from(&requested.short_names),
        several => {
            let message = match several {
                [one] => one.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            let reason = "ShortNamesConflict";
            conflict = Some(Conflict { reason, message });
        }
    }
    names.categories.clone_from(&requested.categories);
    ComputedStatus {
        established: conflict.is_none() || definition.has(ESTABLISHED),
        conflict,
        names,
        approval: is_protected(&definition.spec.group)
            .then(|| definition.metadata.annotations.get(APPROVAL).cloned())
            .flatten(),
        violations: None,
    }
}

fn in_use(name: &str) -> String {
    format!("{name:?} is already in use")
}

/// Returns true if a group belongs to Kubernetes.
pub(super) fn is_protected(group: &str) -> bool {
    let below = |suffix: &str| group == &suffix[1..] || group.ends_with(suffix);
    below(".k8s.io") || below(".kubernetes.io")
}

impl ComputedStatus {
    /// Writes the status into a stored definition. Conditions that changed get the time `now`.
    pub(super) fn write(&self, object: &mut Value, now: &str) {
        let status = status_of(object);
        status.insert("acceptedNames".to_owned(), names(&self.names));
        if let Some(approval) = &self.approval {
            let message = match approval.starts_with("unapproved") {
                true => format!("not approved: {approval:?}"),
                false => format!("approved in {approval}"),
            };
            let (status, reason) = match approval.starts_with("unapproved") {
                true => ("False", "UnapprovedAnnotation"),
                false => ("True", "ApprovedAnnotation"),
            };
            let condition = "KubernetesAPIApprovalPolicyConformant";
            set(object, condition, status, reason, &message, now);
        }
        match &self.conflict {
            None => {
                let message = "no conflicts found";
                set(object, NAMES_ACCEPTED, "True", "NoConflicts", message, now);
            }
            Some(Conflict { reason, message }) => {
                set(object, NAMES_ACCEPTED, "False", reason, message, now);
            }
        }
        let (status, reason, message) = match self.established {
            true => (
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            ),
            false => ("False", "NotAccepted", "not all names are accepted"),
        };
        set(object, ESTABLISHED, status, reason, message, now);
        match &self.violations {
            Some(message) => set(object, NON_STRUCTURAL, "True", "Violations", message, now),
            None => unset(object, NON_STRUCTURAL),
        }
    }
}

fn unset(object: &mut Value, condition: &str) {
    let all = status_of(object).get_mut("conditions");
    if let Some(all) = all.and_then(Value::as_array_mut) {
        all.retain(|one| one["type"] != condition);
    }
}

fn names(names: &Names) -> Value {
    let mut object = json!({"kind": names.kind, "plural": names.plural});
    for (member, text) in [
        ("singular", &names.singular),
        ("listKind", &names.list_kind),
    ] {
        if !text.is_empty() {
            object[member] = text.clone().into();
        }
    }
    for (member, list) in [
        ("shortNames", &names.short_names),
        ("categories", &names.categories),
    ] {
        if !list.is_empty() {
            object[member] = list.clone().into();
        }
    }
    object
}

/// Returns the status of a definition, which is created if absent.
pub(super) fn status_of(object: &mut Value) -> &mut Map<String, Value> {
    let status = &mut object["status"];
    if !status.is_object() {
        *status = json!({});
    }
    status.as_object_mut().expect("it was set to one")
}

/// Sets a condition. Its time changes only with its status.
pub(super) fn set(
    object: &mut Value,
    condition: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let conditions = status_of(object).entry("conditions").or_insert(json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let all = conditions.as_array_mut().expect("it was set to one");
    let at = match all.iter().position(|c| c["type"] == condition) {
        Some(at) => at,
        None => {
            all.push(json!({"type": condition, "lastTransitionTime": now}));
            all.len() - 1
        }
    };
    let one = &mut all[at];
    if one["status"] != status {
        one["lastTransitionTime"] = now.into();
    }
    one["status"] = status.into();
    one["reason"] = reason.into();
    one["message"] = message.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(names: Value) -> Definition {
        serde_json::from_value(json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {"group": "example.com", "names": names},
        }))
        .unwrap()
    }

    fn foo() -> Value {
        json!({"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList",
            "shortNames": ["f"], "categories": ["all"]})
    }

    fn conditions(object: &Value) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = object["status"]["conditions"].as_array().unwrap();
        all.iter()
            .map(|c| {
                format!(
                    "{} {} {}",
                    text(&c["type"]),
                    text(&c["status"]),
                    text(&c["reason"])
                )
            })
            .collect()
    }

    #[test]
    fn free_names_are_accepted_and_established() {
        let status = compute(&definition(foo()), &UsedNames::default());
        let mut object = json!({});
        status.write(&mut object, "T1");
        let expected = [
            "NamesAccepted True NoConflicts",
            "Established True InitialNamesAccepted",
        ];
        assert_eq!(conditions(&object), expected);
        let names = json!({"plural": "foos", "singular": "foo", "kind": "Foo",
            "listKind": "FooList", "shortNames": ["f"], "categories": ["all"]});
        assert_eq!(object["status"]["acceptedNames"], names);
        let before = object.clone();
        status.write(&mut object, "T2");
        assert_eq!(object, before, "an unchanged condition keeps its time");
    }

    #[test]
    fn each_used_name_is_a_conflict() {
        for (member, used, reason) in [
            ("plural", "foos", "PluralConflict"),
            ("singular", "foo", "SingularConflict"),
            ("kind", "Foo", "KindConflict"),
            ("listKind", "FooList", "ListKindConflict"),
        ] {
            let mut names = json!({"plural": "x", "singular": "y", "kind": "X", "listKind": "Y"});
            names[member] = used.into();
            let mut others = UsedNames::default();
            others.add(&serde_json::from_value(names).unwrap());
            let status = compute(&definition(foo()), &others);
            let mut object = json!({});
            status.write(&mut object, "T1");
            let expected = [
                format!("NamesAccepted False {reason}"),
                "Established False NotAccepted".to_owned(),
            ];
            assert_eq!(conditions(&object), expected);
            let message = &object["status"]["conditions"][0]["message"];
            assert_eq!(message, &format!("{used:?} is already in use"));
            assert_ne!(object["status"]["acceptedNames"][member], used);
        }
    }

    #[test]
    fn established_definition_stays_established() {
        let mut established = definition(foo());
        established.status = serde_json::from_value(json!({
            "acceptedNames": foo(), "conditions": [{"type": "Established", "status": "True"}],
        }))
        .unwrap();
        established.spec.names.short_names = vec!["g".to_owned()];
        let mut others = UsedNames::default();
        others.add(&Names {
            short_names: vec!["f".to_owned(), "g".to_owned()],
            ..Names::default()
        });
        let status = compute(&established, &others);
        assert!(status.established);
        assert_eq!(status.names.short_names, ["f"], "the old ones stay");
    }

    #[test]
    fn groups_of_kubernetes_are_protected() {
        for (group, protected) in [
            ("k8s.io", true),
            ("gateway.networking.k8s.io", true),
            ("kubernetes.io", true),
            ("example.com", false),
            ("myk8s.io", false),
        ] {
            assert_eq!(is_protected(group), protected, "{group}");
        }
    }
}
