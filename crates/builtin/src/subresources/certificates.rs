//! Writes of certificate signing requests. The server sets the fields that identify the requesting user; `approval`
//! sets the conditions that approve or deny the request; `status` sets the certificate. A write to each subresource
//! changes only its own fields. The validation of requests is in `validation`; a controller signs them.

use jiff::Timestamp;
use serde_json::{Value, json};

use watchet_api::UserInfo;

/// The types of conditions that only `approval` sets.
const DECISIONS: [&str; 2] = ["Approved", "Denied"];

/// Sets the fields of a new request that identify its user, whatever its body contains.
pub(crate) fn sign(user: &UserInfo, request: &mut Value) {
    let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let attributes = [
        ("username", json!(user.name)),
        ("uid", json!(user.uid)),
        ("groups", json!(user.groups)),
        ("extra", json!(user.extra)),
    ];
    for (member, value) in attributes {
        let is_empty = value == json!("") || value == json!([]) || value == json!({});
        match is_empty {
            true => spec.remove(member),
            false => spec.insert(member.to_owned(), value),
        };
    }
}

/// Replaces everything in `request`, except the fields that a write to this subresource changes, by the content of
/// `stored`. The metadata may change as in any write.
pub(crate) fn retain_unwritable_fields(
    subresource: Option<&str>,
    stored: &Value,
    request: &mut Value,
    now: Timestamp,
) {
    let mut status = match (subresource, request["status"].take()) {
        (None, _) => stored["status"].clone(),
        (Some("approval"), given) => {
            let mut status = stored["status"].clone();
            if !status.is_object() {
                status = json!({});
            }
            match given["conditions"].as_array() {
                Some(conditions) => status["conditions"] = json!(conditions),
                None => drop(status.as_object_mut().map(|s| s.remove("conditions"))),
            }
            status
        }
        (Some(_), mut given) => {
            retain_decisions(&stored["status"], &mut given);
            given
        }
    };
    if subresource.is_some() {
        fill_times(&stored["status"], &mut status, now);
    }
    for (member, value) in [("spec", stored["spec"].clone()), ("status", status)] {
        match (value, request.as_object_mut()) {
            (Value::Null, Some(members)) => drop(members.remove(member)),
            (value, Some(members)) => drop(members.insert(member.to_owned(), value)),
            (_, None) => {}
        }
    }
}

fn conditions(status: &Value) -> &[Value] {
    let conditions = status["conditions"].as_array();
    conditions.map_or(&[], Vec::as_slice)
}

fn conditions_mut(status: &mut Value) -> impl Iterator<Item = &mut Value> {
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    conditions.into_iter().flatten()
}

/// Restores the stored decisions. If their number differs nothing is restored, and validation rejects the write.
fn retain_decisions(stored: &Value, given: &mut Value) {
    for decision in DECISIONS {
        let is_one = |condition: &&Value| condition["type"] == decision;
        let old: Vec<Value> = conditions(stored).iter().filter(is_one).cloned().collect();
        if conditions(given).iter().filter(is_one).count() != old.len() {
            continue;
        }
        let new = conditions_mut(given).filter(|condition| condition["type"] == decision);
        new.zip(old).for_each(|(new, old)| *new = old);
    }
}

/// Sets `lastUpdateTime` and `lastTransitionTime` of the conditions that lack them.
fn fill_times(stored: &Value, status: &mut Value, now: Timestamp) {
    for condition in conditions_mut(status).filter(|condition| condition.is_object()) {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = now.to_string().into();
        }
        if condition["lastTransitionTime"].is_null() {
            let same = conditions(stored).iter().find(|old| {
                old["type"] == condition["type"]
                    && old["status"] == condition["status"]
                    && old["lastTransitionTime"].is_string()
            });
            condition["lastTransitionTime"] = match same {
                Some(old) => old["lastTransitionTime"].clone(),
                None => now.to_string().into(),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "1970-01-01T00:00:00Z";

    fn written(subresource: Option<&str>, given: Value) -> Value {
        let old = "1960-01-01T00:00:00Z";
        let stored = json!({"spec": {"request": "r"}, "status": {
            "certificate": "c",
            "conditions": [{"type": "Approved", "status": "True", "reason": "old",
                "lastUpdateTime": old, "lastTransitionTime": old}],
        }});
        let mut request = json!({"spec": {"request": "another"}, "status": given});
        retain_unwritable_fields(subresource, &stored, &mut request, Timestamp::UNIX_EPOCH);
        assert_eq!(request["spec"], json!({"request": "r"}));
        request["status"].take()
    }

    #[test]
    fn each_subresource_writes_only_its_own_fields() {
        let given = json!({"certificate": "new", "conditions": [
            {"type": "Approved", "status": "True", "reason": "new"},
            {"type": "Failed", "status": "True"},
        ]});
        assert_eq!(written(None, given.clone())["certificate"], "c");
        assert_eq!(
            written(None, given.clone())["conditions"][0]["reason"],
            "old"
        );

        let approved = written(Some("approval"), given.clone());
        assert_eq!(approved["certificate"], "c");
        assert_eq!(approved["conditions"][0]["reason"], "new");
        assert_eq!(approved["conditions"][0]["lastUpdateTime"], NOW);
        let since = &approved["conditions"][0]["lastTransitionTime"];
        assert_eq!(since, "1960-01-01T00:00:00Z");

        let reported = written(Some("status"), given);
        assert_eq!(reported["certificate"], "new");
        assert_eq!(reported["conditions"][0]["reason"], "old");
        assert_eq!(reported["conditions"][1]["lastTransitionTime"], NOW);
        // The removal of a condition is left as it is: validation rejects it.
        assert_eq!(written(Some("status"), json!({})), json!({}));
    }
}
