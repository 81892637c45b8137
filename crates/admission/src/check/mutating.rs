//! Mutating policies and their bindings.

use serde_json::Value;

use super::super::expressions::{MutationType, Names, compile_mutation};
use super::policies::{check_bound, check_definition};
use super::policy_names::PolicyNames;
use super::problems::{Problems, items, strings};

/// The operations that can be mutated: a deletion has no object.
const OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];

/// The types of patches: each with the member that has its expression.
const PATCHES: [(&str, &str, MutationType); 2] = [
    (
        "ApplyConfiguration",
        "applyConfiguration",
        MutationType::ApplyConfiguration,
    ),
    ("JSONPatch", "jsonPatch", MutationType::JsonPatch),
];

pub(super) fn check(problems: &mut Problems, policy: &Value) {
    let spec = &policy["spec"];
    let mut names = PolicyNames::of(spec);
    check_definition(problems, spec, &mut names);
    check_operations(problems, "spec.matchConstraints", &spec["matchConstraints"]);
    if items(&spec["mutations"]).next().is_none() {
        let why = "mutations must contain at least one item";
        problems.required("spec.mutations", why);
    }
    for (index, mutation) in items(&spec["mutations"]).enumerate() {
        let field = format!("spec.mutations[{index}]");
        check_mutation(problems, &field, mutation, names.of_expressions());
    }
    match spec["reinvocationPolicy"].as_str().unwrap_or_default() {
        "" => problems.required("spec.reinvocationPolicy", ""),
        _ => problems.one_of(
            "spec.reinvocationPolicy",
            &spec["reinvocationPolicy"],
            &["IfNeeded", "Never"],
        ),
    }
}

pub(super) fn check_binding(problems: &mut Problems, spec: &Value) {
    check_bound(problems, spec);
    check_operations(problems, "spec.matchResources", &spec["matchResources"]);
}

fn check_operations(problems: &mut Problems, field: &str, resources: &Value) {
    let field = format!("{field}.resourceRules.operations");
    for rule in items(&resources["resourceRules"]) {
        for operation in strings(&rule["operations"]) {
            problems.one_of(&field, &Value::from(operation), &OPERATIONS);
        }
    }
}

fn check_mutation(problems: &mut Problems, field: &str, mutation: &Value, names: Names<'_>) {
    let given = mutation["patchType"].as_str().unwrap_or_default();
    let of_type = format!("{field}.patchType");
    if given.is_empty() {
        return problems.required(&of_type, "");
    }
    if !PATCHES.iter().any(|(name, ..)| *name == given) {
        let names = PATCHES.map(|(name, ..)| name);
        return problems.one_of(&of_type, &mutation["patchType"], &names);
    }
    for (name, member, mutation_type) in PATCHES {
        let field = format!("{field}.{member}");
        let patch = &mutation[member];
        match (name == given, patch.is_object()) {
            (true, true) => {
                let field = format!("{field}.expression");
                let text = patch["expression"].as_str().unwrap_or_default().trim();
                match text {
                    "" => problems.required(&field, ""),
                    text => {
                        problems.compile(&field, text, |text| {
                            compile_mutation(text, names, mutation_type)
                        });
                    }
                }
            }
            (true, false) => {
                let why = format!("must be specified when patchType is {given}");
                problems.required(&field, &why);
            }
            (false, true) => {
                let why = format!("must not be specified when patchType is {given}");
                problems.invalid(&field, &format!("{{{member}}}"), &why);
            }
            (false, false) => {}
        }
    }
}
