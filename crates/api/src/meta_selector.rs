//! Converts `LabelSelector` of `meta.k8s.io/v1` (`matchLabels`, `matchExpressions`) into
//! [`LabelSelector`]. Its text is also the `selector` of a `Scale`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as MetaLabelSelector;

use super::LabelSelector;
use super::label_selector::{check_key, check_value};

impl LabelSelector {
    /// Converts `selector`; requirements are ordered by key, and the empty selector matches
    /// everything.
    ///
    /// # Errors
    /// Returns the reason why the selector is invalid.
    pub fn from_meta(selector: &MetaLabelSelector) -> Result<Self, String> {
        let mut requirements: Vec<(&str, String)> = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            // Other characters could turn one requirement into several once it is text.
            check_key(key)?;
            check_value(value)?;
            requirements.push((key, format!("{key}={value}")));
        }
        for expression in selector.match_expressions.iter().flatten() {
            let key = expression.key.as_str();
            let mut values = expression.values.clone().unwrap_or_default();
            values.sort_unstable();
            check_key(key)?;
            values.iter().try_for_each(|value| check_value(value))?;
            let text = match (&*expression.operator, values.is_empty()) {
                ("In", false) => format!("{key} in ({})", values.join(",")),
                ("NotIn", false) => format!("{key} notin ({})", values.join(",")),
                ("Exists", true) => key.to_owned(),
                ("DoesNotExist", true) => format!("!{key}"),
                ("In" | "NotIn", true) => {
                    return Err(
                        "values: Required value: must be specified when `operator` is 'In' \
                                or 'NotIn'"
                            .to_owned(),
                    );
                }
                ("Exists" | "DoesNotExist", false) => {
                    return Err(
                        "values: Forbidden: may not be specified when `operator` is \
                                'Exists' or 'DoesNotExist'"
                            .to_owned(),
                    );
                }
                (other, _) => {
                    return Err(format!("{other:?} is not a valid label selector operator"));
                }
            };
            requirements.push((key, text));
        }
        requirements.sort_by(|a, b| a.0.cmp(b.0));
        let texts: Vec<String> = requirements.into_iter().map(|(_, text)| text).collect();
        let text = texts.join(",");
        text.parse()
            .map_err(|error: super::InvalidLabelSelector| error.problem)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(selector: Value, text: Result<&str, &str>) {
        let selector: MetaLabelSelector = serde_json::from_value(selector).unwrap();
        let result = LabelSelector::from_meta(&selector).map(|selector| selector.to_string());
        match (result, text) {
            (Ok(result), Ok(text)) => assert_eq!(result, text),
            (Err(result), Err(text)) => assert!(result.contains(text), "{result}"),
            (result, text) => panic!("{result:?} instead of {text:?}"),
        }
    }

    #[test]
    fn conversion_of_meta_selectors() {
        check(json!({}), Ok(""));
        check(json!({"matchLabels": {"b": "1", "a": ""}}), Ok("a=,b=1"));
        let expression = |operator: &str, values: &[&str]| {
            let one = json!({"key": "k", "operator": operator, "values": values});
            json!({"matchLabels": {"z": "1"}, "matchExpressions": [one]})
        };
        check(expression("In", &["y", "x"]), Ok("k in (x,y),z=1"));
        check(expression("NotIn", &["x"]), Ok("k notin (x),z=1"));
        check(expression("Exists", &[]), Ok("k,z=1"));
        check(expression("DoesNotExist", &[]), Ok("!k,z=1"));
        check(
            expression("In", &[]),
            Err("must be specified when `operator` is 'In'"),
        );
        check(expression("Exists", &["x"]), Err("may not be specified"));
        check(
            expression("Like", &["x"]),
            Err("\"Like\" is not a valid label selector operator"),
        );
        check(json!({"matchLabels": {"a b": ""}}), Err(""));
    }

    /// A value with grammar characters must not become another selector.
    #[test]
    fn invalid_labels_are_rejected() {
        for (key, value) in [
            ("a", "b,c!=d"),
            ("a", "b,c"),
            ("a", "=b"),
            ("a", " b"),
            ("a!", "b"),
            ("!a", ""),
            ("a in (x),b", "c"),
            ("", "b"),
        ] {
            check(json!({"matchLabels": {key: value}}), Err("a label "));
            let one = json!({"key": key, "operator": "In", "values": [value]});
            check(json!({"matchExpressions": [one]}), Err("a label "));
        }
        let one = json!({"key": "a,b", "operator": "Exists"});
        check(json!({"matchExpressions": [one]}), Err("a label key "));
    }
}
