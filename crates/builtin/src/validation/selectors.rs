//! Validates label selectors and matches them against labels. Also validates labels other than those of the object
//! itself.

use serde_json::Value;

use super::text as rules;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, object, text};

/// Validates labels, or a map that selects by equality.
pub(super) fn labels(labels: &Fields, at: &Path<'_>, causes: &mut Causes) {
    for (key, value) in labels {
        if causes.is_full() {
            return;
        }
        causes.invalid_each(at, key, rules::qualified(key));
        let value = value.as_str().unwrap_or_default();
        causes.invalid_each(at, value, rules::label_value(value));
    }
}

/// Validates a `LabelSelector`.
pub(super) fn selector(selector: &Fields, at: &Path<'_>, causes: &mut Causes) {
    if let Some(equal) = object(selector, "matchLabels") {
        labels(equal, &at.member("matchLabels"), causes);
    }
    let expressions_at = at.member("matchExpressions");
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        if let Some(expression) = expression.as_object() {
            requirement(expression, &expressions_at.item(index), causes);
        }
    }
}

fn requirement(expression: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let values = list(expression, "values");
    match text(expression, "operator") {
        "In" | "NotIn" if values.is_empty() => causes.required(
            &at.member("values"),
            "must be specified when `operator` is 'In' or 'NotIn'",
        ),
        "In" | "NotIn" => {}
        "Exists" | "DoesNotExist" if !values.is_empty() => causes.forbidden(
            &at.member("values"),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        "Exists" | "DoesNotExist" => {}
        other => causes.invalid(
            &at.member("operator"),
            other,
            "not a valid selector operator",
        ),
    }
    let key = text(expression, "key");
    causes.invalid_each(&at.member("key"), key, rules::qualified(key));
    for (index, value) in values.iter().enumerate() {
        if causes.is_full() {
            return;
        }
        let value = value.as_str().unwrap_or_default();
        let problems = rules::label_value(value);
        causes.invalid_each(&at.member("values").item(index), value, problems);
    }
}

/// Returns true if the selector has no problem.
pub(super) fn is_valid(given: &Fields) -> bool {
    let mut causes = Causes::default();
    selector(given, &Path::Top(""), &mut causes);
    causes.is_empty()
}

/// Returns true if the selector is empty, and so selects everything.
pub(super) fn is_empty(selector: &Fields) -> bool {
    object(selector, "matchLabels").is_none_or(Fields::is_empty)
        && list(selector, "matchExpressions").is_empty()
}

/// Returns true if the selector matches these labels.
pub(super) fn matches(selector: &Fields, labels: Option<&Fields>) -> bool {
    let label = |key: &str| labels?.get(key)?.as_str();
    let equal = object(selector, "matchLabels");
    let equal = equal.is_none_or(|equal| equals(equal, labels));
    let expressions = list(selector, "matchExpressions").iter();
    equal
        && expressions.filter_map(Value::as_object).all(|expression| {
            let given = label(text(expression, "key"));
            let listed = || {
                list(expression, "values")
                    .iter()
                    .any(|v| v.as_str() == given)
            };
            match text(expression, "operator") {
                "In" => given.is_some() && listed(),
                "NotIn" => given.is_none() || !listed(),
                "Exists" => given.is_some(),
                "DoesNotExist" => given.is_none(),
                _ => false,
            }
        })
}

/// Returns true if all of `required` are among the labels.
pub(super) fn equals(required: &Fields, labels: Option<&Fields>) -> bool {
    let mut required = required.iter();
    required.all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_match_by_labels_and_expressions() {
        let labels = json!({"app": "web", "tier": "front"});
        let selects = |selector: Value| matches(selector.as_object().unwrap(), labels.as_object());
        assert!(selects(json!({})));
        assert!(selects(json!({"matchLabels": {"app": "web"}})));
        assert!(!selects(json!({"matchLabels": {"app": "web", "x": ""}})));
        let one = |operator: &str, key: &str, values: Value| {
            let mut expression = json!({"key": key, "operator": operator});
            expression["values"] = values;
            selects(json!({"matchExpressions": [expression]}))
        };
        assert!(one("In", "app", json!(["db", "web"])));
        assert!(!one("In", "none", json!(["db"])));
        assert!(one("NotIn", "none", json!(["db"])));
        assert!(!one("NotIn", "app", json!(["web"])));
        assert!(one("Exists", "app", json!(null)) && !one("DoesNotExist", "app", json!(null)));
    }
}
