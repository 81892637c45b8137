//! Tests of the tables: that every entry is used, and that they agree with k8s-openapi of the same
//! version.

use serde_json::{Value, json};

use super::builtins::lines as table_lines;
use super::*;

fn root<'a>(types: &'a Types, api_version: &str, kind: &str) -> TypeRef<'a> {
    let root = types.root(api_version, kind);
    root.unwrap_or_else(|| panic!("{api_version} {kind}"))
}

/// Returns the type at `path`; `*` stands for the item of a list or the value of a map.
fn at<'a>(of: TypeRef<'a>, path: &str) -> TypeRef<'a> {
    path.split('.').fold(of, |of, step| match of.shape() {
        Shape::Object { fields, .. } => {
            fields.get(step).unwrap_or_else(|| panic!("{path}: {step}"))
        }
        Shape::List { item: inner, .. } | Shape::Map { value: inner, .. } if step == "*" => inner,
        shape => panic!("{path}: {step} of {shape:?}"),
    })
}

fn list_kind(of: TypeRef<'_>) -> ListKind<'_> {
    match of.shape() {
        Shape::List { kind, .. } => kind,
        shape => panic!("{shape:?}"),
    }
}

fn is_atomic(of: TypeRef<'_>) -> bool {
    match of.shape() {
        Shape::Object { atomic, .. } | Shape::Map { atomic, .. } => atomic,
        shape => panic!("{shape:?}"),
    }
}

#[test]
fn every_table_entry_is_used() {
    let types = Types::builtins();
    let lines: Vec<&str> = builtins::all_types().collect();
    for line in &lines {
        let (name, fields) = line.split_once(' ').unwrap_or((line, ""));
        let object = types.by_name[name];
        assert_eq!(types.object_name(object), name);
        let on_wire = types.object_fields(object).iter();
        let on_wire = on_wire.filter(|field| field.number().is_some()).count();
        assert_eq!(on_wire, fields.split_whitespace().count(), "{line}");
    }
    assert_eq!(types.objects.len(), lines.len());
    for line in table_lines(builtins::FACTS) {
        let (name, facts) = line.split_once(' ').expect("a name and facts");
        let object = types.by_name[name];
        for fact in facts.split(' ').filter(|fact| !fact.starts_with('!')) {
            let (field, facts_of) = fact.split_once(':').expect("a field and facts");
            let fields = types.object_fields(object);
            let field = fields.iter().find(|f| f.name() == field);
            let field = field.unwrap_or_else(|| panic!("{name} has no {fact}"));
            assert_eq!(
                field.default.is_some(),
                facts_of.contains("default="),
                "{name} {fact}"
            );
        }
    }
    // All types that `kubectl create` supports must exist.
    for (api_version, kind) in [
        ("v1", "Namespace"),
        ("v1", "Pod"),
        ("apps/v1", "Deployment"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("networking.k8s.io/v1", "Ingress"),
        ("coordination.k8s.io/v1", "Lease"),
        ("events.k8s.io/v1", "Event"),
        ("apiregistration.k8s.io/v1", "APIService"),
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"),
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
        ("apps/v1", "DeleteOptions"),
    ] {
        assert!(types.root(api_version, kind).is_some(), "{kind}");
    }
    // A group with the prefix of a built-in group is another group.
    assert!(types.root("apps.example.com/v1", "Deployment").is_none());
    assert!(types.root("core/v1", "Pod").is_none());
}

#[test]
fn list_and_map_types() {
    let types = Types::builtins();
    let pod = root(&types, "v1", "Pod");
    let containers = at(pod, "spec.containers");
    assert_eq!(list_kind(containers), ListKind::Map(&["name".into()]));
    assert_eq!(containers.merge_rule().key, Some("name"));
    let ports = at(containers, "*.ports");
    assert_eq!(
        list_kind(ports),
        ListKind::Map(&["containerPort".into(), "protocol".into()])
    );
    assert_eq!(ports.merge_rule().key, Some("containerPort"));
    assert_eq!(at(ports, "*.protocol").default(), Some(&json!("TCP")));
    assert_eq!(list_kind(at(containers, "*.args")), ListKind::Atomic);
    assert_eq!(list_kind(at(pod, "metadata.finalizers")), ListKind::Set);
    assert!(at(pod, "metadata.finalizers").merge_rule().merge);
    assert!(is_atomic(at(pod, "spec.nodeSelector")));
    assert!(!is_atomic(at(pod, "metadata.labels")));
    assert!(is_atomic(at(pod, "spec.imagePullSecrets.*")));
    let volumes = at(pod, "spec.volumes").merge_rule();
    assert!(volumes.merge && volumes.retain_keys && !volumes.replace);
    // Members of an inlined message belong to the outer message.
    assert_eq!(
        list_kind(at(pod, "spec.volumes.*.configMap.items")),
        ListKind::Atomic
    );
    let deployment = root(&types, "apps/v1", "Deployment");
    assert!(is_atomic(at(deployment, "spec.selector")));
    assert!(at(deployment, "spec.strategy").merge_rule().retain_keys);
    let budget = root(&types, "policy/v1", "PodDisruptionBudget");
    assert!(at(budget, "spec.selector").merge_rule().replace);
    // A list may be merged by patches and atomic in field management.
    let conditions = at(root(&types, "batch/v1", "Job"), "status.conditions");
    assert_eq!(list_kind(conditions), ListKind::Atomic);
    assert_eq!(conditions.merge_rule().key, Some("type"));
}

#[test]
fn types_of_custom_resources() {
    let schema = json!({
        "type": "object",
        "properties": {
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer", "format": "int32"},
                    "port": {"x-kubernetes-int-or-string": true},
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["a", "b"],
                        "items": {"type": "object", "properties": {
                            "a": {"type": "string"},
                            "b": {"type": "string", "default": "x"},
                        }},
                    },
                    "plain": {"type": "array", "items": {"type": "boolean"}},
                    "rates": {"type": "object", "additionalProperties": {"type": "number"}},
                    "whole": {"type": "object", "x-kubernetes-map-type": "atomic",
                        "additionalProperties": true},
                    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "any": {"x-kubernetes-preserve-unknown-fields": true},
                    "pod": {"type": "object", "x-kubernetes-embedded-resource": true,
                        "x-kubernetes-preserve-unknown-fields": true},
                },
            },
        },
    });
    let builtins = Types::builtins();
    let types = Types::from_schema(&schema, &builtins);
    let root = types.only_root();
    for name in ["apiVersion", "kind", "metadata", "spec"] {
        at(root, name);
    }
    let owners = at(root, "metadata.ownerReferences");
    assert_eq!(list_kind(owners), ListKind::Map(&["uid".into()]));
    let spec = at(root, "spec");
    let Shape::Object { fields, open, .. } = spec.shape() else {
        panic!("{spec:?}");
    };
    assert!(!open && fields.get("other").is_none());
    assert_eq!(fields.iter().count(), 10);
    assert!(matches!(
        at(spec, "size").shape(),
        Shape::Scalar(Scalar::Int32)
    ));
    assert!(matches!(
        at(spec, "port").shape(),
        Shape::Scalar(Scalar::IntOrString)
    ));
    assert_eq!(list_kind(at(spec, "tags")), ListKind::Set);
    assert_eq!(
        list_kind(at(spec, "parts")),
        ListKind::Map(&["a".into(), "b".into()])
    );
    assert_eq!(at(spec, "parts.*.b").default(), Some(&json!("x")));
    assert_eq!(list_kind(at(spec, "plain")), ListKind::Atomic);
    assert!(matches!(
        at(spec, "rates.*").shape(),
        Shape::Scalar(Scalar::Number)
    ));
    assert!(is_atomic(at(spec, "whole")) && !is_atomic(at(spec, "rates")));
    assert!(matches!(
        at(spec, "open").shape(),
        Shape::Object { open: true, .. }
    ));
    assert!(matches!(at(spec, "any").shape(), Shape::Any));
    at(spec, "pod.metadata.labels.*");

    let untyped = Types::from_schema(&Value::Null, &builtins);
    let Shape::Object {
        fields, open: true, ..
    } = untyped.only_root().shape()
    else {
        panic!("without a schema everything is preserved");
    };
    assert_eq!(fields.iter().count(), 3);
}

/// 112 fields were not known to be omitted by Go if they are zero, so that values such as
/// `unschedulable: false` were stored and had managers. `zeros.txt` has the results of Go's decoder
/// and encoder.
#[test]
fn omitted_zero_values_equal_go() {
    let types = Types::builtins();
    let (mut kept_in_all, mut omitted_in_all) = (0, 0);
    for line in table_lines(include_str!("zeros.txt")) {
        let mut words = line.split(' ');
        let name = words.next().expect("a name");
        let retained: Vec<&str> = words.collect();
        let zeros = types.object_fields(types.by_name[name]).iter();
        let zeros = zeros.filter(|field| field.number().is_some());
        let zeros = zeros.filter_map(|field| {
            let zero = match types.node(field.node()) {
                Node::Scalar(Scalar::String | Scalar::Bytes) => json!(""),
                Node::Scalar(Scalar::Bool) => json!(false),
                Node::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Number) => json!(0),
                Node::List { .. } => json!([]),
                Node::Map { .. } => json!({}),
                _ => return None,
            };
            Some((field.name().to_owned(), zero))
        });
        let zeros: serde_json::Map<String, Value> = zeros.collect();
        let kind = KindType::message(&types, name);
        let left = kind.conform(&Value::Object(zeros.clone()));
        assert_eq!((left.mistakes, left.type_error), (vec![], None), "{name}");
        for member in zeros.keys() {
            let is_retained = left.value.get(member).is_some();
            assert_eq!(
                is_retained,
                retained.contains(&member.as_str()),
                "{name}.{member}"
            );
            kept_in_all += usize::from(is_retained);
            omitted_in_all += usize::from(!is_retained);
        }
    }
    assert!(
        kept_in_all > 600 && omitted_in_all > 700,
        "{kept_in_all}, {omitted_in_all}"
    );
}
