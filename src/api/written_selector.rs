//! `LabelSelector` as objects write it, with `matchLabels` and `matchExpressions`, made one of ours. It
//! matches as the text does that lists are asked with, which is also how a `Scale` shows it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as Written;

use super::LabelSelector;
use super::label_selector::{check_key, check_value};

impl LabelSelector {
    /// The selector that `written` is, its requirements ordered by key; the empty one selects everything.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn of_written(written: &Written) -> Result<Self, String> {
        let mut requirements: Vec<(&str, String)> = Vec::new();
        for (key, value) in written.match_labels.iter().flatten() {
            // Anything else could be more than one requirement, or another, once it is text.
            check_key(key)?;
            check_value(value)?;
            requirements.push((key, format!("{key}={value}")));
        }
        for expression in written.match_expressions.iter().flatten() {
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

    fn check(written: Value, text: Result<&str, &str>) {
        let written: Written = serde_json::from_value(written).unwrap();
        let told = LabelSelector::of_written(&written).map(|selector| selector.to_string());
        match (told, text) {
            (Ok(told), Ok(text)) => assert_eq!(told, text),
            (Err(told), Err(text)) => assert!(told.contains(text), "{told}"),
            (told, text) => panic!("{told:?} instead of {text:?}"),
        }
    }

    #[test]
    fn what_objects_write_is_what_lists_are_asked_with() {
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

    /// Found by reading: a selector became text, and the text another selector.
    #[test]
    fn what_is_no_label_is_no_selector() {
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
