//! Hides the values of secrets in changes: that they changed is shown, as in `kubectl diff`.

use serde_json::Value;

use watchet_tail::FieldChange;

/// The annotation that has the data of an applied secret.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Hides the values of `changes` of an object of the kind `kind`.
pub(crate) fn redact(kind: &str, changes: &mut [FieldChange]) {
    if kind != "Secret" {
        return;
    }
    for change in changes {
        let is_data = ["data", "stringData"].iter().any(|name| {
            let rest = change.path.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        });
        let has_data = change.path.contains(LAST_APPLIED)
            || change.path == "metadata.annotations"
            || change.path == "metadata";
        if !is_data && !has_data {
            continue;
        }
        let hidden = |text: &str| Some(Value::from(text));
        (change.old, change.new) = match (change.old.is_some(), change.new.is_some()) {
            (true, true) => (hidden("*** (before)"), hidden("*** (after)")),
            (old, new) => (hidden("***").filter(|_| old), hidden("***").filter(|_| new)),
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_secrets_are_hidden() {
        let old = json!({"data": {"a": "c2VjcmV0", "b": "eA=="}, "type": "Opaque",
            "metadata": {"annotations": {LAST_APPLIED: "c2VjcmV0"}}});
        let new = json!({"data": {"a": "bmV3", "c": "eQ=="}, "type": "x",
            "metadata": {"annotations": {LAST_APPLIED: "bmV3"}}});
        let mut changes = watchet_tail::between(&old, &new);
        redact("Secret", &mut changes);
        let text = format!("{changes:?}");
        for value in ["c2VjcmV0", "bmV3", "eA==", "eQ=="] {
            assert!(!text.contains(value), "{text}");
        }
        assert!(text.contains("Opaque"), "{text}");
        let mut other = watchet_tail::between(&old, &new);
        redact("ConfigMap", &mut other);
        assert!(format!("{other:?}").contains("bmV3"));
    }
}
