//! Tests of reading by type: what is dropped and expected, and what does not fit.

use serde_json::json;

use super::path::PATH_BYTES_MAX;
use super::*;
use crate::quantity::QUANTITY_FORM;

fn builtin(api_version: &str, kind: &str) -> KindType {
    KindType::builtin(&Types::builtins(), api_version, kind).expect("a built-in kind")
}

fn deployment(body: &str) -> Decoded {
    let kind = builtin("apps/v1", "Deployment");
    let mut reader = serde_json::Deserializer::from_str(body);
    kind.decode(&mut reader, &MemoryBudget::unlimited())
        .expect("valid JSON")
}

#[test]
fn unknown_members_are_dropped_and_reported_in_order() {
    let body = r#"{
        "apiVersion": "apps/v1", "kind": "Deployment", "zone": 1,
        "metadata": {"name": "a", "labels": {"x": "1", "x": "2"}, "annotations": null},
        "spec": {
            "replicas": 1, "foo": {"foo": 1}, "replicas": 2, "foo": 3, "paused": null,
            "template": {"spec": {"containers": [
                {"name": "c"},
                {"name": "d", "image": "e", "imagePullPolice": "Always", "name": "f",
                 "ports": [{"containerPort": 80, "hostport": 1}]}
            ], "volumes": [{"name": "v", "emptyDir": {}, "emptydir": {}}]}}
        }
    }"#;
    let decoded = deployment(body);
    assert_eq!(
        decoded.mistakes,
        [
            r#"unknown field "zone""#,
            r#"duplicate field "metadata.labels.x""#,
            r#"unknown field "spec.foo""#,
            r#"duplicate field "spec.replicas""#,
            r#"unknown field "spec.template.spec.containers[1].imagePullPolice""#,
            r#"duplicate field "spec.template.spec.containers[1].name""#,
            r#"unknown field "spec.template.spec.containers[1].ports[0].hostport""#,
            r#"unknown field "spec.template.spec.volumes[0].emptydir""#,
        ]
    );
    assert_eq!(decoded.type_error, None);
    let template = json!({"spec": {
        "containers": [
            {"name": "c"},
            {"name": "f", "image": "e", "ports": [{"containerPort": 80}]},
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }});
    assert_eq!(
        decoded.value,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "labels": {"x": "2"}},
            "spec": {"replicas": 2, "template": template},
        })
    );
}

#[test]
fn reported_errors_are_bounded() {
    let members: Vec<String> = (0..1000).map(|n| format!("\"x{n}\": 1")).collect();
    let decoded = deployment(&format!("{{{}}}", members.join(",")));
    assert_eq!(decoded.mistakes.len(), MISTAKES_MAX);
    assert_eq!(decoded.mistakes[99], r#"unknown field "x99""#);
}

#[test]
fn type_errors_equal_go_messages() {
    let check = |body: &str, expected: &str| {
        let decoded = deployment(body);
        assert_eq!(decoded.type_error.as_deref(), Some(expected), "{body}");
    };
    let into = |kind: &str, rest: &str| format!("json: cannot unmarshal {kind} into Go {rest}");
    let replicas = "struct field DeploymentSpec.spec.replicas of type int32";
    check(r#"{"spec": {"replicas": "3"}}"#, &into("string", replicas));
    check(
        r#"{"spec": {"replicas": 1.5}}"#,
        &into("number 1.5", replicas),
    );
    check(
        r#"{"spec": {"replicas": 2147483648, "paused": "x"}}"#,
        &into("number 2147483648", replicas),
    );
    check("[]", &into("array", "value of type v1.Deployment"));
    check(
        r#"{"spec": []}"#,
        &into(
            "array",
            "struct field Deployment.spec of type v1.DeploymentSpec",
        ),
    );
    let in_pod =
        |members: &str| format!(r#"{{"spec": {{"template": {{"spec": {{{members}}}}}}}}}"#);
    check(
        &in_pod(r#""containers": {}"#),
        &into(
            "object",
            "struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
    );
    check(
        &in_pod(r#""containers": [{"name": 5}]"#),
        &into(
            "number",
            "struct field Container.spec.template.spec.containers.name of type string",
        ),
    );
    check(
        &in_pod(r#""nodeSelector": {"a": true}"#),
        &into(
            "bool",
            "struct field PodSpec.spec.template.spec.nodeSelector of type string",
        ),
    );
    let quantity = |text: &str| {
        in_pod(&format!(
            r#""containers": [{{"resources": {{"limits": {{"cpu": {text}}}}}}}]"#
        ))
    };
    for good in [
        "1",
        "\"1\"",
        "\"1.5Gi\"",
        "\"-.5\"",
        "\"1e3\"",
        "\"12E-3\"",
        "\"1E\"",
        "0.1",
    ] {
        assert_eq!(deployment(&quantity(good)).type_error, None, "{good}");
    }
    check(&quantity("\"much\""), QUANTITY_FORM);
    check(&quantity("\"\""), QUANTITY_FORM);
    check(&quantity("true"), QUANTITY_FORM);
    check(&quantity("\"1ii\""), "unable to parse quantity's suffix");
    check(&quantity(r#""\t1""#), QUANTITY_FORM);
    assert_eq!(deployment(&quantity("\" 1 \"")).type_error, None);
    check(
        r#"{"spec": {"strategy": {"rollingUpdate": {"maxSurge": false}}}}"#,
        &into("bool", "value of type int32"),
    );
}

#[test]
fn micro_times_have_six_digits() {
    let error = |time: &str| {
        let lease = json!({"spec": {"renewTime": time}});
        let kind = builtin("coordination.k8s.io/v1", "Lease");
        kind.conform(&lease).type_error
    };
    assert_eq!(error("2026-01-02T03:04:05.123456Z"), None);
    assert_eq!(
        error("2026-01-02T03:04:05.123Z").as_deref(),
        Some(
            "parsing time \"2026-01-02T03:04:05.123Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \".123Z\" as \
             \".000000\""
        )
    );
}

/// The expected value is what kube-apiserver 1.36 stores. A null of a map of strings was stored as null.
#[test]
fn a_null_in_a_map_or_list_of_scalars_is_its_zero_value() {
    let kind = builtin("v1", "ConfigMap");
    let decoded = kind.conform(&json!({
        "metadata": {"labels": {"a": null}, "finalizers": ["a/b", null]},
        "data": {"x": null, "y": "1"}, "binaryData": {"z": null}, "immutable": null,
    }));
    assert_eq!(
        decoded.value,
        json!({
            "metadata": {"labels": {"a": ""}, "finalizers": ["a/b", ""]},
            "data": {"x": "", "y": "1"}, "binaryData": {"z": null},
        })
    );
    let kind = builtin("v1", "ResourceQuota");
    let decoded = kind.conform(&json!({"spec": {"hard": {"pods": null}}}));
    assert_eq!(decoded.value, json!({"spec": {"hard": {"pods": "0"}}}));
}

/// Defaults apply to objects only. If a null remained, an update with the same object would change it.
#[test]
fn a_null_in_a_list_of_objects_is_an_object_without_members() {
    let kind = builtin("v1", "Service");
    let decoded = kind.conform(&json!({"spec": {"ports": [null, {"port": 1}]}}));
    assert_eq!(decoded.value, json!({"spec": {"ports": [{}, {"port": 1}]}}));
    // Go encodes the zero value of a list as null.
    let kind = builtin("authorization.k8s.io/v1", "SubjectAccessReview");
    let review = json!({"spec": {"extra": {"a": null}}});
    assert_eq!(kind.conform(&review).value, review);
}

/// A path of megabytes was formatted for each of hundreds of thousands of duplicates, which took minutes, and retained for a
/// hundred.
#[test]
fn mistakes_have_a_bounded_cost() {
    let key = "k".repeat(1_000_000);
    let twice = r#""a":1,"a":1,"#.repeat(100_000);
    let body = format!(r#"{{"{key}":{{{twice}"b":1}}}}"#);
    let decode = |body: &str| {
        let mut reader = serde_json::Deserializer::from_str(body);
        let decoded = decode_untyped(&mut reader, &MemoryBudget::unlimited());
        decoded.unwrap().mistakes
    };
    let shortened = format!("duplicate field \"{}...\"", &key[..PATH_BYTES_MAX]);
    assert_eq!(decode(&body), [shortened]);
    let distinct: String = (0..3_000)
        .map(|n| format!(r#""a{n}":1,"a{n}":1,"#))
        .collect();
    let mistakes = decode(&format!(r#"{{{distinct}"b":1}}"#));
    assert_eq!(mistakes.len(), MISTAKES_MAX);
    assert_eq!(mistakes[0], r#"duplicate field "a0""#);
    // Beyond what is compared nothing is reported, which needs thousands of repetitions of others.
    let late = format!(r#"{{{twice}"b":1,"b":2}}"#);
    assert_eq!(decode(&late), [r#"duplicate field "a""#]);
}

/// The type of a custom resource determines its members, but not their values.
#[test]
fn custom_resources_preserve_fields_of_their_schema() {
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "size": {"type": "integer"},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "object"}}},
        },
    }}});
    let types = Types::from_schema(&schema, &Types::builtins());
    let kind = KindType::custom(Arc::new(types));
    let decoded = kind.conform(&json!({
        "apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a", "nam": "b"},
        "spec": {"size": "ten", "sise": 1, "open": {"any": [1], "known": {"gone": 1}}, "x": null},
    }));
    assert_eq!(
        decoded.mistakes,
        [
            r#"unknown field "metadata.nam""#,
            r#"unknown field "spec.open.known.gone""#,
            r#"unknown field "spec.sise""#,
            r#"unknown field "spec.x""#,
        ]
    );
    assert_eq!(decoded.type_error, None);
    let spec = json!({"size": "ten", "open": {"any": [1], "known": {}}});
    assert_eq!(decoded.value["spec"], spec);
}
