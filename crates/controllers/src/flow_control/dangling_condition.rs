//! The condition `Dangling` in the status of FlowSchemas: whether the priority level does not exist.

use jiff::Timestamp;
use serde_json::{Value, json};

const DANGLING: &str = "Dangling";

/// Returns the conditions of a FlowSchema with the right condition `Dangling`; `None` if it has them already. `level` is the
/// name of the level that the schema refers to.
pub(super) fn conditions(schema: &Value, level: &str, is_dangling: bool) -> Option<Value> {
    let (status, reason, end) = match is_dangling {
        true => ("True", "NotFound", "but there is no such object"),
        false => ("False", "Found", "and it exists"),
    };
    let message = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {level:?} {end}"
    );
    let conditions = schema["status"]["conditions"].as_array();
    let mut conditions = conditions.cloned().unwrap_or_default();
    let present = conditions
        .iter()
        .position(|condition| condition["type"] == DANGLING);
    if let Some(present) = present.map(|at| &conditions[at])
        && present["status"] == status
        && present["reason"] == reason
        && present["message"] == message
    {
        return None;
    }
    let condition = json!({
        "type": DANGLING, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    match present {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    Some(conditions.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_is_replaced_and_others_stay() {
        let other = json!({"type": "Other", "status": "True"});
        let mut schema = json!({"status": {"conditions": [other]}});
        let first = conditions(&schema, "l", true).unwrap();
        assert_eq!(first[0], other);
        let message = "This FlowSchema references the PriorityLevelConfiguration object named \"l\" but there is no such object";
        assert_eq!(first[1]["message"], message);
        assert_eq!(
            (&first[1]["status"], &first[1]["reason"]),
            (&json!("True"), &json!("NotFound"))
        );
        schema["status"]["conditions"] = first;
        assert_eq!(conditions(&schema, "l", true), None);
        let second = conditions(&schema, "l", false).unwrap();
        assert_eq!(second.as_array().unwrap().len(), 2);
        assert_eq!(
            (&second[1]["status"], &second[1]["reason"]),
            (&json!("False"), &json!("Found"))
        );
    }
}
