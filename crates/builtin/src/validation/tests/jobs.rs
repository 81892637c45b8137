//! Failure policies of jobs.

use super::messages::check_below;
use super::*;

#[test]
fn the_failure_policy_of_a_job_is_validated() {
    let codes = |operator: &str, values: Value| json!({"action": "FailJob", "onExitCodes": {"operator": operator, "values": values}});
    let rules: [(Value, &[&str]); 5] = [
        (codes("In", json!([1, 2])), &[]),
        (
            codes("In", json!([5, 1, 1, 0])),
            &[
                ".onExitCodes.values[2]: Duplicate value: 1",
                ".onExitCodes.values[3]: Invalid value: 0: must not be 0 for the In operator",
                ".onExitCodes.values: Invalid value: [5,1,1,0]: must be ordered",
            ],
        ),
        (
            codes("", json!([1])),
            &[".onExitCodes.operator: Required value: valid values: [\"In\" \"NotIn\"]"],
        ),
        (
            json!({"action": "FailIndex", "onPodConditions": [{"type": "T", "status": "Odd"}]}),
            &[
                ".action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set",
                ".onPodConditions[0].status: Unsupported value: \"Odd\": supported values: \"False\", \"True\", \"Unknown\"",
            ],
        ),
        (
            json!({"action": "Ignore"}),
            &[": Invalid value: specifying one of OnExitCodes and OnPodConditions is required"],
        ),
    ];
    for (rule, expected) in rules {
        let pod = json!({"containers": [container()], "restartPolicy": "Never"});
        let job =
            json!({"spec": {"podFailurePolicy": {"rules": [rule]}, "template": {"spec": pod}}});
        check_below("jobs", job, "spec.podFailurePolicy.rules[0]", expected);
    }
}
