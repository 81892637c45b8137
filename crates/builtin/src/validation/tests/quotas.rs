//! Tests of the validation of ResourceQuotas.

use super::*;

fn quota(spec: Value) -> Value {
    json!({"metadata": {"name": "q"}, "spec": spec})
}

fn check_spec(spec: Value, expected: &[&str]) {
    check("resourcequotas", quota(spec), expected);
}

/// A quota with a limit that no evaluator counts was stored, although it was never enforced.
#[test]
fn limit_of_uncounted_resource_is_rejected() {
    for name in [
        "pods",
        "requests.storage",
        "hugepages-2Mi",
        "requests.hugepages-2Mi",
        "requests.example.com/gpu",
        "count/widgets.example.com",
        "gold.storageclass.storage.k8s.io/requests.storage",
    ] {
        check_spec(json!({"hard": {name: "2"}}), &[]);
    }
    let at = |name: &str| format!("spec.hard[{name}]: Invalid value: ");
    let unknown = "must be a standard resource for quota";
    check_spec(
        json!({"hard": {"pod": "2"}}),
        &[
            &format!(
                "{}\"pod\": must be a standard resource type or fully qualified",
                at("pod")
            ),
            &format!("{}\"pod\": {unknown}", at("pod")),
        ],
    );
    check_spec(
        json!({"hard": {"storage": "2"}}),
        &[&format!("{}\"storage\": {unknown}", at("storage"))],
    );
    check_spec(json!({"hard": {"cpu": "1500m"}}), &[]);
    for name in ["services", "count/pods", "example.com/gpu"] {
        let expected = format!("{}\"1500m\": must be an integer", at(name));
        check_spec(json!({"hard": {name: "1500m"}}), &[&expected]);
    }
}

#[test]
fn unknown_conflicting_and_inapplicable_scopes_are_rejected() {
    let pods = |scopes: Value| json!({"hard": {"pods": "1"}, "scopes": scopes});
    check_spec(pods(json!(["BestEffort", "Terminating"])), &[]);
    let at = "spec.scopes: Invalid value: ";
    for (spec, expected) in [
        (pods(json!(["Best"])), r#"["Best"]: unsupported scope"#),
        (
            pods(json!(["Terminating", "NotTerminating"])),
            r#"["Terminating","NotTerminating"]: conflicting scopes"#,
        ),
        (
            json!({"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}),
            r#"["BestEffort"]: unsupported scope applied to resource"#,
        ),
        (
            json!({"hard": {"secrets": "1"}, "scopes": ["Terminating"]}),
            r#"["Terminating"]: unsupported scope applied to resource"#,
        ),
    ] {
        check_spec(spec, &[&format!("{at}{expected}")]);
    }
}

#[test]
fn invalid_scope_selectors_are_rejected() {
    let select = |expression: Value| json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [expression]}});
    let expression = |scope: &str, operator: &str, values: Value| json!({"scopeName": scope, "operator": operator, "values": values});
    let good = expression("PriorityClass", "In", json!(["high"]));
    check_spec(select(good), &[]);
    let at = "spec.scopeSelector.matchExpressions";
    for (scope, operator, values, expected) in [
        (
            "PriorityClass",
            "In",
            json!([]),
            "values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for \
             scope selector",
        ),
        (
            "PriorityClass",
            "Exists",
            json!(["high"]),
            r#"values: Invalid value: ["high"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"#,
        ),
        (
            "BestEffort",
            "DoesNotExist",
            json!([]),
            r#"operator: Invalid value: "DoesNotExist": must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"#,
        ),
        (
            "PriorityClass",
            "Is",
            json!([]),
            r#"operator: Invalid value: "Is": not a valid selector operator"#,
        ),
        (
            "Best",
            "Exists",
            json!([]),
            r#"scopeName: Invalid value: "Best": unsupported scope"#,
        ),
    ] {
        let expression = expression(scope, operator, values);
        check_spec(select(expression), &[&format!("{at}.{expected}")]);
    }
}

/// A user who may update the quotas of a namespace removed objects from a quota by changing its scopes.
#[test]
fn scopes_do_not_change() {
    let old = quota(json!({"hard": {"pods": "1"}, "scopes": ["BestEffort", "Terminating"]}));
    let same = json!({"spec": {"scopes": ["Terminating", "BestEffort"]}});
    check_update("resourcequotas", old.clone(), same, &[]);
    let other = json!({"spec": {"scopes": ["BestEffort"]}});
    let expected = r#"spec.scopes: Invalid value: ["BestEffort"]: field is immutable"#;
    check_update("resourcequotas", old, other, &[expected]);
}
