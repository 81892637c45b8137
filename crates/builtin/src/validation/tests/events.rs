//! Tests of the validation of events, of the core group and of `events.k8s.io`.

use super::messages::{QUALIFIED, check_members};
use super::*;

fn event() -> Value {
    json!({"eventTime": "2026-01-02T03:04:05.000000Z", "reason": "r", "type": "Normal",
        "action": "a", "reportingComponent": "c", "reportingInstance": "i"})
}

#[test]
fn an_event_with_an_event_time_has_more_required_fields() {
    check_members("events", event(), &[]);
    let mut other = event();
    let long = "i".repeat(129);
    let change = json!({"action": null, "reportingComponent": "!", "reportingInstance": long});
    merge(&mut other, &change);
    check_members(
        "events",
        other,
        &[
            &format!("reportingComponent: Invalid value: \"!\": {QUALIFIED}"),
            "reportingInstance: Invalid value: \"\": can have at most 128 characters",
            "action: Required value",
        ],
    );
    check_members("events", json!({"message": "m".repeat(1025)}), &[]);
}

#[test]
fn the_newer_group_rejects_fields_of_the_older_form_and_changes() {
    let mut all = table::all().into_iter();
    let newer = all.find(|r| r.is("events.k8s.io", "events")).unwrap();
    let mut old = event();
    old["metadata"] = json!({"namespace": "default"});
    let mut bad = old.clone();
    let change = json!({"eventTime": null, "type": "Odd", "count": 1, "series": {"count": 1}});
    merge(&mut bad, &change);
    let mut causes = Causes::default();
    problems_of_new(&newer, &bad, &mut causes);
    assert_eq!(
        texts_of(causes),
        [
            "series.count: Invalid value: \"\": should be at least 2",
            "series.lastObservedTime: Required value",
            "eventTime: Required value",
            "type: Invalid value: \"\": has invalid value: Odd",
            "count: Invalid value: \"\": needs to be unset",
        ]
    );
    let mut changed = old.clone();
    let change = json!({"message": "m", "eventTime": "2026-01-02T03:04:05.0000001Z"});
    merge(&mut changed, &change);
    let mut causes = Causes::default();
    problems_of_update(&newer, None, &old, &changed, &mut causes);
    let expected = "message: Invalid value: \"m\": field is immutable";
    assert_eq!(texts_of(causes), [expected]);
}
