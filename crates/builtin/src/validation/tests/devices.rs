//! Tests of the validation of classes, claims and slices of devices.

use super::messages::LABEL;
use super::*;

/// Checks the problems of a claim and of a template of such claims.
#[track_caller]
fn check_claim(devices: Value, expected: &[&str]) {
    let spec = json!({"devices": devices});
    let claim = json!({"metadata": {"name": "c"}, "spec": spec});
    check("resourceclaims", claim, expected);
    let template = json!({"metadata": {"name": "c"}, "spec": {"spec": spec}});
    let of_template: Vec<String> = expected.iter().map(|it| format!("spec.{it}")).collect();
    let of_template: Vec<&str> = of_template.iter().map(String::as_str).collect();
    check("resourceclaimtemplates", template, &of_template);
}

/// Checks the problem of a claim whose request has this member in addition.
#[track_caller]
fn check_request(more: Value, expected: &[&str]) {
    let mut exactly = json!({"deviceClassName": "a"});
    merge(&mut exactly, &more);
    let at = "spec.devices.requests[0].exactly";
    let expected: Vec<String> = expected.iter().map(|it| format!("{at}.{it}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check_claim(
        json!({"requests": [{"name": "r", "exactly": exactly}]}),
        &expected,
    );
}

#[test]
fn requests_are_validated() {
    check_request(json!({}), &[]);
    check_request(
        json!({"deviceClassName": ""}),
        &["deviceClassName: Required value"],
    );
    check_request(
        json!({"allocationMode": "All", "count": 1}),
        &["count: Invalid value: 1: must not be specified when allocationMode is 'All'"],
    );
    check_request(
        json!({"count": -1}),
        &["count: Invalid value: -1: must be greater than zero"],
    );
    check_request(
        json!({"allocationMode": "Odd"}),
        &["allocationMode: Unsupported value: \"Odd\": supported values: \"All\", \"ExactCount\""],
    );
    check_request(
        json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}, {"effect": "Odd"}]}),
        &[
            "tolerations[0].value: Invalid value: \"b\": must be empty for operator `Exists`",
            "tolerations[1].effect: Unsupported value: \"Odd\": supported values: \"NoExecute\", \
             \"NoSchedule\", \"None\"",
        ],
    );
    let one = "exactly one of `exactly` or `firstAvailable` is required";
    let exactly = json!({"deviceClassName": "a"});
    let alternative = json!({"name": "a", "deviceClassName": "a"});
    check_claim(
        json!({"requests": [
            {"name": ""},
            {"name": "a", "exactly": exactly, "firstAvailable": [alternative]},
            {"name": "a", "firstAvailable": [alternative, alternative]},
        ]}),
        &[
            &format!("spec.devices.requests[0].name: Invalid value: \"\": {LABEL}"),
            &format!("spec.devices.requests[0]: Required value: {one}"),
            &format!(
                "spec.devices.requests[1]: Invalid value: null: {one}, but multiple fields are set"
            ),
            "spec.devices.requests[2].firstAvailable[1]: Duplicate value: \"a\"",
            "spec.devices.requests[2]: Duplicate value: \"a\"",
        ],
    );
}

#[test]
fn expressions_that_select_devices_are_compiled() {
    let selectors = |expression: &str| json!({"selectors": [{"cel": {"expression": expression}}]});
    for expression in [
        "device.driver == 'a.example.com' && device.allowMultipleAllocations",
        "device.attributes['a.example.com'].model == 'b'",
        "device.attributes['a.example.com'].?version.orValue(semver('1.0.0')).isGreaterThan(semver('0.1.0'))",
        "device.capacity['a.example.com'].memory.compareTo(quantity('1Gi')) >= 0",
        "cel.bind(a, device.attributes['a.example.com'], a.b && a.c)",
        "device.attributes['a.example.com'].?b.optMap(b, b == 1).orValue(false)",
        "device.attributes.all(domain, names, 'a' in names)",
        "type(dyn(device.attributes['a.example.com'].a)) == int",
        "[1].exists(device, device > 0) && has(device.attributes)",
    ] {
        check_request(selectors(expression), &[]);
    }
    let at = "selectors[0].cel.expression: Invalid value:";
    for (expression, why) in [
        (
            "device.drive == 'x'",
            "compilation failed: ERROR: <input>:1:7: undefined field 'drive'\n | device.drive == 'x'\n \
             | ......^",
        ),
        (
            "devices.driver == 'x'",
            "compilation failed: ERROR: undeclared reference to 'devices' (in container '')",
        ),
        (
            "device.driver",
            "must evaluate to bool or the unknown type, not string",
        ),
        (
            "'x'",
            "must evaluate to bool or the unknown type, not string",
        ),
    ] {
        let expected = format!("{at} {}: {why}", json!(expression));
        check_request(selectors(expression), &[&expected]);
    }
}

#[test]
fn constraints_and_parameters_refer_to_requests() {
    let requests = json!([
        {"name": "r", "exactly": {"deviceClassName": "a"}},
        {"name": "s", "firstAvailable": [{"name": "t", "deviceClassName": "a"}]},
    ]);
    let not_found = "must be the name of a request in the claim or the name of a request and a \
                     subrequest separated by '/'";
    let at = "spec.devices.constraints";
    check_claim(
        json!({"requests": requests,
        "constraints": [
            {"requests": ["r", "s/t", "s", "r/t", "r"], "matchAttribute": "a.b/c"},
            {"matchAttribute": "c"},
            {"distinctAttribute": "a.b/"},
            {},
        ],
        "config": [
            {"requests": ["x"], "opaque": {"driver": "a.b", "parameters": {"a": 1}}},
            {"opaque": {"driver": "", "parameters": 1}},
            {},
        ]}),
        &[
            &format!("{at}[0].requests[3]: Invalid value: \"r/t\": {not_found}"),
            &format!("{at}[0].requests[4]: Duplicate value: \"r\""),
            &format!(
                "{at}[1].matchAttribute: Invalid value: \"c\": a fully qualified name must be a domain \
                 and a name separated by a slash"
            ),
            &format!("{at}[2].distinctAttribute: Invalid value: \"\": the name must not be empty"),
            &format!(
                "{at}[3]: Required value: exactly one of \"matchAttribute\" or \"distinctAttribute\" is \
                 required, but multiple fields are set"
            ),
            &format!("spec.devices.config[0].requests[0]: Invalid value: \"x\": {not_found}"),
            "spec.devices.config[1].opaque.driver: Required value",
            "spec.devices.config[1].opaque.parameters: Invalid value: \"<value omitted>\": must be a \
             valid JSON object",
            "spec.devices.config[2].opaque: Required value",
        ],
    );
}

#[test]
fn a_class_of_devices_selects_by_expressions() {
    let class =
        |selectors: Value| json!({"metadata": {"name": "c"}, "spec": {"selectors": selectors}});
    check(
        "deviceclasses",
        class(json!([{}, {"cel": {"expression": "1"}}, {"cel": {"expression": "true"}}])),
        &[
            "spec.selectors[0].cel: Required value",
            "spec.selectors[1].cel.expression: Invalid value: \"1\": must evaluate to bool or the \
             unknown type, not int",
        ],
    );
}

#[test]
fn slices_are_validated() {
    let slice = |more: Value| {
        let mut slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "a.b", "nodeName": "n",
            "pool": {"name": "p/q", "resourceSliceCount": 1}}});
        merge(&mut slice["spec"], &more);
        slice
    };
    check("resourceslices", slice(json!({})), &[]);
    check(
        "resourceslices",
        slice(
            json!({"driver": "", "pool": {"name": "", "resourceSliceCount": 0, "generation": -1},
            "devices": [], "sharedCounters": [{"name": ""}]}),
        ),
        &[
            "spec.driver: Required value",
            "spec.pool.name: Required value",
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
            "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
            "spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed",
            "spec.sharedCounters[0].name: Required value",
            "spec.sharedCounters[0].counters: Required value",
        ],
    );
}

#[test]
fn devices_of_a_slice_are_validated() {
    let check_devices = |devices: Value, expected: &[&str]| {
        let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "a.b", "nodeName": "n",
            "pool": {"name": "p", "resourceSliceCount": 1}, "devices": devices}});
        check("resourceslices", slice, expected);
    };
    check_devices(
        json!([{"name": "a", "attributes": {"a.b/c": {"bool": false}, "d": {"version": "1.0.0"}},
            "capacity": {"m": {"value": "1Gi"}}, "taints": [{"key": "a", "effect": "None"}]}]),
        &[],
    );
    check_devices(
        json!([{"name": "a", "attributes": {"a": {}, "b": {"version": "1"}, "c": {"int": 1, "bool": true}}},
            {"name": "a", "nodeName": "n", "bindingConditions": ["a"],
             "taints": [{"key": "k", "effect": ""}], "capacity": {"m": {"value": "1", "requestPolicy": {}}}}]),
        &[
            "spec.devices[0].attributes[a]: Invalid value: \"\": exactly one value must be specified",
            "spec.devices[0].attributes[b].version: Invalid value: \"1\": must be a string compatible \
             with semver.org spec 2.0.0",
            "spec.devices[0].attributes[c]: Invalid value: {\"bool\":true,\"int\":1}: exactly one value \
             must be specified",
            "spec.devices[1].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true",
            "spec.devices[1].taints[0].effect: Required value",
            "spec.devices[1]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be \
             set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
            "spec.devices[1].bindingFailureConditions: Invalid value: null: bindingFailureConditions are \
             required to use bindingConditions",
            "spec.devices[1]: Duplicate value: \"a\"",
        ],
    );
}
