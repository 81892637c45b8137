//! Tests of the validation of LimitRanges.

use super::messages::{QUALIFIED, check_below};
use super::*;

#[track_caller]
fn check_limit(limit: Value, expected: &[&str]) {
    let object = json!({"spec": {"limits": [limit]}});
    check_below("limitranges", object, "spec.limits[0].", expected);
}

#[test]
fn types_and_resources_of_limits_are_validated() {
    let maximum = json!({"cpu": "2", "example.com/gpu": "1"});
    check_limit(json!({"type": "Container", "max": maximum}), &[]);
    let storage = json!({"storage": "2Gi"});
    check_limit(
        json!({"type": "PersistentVolumeClaim", "max": storage}),
        &[],
    );
    check_limit(
        json!({"type": "Odd"}),
        &["type: Invalid value: \"Odd\": must be a standard limit type or fully qualified"],
    );
    check_limit(
        json!({"type": "Pod", "max": {"odd": "1"}, "default": {"cpu": "1"}}),
        &[
            "max[odd]: Invalid value: \"odd\": must be a standard resource type or fully qualified",
            "max[odd]: Invalid value: \"odd\": must be a standard resource for containers",
            "default: Forbidden: may not be specified when `type` is 'Pod'",
        ],
    );
    check_limit(
        json!({"type": "example.com/x", "min": {",": "1"}}),
        &[&format!("min[,]: Invalid value: \",\": {QUALIFIED}")],
    );
    check_limit(
        json!({"type": "PersistentVolumeClaim", "default": {"storage": "1"}}),
        &[
            "limits: Required value: either minimum or maximum storage value is required, but neither was provided",
        ],
    );
}

#[test]
fn quantities_of_limits_are_compared() {
    check_limit(
        json!({"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "500m"},
            "default": {"cpu": "2"}, "defaultRequest": {"cpu": "400m"},
            "maxLimitRequestRatio": {"cpu": "3"}}),
        &[
            "defaultRequest[cpu]: Invalid value: \"400m\": min value 500m is greater than default request value 400m",
            "default[cpu]: Invalid value: \"1\": default value 2 is greater than max value 1",
            "maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000",
        ],
    );
    check_limit(
        json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "100m"},
            "default": {"example.com/gpu": "2"}, "defaultRequest": {"example.com/gpu": "1"}}),
        &[
            "maxLimitRequestRatio[cpu]: Invalid value: \"100m\": ratio 100m is less than 1",
            "defaultRequest[example.com/gpu]: Invalid value: \"1\": default value 2 must equal to defaultRequest value 1 \
             in example.com/gpu",
        ],
    );
}
