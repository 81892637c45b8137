//! Encodes config maps and pods as Kubernetes' protobuf, as Go clients send them. Only the fields
//! that the loads set are known.

use bytes::Bytes;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::Value;

use crate::decode::MAGIC;

/// Returns the message of a config map or pod in its envelope.
pub(super) fn encode(object: &Value) -> Bytes {
    let mut message = Vec::new();
    field(&mut message, 1, &metadata(&object["metadata"]));
    map(&mut message, 2, &object["data"]);
    if object["spec"].is_object() {
        field(&mut message, 2, &pod_spec(&object["spec"]));
    }
    let mut type_meta = Vec::new();
    text(&mut type_meta, 1, &object["apiVersion"]);
    text(&mut type_meta, 2, &object["kind"]);
    let mut envelope = MAGIC.to_vec();
    field(&mut envelope, 1, &type_meta);
    field(&mut envelope, 2, &message);
    envelope.into()
}

/// Returns an `ObjectMeta`.
fn metadata(metadata: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    text(&mut message, 1, &metadata["name"]);
    text(&mut message, 3, &metadata["namespace"]);
    text(&mut message, 6, &metadata["resourceVersion"]);
    map(&mut message, 11, &metadata["labels"]);
    map(&mut message, 12, &metadata["annotations"]);
    message
}

/// Returns a `PodSpec`.
fn pod_spec(spec: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    for container in spec["containers"].as_array().into_iter().flatten() {
        let mut encoded = Vec::new();
        text(&mut encoded, 1, &container["name"]);
        text(&mut encoded, 2, &container["image"]);
        for variable in container["env"].as_array().into_iter().flatten() {
            let mut pair = Vec::new();
            text(&mut pair, 1, &variable["name"]);
            text(&mut pair, 2, &variable["value"]);
            field(&mut encoded, 7, &pair);
        }
        field(&mut message, 2, &encoded);
    }
    text(&mut message, 8, &spec["serviceAccountName"]);
    text(&mut message, 10, &spec["nodeName"]);
    if let Some(automount) = spec["automountServiceAccountToken"].as_bool() {
        encode_key(21, WireType::Varint, &mut message);
        encode_varint(automount.into(), &mut message);
    }
    message
}

fn field(message: &mut Vec<u8>, number: u32, content: &[u8]) {
    encode_key(number, WireType::LengthDelimited, message);
    encode_varint(content.len() as u64, message);
    message.extend_from_slice(content);
}

/// Adds a text, if there is one.
fn text(message: &mut Vec<u8>, number: u32, value: &Value) {
    if let Some(value) = value.as_str() {
        field(message, number, value.as_bytes());
    }
}

/// Adds the entries of a map of texts, if there are any.
fn map(message: &mut Vec<u8>, number: u32, entries: &Value) {
    for (key, value) in entries.as_object().into_iter().flatten() {
        let mut entry = Vec::new();
        field(&mut entry, 1, key.as_bytes());
        text(&mut entry, 2, value);
        field(message, number, &entry);
    }
}

#[cfg(test)]
mod tests {
    use k8s_pb::api::core::v1::{ConfigMap, Pod};
    use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use k8s_pb::apimachinery::pkg::runtime::Unknown;
    use prost::Message;

    use super::super::{Spec, object};
    use super::*;
    use crate::args::Resource;

    /// Returns the JSON of an object and its decoded protobuf.
    fn both<M: Message + Default>(resource: Resource) -> (Value, M) {
        let spec = Spec {
            name: "bench-1",
            namespace: "bench",
            node: Some("node-7"),
            labels: &[("tier".to_owned(), "front".to_owned())],
            annotation: Some(("a", "b")),
            version: Some(17),
            size: 900,
        };
        let json = object(resource, &spec);
        let encoded = encode(&json);
        let envelope = Unknown::decode(encoded.strip_prefix(MAGIC).unwrap()).unwrap();
        let type_meta = envelope.type_meta.unwrap();
        assert_eq!(type_meta.kind.as_deref(), Some(resource.kind()));
        assert_eq!(type_meta.api_version.as_deref(), Some("v1"));
        let message = M::decode(envelope.raw.unwrap().as_slice()).unwrap();
        (json, message)
    }

    fn check_metadata(json: &Value, metadata: &ObjectMeta) {
        assert_eq!(metadata.name.as_deref(), Some("bench-1"));
        assert_eq!(metadata.namespace.as_deref(), Some("bench"));
        assert_eq!(metadata.resource_version.as_deref(), Some("17"));
        assert_eq!(metadata.annotations["a"], "b");
        let labels = json["metadata"]["labels"].as_object().unwrap();
        assert_eq!(metadata.labels.len(), labels.len());
        assert_eq!(metadata.labels["tier"], "front");
    }

    #[test]
    fn config_maps_decode() {
        let (json, message) = both::<ConfigMap>(Resource::Configmaps);
        check_metadata(&json, &message.metadata.unwrap());
        assert_eq!(json["data"]["payload"], message.data["payload"]);
    }

    #[test]
    fn pods_decode() {
        let (json, message) = both::<Pod>(Resource::Pods);
        check_metadata(&json, &message.metadata.unwrap());
        let spec = message.spec.unwrap();
        assert_eq!(spec.node_name.as_deref(), Some("node-7"));
        assert_eq!(spec.service_account_name.as_deref(), Some("default"));
        assert_eq!(spec.automount_service_account_token, Some(false));
        let [container] = &spec.containers[..] else {
            panic!("{:?}", spec.containers);
        };
        assert_eq!(container.name.as_deref(), Some("main"));
        assert_eq!(container.image.as_deref(), Some("registry.example/main:1"));
        let value = container.env[0].value.as_deref();
        assert_eq!(
            json["spec"]["containers"][0]["env"][0]["value"].as_str(),
            value
        );
    }
}
