//! Tests of the validation of policies and their bindings.

use super::*;

/// Asserts that there is one cause, which begins with this text below `spec`.
#[track_caller]
fn assert_one(causes: &[String], expect: &str) {
    assert_eq!(causes.len(), 1, "{causes:?}");
    let begins = causes[0].starts_with(&format!("spec.{expect}"));
    assert!(begins, "{causes:?} for {expect}");
}

fn refused_policy(at: &str, value: Value, expect: &str) {
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [hook()["rules"][0]]},
        "validations": [{"expression": "true"}],
    }});
    let causes = changed(
        ConfigurationKind::Policy,
        policy,
        &format!("/spec{at}"),
        value,
    );
    assert_one(&causes, expect);
}

#[test]
fn invalid_policies_are_rejected() {
    refused_policy(
        "/matchConstraints",
        json!(null),
        "matchConstraints: Required value",
    );
    refused_policy(
        "/validations/0/expression",
        json!("object.spec ="),
        "validations[0].expression: Invalid value: \"object.spec =\": compilation failed: ERROR: <input>:1:",
    );
    refused_policy(
        "/validations/0/expression",
        json!(" "),
        "validations[0].expression: Required value: expression is not specified",
    );
    refused_policy(
        "/validations/0/message",
        json!("a\nb"),
        "validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
    );
    refused_policy(
        "/validations/0/messageExpression",
        json!("x"),
        "validations[0].messageExpression: Invalid value: \"x\": compilation failed: ",
    );
    refused_policy(
        "/validations/0/reason",
        json!("NotFound"),
        "validations[0].reason: Unsupported value",
    );
    refused_policy(
        "/variables",
        json!([{"name": "a-b", "expression": "1"}]),
        "variables[0].name: Invalid value: \"a-b\": must be a valid CEL identifier",
    );
    for (name, expression) in [("in", "1"), ("a", "variables.b"), ("a", "params == null")] {
        let member = if name == "in" { "name" } else { "expression" };
        refused_policy(
            "/variables",
            json!([{"name": name, "expression": expression}]),
            &format!("variables[0].{member}: Invalid value"),
        );
    }
    for (expression, why) in [
        (
            "variables.a == 1",
            "compilation failed: ERROR: undeclared reference to 'variables'",
        ),
        ("object.spec.a", "must evaluate to bool but got dyn"),
        ("size(object.spec.a)", "must evaluate to bool but got int"),
    ] {
        refused_policy(
            "/validations/0/expression",
            json!(expression),
            &format!("validations[0].expression: Invalid value: {expression:?}: {why}"),
        );
    }
    for (expression, why) in [
        ("null", "must evaluate to string but got null_type"),
        (
            "string(authorizer)",
            "compilation failed: ERROR: undeclared reference to 'authorizer'",
        ),
    ] {
        refused_policy(
            "/validations/0/messageExpression",
            json!(expression),
            &format!("validations[0].messageExpression: Invalid value: {expression:?}: {why}"),
        );
    }
    refused_policy(
        "/paramKind",
        json!({"kind": "ConfigMap"}),
        "paramKind.apiVersion: Required value",
    );
}

#[test]
fn variables_are_declared_before_they_are_used() {
    let problems_of = |variables: Value, expression: &str| {
        let policy = json!({"metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": [hook()["rules"][0]]},
            "variables": variables,
            "validations": [{"expression": expression, "messageExpression": "string(variables.a)"}],
        }});
        let causes = problems(ConfigurationKind::Policy, &policy).into_iter();
        causes
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect::<Vec<_>>()
    };
    let a = json!({"name": "a", "expression": "1"});
    let b = json!({"name": "b", "expression": "variables.a"});
    assert_eq!(problems_of(json!([a, b, a]), "variables.b == 1"), [""; 0]);
    let dynamic = json!({"name": "a", "expression": "object.spec.a"});
    assert_eq!(
        problems_of(json!([dynamic, b]), "variables.b"),
        [
            "spec.validations[0].expression: Invalid value: \"variables.b\": must evaluate to bool but got dyn"
        ]
    );
    assert_eq!(
        problems_of(json!([b, a]), "variables.c == 1"),
        [
            "spec.variables[0].expression: Invalid value: \"variables.a\": compilation failed: ERROR: \
             <input>:1:10: undefined field 'a'\n | variables.a\n | .........^",
            "spec.validations[0].expression: Invalid value: \"variables.c == 1\": compilation failed: \
             ERROR: <input>:1:10: undefined field 'c'\n | variables.c == 1\n | .........^",
        ]
    );
}

#[test]
fn invalid_audit_annotations_are_rejected() {
    let annotation = |key: &str, value: &str| json!({"key": key, "valueExpression": value});
    let annotations = json!([
        annotation("a", "'x'"),
        annotation("a", "null"),
        annotation("b c", "1")
    ]);
    let policy = |name: &str, annotations: &Value| {
        json!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": [hook()["rules"][0]]},
            "auditAnnotations": annotations,
        }})
    };
    let problems_of = |name: &str, annotations: &Value| {
        let causes = problems(ConfigurationKind::Policy, &policy(name, annotations)).into_iter();
        causes
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect::<Vec<_>>()
    };
    let at = "spec.auditAnnotations";
    assert_eq!(
        problems_of("p", &annotations),
        [
            format!("{at}[1].key: Duplicate value: \"a\""),
            format!(
                "{at}[2].key: Invalid value: \"p/b c\": name part must consist of alphanumeric \
                 characters, '-', '_' or '.', and must start and end with an alphanumeric character \
                 (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ),
            format!(
                "{at}[2].valueExpression: Invalid value: \"1\": must evaluate to one of [string \
                 null_type] but got int"
            ),
        ]
    );
    assert_eq!(
        problems_of("", &json!([annotation("a", " ")])),
        [
            format!("{at}[0].key: Invalid value: \"a\": requires metadata.name be non-empty"),
            format!("{at}[0].valueExpression: Required value: valueExpression is not specified"),
        ]
    );
    let why = "Required value: validations or auditAnnotations must contain at least one item";
    assert_eq!(
        problems_of("p", &json!([])),
        [format!("spec.validations: {why}"), format!("{at}: {why}")]
    );
}

fn refused_binding(at: &str, value: Value, expect: &str) {
    let binding = json!({"spec": {"policyName": "p", "validationActions": ["Deny"]}});
    let causes = changed(
        ConfigurationKind::Binding,
        binding,
        &format!("/spec{at}"),
        value,
    );
    assert_one(&causes, expect);
}

#[test]
fn invalid_bindings_are_rejected() {
    refused_binding("/policyName", json!(""), "policyName: Required value");
    refused_binding(
        "/validationActions",
        json!([]),
        "validationActions: Required value",
    );
    refused_binding(
        "/validationActions",
        json!(["Deny", "Warn"]),
        "validationActions: Invalid value: \"Deny,Warn\": must not contain both Deny and Warn",
    );
    refused_binding(
        "/validationActions",
        json!(["Stop"]),
        "validationActions[0]: Unsupported value: \"Stop\": supported values: \"Audit\", \"Deny\", \"Warn\"",
    );
    refused_binding(
        "/paramRef",
        json!({"parameterNotFoundAction": "Deny"}),
        "paramRef: Required value: one of name or selector must be specified",
    );
    refused_binding(
        "/paramRef",
        json!({"name": "a"}),
        "paramRef.parameterNotFoundAction: Required value",
    );
}

fn mutating_policy() -> Value {
    json!({"spec": {
        "matchConstraints": {"resourceRules": [{
            "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods"],
        }]},
        "variables": [{"name": "a", "expression": "object.metadata.name"}],
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {
                "expression": "Object{metadata: Object.metadata{labels: {'a': variables.a}}}",
            }},
            {"patchType": "JSONPatch", "jsonPatch": {
                "expression": "[JSONPatch{op: 'add', path: '/a', value: 1}]",
            }},
        ],
        "reinvocationPolicy": "IfNeeded",
    }})
}

#[test]
fn invalid_mutating_policies_are_rejected() {
    let refused = |at: &str, value: Value, expect: &[&str]| {
        let kind = ConfigurationKind::MutatingPolicy;
        let causes = changed(kind, mutating_policy(), &format!("/spec{at}"), value);
        assert_eq!(causes, expect);
    };
    refused(
        "/mutations",
        json!([]),
        &["spec.mutations: Required value: mutations must contain at least one item"],
    );
    refused(
        "/reinvocationPolicy",
        json!(null),
        &["spec.reinvocationPolicy: Required value"],
    );
    refused(
        "/reinvocationPolicy",
        json!("Always"),
        &[
            "spec.reinvocationPolicy: Unsupported value: \"Always\": supported values: \"IfNeeded\", \
           \"Never\"",
        ],
    );
    refused(
        "/matchConstraints",
        json!(null),
        &["spec.matchConstraints: Required value"],
    );
    refused(
        "/matchConstraints/resourceRules/0/operations",
        json!(["DELETE"]),
        &[
            "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported \
           values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"",
        ],
    );
    refused(
        "/mutations/0/patchType",
        json!(""),
        &["spec.mutations[0].patchType: Required value"],
    );
    refused(
        "/mutations/0/patchType",
        json!("Merge"),
        &[
            "spec.mutations[0].patchType: Unsupported value: \"Merge\": supported values: \
           \"ApplyConfiguration\", \"JSONPatch\"",
        ],
    );
    refused(
        "/mutations/0/patchType",
        json!("JSONPatch"),
        &[
            "spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be \
             specified when patchType is JSONPatch",
            "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
        ],
    );
    refused(
        "/mutations/1/jsonPatch/expression",
        json!(" "),
        &["spec.mutations[1].jsonPatch.expression: Required value"],
    );
    refused(
        "/mutations/1/jsonPatch/expression",
        json!("Object{}"),
        &[
            "spec.mutations[1].jsonPatch.expression: Invalid value: \"Object{}\": must evaluate to \
           list(JSONPatch) but got Object",
        ],
    );
    refused(
        "/variables/0/expression",
        json!("Object{}.a"),
        &[
            "spec.variables[0].expression: Invalid value: \"Object{}.a\": compilation failed: ERROR: \
           undeclared reference to 'Object'",
        ],
    );
    refused(
        "/variables",
        json!([{"name": "a", "expression": "1"}, {"name": "a-b", "expression": "1"}]),
        &["spec.variables[1].name: Invalid value: \"a-b\": must be a valid CEL identifier"],
    );
}

#[test]
fn invalid_bindings_of_mutating_policies_are_rejected() {
    let binding = json!({"spec": {"policyName": "p", "matchResources": {"resourceRules": [{
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
    }]}}});
    let refused = |at: &str, value: Value, expect: &[&str]| {
        let kind = ConfigurationKind::MutatingBinding;
        let causes = changed(kind, binding.clone(), &format!("/spec{at}"), value);
        assert_eq!(causes, expect);
    };
    refused(
        "/policyName",
        json!(""),
        &["spec.policyName: Required value"],
    );
    refused(
        "/matchResources/resourceRules/0/operations",
        json!(["DELETE"]),
        &[
            "spec.matchResources.resourceRules.operations: Unsupported value: \"DELETE\": supported \
           values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"",
        ],
    );
    refused(
        "/paramRef",
        json!({"name": "a"}),
        &["spec.paramRef.parameterNotFoundAction: Required value"],
    );
}
