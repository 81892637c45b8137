//! Tests of the validation of pods, their containers, volumes and scheduling.

use super::messages::LABEL;
use super::*;

#[test]
fn pods() {
    check("pods", pod(json!({"containers": [container()]})), &[]);
    check("pods", pod(json!({})), &["spec.containers: Required value"]);
    check(
        "pods",
        pod(json!({"containers": [{"image": "i"}, {"name": "A"}, container(), container()]})),
        &[
            "spec.containers[0].name: Required value",
            &format!("spec.containers[1].name: Invalid value: \"A\": {LABEL}"),
            "spec.containers[1].image: Required value",
            "spec.containers[3].name: Duplicate value: \"c\"",
        ],
    );
    check(
        "pods",
        pod(json!({"containers": [{
            "name": "c", "image": "i", "imagePullPolicy": "Sometimes",
            "ports": [{"containerPort": 0}, {"containerPort": 70000, "protocol": "ICMP"}],
            "env": [{"name": "a=b"}, {"name": "V", "valueFrom": {}}],
            "volumeMounts": [{"name": "none", "mountPath": "/x"}],
            "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1", "memory": "-1"}},
            "readinessProbe": {"periodSeconds": -1},
        }], "restartPolicy": "Maybe"})),
        &[
            "spec.containers[0].ports[0].containerPort: Required value",
            "spec.containers[0].ports[1].containerPort: Invalid value: 70000: must be between 1 and \
             65535, inclusive",
            "spec.containers[0].ports[1].protocol: Unsupported value: \"ICMP\": supported values: \
             \"SCTP\", \"TCP\", \"UDP\"",
            "spec.containers[0].env[0].name: Invalid value: \"a=b\": a valid environment variable \
             name must consist only of printable ASCII characters other than '='",
            "spec.containers[0].env[1].valueFrom: Invalid value: \"\": must specify one of: \
             `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
            "spec.containers[0].volumeMounts[0].name: Not found: \"none\"",
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported \
             values: \"Always\", \"IfNotPresent\", \"Never\"",
            "spec.containers[0].resources.limits[memory]: Invalid value: \"-1\": must be greater \
             than or equal to 0",
            "spec.containers[0].resources.requests[memory]: Invalid value: \"-1\": must be greater \
             than or equal to 0",
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or \
             equal to cpu limit of 1",
            "spec.containers[0].readinessProbe: Required value: must specify a handler type",
            "spec.containers[0].readinessProbe.periodSeconds: Invalid value: -1: must be greater \
             than or equal to 0",
            "spec.restartPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \
             \"OnFailure\", \"Never\"",
        ],
    );
}

#[test]
fn restart_rules() {
    let with = |more: Value| {
        let mut container = container();
        merge(&mut container, &more);
        pod(json!({ "containers": [container] }))
    };
    let rule = json!({"action": "RestartAllContainers",
        "exitCodes": {"operator": "In", "values": [42]}});
    check(
        "pods",
        with(json!({"restartPolicy": "Never", "restartPolicyRules": [rule]})),
        &[],
    );
    check(
        "pods",
        with(
            json!({"restartPolicyRules": [rule, {"action": "Stop", "exitCodes":
            {"operator": "Is", "values": vec![0; 256]}}, {"action": "Restart"}]}),
        ),
        &[
            "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when \
             restart rules are used",
            "spec.containers[0].restartPolicyRules[1].action: Unsupported value: \"Stop\": \
             supported values: \"Restart\", \"RestartAllContainers\"",
            "spec.containers[0].restartPolicyRules[1].exitCodes.operator: Unsupported value: \
             \"Is\": supported values: \"In\", \"NotIn\"",
            "spec.containers[0].restartPolicyRules[1].exitCodes.values: Too many: 256: must have at \
             most 255 items",
            "spec.containers[0].restartPolicyRules[2].exitCodes: Required value: must be specified",
        ],
    );
}

#[test]
fn volumes_and_scheduling() {
    check(
        "pods",
        pod(json!({
            "containers": [container()],
            "volumes": [
                {"name": "a"}, {"name": "a", "secret": {}},
                {"name": "b", "hostPath": {"path": "/"}, "emptyDir": {}},
            ],
            "tolerations": [{"key": "k", "operator": "Near"}],
            "topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z"}],
        })),
        &[
            "spec.volumes[1].secret.secretName: Required value",
            "spec.volumes[1].name: Duplicate value: \"a\"",
            "spec.volumes[2].hostPath: Forbidden: may not specify more than 1 volume type",
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            "spec.topologySpreadConstraints[0].whenUnsatisfiable: Required value",
            "spec.tolerations[0].operator: Unsupported value: \"Near\": supported values: \
             \"Equal\", \"Exists\"",
        ],
    );
}

#[test]
fn pod_update_may_change_only_images_and_a_few_other_fields() {
    let old = pod(json!({"containers": [container()], "tolerations": [{"operator": "Exists"}]}));
    let image = json!({"spec": {"containers": [{
        "name": "c", "image": "j", "imagePullPolicy": "Always", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    }]}});
    check_update("pods", old.clone(), image, &[]);
    check_update(
        "pods",
        old.clone(),
        json!({"spec": {"nodeName": "n"}}),
        &[
            "spec: Forbidden: pod updates may not change fields other than \
           `spec.containers[*].image`,`spec.initContainers[*].image`,\
           `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
           tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
           previously negative)",
        ],
    );
    check_update(
        "pods",
        old.clone(),
        json!({"spec": {"containers": [container(), {"name": "d", "image": "i"}]}}),
        &["spec.containers: Forbidden: pod updates may not add or remove containers"],
    );
    check_update(
        "pods",
        old,
        json!({"spec": {"tolerations": []}}),
        &[
            "spec.tolerations: Forbidden: existing toleration can not be modified except its \
           tolerationSeconds",
        ],
    );
}

/// The server stored ephemeral containers without validating them.
#[test]
fn ephemeral_containers_are_validated() {
    let old = pod(json!({"containers": [container()], "volumes": [{"name": "v", "emptyDir": {}}]}));
    let added = |list: Value| json!({"spec": {"ephemeralContainers": list}});
    let at = "spec.ephemeralContainers[0]";
    let debugger = json!({"name": "e", "image": "i", "targetContainerName": "c", "stdin": true});
    check_write(
        "pods",
        Some("ephemeralcontainers"),
        old.clone(),
        added(json!([debugger])),
        &[],
    );
    let why = "Forbidden: cannot be set for an Ephemeral Container";
    check_write(
        "pods",
        Some("ephemeralcontainers"),
        old.clone(),
        added(json!([{
            "name": "A B", "image": "i", "ports": [{"containerPort": 80}],
            "resources": {"requests": {"cpu": "1"}}, "restartPolicy": "Always",
            "livenessProbe": {"exec": {"command": ["x"]}},
            "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "x"}],
        }])),
        &[
            &format!("{at}.name: Invalid value: \"A B\": {LABEL}"),
            &format!("{at}.ports: {why}"),
            &format!("{at}.restartPolicy: {why}"),
            &format!("{at}.livenessProbe: {why}"),
            &format!("{at}.resources: {why}"),
            &format!("{at}.volumeMounts[0].subPath: {why}"),
        ],
    );
    check_write(
        "pods",
        Some("ephemeralcontainers"),
        old,
        added(json!([
            {"name": "c", "image": "i"}, {"name": "x", "targetContainerName": "y"},
        ])),
        &[
            "spec.ephemeralContainers[0].name: Duplicate value: \"c\"",
            "spec.ephemeralContainers[1].image: Required value",
            "spec.ephemeralContainers[1].targetContainerName: Not found: \"y\"",
        ],
    );
}

#[test]
fn a_resize_of_a_running_pod_is_validated() {
    let with = |resources: Value| {
        let container = json!({"name": "c", "image": "i", "resources": resources});
        json!({"spec": {"containers": [container]}})
    };
    let old = pod(with(json!({"requests": {"cpu": "1"}}))["spec"].take());
    let at = "spec.containers[0].resources";
    for (requests, problem) in [
        (
            json!({"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}),
            None,
        ),
        (
            json!({"requests": {"cpu": "5"}, "limits": {"cpu": "1"}}),
            Some("requests: Invalid value: \"5\": must be less than or equal to cpu limit of 1"),
        ),
        (
            json!({"requests": {"cpu": "-1"}}),
            Some("requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"),
        ),
    ] {
        let texts = problem.map(|problem| format!("{at}.{problem}"));
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        check_write("pods", Some("resize"), old.clone(), with(requests), &texts);
    }
}

/// Names were not validated, and duplicates were found only among valid names.
#[test]
fn names_of_sysctls() {
    let long = "a".repeat(254);
    let names = [
        "net/ipv4.tcp_syncookies",
        "A",
        "a..b",
        "a-",
        &long,
        "a",
        "",
        "a",
        "A",
    ];
    let sysctls: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "value": "1"}))
        .collect();
    let why = "must have at most 253 characters and match regex \
        ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let at = |index: usize| format!("spec.securityContext.sysctls[{index}].name");
    check(
        "pods",
        pod(json!({"containers": [container()], "securityContext": {"sysctls": sysctls}})),
        &[
            &format!("{}: Invalid value: \"A\": {why}", at(1)),
            &format!("{}: Invalid value: \"a..b\": {why}", at(2)),
            &format!("{}: Invalid value: \"a-\": {why}", at(3)),
            &format!("{}: Invalid value: \"{long}\": {why}", at(4)),
            &format!("{}: Required value", at(6)),
            &format!("{}: Duplicate value: \"a\"", at(7)),
            &format!("{}: Invalid value: \"A\": {why}", at(8)),
        ],
    );
}

/// Any user could disable the AppArmor profile of a pod after admission had checked it, or mark a pod as a mirror pod,
/// which admission treats differently.
#[test]
fn app_armor_and_mirror_annotations_are_immutable() {
    const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/c";
    const MIRROR: &str = "kubernetes.io/config.mirror";
    let annotated = |annotations: Value| {
        let mut pod = pod(json!({"containers": [container()]}));
        pod["metadata"]["annotations"] = annotations;
        pod
    };
    let patch = |name: &str, value: Value| json!({"metadata": {"annotations": {name: value}}});
    let at = |name: &str| format!("metadata.annotations[{name}]: Forbidden: may not");
    let old = annotated(json!({APP_ARMOR: "localhost/p", "other": "a"}));
    let same = patch("other", json!("b"));
    check_update("pods", old.clone(), same, &[]);
    for value in [json!("unconfined"), json!(null)] {
        let expected = format!("{} remove or update AppArmor annotations", at(APP_ARMOR));
        check_update("pods", old.clone(), patch(APP_ARMOR, value), &[&expected]);
    }
    let expected = format!("{} add AppArmor annotations", at(APP_ARMOR));
    let old = annotated(json!({}));
    let added = patch(APP_ARMOR, json!("unconfined"));
    check_update("pods", old.clone(), added, &[&expected]);
    let at = |name: &str| format!("metadata.annotations[{name}]: Invalid value:");
    let unplaced = format!(
        "{} \"x\": must set spec.nodeName if mirror pod annotation is set",
        at(MIRROR)
    );
    check("pods", annotated(json!({MIRROR: "x"})), &[&unplaced]);
    let other = APP_ARMOR.replace("/c", "/d");
    let unknown = format!("{} \"d\": container not found", at(&other));
    check(
        "pods",
        annotated(json!({&other: "unconfined"})),
        &[&unknown],
    );
    let odd = format!(
        "{} \"odd\": invalid AppArmor profile name: \"odd\"",
        at(APP_ARMOR)
    );
    check("pods", annotated(json!({APP_ARMOR: "odd"})), &[&odd]);
    const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    check("pods", annotated(json!({COST: "-7"})), &[]);
    for cost in ["+7", "07", "", "7000000000"] {
        let expected = format!("{} \"{cost}\": must be a 32bit integer", at(COST));
        check("pods", annotated(json!({COST: cost})), &[&expected]);
    }
}
