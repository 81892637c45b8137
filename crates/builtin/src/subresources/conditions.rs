//! Sets a condition in a status: adds it, or replaces the condition of the same type.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Sets `condition`. Its `lastTransitionTime` becomes `now` if its status differs from the present one.
pub(super) fn set(object: &mut Value, mut condition: Value, now: Timestamp) {
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    let same = conditions
        .iter_mut()
        .find(|c| c["type"] == condition["type"]);
    condition["lastTransitionTime"] = match &same {
        Some(old) if old["status"] == condition["status"] => old["lastTransitionTime"].clone(),
        _ => now.to_string().into(),
    };
    match same {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut object = json!({"status": {"conditions": [{"type": "Other"}]}});
        let ready = |status: &str, reason: &str| json!({"type": "Ready", "status": status, "reason": reason});
        let mut reason_and_time_after = |condition: Value, second| {
            set(&mut object, condition, at(second));
            let conditions = object["status"]["conditions"].as_array().unwrap();
            assert_eq!(
                (conditions.len(), &conditions[0]["type"]),
                (2, &json!("Other"))
            );
            let ready = &conditions[1];
            (ready["reason"].clone(), ready["lastTransitionTime"].clone())
        };
        let first = "1970-01-01T00:00:01Z";
        assert_eq!(
            reason_and_time_after(ready("True", "a"), 1),
            (json!("a"), json!(first))
        );
        assert_eq!(
            reason_and_time_after(ready("True", "b"), 2),
            (json!("b"), json!(first))
        );
        let third = "1970-01-01T00:00:03Z";
        assert_eq!(
            reason_and_time_after(ready("False", "c"), 3),
            (json!("c"), json!(third))
        );
    }
}
