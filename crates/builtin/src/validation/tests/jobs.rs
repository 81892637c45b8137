//! Tests of the validation of jobs and cron jobs.

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

#[test]
fn batch() {
    let job = |more: Value| {
        let mut job = json!({"metadata": {"name": "j"}, "spec": {
            "template": {"spec": {"containers": [container()], "restartPolicy": "Never"}},
        }});
        merge(&mut job["spec"], &more);
        job
    };
    check("jobs", job(json!({})), &[]);
    check(
        "jobs",
        job(json!({"template": {"spec": {"restartPolicy": null}}, "parallelism": -1})),
        &[
            "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \
             \"Never\"",
        ],
    );
    let resource = resource("jobs");
    let old = made(&resource, job(json!({})));
    let mut new = old.clone();
    new["spec"]["template"]["spec"]["containers"][0]["image"] = json!("j");
    let mut causes = Causes::default();
    problems_of_update(&resource, None, &old, &new, &mut causes);
    let texts = texts_of(causes);
    assert_eq!(texts.len(), 1);
    assert!(
        texts[0].starts_with("spec.template: Invalid value: {"),
        "{texts:?}"
    );
    assert!(texts[0].ends_with("field is immutable"), "{texts:?}");
    suspended_jobs(&old);
    let cron = |schedule: &str| {
        json!({"metadata": {"name": "c"}, "spec": {
            "schedule": schedule, "jobTemplate": {"spec": job(json!({}))["spec"]},
        }})
    };
    check("cronjobs", cron("*/5 * * * *"), &[]);
    check("cronjobs", cron(""), &["spec.schedule: Required value"]);
    check(
        "cronjobs",
        cron("61 * * * *"),
        &["spec.schedule: Invalid value: \"61 * * * *\": end of range (61) above maximum (59): 61"],
    );
}

/// While no pod of a suspended job runs, its scheduling directives and resources may change.
fn suspended_jobs(job: &Value) {
    let mut change = json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"},
        "affinity": {"nodeAffinity": {}}}}}});
    let mut container = job["spec"]["template"]["spec"]["containers"][0].clone();
    container["resources"] = json!({"requests": {"cpu": "1"}});
    change["spec"]["template"]["spec"]["containers"] = json!([container]);
    let has_stopped = json!([{"type": "Suspended", "status": "True"}]);
    for (suspend, status, is_allowed) in [
        (false, json!({}), false),
        (true, json!({}), true),
        (true, json!({"startTime": "2026-01-01T00:00:00Z"}), false),
        (
            true,
            json!({"startTime": "2026-01-01T00:00:00Z", "conditions": has_stopped}),
            true,
        ),
        (true, json!({"active": 1}), false),
    ] {
        let mut old = job.clone();
        old["spec"]["suspend"] = suspend.into();
        old["status"] = status.clone();
        let mut new = old.clone();
        merge(&mut new, &change);
        let mut causes = Causes::default();
        problems_of_update(&resource("jobs"), None, &old, &new, &mut causes);
        assert_eq!(
            texts_of(causes).is_empty(),
            is_allowed,
            "{suspend} {status}"
        );
    }
}
