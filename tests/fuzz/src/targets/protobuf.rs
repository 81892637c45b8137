//! Protobuf bodies: what is decoded can be encoded to the same, and k8s-pb, which was generated from the same definitions by
//! another program, reads the same messages. Both decoders, to a value and to JSON, agree.

use k8s_pb::apimachinery::pkg::runtime::Unknown;
use prost::Message;
use serde_json::Value;
use watchet_schema::KindType;

use super::objects::PROTOBUF;

/// The prefix of every body.
const MAGIC: &[u8] = b"k8s\0";

/// An input is a body in protobuf, or an object in JSON.
pub(super) fn protobuf(input: &[u8]) {
    let (types, protobuf) = &*PROTOBUF;
    let object = match protobuf.decode(input) {
        Ok(object) => {
            let deserialized = protobuf.deserialize(input);
            assert_eq!(deserialized.as_ref(), Ok(&object), "as its JSON");
            protobuf.assert_memory_is_bounded(input);
            object
        }
        Err(_) => match serde_json::from_slice(input) {
            Ok(Value::Object(object)) => Value::Object(object),
            _ => return,
        },
    };
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let Some(kind) = KindType::builtin(types, text("apiVersion"), text("kind")) else {
        return;
    };
    let conformed = kind.conform(&object);
    if conformed.type_error.is_some() {
        return;
    }
    // What the decoder accepts, and values whose texts are not valid in their field, such as times.
    let Some(Ok(first)) = protobuf.encode(&conformed.value) else {
        return;
    };
    let decoded = protobuf
        .decode(&first)
        .expect("what was encoded can be decoded");
    let decoded = kind.conform(&decoded);
    assert_eq!(decoded.type_error, None, "{}", decoded.value);
    let second = protobuf
        .encode(&decoded.value)
        .expect("the kind is the same")
        .expect("it was encoded before");
    // In Go too, null in a map of bytes is decoded as no bytes, so only the second round changes nothing.
    let again = protobuf
        .decode(&second)
        .expect("what was encoded can be decoded");
    assert_eq!(
        kind.conform(&again).value,
        decoded.value,
        "{}",
        conformed.value
    );
    compare(&second, &decoded.value);
}

/// Reads a body with k8s-pb and writes it again; the result must have the same meaning.
fn compare(body: &[u8], object: &Value) {
    let unknown = Unknown::decode(&body[MAGIC.len()..]).expect("the envelope can be decoded");
    let raw = unknown.raw.clone().unwrap_or_default();
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let Some(written) = rewritten(text("apiVersion"), text("kind"), &raw) else {
        return;
    };
    let again = Unknown {
        raw: Some(written),
        ..unknown
    };
    let again = [MAGIC, &again.encode_to_vec()].concat();
    let (_, protobuf) = &*PROTOBUF;
    let again = protobuf
        .decode(&again)
        .expect("what k8s-pb writes can be decoded");
    assert_eq!(
        protobuf.encode(&again),
        protobuf.encode(object),
        "{again} instead of {object}"
    );
}

/// Decodes a message with k8s-pb and encodes it again; `None` for the kinds that are not compared.
fn rewritten(api_version: &str, kind: &str, raw: &[u8]) -> Option<Vec<u8>> {
    use k8s_pb::api::{apps, autoscaling, batch, coordination, core, networking, policy, rbac};
    macro_rules! by {
        ($message:ty) => {
            <$message>::decode(raw)
                .expect("k8s-pb reads the message")
                .encode_to_vec()
        };
    }
    Some(match (api_version, kind) {
        ("v1", "Pod") => by!(core::v1::Pod),
        ("v1", "ConfigMap") => by!(core::v1::ConfigMap),
        ("v1", "Secret") => by!(core::v1::Secret),
        ("v1", "Service") => by!(core::v1::Service),
        ("v1", "Node") => by!(core::v1::Node),
        ("v1", "Event") => by!(core::v1::Event),
        ("v1", "Endpoints") => by!(core::v1::Endpoints),
        ("v1", "PersistentVolume") => by!(core::v1::PersistentVolume),
        ("apps/v1", "Deployment") => by!(apps::v1::Deployment),
        ("apps/v1", "StatefulSet") => by!(apps::v1::StatefulSet),
        ("batch/v1", "CronJob") => by!(batch::v1::CronJob),
        ("autoscaling/v2", "HorizontalPodAutoscaler") => {
            by!(autoscaling::v2::HorizontalPodAutoscaler)
        }
        ("coordination.k8s.io/v1", "Lease") => by!(coordination::v1::Lease),
        ("networking.k8s.io/v1", "Ingress") => by!(networking::v1::Ingress),
        ("networking.k8s.io/v1", "NetworkPolicy") => by!(networking::v1::NetworkPolicy),
        ("policy/v1", "PodDisruptionBudget") => by!(policy::v1::PodDisruptionBudget),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => by!(rbac::v1::ClusterRole),
        _ => return None,
    })
}
