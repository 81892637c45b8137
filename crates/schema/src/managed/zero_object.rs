//! The zero value of objects of built-in kinds. Upstream's types are Go structs, and a struct
//! embedded by value always exists, so no manager owns it as an added field. Custom resources have
//! no such fields.

use serde_json::{Map, Value};

use crate::{Fields, Shape};

use super::typed::Type;

/// Members of every object whose kind has them.
const EVERYWHERE: &[&str] = &["metadata", "spec", "status"];

/// Further struct members, by type.
const BY_VALUE: &[(&str, &str)] = &[
    ("apps.v1.DaemonSetSpec", "template"),
    ("apps.v1.DaemonSetSpec", "updateStrategy"),
    ("apps.v1.DeploymentSpec", "strategy"),
    ("apps.v1.DeploymentSpec", "template"),
    ("apps.v1.ReplicaSetSpec", "template"),
    ("apps.v1.StatefulSetSpec", "template"),
    ("apps.v1.StatefulSetSpec", "updateStrategy"),
    (
        "autoscaling.v2.HorizontalPodAutoscalerSpec",
        "scaleTargetRef",
    ),
    ("batch.v1.CronJobSpec", "jobTemplate"),
    ("batch.v1.JobSpec", "template"),
    ("core.v1.PersistentVolumeClaimSpec", "resources"),
    ("core.v1.PodTemplate", "template"),
    ("core.v1.ServiceStatus", "loadBalancer"),
    ("networking.v1.IngressStatus", "loadBalancer"),
];

/// A list that Go encodes as null if it is empty.
const NULL: (&str, &str) = ("core.v1.PodSpec", "containers");

/// A string that Go encodes even if it is empty.
const TEXT: (&str, &str) = ("apps.v1.StatefulSetSpec", "serviceName");

/// Returns the zero value of this type.
pub(super) fn zero_object(ty: Type) -> Value {
    let mut object = Map::new();
    if let Type::Schema(type_ref) = ty
        && let Shape::Object {
            fields,
            atomic: false,
            ..
        } = type_ref.shape()
        && !fields.type_name().is_empty()
    {
        fill(fields, &mut object);
    }
    Value::Object(object)
}

fn fill(fields: Fields, object: &mut Map<String, Value>) {
    let own = BY_VALUE
        .iter()
        .filter(|(owner, _)| *owner == fields.type_name());
    for name in EVERYWHERE.iter().chain(own.map(|(_, name)| name)) {
        if let Some(field) = fields.get(name)
            && let Shape::Object { atomic: false, .. } = field.shape()
        {
            object.insert((*name).to_owned(), zero_object(Type::Schema(field)));
        }
    }
    if fields.type_name() == NULL.0 {
        object.insert(NULL.1.to_owned(), Value::Null);
    }
    if fields.type_name() == TEXT.0 {
        object.insert(TEXT.1.to_owned(), "".into());
    }
}
