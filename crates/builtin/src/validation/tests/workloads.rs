//! Tests of the validation of workloads and disruption budgets.

use super::messages::{LABEL, LABEL_VALUE, check_members};
use super::*;

#[test]
fn the_template_of_a_workload_with_an_invalid_selector_is_not_validated() {
    let spec = json!({"selector": {"matchLabels": {"a": "/"}},
        "template": {"spec": {"containers": []}}});
    for (plural, why) in [
        ("deployments", ": invalid label selector"),
        ("statefulsets", ""),
    ] {
        check_members(
            plural,
            json!({"spec": spec}),
            &[
                &format!("spec.selector.matchLabels: Invalid value: \"/\": {LABEL_VALUE}"),
                &format!("spec.selector: Invalid value: {{\"matchLabels\":{{\"a\":\"/\"}}}}{why}"),
            ],
        );
    }
}

#[test]
fn strategies_and_service_names_of_workloads_are_validated() {
    check(
        "deployments",
        workload(json!({"strategy": {"type": "Odd"}})),
        &[
            "spec.strategy: Unsupported value: {\"RollingUpdate\":null,\"Type\":\"Odd\"}: supported values: \
             \"Recreate\", \"RollingUpdate\"",
        ],
    );
    check(
        "statefulsets",
        workload(json!({"serviceName": "a.b"})),
        &[&format!(
            "spec.serviceName: Invalid value: \"a.b\": {LABEL}"
        )],
    );
}

#[test]
fn percentages_that_do_not_fit_64_bits_are_too_great() {
    check_members(
        "poddisruptionbudgets",
        json!({"spec": {"minAvailable": "51031431883500110909%"}}),
        &[
            "spec.minAvailable: Invalid value: \"51031431883500110909%\": must not be greater than 100%",
        ],
    );
}

#[test]
fn a_claim_of_a_stateful_set_is_a_volume_of_its_pods() {
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let mut container = container();
    container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let spec = json!({
        "volumeClaimTemplates": [claim], "template": {"spec": {"containers": [container]}},
    });
    check("statefulsets", workload(spec), &[]);
}
