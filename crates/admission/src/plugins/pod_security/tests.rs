//! Tests of the decisions and warnings for pods, workloads and namespaces.

use serde_json::json;

use super::super::testing::{FakeCluster, attributes, pod, refusal};
use super::*;

fn labels(labels: &[(&str, &str)]) -> Value {
    let labels = labels.iter().map(|(name, value)| {
        let name = format!("pod-security.kubernetes.io/{name}");
        (name, Value::from(*value))
    });
    labels.collect::<serde_json::Map<_, _>>().into()
}

fn namespace(name: &str, modes: &[(&str, &str)]) -> Value {
    json!({"metadata": {"name": name, "labels": labels(modes)}})
}

fn cluster(modes: &[(&str, &str)]) -> FakeCluster {
    let mut cluster = FakeCluster::default();
    cluster.add("", "namespaces", namespace("n", modes));
    cluster
}

/// Returns the decision and the warnings.
async fn validate(
    cluster: &FakeCluster,
    attributes: AdmissionRequest<'_>,
) -> (Result<(), AdmissionError>, Vec<String>) {
    validate_with(&PodSecurity::default(), cluster, attributes).await
}

async fn validate_with(
    plugin: &PodSecurity,
    cluster: &FakeCluster,
    attributes: AdmissionRequest<'_>,
) -> (Result<(), AdmissionError>, Vec<String>) {
    let warnings = attributes.warnings.clone();
    let verdict = cluster.validate(plugin, attributes).await;
    (verdict, warnings.texts())
}

/// Returns the plugin with these fields of its configuration.
fn configured(members: Value) -> PodSecurity {
    let written = serde_json::from_value(members).unwrap();
    PodSecurity::new(PodSecurityConfiguration::check(written).unwrap())
}

/// Returns the audit annotations of a request that `plugin` validates, without their prefix.
async fn annotations(
    plugin: &PodSecurity,
    cluster: &FakeCluster,
    attributes: AdmissionRequest<'_>,
) -> Vec<(String, String)> {
    let annotations = attributes.audit_annotations.clone();
    // A rejected request has annotations too.
    let _verdict = cluster.validate(plugin, attributes).await;
    let annotations = annotations.all().into_iter().map(|(key, value)| {
        let key = key.strip_prefix("pod-security.kubernetes.io/").unwrap();
        (key.to_owned(), value)
    });
    annotations.collect()
}

const HOST: &str = "host namespaces (hostNetwork=true)";

fn host_pod() -> Value {
    pod(json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}))
}

#[tokio::test]
async fn a_pod_that_violates_the_enforced_level_is_refused() {
    let pod = host_pod();
    let create = || attributes(Operation::Create, ("", "pods"), &pod, &Value::Null);
    let (verdict, warnings) = validate(&cluster(&[("enforce", "baseline")]), create()).await;
    let expected =
        format!("pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": {HOST}");
    assert_eq!(refusal(verdict), expected);
    assert_eq!(warnings, [""; 0]);
    let (verdict, warnings) = validate(&cluster(&[("warn", "baseline")]), create()).await;
    verdict.unwrap();
    assert_eq!(
        warnings,
        [format!(
            "would violate PodSecurity \"baseline:latest\": {HOST}"
        )]
    );
    for modes in [
        &[][..],
        &[("audit", "restricted")],
        &[("enforce", "privileged")],
    ] {
        let (verdict, warnings) = validate(&cluster(modes), create()).await;
        verdict.unwrap();
        assert_eq!(warnings, [""; 0]);
    }
}

#[tokio::test]
async fn an_update_counts_if_it_changes_an_image_or_adds_a_container() {
    let old = host_pod();
    let cluster = cluster(&[("enforce", "baseline")]);
    let update = async |subresource: &'static str, change: Value| {
        let mut new = old.clone();
        json_patch::merge(&mut new, &change);
        let update = AdmissionRequest {
            subresource,
            ..attributes(Operation::Update, ("", "pods"), &new, &old)
        };
        validate(&cluster, update).await.0.is_ok()
    };
    assert!(update("", json!({"metadata": {"labels": {"a": "b"}}})).await);
    assert!(update("status", json!({"spec": {"containers": []}})).await);
    let other = json!([{"name": "c", "image": "other"}]);
    assert!(!update("", json!({"spec": {"containers": other}})).await);
    let debugger = json!([{"name": "d", "image": "i"}]);
    assert!(
        !update(
            "ephemeralcontainers",
            json!({"spec": {"ephemeralContainers": debugger}})
        )
        .await
    );
}

#[tokio::test]
async fn workloads_are_warned_about_and_never_refused() {
    let template = json!({"spec": host_pod()["spec"]});
    let metadata = json!({"name": "w", "namespace": "n"});
    let cluster = cluster(&[("enforce", "baseline"), ("enforce-version", "v1.30")]);
    for (resource, object) in [
        (
            ("apps", "deployments"),
            json!({"metadata": metadata, "spec": {"template": template}}),
        ),
        (
            ("", "podtemplates"),
            json!({"metadata": metadata, "template": template}),
        ),
        (
            ("batch", "cronjobs"),
            json!({"metadata": metadata, "spec": {"jobTemplate": {"spec": {"template": template}}}}),
        ),
    ] {
        let create = attributes(Operation::Create, resource, &object, &Value::Null);
        let (verdict, warnings) = validate(&cluster, create).await;
        verdict.unwrap();
        let expected = format!("would violate PodSecurity \"baseline:v1.30\": {HOST}");
        assert_eq!(warnings, [expected], "{resource:?}");
    }
    let bare = json!({"metadata": metadata, "spec": {}});
    let create = attributes(
        Operation::Create,
        ("", "replicationcontrollers"),
        &bare,
        &Value::Null,
    );
    validate(&cluster, create).await.0.unwrap();
}

#[tokio::test]
async fn new_invalid_labels_of_a_namespace_are_rejected() {
    let cluster = FakeCluster::default();
    let wrong = namespace("n", &[("enforce", "x")]);
    let create = attributes(Operation::Create, ("", "namespaces"), &wrong, &Value::Null);
    assert_eq!(
        refusal(validate(&cluster, create).await.0),
        "Namespace \"n\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid \
         value: \"x\": must be one of privileged, baseline, restricted"
    );
    let right = namespace("n", &[]);
    let update = attributes(Operation::Update, ("", "namespaces"), &wrong, &right);
    validate(&cluster, update).await.0.unwrap_err();
    let update = attributes(Operation::Update, ("", "namespaces"), &wrong, &wrong);
    validate(&cluster, update).await.0.unwrap();
}

#[tokio::test]
async fn a_stricter_level_warns_about_the_pods_that_violate_it() {
    let mut cluster = cluster(&[]);
    let mut add = |name: &str, spec: Value| {
        let pod = json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec});
        cluster.add("", "pods", pod);
    };
    add("b", json!({"hostNetwork": true, "containers": []}));
    add("c", json!({"hostNetwork": true, "containers": []}));
    add("a", json!({"hostNetwork": true, "containers": []}));
    add(
        "d",
        json!({"volumes": [{"name": "v", "hostPath": {}}], "containers": []}),
    );
    add("e", json!({"containers": []}));
    let (old, new) = (
        namespace("n", &[]),
        namespace("n", &[("enforce", "baseline")]),
    );
    let update = attributes(Operation::Update, ("", "namespaces"), &new, &old);
    let (verdict, warnings) = validate(&cluster, update).await;
    verdict.unwrap();
    assert_eq!(
        warnings,
        [
            "existing pods in namespace \"n\" violate the new PodSecurity enforce level \
             \"baseline:latest\"",
            "a (and 2 other pods): host namespaces",
            "d: hostPath volumes",
        ]
    );
    let update = attributes(Operation::Update, ("", "namespaces"), &old, &new);
    assert_eq!(
        validate(&cluster, update).await.1,
        [""; 0],
        "it is less strict"
    );
}

#[tokio::test]
async fn configured_defaults_apply_to_namespaces_without_labels() {
    let plugin = configured(json!({
        "defaults": {"enforce": "baseline", "enforce-version": "v1.30", "warn": "restricted"},
    }));
    let pod = host_pod();
    let create = || attributes(Operation::Create, ("", "pods"), &pod, &Value::Null);
    let (verdict, _) = validate_with(&plugin, &cluster(&[]), create()).await;
    let expected =
        format!("pods \"p\" is forbidden: violates PodSecurity \"baseline:v1.30\": {HOST}");
    assert_eq!(refusal(verdict), expected);
    let labeled = cluster(&[("enforce", "privileged")]);
    let (verdict, warnings) = validate_with(&plugin, &labeled, create()).await;
    verdict.unwrap();
    assert!(warnings[0].starts_with("would violate PodSecurity \"restricted:latest\": "));
}

#[tokio::test]
async fn exempt_requests_are_neither_refused_nor_warned_about() {
    let modes = [
        ("enforce", "baseline"),
        ("warn", "baseline"),
        ("audit", "baseline"),
    ];
    let cluster = cluster(&modes);
    for (exemptions, reason) in [
        (json!({"namespaces": ["n"]}), "namespace"),
        (json!({"usernames": ["admin"]}), "user"),
        (json!({"runtimeClasses": ["sandbox"]}), "runtimeClass"),
    ] {
        let exempt = configured(json!({"exemptions": exemptions}));
        let mut pod = host_pod();
        pod["spec"]["runtimeClassName"] = json!("sandbox");
        let template = json!({"metadata": {"name": "w", "namespace": "n"}, "template": pod});
        for (resource, object) in [("pods", &pod), ("podtemplates", &template)] {
            let create = || attributes(Operation::Create, ("", resource), object, &Value::Null);
            let (verdict, warnings) = validate_with(&exempt, &cluster, create()).await;
            verdict.unwrap();
            assert_eq!(warnings, [""; 0], "{reason}");
            let expected = [("exempt".to_owned(), reason.to_owned())];
            assert_eq!(annotations(&exempt, &cluster, create()).await, expected);
        }
    }
    let other = configured(json!({"exemptions": {
        "namespaces": ["m"], "usernames": ["jane"], "runtimeClasses": ["other"],
    }}));
    let pod = host_pod();
    let create = attributes(Operation::Create, ("", "pods"), &pod, &Value::Null);
    validate_with(&other, &cluster, create).await.0.unwrap_err();
}

/// <https://kubernetes.io/docs/reference/labels-annotations-taints/audit-annotations/>
#[tokio::test]
async fn violations_and_the_enforced_policy_are_recorded() {
    let pod = host_pod();
    let plugin = PodSecurity::default();
    let create = || attributes(Operation::Create, ("", "pods"), &pod, &Value::Null);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let violation = format!("would violate PodSecurity \"baseline:latest\": {HOST}");
    let audited = [
        pair("audit-violations", &violation),
        pair("enforce-policy", "privileged:latest"),
    ];
    let modes = cluster(&[("audit", "baseline")]);
    assert_eq!(annotations(&plugin, &modes, create()).await, audited);
    // A rejected pod has the annotation too.
    let refused = [
        pair("audit-violations", &violation),
        pair("enforce-policy", "baseline:latest"),
    ];
    let modes = cluster(&[("audit", "baseline"), ("enforce", "baseline")]);
    assert_eq!(annotations(&plugin, &modes, create()).await, refused);
    let privileged = [pair("enforce-policy", "privileged:latest")];
    assert_eq!(
        annotations(&plugin, &cluster(&[]), create()).await,
        privileged
    );
    let wrong = cluster(&[("enforce", "x")]);
    let found = annotations(&plugin, &wrong, create()).await;
    let error = "Failed to parse policy: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \
                 \"x\": must be one of privileged, baseline, restricted";
    assert_eq!(found[1], pair("error", error));
    let template = json!({"metadata": {"name": "w", "namespace": "n"}, "template": pod});
    let create = attributes(
        Operation::Create,
        ("", "podtemplates"),
        &template,
        &Value::Null,
    );
    let modes = cluster(&[("audit", "baseline"), ("enforce", "baseline")]);
    let audited = [pair("audit-violations", &violation)];
    assert_eq!(annotations(&plugin, &modes, create).await, audited);
}

#[tokio::test]
async fn labels_of_an_exempt_namespace_are_warned_about() {
    let plugin = configured(json!({
        "defaults": {"audit": "baseline"}, "exemptions": {"namespaces": ["n"]},
    }));
    let mut cluster = cluster(&[]);
    let mut violating = host_pod();
    violating["metadata"]["name"] = json!("v");
    cluster.add("", "pods", violating);
    let (old, new) = (
        namespace("n", &[]),
        namespace("n", &[("enforce", "restricted"), ("warn", "privileged")]),
    );
    let expected = [
        "namespace \"n\" is exempt from Pod Security, and the policy (enforce=restricted:latest) will be \
         ignored",
    ];
    let update = attributes(Operation::Update, ("", "namespaces"), &new, &old);
    assert_eq!(validate_with(&plugin, &cluster, update).await.1, expected);
    let create = attributes(Operation::Create, ("", "namespaces"), &new, &Value::Null);
    assert_eq!(validate_with(&plugin, &cluster, create).await.1, expected);
    let create = attributes(Operation::Create, ("", "namespaces"), &old, &Value::Null);
    assert_eq!(validate_with(&plugin, &cluster, create).await.1, [""; 0]);
}

#[tokio::test]
async fn pods_of_exempt_runtime_classes_are_not_checked_against_a_new_level() {
    let plugin = configured(json!({"exemptions": {"runtimeClasses": ["sandbox"]}}));
    let mut cluster = cluster(&[]);
    let mut exempt = host_pod();
    exempt["spec"]["runtimeClassName"] = json!("sandbox");
    cluster.add("", "pods", exempt);
    let (old, new) = (
        namespace("n", &[]),
        namespace("n", &[("enforce", "baseline")]),
    );
    let update = attributes(Operation::Update, ("", "namespaces"), &new, &old);
    assert_eq!(validate_with(&plugin, &cluster, update).await.1, [""; 0]);
}
