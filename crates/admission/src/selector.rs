//! Reads the `LabelSelector` of a configuration, and matches it against the labels of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as MetaLabelSelector;
use serde_json::Value;

use watchet_api::LabelSelector;

/// Parses a selector. An absent selector selects everything, like the empty one.
///
/// # Errors
/// A message for users: why the selector is invalid.
pub(super) fn read(selector: Option<&MetaLabelSelector>) -> Result<LabelSelector, String> {
    selector.map_or_else(|| Ok(LabelSelector::default()), LabelSelector::from_meta)
}

/// Returns true if `selector` selects the labels of `object`.
pub(super) fn selects(selector: &LabelSelector, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    selector.matches(|key| labels.get(key).and_then(Value::as_str))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(selector: Value, labels: Value, expect: Option<bool>) {
        let meta: MetaLabelSelector = serde_json::from_value(selector.clone()).unwrap();
        let object = json!({"metadata": {"labels": labels}});
        let selected = read(Some(&meta)).ok().map(|s| selects(&s, &object));
        assert_eq!(selected, expect, "{selector} {object}");
    }

    #[test]
    fn selector_matches_labels_of_objects() {
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
