//! Tests of every check with pods that pass and pods that fail, and of the checks of each level and version.

use serde_json::{Value, json};

use super::super::level::Policy;
use super::*;

fn policy(text: &str) -> LevelVersion {
    let (level, version) = text.split_once(':').unwrap();
    LevelVersion {
        level: Level::parse(level).unwrap(),
        version: Version::parse(version).unwrap(),
    }
}

fn found(policy_text: &str, metadata: &Value, spec: &Value) -> String {
    let pod = Pod { metadata, spec };
    details(&violations(policy(policy_text), pod))
}

/// Returns a spec without violations, with some of its fields replaced.
fn secure(changes: &Value, container_changes: &Value) -> Value {
    let mut container = json!({"name": "a", "image": "i", "securityContext": {
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
    }});
    let mut spec = json!({"securityContext": {
        "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
    }});
    json_patch::merge(&mut container, container_changes);
    json_patch::merge(&mut spec, changes);
    spec["containers"] = json!([container]);
    spec
}

#[track_caller]
fn check(policy: &str, changes: Value, container_changes: Value, expected: &str) {
    let spec = secure(&changes, &container_changes);
    let found = found(policy, &Value::Null, &spec);
    assert_eq!(found, expected, "{policy} {changes} {container_changes}");
}

#[test]
fn a_restricted_pod_violates_no_level() {
    for version in ["v1.0", "v1.24", "v1.34", "v1.35", "v1.99", "latest"] {
        for level in ["privileged", "baseline", "restricted"] {
            check(&format!("{level}:{version}"), json!({}), json!({}), "");
        }
    }
    let everything = json!({"hostNetwork": true, "hostPID": true});
    check("privileged:latest", everything, json!({}), "");
}

#[test]
fn baseline_violations_of_pod_fields_are_found() {
    let context = |context: Value| json!({"securityContext": context});
    for (changes, expected) in [
        (
            json!({"hostNetwork": true, "hostIPC": true}),
            "host namespaces (hostNetwork=true, hostIPC=true)",
        ),
        (
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "emptyDir": {}}]}),
            r#"hostPath volumes (volume "v")"#,
        ),
        (
            context(json!({"appArmorProfile": {"type": "Unconfined"}})),
            r#"forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined")"#,
        ),
        (
            context(json!({"seLinuxOptions": {"type": "spc_t", "user": "u", "role": "r"}})),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"spc_t\"; user may \
             not be set; role may not be set)",
        ),
        (
            context(json!({"seccompProfile": {"type": "Unconfined"}})),
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            context(json!({"sysctls": [{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_rmem"}]})),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            context(json!({"windowsOptions": {"hostProcess": true}})),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
    ] {
        check("baseline:latest", changes, json!({}), expected);
    }
}

#[test]
fn baseline_violations_of_container_fields_are_found() {
    let context = |context: Value| json!({"securityContext": context});
    for (changes, expected) in [
        (
            context(json!({"privileged": true})),
            r#"privileged (container "a" must not set securityContext.privileged=true)"#,
        ),
        (
            context(json!({"capabilities": {"add": ["SYS_ADMIN", "CHOWN", "NET_RAW"]}})),
            "non-default capabilities (container \"a\" must not include \"NET_RAW\", \"SYS_ADMIN\" in \
             securityContext.capabilities.add)",
        ),
        (
            context(json!({"procMount": "Unmasked"})),
            r#"procMount (container "a" must not set securityContext.procMount to "Unmasked")"#,
        ),
        (
            json!({"ports": [{"hostPort": 80}, {"hostPort": 443}, {"hostPort": 0}, {"hostPort": 9}]}),
            r#"hostPort (container "a" uses hostPorts 443, 80, 9)"#,
        ),
        (
            json!({
                "livenessProbe": {"httpGet": {"host": "x"}},
                "lifecycle": {"preStop": {"tcpSocket": {"host": "b"}}},
            }),
            r#"probe or lifecycle host (container "a" uses probe or lifecycle hosts "b", "x")"#,
        ),
    ] {
        check("baseline:latest", json!({}), changes, expected);
    }
}

#[test]
fn violations_of_the_restricted_level_are_found() {
    let level = "restricted:latest";
    let context = |context: Value| json!({"securityContext": context});
    for (changes, expected) in [
        (
            context(json!({"allowPrivilegeEscalation": null})),
            "allowPrivilegeEscalation != false (container \"a\" must set \
             securityContext.allowPrivilegeEscalation=false)",
        ),
        (
            context(
                json!({"capabilities": {"drop": ["CHOWN"], "add": ["NET_BIND_SERVICE", "KILL"]}}),
            ),
            "unrestricted capabilities (container \"a\" must set \
             securityContext.capabilities.drop=[\"ALL\"]; container \"a\" must not include \"KILL\" in \
             securityContext.capabilities.add)",
        ),
        (
            context(json!({"runAsNonRoot": false, "runAsUser": 0})),
            "runAsNonRoot != true (container \"a\" must not set securityContext.runAsNonRoot=false), \
             runAsUser=0 (container \"a\" must not set runAsUser=0)",
        ),
    ] {
        check(level, json!({}), changes, expected);
    }
    let without_profile = json!({"securityContext": null});
    check(
        level,
        without_profile,
        json!({}),
        "runAsNonRoot != true (pod or container \"a\" must set securityContext.runAsNonRoot=true), \
         seccompProfile (pod or container \"a\" must set securityContext.seccompProfile.type to \
         \"RuntimeDefault\" or \"Localhost\")",
    );
    let volumes = json!({"volumes": [
        {"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "nfs": {}}, {"name": "x", "secret": {}},
    ]});
    check(
        level,
        volumes,
        json!({}),
        r#"restricted volume types (volumes "v", "w" use restricted volume types "hostPath", "nfs")"#,
    );
}

#[test]
fn violations_of_all_containers_are_reported_by_name() {
    let privileged = |name: &str| json!({"name": name, "securityContext": {"privileged": true}});
    let spec = json!({
        "containers": [privileged("b"), {"name": "ok"}],
        "initContainers": [privileged("c")],
        "ephemeralContainers": [privileged("a")],
    });
    assert_eq!(
        found("baseline:latest", &Value::Null, &spec),
        "privileged (containers \"c\", \"b\", \"a\" must not set securityContext.privileged=true)"
    );
}

#[test]
fn profiles_in_annotations() {
    let spec = secure(&json!({}), &json!({}));
    let metadata = json!({"annotations": {
        "container.apparmor.security.beta.kubernetes.io/a": "unconfined",
        "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
        "container.seccomp.security.alpha.kubernetes.io/a": "docker/default",
    }});
    let app_armor = "forbidden AppArmor profile (annotation must not set AppArmor profile type to \
                     \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")";
    assert_eq!(found("baseline:latest", &metadata, &spec), app_armor);
    let both = format!(
        "{app_armor}, seccompProfile (forbidden annotation \
         seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")"
    );
    assert_eq!(found("baseline:v1.18", &metadata, &spec), both);
}

#[test]
fn checks_depend_on_the_policy_version() {
    let root = json!({"securityContext": {"runAsUser": 0}});
    let refused = "runAsUser=0 (pod must not set runAsUser=0)";
    check("restricted:v1.22", root.clone(), json!({}), "");
    check("restricted:v1.23", root, json!({}), refused);
    let engine = json!({"securityContext": {"seLinuxOptions": {"type": "container_engine_t"}}});
    let refused = "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \
                   \"container_engine_t\")";
    check("baseline:v1.30", engine.clone(), json!({}), refused);
    check("baseline:v1.31", engine, json!({}), "");
    let host = json!({"readinessProbe": {"tcpSocket": {"host": "h"}}});
    let refused = r#"probe or lifecycle host (container "a" uses probe or lifecycle host "h")"#;
    check("baseline:v1.33", json!({}), host.clone(), "");
    check("baseline:v1.34", json!({}), host, refused);
    for (version, sysctl) in [
        (27, "net.ipv4.ip_local_reserved_ports"),
        (29, "net.ipv4.tcp_fin_timeout"),
        (32, "net.ipv4.tcp_wmem"),
    ] {
        let set = json!({"securityContext": {"sysctls": [{"name": sysctl}]}});
        let before = format!("baseline:v1.{}", version - 1);
        let refused = format!("forbidden sysctls ({sysctl})");
        check(&before, set.clone(), json!({}), &refused);
        check(&format!("baseline:v1.{version}"), set, json!({}), "");
    }
}

#[test]
fn windows_and_user_namespaces_have_exceptions() {
    let windows = json!({"os": {"name": "windows"}, "securityContext": {"seccompProfile": null}});
    let container =
        json!({"securityContext": {"allowPrivilegeEscalation": null, "capabilities": null}});
    check("restricted:v1.25", windows.clone(), container.clone(), "");
    let spec = secure(&windows, &container);
    let before = found("restricted:v1.24", &Value::Null, &spec);
    assert_eq!(
        before.matches("container \"a\" must").count(),
        3,
        "{before}"
    );

    let users =
        json!({"hostUsers": false, "securityContext": {"runAsNonRoot": null, "runAsUser": 0}});
    let unmasked = json!({"securityContext": {"procMount": "Unmasked"}});
    check("baseline:v1.35", users.clone(), unmasked.clone(), "");
    let refused =
        r#"procMount (container "a" must not set securityContext.procMount to "Unmasked")"#;
    check("restricted:v1.35", users.clone(), unmasked.clone(), refused);
    check("baseline:v1.34", users, unmasked, refused);
}

#[test]
fn policy_is_read_from_namespace_labels() {
    let read = |labels: Value| {
        let (policy, problems) = Policy::of(&labels, Policy::default());
        let modes = [policy.enforce, policy.audit, policy.warn].map(|mode| mode.to_string());
        (modes.join(" "), problems)
    };
    let label = |name: &str| format!("pod-security.kubernetes.io/{name}");
    for (labels, expected) in [
        (
            json!({}),
            "privileged:latest privileged:latest privileged:latest",
        ),
        (
            json!({label("enforce"): "baseline", label("enforce-version"): "v1.30"}),
            "baseline:v1.30 privileged:latest baseline:v1.30",
        ),
        (
            json!({label("enforce"): "baseline", label("warn"): "privileged"}),
            "baseline:latest privileged:latest privileged:latest",
        ),
        (
            json!({label("enforce"): "baseline", label("warn-version"): "v1.2"}),
            "baseline:latest privileged:latest baseline:v1.2",
        ),
        (
            json!({label("audit"): "restricted", label("audit-version"): "v1.0"}),
            "privileged:latest restricted:v1.0 privileged:latest",
        ),
    ] {
        assert_eq!(
            read(labels.clone()),
            (expected.to_owned(), Vec::new()),
            "{labels}"
        );
    }
    let (policy, problems) = read(json!({
        label("enforce"): "base", label("warn"): "x", label("audit-version"): "v1.01",
    }));
    assert_eq!(
        policy,
        "restricted:latest privileged:latest privileged:latest"
    );
    let messages: Vec<_> = problems.iter().map(|problem| &*problem.message).collect();
    assert_eq!(
        messages,
        [
            r#"Invalid value: "base": must be one of privileged, baseline, restricted"#,
            r#"Invalid value: "v1.01": must be "latest" or "v1.x""#,
            r#"Invalid value: "x": must be one of privileged, baseline, restricted"#,
        ]
    );
    assert_eq!(
        problems[0].field,
        "metadata.labels[pod-security.kubernetes.io/enforce]"
    );
}
