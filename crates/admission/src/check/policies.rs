//! Policies and their bindings.

use std::collections::HashSet;

use serde_json::Value;

use super::super::expressions::compile_typed;
use super::policy_names::PolicyNames;
use super::problems::{Problems, items, strings};
use watchet_api::names::qualified_name_problems;

/// The maximum number of audit annotations, as upstream.
const ANNOTATIONS_MAX: usize = 20;

/// The maximum length of the expression of an audit annotation, as upstream.
const ANNOTATION_BYTES_MAX: usize = 5 << 10;

pub(super) fn check(problems: &mut Problems, policy: &Value) {
    let spec = &policy["spec"];
    let mut names = PolicyNames::of(spec);
    check_definition(problems, spec, &mut names);
    let has = |list: &str| spec[list].as_array().is_some_and(|list| !list.is_empty());
    if !has("validations") && !has("auditAnnotations") {
        let why = "validations or auditAnnotations must contain at least one item";
        problems.required("spec.validations", why);
        problems.required("spec.auditAnnotations", why);
    }
    for (index, validation) in items(&spec["validations"]).enumerate() {
        let field = format!("spec.validations[{index}]");
        check_validation(problems, &field, validation, &names);
    }
    let name = policy["metadata"]["name"].as_str().unwrap_or_default();
    check_annotations(problems, name, &spec["auditAnnotations"], &names);
}

/// Checks the audit annotations of the policy `name`.
fn check_annotations(
    problems: &mut Problems,
    name: &str,
    annotations: &Value,
    names: &PolicyNames<'_>,
) {
    if items(annotations).nth(ANNOTATIONS_MAX).is_some() {
        let why = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
        problems.invalid_json("spec.auditAnnotations", annotations, &why);
    }
    let mut keys: HashSet<&str> = HashSet::new();
    for (index, annotation) in items(annotations).enumerate() {
        let text = |member: &str| annotation[member].as_str().unwrap_or_default();
        let field = format!("spec.auditAnnotations[{index}]");
        let of_key = format!("{field}.key");
        let key = text("key");
        if name.is_empty() {
            problems.invalid(&of_key, key, "requires metadata.name be non-empty");
        } else {
            let key = format!("{name}/{key}");
            for problem in qualified_name_problems(&key) {
                problems.invalid(&of_key, &key, &problem);
            }
        }
        let field = format!("{field}.valueExpression");
        let value = text("valueExpression");
        match value.trim() {
            "" => problems.required(&field, "valueExpression is not specified"),
            long if long.len() > ANNOTATION_BYTES_MAX => {
                let why = format!("must not exceed {ANNOTATION_BYTES_MAX} bytes in length");
                problems.required(&field, &why);
            }
            _ => {
                problems.compile(&field, value, |value| {
                    compile_typed(value, names.of_expressions(), &["string", "null_type"])
                });
            }
        }
        if !keys.insert(key) {
            problems.duplicate(&of_key, key);
        }
    }
}

/// Checks what validating and mutating policies have in common.
pub(super) fn check_definition(problems: &mut Problems, spec: &Value, names: &mut PolicyNames<'_>) {
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
    problems.conditions(
        "spec.matchConditions",
        &spec["matchConditions"],
        names.of_conditions(),
    );
    check_variables(problems, &spec["variables"], names);
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

fn check_variables(problems: &mut Problems, variables: &Value, names: &mut PolicyNames<'_>) {
    for (index, variable) in items(variables).enumerate() {
        let field = format!("spec.variables[{index}]");
        let name = variable["name"].as_str().unwrap_or_default();
        let is_identifier = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && !watchet_cel::is_reserved(name);
        let field_of_name = format!("{field}.name");
        if name.trim().is_empty() {
            problems.required(&field_of_name, "name is not specified");
        } else if !is_identifier {
            problems.invalid(&field_of_name, name, "must be a valid CEL identifier");
        }
        let field = format!("{field}.expression");
        let text = variable["expression"].as_str().unwrap_or_default();
        if text.trim().is_empty() {
            problems.required(&field, "expression is not specified");
            continue;
        }
        let output_type = problems.compile(&field, text, |text| {
            compile_typed(text, names.of_expressions(), &[])
        });
        names.declare(name, output_type);
    }
}

fn check_validation(
    problems: &mut Problems,
    field: &str,
    validation: &Value,
    names: &PolicyNames<'_>,
) {
    let text = |member: &str| validation[member].as_str().unwrap_or_default();
    let of = |member: &str| format!("{field}.{member}");
    let expression = &validation["expression"];
    let of_expression = of("expression");
    problems.expression(
        &of_expression,
        expression,
        names.of_expressions(),
        &["bool"],
    );
    let message_expression = text("messageExpression");
    if !message_expression.trim().is_empty() {
        problems.compile(&of("messageExpression"), message_expression, |text| {
            compile_typed(text, names.of_messages(), &["string"])
        });
    } else if !message_expression.is_empty() {
        let why = "must be non-empty if specified";
        problems.invalid(&of("messageExpression"), message_expression, why);
    }
    let message = text("message");
    if !message.is_empty() && message.trim().is_empty() {
        problems.invalid(&of("message"), message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        problems.invalid(&of("message"), message, "must not contain line breaks");
    }
    const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
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
