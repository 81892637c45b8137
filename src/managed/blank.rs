//! What an object of a built-in kind has before anybody writes it. Upstream's are Go structs, and a
//! struct that is in another by value is there from the start: nobody adds it, so nobody manages it as
//! such. Objects of custom resources begin with nothing.

use serde_json::{Map, Value};

use crate::schema::{Fields, Shape};

use super::typed::Type;

/// In every object of a kind that has them.
const EVERYWHERE: &[&str] = &["metadata", "spec", "status"];

/// Others, by the type that has them.
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

/// A list that Go writes as null when it is empty.
const NULL: (&str, &str) = ("core.v1.PodSpec", "containers");

/// A text that Go writes also when it is empty.
const TEXT: (&str, &str) = ("apps.v1.StatefulSetSpec", "serviceName");

/// An object of this type as it is before it is written.
pub(super) fn blank(ty: Type) -> Value {
    let mut object = Map::new();
    if let Type::Known(known) = ty
        && let Shape::Object {
            fields,
            atomic: false,
            ..
        } = known.shape()
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
            object.insert((*name).to_owned(), blank(Type::Known(field)));
        }
    }
    if fields.type_name() == NULL.0 {
        object.insert(NULL.1.to_owned(), Value::Null);
    }
    if fields.type_name() == TEXT.0 {
        object.insert(TEXT.1.to_owned(), "".into());
    }
}
