//! Tests of each validation rule with a configuration that violates only that rule.

use serde_json::json;

use super::*;

fn hook() -> Value {
    json!({
        "name": "a.example.com",
        "clientConfig": {"url": "https://127.0.0.1/a"},
        "rules": [{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods"], "scope": "*",
        }],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1", "v1beta1"],
    })
}

/// Returns the problems of `object` with `value` at the JSON pointer `at`.
fn changed(kind: ConfigurationKind, mut object: Value, at: &str, value: Value) -> Vec<String> {
    assert_eq!(problems(kind, &object), [], "{object}");
    let (parent, member) = at.rsplit_once('/').unwrap();
    match object.pointer_mut(at) {
        Some(place) => *place = value,
        None => object.pointer_mut(parent).unwrap()[member] = value,
    }
    let text = |cause: StatusCause| format!("{}: {}", cause.field, cause.message);
    problems(kind, &object).into_iter().map(text).collect()
}

fn refused(at: &str, value: Value, expect: &str) {
    let object = json!({"webhooks": [hook()]});
    let causes = changed(
        ConfigurationKind::Mutating,
        object,
        &format!("/webhooks/0{at}"),
        value,
    );
    assert_eq!(causes, [format!("webhooks[0].{expect}")]);
}

#[test]
fn invalid_webhooks_are_rejected() {
    let three = "should be a domain with at least three segments separated by dots";
    refused(
        "/name",
        json!("a.b"),
        &format!("name: Invalid value: \"a.b\": {three}"),
    );
    refused(
        "/sideEffects",
        json!(null),
        "sideEffects: Required value: must specify one of None, NoneOnDryRun",
    );
    refused(
        "/sideEffects",
        json!("Some"),
        "sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
    );
    refused(
        "/timeoutSeconds",
        json!(31),
        "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
    );
    refused(
        "/admissionReviewVersions",
        json!(["v1beta1"]),
        "admissionReviewVersions: Invalid value: \"v1beta1\": must include at least one of v1",
    );
    refused(
        "/failurePolicy",
        json!("Maybe"),
        "failurePolicy: Unsupported value: \"Maybe\": supported values: \"Fail\", \"Ignore\"",
    );
    refused(
        "/rules/0/operations",
        json!([]),
        "rules[0].operations: Required value",
    );
    refused(
        "/rules/0/operations",
        json!(["*", "CREATE"]),
        "rules[0].operations: Invalid value: \"[\\\"*\\\",\\\"CREATE\\\"]\": if '*' is present, must not specify other operations",
    );
    refused(
        "/clientConfig",
        json!({}),
        "clientConfig: Required value: exactly one of url or service is required",
    );
    refused(
        "/clientConfig/service",
        json!({"name": "a", "namespace": "b"}),
        "clientConfig: Required value: exactly one of url or service is required",
    );
    let form = "desired format: https://host[:port]/path";
    for (url, value, why) in [
        (
            "http://a/",
            "http",
            "'https' is the only allowed URL scheme",
        ),
        (
            "https://u@a/",
            "u",
            "user information is not permitted in the URL",
        ),
        (
            "https://a/#f",
            "f",
            "fragments are not permitted in the URL",
        ),
        (
            "https://a/?q=1",
            "q=1",
            "query parameters are not permitted in the URL",
        ),
    ] {
        let expect = format!("clientConfig.url: Invalid value: {value:?}: {why}; {form}");
        refused("/clientConfig/url", json!(url), &expect);
    }
    refused(
        "/reinvocationPolicy",
        json!("Always"),
        "reinvocationPolicy: Unsupported value: \"Always\": supported values: \"IfNeeded\", \"Never\"",
    );
    let causes = changed(
        ConfigurationKind::Validating,
        json!({"webhooks": [hook()]}),
        "/webhooks/0/matchConditions",
        json!([{"name": "a", "expression": "object."}, {"name": "a", "expression": "params == 1"}]),
    );
    assert_eq!(causes.len(), 3, "{causes:?}");
    assert!(causes[0].starts_with("webhooks[0].matchConditions[0].expression: Invalid value: \"object.\": compilation failed: "), "{causes:?}");
    assert!(
        causes[1].ends_with("name: Duplicate value: \"a\""),
        "{causes:?}"
    );
    assert!(
        causes[2].contains("undeclared reference to 'params'"),
        "{causes:?}"
    );
    let twice = json!({"webhooks": [hook(), hook()]});
    let causes = problems(ConfigurationKind::Validating, &twice);
    assert_eq!(causes[0].field, "webhooks[1].name");
}

/// The path `//` once caused a panic, because nothing remains of it without its trailing slashes.
#[test]
fn paths_of_services_consist_of_dns_subdomains() {
    let causes = |path: &str| {
        let service = json!({"name": "a", "namespace": "b", "path": path});
        let hooks = json!({"webhooks": [hook()]});
        let client = json!({ "service": service });
        let at = "/webhooks/0/clientConfig";
        changed(ConfigurationKind::Validating, hooks, at, client)
    };
    for valid in ["", "/", "/a", "/validate-v1.apps/x/"] {
        assert_eq!(causes(valid), [""; 0], "{valid}");
    }
    for (invalid, expect) in [
        ("//", &["segment[0] may not be empty"][..]),
        ("/a//", &["segment[1] may not be empty"]),
        (
            "///",
            &["segment[0] may not be empty", "segment[1] may not be empty"],
        ),
        (
            "é",
            &[
                "must start with a '/'",
                "segment[0]: a lowercase RFC 1123 subdomain",
            ],
        ),
        ("/a/B_", &["segment[1]: a lowercase RFC 1123 subdomain"]),
    ] {
        let found = causes(invalid);
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (found, expect) in found.iter().zip(expect) {
            let start = format!(
                "webhooks[0].clientConfig.service.path: Invalid value: {invalid:?}: {expect}"
            );
            assert!(found.starts_with(&start), "{found}");
        }
    }
}

fn refused_policy(at: &str, value: Value, expect: &str) {
    let policy = json!({"spec": {
        "matchConstraints": {"resourceRules": [hook()["rules"][0]]},
        "validations": [{"expression": "true"}],
    }});
    let causes = changed(
        ConfigurationKind::Policy,
        policy,
        &format!("/spec{at}"),
        value,
    );
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert!(
        causes[0].starts_with(&format!("spec.{expect}")),
        "{causes:?} for {expect}"
    );
}

#[test]
fn invalid_policies_are_rejected() {
    refused_policy(
        "/matchConstraints",
        json!(null),
        "matchConstraints: Required value",
    );
    refused_policy(
        "/validations",
        json!([]),
        "validations: Required value: validations or auditAnnotations must contain at least one item",
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
        "validations[0].message: Invalid value: \"a\\nb\": message must not contain line breaks",
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
    refused_policy(
        "/paramKind",
        json!({"kind": "ConfigMap"}),
        "paramKind.apiVersion: Required value",
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
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert!(
        causes[0].starts_with(&format!("spec.{expect}")),
        "{causes:?} for {expect}"
    );
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

/// The check of a list took quadratic time, and the number of compiled expressions was not limited.
#[test]
fn long_lists_are_checked_in_linear_time() {
    let begun = tokio::time::Instant::now();
    let actions: Vec<String> = (0..200_000).map(|n| format!("a{n}")).collect();
    refused_first(
        "/validationActions",
        json!(actions),
        "Unsupported value: \"a0\"",
    );
    let mut hooks = vec![hook(); 2];
    hooks.extend((0..50_000).map(|n| json!({"name": format!("a.example.n{n}")})));
    let causes = problems(ConfigurationKind::Validating, &json!({"webhooks": hooks}));
    assert_eq!(causes.len(), problems::PROBLEMS_MAX);
    let long = format!("{:16384}", "true");
    let long = (0..15).map(|_| json!({"expression": long}));
    let short = (0..20_000).map(|_| json!({"expression": "true"}));
    let policy = json!({"spec": {
        "matchConstraints": {"resourceRules": [hook()["rules"][0]]},
        "validations": long.chain(short).collect::<Vec<_>>(),
    }});
    let causes = problems(ConfigurationKind::Policy, &policy);
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert_eq!(causes[0].field, "spec.validations[79].expression");
    assert!(causes[0].message.contains("bytes together"), "{causes:?}");
    let took = begun.elapsed();
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
}

fn refused_first(at: &str, value: Value, expect: &str) {
    let binding = json!({"spec": {"policyName": "p", "validationActions": ["Deny"]}});
    let causes = changed(
        ConfigurationKind::Binding,
        binding,
        &format!("/spec{at}"),
        value,
    );
    assert!(causes[0].contains(expect), "{:?}", causes[0]);
}

/// A selector that was converted to text could be parsed as a different selector.
#[test]
fn match_labels_with_selector_syntax_are_rejected() {
    for labels in [json!({"a": "b,c!=d"}), json!({"a in (x),b": "c"})] {
        let object = json!({"webhooks": [hook()]});
        let selector = json!({"matchLabels": labels});
        let at = "/webhooks/0/objectSelector";
        let causes = changed(ConfigurationKind::Mutating, object, at, selector);
        assert_eq!(causes.len(), 1, "{causes:?}");
        assert!(
            causes[0].starts_with("webhooks[0].objectSelector: Invalid value"),
            "{causes:?}"
        );
    }
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
        "/variables/0/name",
        json!("a-b"),
        &["spec.variables[0].name: Invalid value: \"a-b\": must be a valid CEL identifier"],
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
