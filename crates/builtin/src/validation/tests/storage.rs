//! Tests of the validation of storage classes and persistent volumes.

use super::messages::{LABEL_VALUE, check_below, check_members};
use super::*;

#[test]
fn topology_terms_of_a_storage_class_differ() {
    let term = |key: &str, values: Value| json!({"matchLabelExpressions": [{"key": key, "values": values}]});
    let class = |terms: Value| json!({"provisioner": "p", "allowedTopologies": terms});
    let fine = class(json!([term("k", json!(["a"])), term("k", json!(["b"]))]));
    check_members("storageclasses", fine, &[]);
    let terms = [json!([]), json!(["a", "a"]), json!(["a"])].map(|values| term("k", values));
    check_below(
        "storageclasses",
        class(json!(terms)),
        "allowedTopologies",
        &[
            "[0].matchLabelExpressions[0].values: Required value",
            "[1].matchLabelExpressions[0].values[1]: Duplicate value: \"a\"",
            "[2].matchLabelExpressions: Duplicate value: \"\"",
        ],
    );
    check_members(
        "storageclasses",
        class(json!([{}])),
        &["allowedTopologies[0].matchLabelExpressions: Duplicate value: \"\""],
    );
}

#[test]
fn capacity_and_node_affinity_of_a_volume_are_validated() {
    let volume = |more: Value| {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/p"}});
        merge(&mut spec, &more);
        json!({"spec": spec})
    };
    let affinity = |values: Value| {
        let expression = json!({"key": "k", "operator": "In", "values": values});
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
        volume(json!({"nodeAffinity": {"required": required}}))
    };
    check_members("persistentvolumes", affinity(json!(["x"])), &[]);
    check_below(
        "persistentvolumes",
        volume(json!({"capacity": {"storage": "-1"}})),
        "spec.capacity[storage]: Invalid value: ",
        &[
            "-1: must be a valid resource quantity",
            "\"-1\": must be greater than zero",
        ],
    );
    check_members(
        "persistentvolumes",
        volume(json!({"nodeAffinity": {}})),
        &["spec.nodeAffinity.required: Required value: must specify required node constraints"],
    );
    let expected = format!("\"/x\": {LABEL_VALUE}");
    check_below(
        "persistentvolumes",
        affinity(json!(["/x"])),
        "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: ",
        &[&expected],
    );
}
