//! Tests of the validation of horizontal pod autoscalers.

use super::messages::{check_below, check_members};
use super::*;

const PLURAL: &str = "horizontalpodautoscalers";

fn autoscaler(more: Value) -> Value {
    let mut spec = json!({"maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}});
    merge(&mut spec, &more);
    json!({"spec": spec})
}

#[test]
fn the_target_of_an_autoscaler_has_an_api_group() {
    let at = "spec.scaleTargetRef.apiVersion: Invalid value: ";
    for (version, kind, expected) in [
        ("apps/v1", "Deployment", None),
        ("v1", "ReplicationController", None),
        (
            "",
            "Deployment",
            Some("\"\": apiVersion must specify API group"),
        ),
        (
            "v1",
            "Pod",
            Some("\"v1\": apiVersion must specify API group"),
        ),
        (
            "a/b/c",
            "X",
            Some("\"a/b/c\": unexpected GroupVersion string: a/b/c"),
        ),
    ] {
        let target = autoscaler(json!({"scaleTargetRef": {"apiVersion": version, "kind": kind}}));
        check_below(PLURAL, target, at, expected.as_slice());
    }
}

#[test]
fn metrics_of_an_autoscaler_are_validated() {
    let average = |value: &str| json!({"type": "AverageValue", "averageValue": value});
    let metrics: [(Value, &[&str]); 6] = [
        (
            json!({}),
            &[
                "type: Required value: must specify a metric source type",
                "type: Unsupported value: \"\": supported values: \"ContainerResource\", \"External\", \"Object\", \
                 \"Pods\", \"Resource\"",
            ],
        ),
        (
            json!({"type": "External"}),
            &["external: Required value: must populate information for the given metric source"],
        ),
        (
            json!({"type": "External", "external": {"target": {"type": "Odd"}}}),
            &[
                "external.metric.name: Required value: must specify a metric name",
                "external.target.type: Invalid value: \"Odd\": must be either Utilization, Value, or AverageValue",
                "external.target.averageValue: Required value: must set either a target value for metric or a per-pod \
                 target",
            ],
        ),
        (
            json!({"type": "Pods", "resource": {},
                "pods": {"metric": {"name": "m"}, "target": average("0")}}),
            &[
                "pods.target.averageValue: Invalid value: \"0\": must be positive",
                "resource: Forbidden: must populate the given metric source only",
            ],
        ),
        (
            json!({"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": -1}}}),
            &["resource.target.averageUtilization: Invalid value: -1: must be greater than 0"],
        ),
        (
            json!({"type": "ContainerResource", "containerResource": {"name": "odd",
                "target": {"type": "Value", "value": "1"}}}),
            &[
                "containerResource.name: Invalid value: \"odd\": must be a standard resource type or fully qualified",
                "containerResource.name: Invalid value: \"odd\": must be a standard resource for containers",
                "containerResource.container: Required value: must specify a container",
                "containerResource.target.averageUtilization: Required value: must set either a target raw value or a \
                 target utilization",
            ],
        ),
    ];
    for (metric, expected) in metrics {
        let object = autoscaler(json!({"metrics": [metric]}));
        check_below(PLURAL, object, "spec.metrics[0].", expected);
    }
    let of_object = json!({"type": "Object", "object": {"metric": {"name": "m"},
        "target": average("1"), "describedObject": {"kind": "Service", "name": "s"}}});
    check_members(PLURAL, autoscaler(json!({"metrics": [of_object]})), &[]);
}

#[test]
fn scaling_policies_of_an_autoscaler_are_validated() {
    let behavior = json!({
        "scaleUp": {"selectPolicy": "Odd", "stabilizationWindowSeconds": 3601},
        "scaleDown": {"policies": [{"periodSeconds": 1801, "value": 1}]},
    });
    check_below(
        PLURAL,
        autoscaler(json!({"behavior": behavior})),
        "spec.behavior.",
        &[
            "scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
            "scaleUp.selectPolicy: Unsupported value: \"Odd\": supported values: \"Disabled\", \"Max\", \"Min\"",
            "scaleDown.policies[0].type: Unsupported value: \"\": supported values: \"Percent\", \"Pods\"",
            "scaleDown.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
        ],
    );
}
