//! Tests of each validation rule with a configuration that violates only that rule.

mod policies;

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
        "admissionReviewVersions: Invalid value: [\"v1beta1\"]: must include at least one of v1",
    );
    refused(
        "/admissionReviewVersions",
        json!([]),
        "admissionReviewVersions: Required value: must specify one of v1, v1beta1",
    );
    refused(
        "/admissionReviewVersions",
        json!(["v2"]),
        "admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
    );
    refused(
        "/admissionReviewVersions",
        json!(["v1", "v1"]),
        "admissionReviewVersions[1]: Invalid value: \"v1\": duplicate version",
    );
    refused(
        "/admissionReviewVersions",
        json!(["v1", "1"]),
        "admissionReviewVersions[1]: Invalid value: \"1\": a DNS-1035 label must consist of lower case \
         alphanumeric characters or '-', start with an alphabetic character, and end with an \
         alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
         '[a-z]([-a-z0-9]*[a-z0-9])?')",
    );
    refused(
        "/matchConditions",
        json!([{"name": "a%", "expression": "true"}]),
        "matchConditions[0].name: Invalid value: \"a%\": name part must consist of alphanumeric \
         characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
         'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    );
    refused(
        "/matchConditions",
        json!([{"name": "a", "expression": "0.1"}]),
        "matchConditions[0].expression: Invalid value: \"0.1\": must evaluate to bool but got double",
    );
    for (resources, expect) in [
        (
            json!(["pods/*", "pods/log"]),
            "[1]: Invalid value: \"pods/log\": if 'pods/*' is present, must not specify pods/log",
        ),
        (
            json!(["*/log", "pods/log"]),
            "[1]: Invalid value: \"pods/log\": if '*/log' is present, must not specify pods/log",
        ),
        (
            json!(["*/*", "pods"]),
            ": Invalid value: [\"*/*\",\"pods\"]: if '*/*' is present, must not specify other resources",
        ),
        (
            json!(["*", "pods"]),
            ": Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify other resources \
             without subresources",
        ),
    ] {
        let expect = format!("rules[0].resources{expect}");
        refused("/rules/0/resources", resources, &expect);
    }
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
        "rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other operations",
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
    let form = "; desired format: https://host[/path]";
    for (url, value, why) in [
        (
            "http://a/",
            "http",
            &*format!("'https' is the only allowed URL scheme{form}"),
        ),
        ("https:///", "", &*format!("host must be specified{form}")),
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
        let expect = format!("clientConfig.url: Invalid value: {value:?}: {why}");
        refused("/clientConfig/url", json!(url), &expect);
    }
    let with_url = |url: &str| {
        let kind = ConfigurationKind::Validating;
        let hooks = json!({"webhooks": [hook()]});
        changed(kind, hooks, "/webhooks/0/clientConfig/url", json!(url))
    };
    assert_eq!(with_url("https://a/ b"), [""; 0], "Go escapes the space");
    assert_eq!(with_url("https://a b/").len(), 1);
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
        causes[1].contains("undeclared reference to 'params'"),
        "{causes:?}"
    );
    assert!(
        causes[2].ends_with("name: Duplicate value: \"a\""),
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
