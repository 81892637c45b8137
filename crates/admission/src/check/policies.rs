//! Policies and their bindings.

use std::collections::HashSet;

use serde_json::Value;

use super::super::policy::VARIABLES;
use super::problems::{Problems, strings};

/// The maximum number of audit annotations, as upstream.
const ANNOTATIONS_MAX: usize = 20;

pub(super) fn check(problems: &mut Problems, spec: &Value) {
    check_definition(problems, spec);
    let has = |list: &str| spec[list].as_array().is_some_and(|list| !list.is_empty());
    if !has("validations") && !has("auditAnnotations") {
        let why = "validations or auditAnnotations must contain at least one item";
        problems.required("spec.validations", why);
    }
    for (index, validation) in items(&spec["validations"]).enumerate() {
        check_validation(problems, &format!("spec.validations[{index}]"), validation);
    }
    problems.few(
        "spec.auditAnnotations",
        &spec["auditAnnotations"],
        ANNOTATIONS_MAX,
    );
    for (index, annotation) in items(&spec["auditAnnotations"]).enumerate() {
        let field = format!("spec.auditAnnotations[{index}]");
        if annotation["key"].as_str().unwrap_or_default().is_empty() {
            problems.required(&format!("{field}.key"), "key is required");
        }
        let value = &annotation["valueExpression"];
        problems.expression(&format!("{field}.valueExpression"), value, &VARIABLES);
    }
}

/// Checks what validating and mutating policies have in common.
pub(super) fn check_definition(problems: &mut Problems, spec: &Value) {
    problems.one_of(
        "spec.failurePolicy",
        &spec["failurePolicy"],
        &["Fail", "Ignore"],
    );
    if let Value::Object(kind) = &spec["paramKind"] {
        for member in ["apiVersion", "kind"] {
            let given = kind.get(member).and_then(Value::as_str).unwrap_or_default();
            if given.is_empty() {
                problems.required(&format!("spec.paramKind.{member}"), "");
            }
        }
    }
    match &spec["matchConstraints"] {
        constraints @ Value::Object(_) => {
            problems.some(
                "spec.matchConstraints.resourceRules",
                &constraints["resourceRules"],
            );
            check_resources(problems, "spec.matchConstraints", constraints);
        }
        _ => problems.required("spec.matchConstraints", ""),
    }
    let without_variables = &VARIABLES[..VARIABLES.len() - 1];
    problems.conditions(
        "spec.matchConditions",
        &spec["matchConditions"],
        without_variables,
    );
    check_variables(problems, &spec["variables"]);
}

pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn check_resources(problems: &mut Problems, field: &str, resources: &Value) {
    problems.one_of(
        &format!("{field}.matchPolicy"),
        &resources["matchPolicy"],
        &["Equivalent", "Exact"],
    );
    for member in ["namespaceSelector", "objectSelector"] {
        problems.selector(&format!("{field}.{member}"), &resources[member]);
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in items(&resources[list]).enumerate() {
            problems.rule(&format!("{field}.{list}[{index}]"), rule);
        }
    }
}

fn check_variables(problems: &mut Problems, variables: &Value) {
    let mut names: HashSet<&str> = HashSet::new();
    for (index, variable) in items(variables).enumerate() {
        let field = format!("spec.variables[{index}]");
        let name = variable["name"].as_str().unwrap_or_default();
        let is_identifier = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit());
        let field_of_name = format!("{field}.name");
        if name.is_empty() {
            problems.required(&field_of_name, "name is not specified");
        } else if !is_identifier {
            problems.invalid(&field_of_name, name, "must be a valid CEL identifier");
        } else if !names.insert(name) {
            problems.duplicate(&field_of_name, name);
        }
        problems.expression(
            &format!("{field}.expression"),
            &variable["expression"],
            &VARIABLES,
        );
    }
}

fn check_validation(problems: &mut Problems, field: &str, validation: &Value) {
    let text = |member: &str| validation[member].as_str().unwrap_or_default();
    let of = |member: &str| format!("{field}.{member}");
    problems.expression(&of("expression"), &validation["expression"], &VARIABLES);
    let message = text("message");
    if validation["message"].is_string() && message.trim().is_empty() {
        problems.invalid(
            &of("message"),
            message,
            "message must be non-empty if specified",
        );
    } else if message.contains('\n') {
        problems.invalid(
            &of("message"),
            message,
            "message must not contain line breaks",
        );
    } else if text("expression").trim().contains('\n') && message.is_empty() {
        let why = "message must be specified if expression contains line breaks";
        problems.required(&of("message"), why);
    }
    if validation["messageExpression"].is_string() {
        let of_message = &validation["messageExpression"];
        problems.expression(&of("messageExpression"), of_message, &VARIABLES);
    }
    const REASONS: [&str; 4] = [
        "Forbidden",
        "Invalid",
        "RequestEntityTooLarge",
        "Unauthorized",
    ];
    problems.one_of(&of("reason"), &validation["reason"], &REASONS);
}

pub(super) fn check_binding(problems: &mut Problems, spec: &Value) {
    const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
    check_bound(problems, spec);
    if !problems.some("spec.validationActions", &spec["validationActions"]) {
        return;
    }
    let mut actions = HashSet::new();
    for (index, action) in strings(&spec["validationActions"]).enumerate() {
        let field = format!("spec.validationActions[{index}]");
        problems.one_of(&field, &Value::from(action), &ACTIONS);
        if !actions.insert(action) {
            problems.duplicate(&field, action);
        }
    }
    if actions.contains("Deny") && actions.contains("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure \
                   information in the API response and headers serves no purpose)";
        let actions: Vec<&str> = strings(&spec["validationActions"]).collect();
        problems.invalid("spec.validationActions", &actions.join(","), why);
    }
}

/// Checks what the bindings of validating and mutating policies have in common.
pub(super) fn check_bound(problems: &mut Problems, spec: &Value) {
    if spec["policyName"].as_str().unwrap_or_default().is_empty() {
        problems.required("spec.policyName", "");
    }
    if let reference @ Value::Object(_) = &spec["paramRef"] {
        let is = |member: &str| !reference[member].is_null();
        match (is("name"), is("selector")) {
            (true, true) => {
                let why = "name and selector are mutually exclusive";
                let cause = watchet_api::StatusCause::forbidden("spec.paramRef.name", why);
                problems.push(cause);
            }
            (false, false) => {
                problems.required("spec.paramRef", "one of name or selector must be specified");
            }
            _ => {}
        }
        problems.selector("spec.paramRef.selector", &reference["selector"]);
        let field = "spec.paramRef.parameterNotFoundAction";
        match &reference["parameterNotFoundAction"] {
            Value::Null => problems.required(field, ""),
            given => problems.one_of(field, given, &["Allow", "Deny"]),
        }
    }
    if spec["matchResources"].is_object() {
        check_resources(problems, "spec.matchResources", &spec["matchResources"]);
    }
}
