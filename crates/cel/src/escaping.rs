//! Escapes property names that are not CEL identifiers, so that expressions can select the properties, as in
//! [upstream's
//! escaping](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/cel/escaping.go).

/// The reserved words of CEL.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Returns true if `name` is a reserved word.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Returns true if an expression selects the property `name` as `selected`. Reserved words can be escaped or not.
pub fn is_selected_as(name: &str, selected: &str) -> bool {
    escape(name) == selected || name == selected && is_reserved(name)
}

/// Returns the escaped name of the property `name`.
pub fn escape(name: &str) -> String {
    if is_reserved(name) {
        return format!("__{name}__");
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let (replacement, length) = match first {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            other => {
                out.push(other);
                rest = &rest[other.len_utf8()..];
                continue;
            }
        };
        out.push_str(replacement);
        rest = &rest[length..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_upstream() {
        for (name, escaped) in [
            ("plain", "plain"),
            ("dash-ed", "dash__dash__ed"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("a__b", "a__underscores__b"),
            ("a_b", "a_b"),
            ("namespace", "__namespace__"),
        ] {
            assert_eq!(escape(name), escaped);
            assert!(is_selected_as(name, escaped), "{name}");
        }
        assert!(is_selected_as("namespace", "namespace"));
        assert!(!is_selected_as("dash-ed", "dash-ed"));
    }
}
