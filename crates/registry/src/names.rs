//! Validation of names, labels and annotations. The messages are upstream's, which people search for.

use serde_json::{Map, Value};

use super::causes::Causes;
use watchet_api::StatusCause;
use watchet_api::names::{LABEL_LENGTH_MAX, is_label_text};
pub use watchet_api::names::{NameRule, path_segment_problems, qualified_name_problems};

/// The limit of all annotations of an object together, keys and values.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Adds the problems of `metadata.labels`.
pub fn label_problems(labels: &Map<String, Value>, causes: &mut Causes) {
    let field = "metadata.labels";
    for (key, value) in labels {
        if causes.is_full() {
            return;
        }
        for problem in qualified_name_problems(key) {
            causes.push(StatusCause::invalid(field, key, &problem));
        }
        let value = value.as_str().unwrap_or_default();
        for problem in label_value_problems(value) {
            causes.push(StatusCause::invalid(field, value, &problem));
        }
    }
}

/// Returns the problems of the value of a label.
pub fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > LABEL_LENGTH_MAX {
        problems.push(format!("must be no more than {LABEL_LENGTH_MAX} bytes"));
    }
    if !value.is_empty() && !is_label_text(value) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

/// Adds the problems of `metadata.annotations`.
pub fn annotation_problems(annotations: &Map<String, Value>, causes: &mut Causes) {
    let field = "metadata.annotations";
    let mut bytes = 0;
    for (key, value) in annotations {
        if causes.is_full() {
            return;
        }
        for problem in qualified_name_problems(&key.to_lowercase()) {
            causes.push(StatusCause::invalid(field, key, &problem));
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        causes.push(StatusCause::too_long(field, ANNOTATIONS_BYTES_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: NameRule, good: &[&str], bad: &[&str]) {
        for name in good {
            assert_eq!(rule.problems(name, false), [""; 0], "{rule:?} {name}");
        }
        for name in bad {
            assert_ne!(rule.problems(name, false), [""; 0], "{rule:?} {name}");
        }
    }

    #[test]
    fn rules_accept_and_reject_names() {
        let long = "a".repeat(254);
        check(
            NameRule::Subdomain,
            &["a", "a.b", "1-2.3", &long[..253]],
            &["", "A", "a..b", "-a", "a-", "a_b", ".a", "a/b", &long],
        );
        check(
            NameRule::Label,
            &["a", "9", "a-b", &long[..63]],
            &["a.b", "", "A", &long[..64]],
        );
        check(NameRule::Label1035, &["a", "a9"], &["9a", "", "a.b"]);
        check(
            NameRule::PathSegment,
            &["system:node", "Ä b", "a.b"],
            &["a/b", "a%b", ".", ".."],
        );
        assert_eq!(NameRule::Subdomain.problems("web-", true), [""; 0]);
        assert_eq!(NameRule::Subdomain.problems("job--", true), [""; 0]);
        for bad in ["Web-", "-", "a.-", "a."] {
            assert_ne!(NameRule::Subdomain.problems(bad, true), [""; 0], "{bad}");
        }
    }

    /// The messages are those of kube-apiserver 1.36.
    #[test]
    fn lengths_of_label_keys_are_in_bytes() {
        let long = "a".repeat(254);
        let messages = qualified_name_problems(&format!("{long}/{long}"));
        let expected = [
            "prefix part must be no more than 253 bytes",
            "name part must be no more than 63 bytes",
        ];
        assert_eq!(messages, expected);
        assert_eq!(
            label_value_problems(&long),
            ["must be no more than 63 bytes"]
        );
        let several = &qualified_name_problems("a/b/c")[0];
        assert!(
            several.starts_with("a valid label key must consist of alphanumeric"),
            "{several}"
        );
    }

    #[test]
    fn labels_and_annotations_are_validated() {
        let causes = |json: Value| {
            let mut causes = Causes::default();
            label_problems(json.as_object().unwrap(), &mut causes);
            causes.into_vec()
        };
        let good = serde_json::json!({"a": "", "x.y/B_c": "v.1", "app": "Web"});
        assert_eq!(causes(good), []);
        for bad in [
            serde_json::json!({"": "v"}),
            serde_json::json!({"a/b/c": "v"}),
            serde_json::json!({"/a": "v"}),
            serde_json::json!({"X.y/a": "v"}),
            serde_json::json!({"a": "-v"}),
            serde_json::json!({"a": "v w"}),
            serde_json::json!({"a": "v".repeat(64)}),
            serde_json::json!({"a".repeat(64): "v"}),
        ] {
            assert_ne!(causes(bad.clone()), [], "{bad}");
        }
        let causes = |json: Value| {
            let mut causes = Causes::default();
            annotation_problems(json.as_object().unwrap(), &mut causes);
            causes.into_vec()
        };
        assert_eq!(
            causes(serde_json::json!({"Example.com/a": "any thing"})),
            []
        );
        assert_eq!(
            causes(serde_json::json!({"a": "x".repeat(256 << 10)})).len(),
            1
        );
        assert_eq!(causes(serde_json::json!({"a b": ""})).len(), 1);
    }

    /// A small body of invalid labels caused a response of half a gigabyte.
    #[test]
    fn list_of_causes_is_truncated() {
        let labels: Map<String, Value> =
            (0..200_000).map(|n| (format!("-{n}"), "".into())).collect();
        let mut causes = Causes::default();
        label_problems(&labels, &mut causes);
        let causes = causes.into_vec();
        assert_eq!(causes.len(), Causes::MAX + 1);
        assert_eq!(causes[Causes::MAX - 1].reason, "FieldValueInvalid");
        assert_eq!(
            causes[Causes::MAX].message,
            "too many errors, the list is truncated"
        );
    }
}
