//! `LabelSelector` as objects have it, made one of ours, and its verdict on an object's labels.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as Written;
use serde_json::Value;

use crate::api::LabelSelector;

/// The selector that `written` is; none selects everything, as the empty one.
///
/// # Errors
/// What is wrong with it, for people.
pub(super) fn read(written: Option<&Written>) -> Result<LabelSelector, String> {
    let Some(written) = written else {
        return Ok(LabelSelector::default());
    };
    let mut text = String::new();
    let mut require = |requirement: std::fmt::Arguments<'_>| {
        let comma = if text.is_empty() { "" } else { "," };
        write!(text, "{comma}{requirement}").expect("memory");
    };
    for (key, value) in written.match_labels.iter().flatten() {
        require(format_args!("{key}={value}"));
    }
    for expression in written.match_expressions.iter().flatten() {
        let key = &expression.key;
        let values = expression.values.as_deref().unwrap_or_default();
        match (&*expression.operator, values.is_empty()) {
            ("In", false) => require(format_args!("{key} in ({})", values.join(","))),
            ("NotIn", false) => require(format_args!("{key} notin ({})", values.join(","))),
            ("Exists", true) => require(format_args!("{key}")),
            ("DoesNotExist", true) => require(format_args!("!{key}")),
            ("In" | "NotIn", true) => {
                return Err(
                    "values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
                        .to_owned(),
                );
            }
            ("Exists" | "DoesNotExist", false) => {
                return Err(
                    "values: Forbidden: may not be specified when `operator` is 'Exists' \
                            or 'DoesNotExist'"
                        .to_owned(),
                );
            }
            (other, _) => return Err(format!("{other:?} is not a valid label selector operator")),
        }
    }
    text.parse::<LabelSelector>().map_err(|error| error.problem)
}

/// Whether `selector` selects the labels of `object`.
pub(super) fn selects(selector: &LabelSelector, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    selector.matches(|key| labels.get(key).and_then(Value::as_str))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(selector: Value, labels: Value, expect: Option<bool>) {
        let written: Written = serde_json::from_value(selector.clone()).unwrap();
        let object = json!({"metadata": {"labels": labels}});
        let verdict = read(Some(&written)).ok().map(|s| selects(&s, &object));
        assert_eq!(verdict, expect, "{selector} {object}");
    }

    #[test]
    fn selectors_of_objects_are_the_selectors_of_lists() {
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(json!({}), json!(null), Some(true));
        check(
            json!({"matchLabels": {"a": "b"}}),
            json!({"a": "b"}),
            Some(true),
        );
        check(
            json!({"matchLabels": {"a": "b"}}),
            json!({"a": "c"}),
            Some(false),
        );
        check(
            json!({"matchLabels": {"a": ""}}),
            json!({"a": ""}),
            Some(true),
        );
        check(
            expression("a", "In", &["b", "c"]),
            json!({"a": "c"}),
            Some(true),
        );
        check(expression("a", "NotIn", &["b"]), json!({}), Some(true));
        check(
            expression("a", "NotIn", &["b"]),
            json!({"a": "b"}),
            Some(false),
        );
        check(expression("a", "Exists", &[]), json!({"a": ""}), Some(true));
        check(
            expression("a", "DoesNotExist", &[]),
            json!({"a": ""}),
            Some(false),
        );
        check(expression("a", "In", &[]), json!({}), None);
        check(expression("a", "Exists", &["b"]), json!({}), None);
        check(expression("a", "Like", &["b"]), json!({}), None);
        check(expression("a b", "Exists", &[]), json!({}), None);
    }
}
