//! The objects that are written: config maps, pods and custom resources of a given size, and their
//! paths. They cost the same as real ones; their content is arbitrary.

pub(super) mod conversion;
pub(super) mod definitions;
mod protobuf;

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};

use super::args::Resource;
use super::client::{ClientError, Connection};
use super::encoding::Encoding;

/// The label of all objects that `bench` creates.
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "watchet-bench");

impl Resource {
    /// All resources.
    pub(super) const ALL: [Self; 4] = [Self::Configmaps, Self::Pods, Self::Widgets, Self::Gadgets];

    /// Returns the plural name in paths.
    pub(super) const fn plural(self) -> &'static str {
        match self {
            Self::Configmaps => "configmaps",
            Self::Pods => "pods",
            Self::Widgets => "widgets",
            Self::Gadgets => "gadgets",
        }
    }

    /// Returns the `apiVersion` of requests.
    pub(super) const fn api_version(self) -> &'static str {
        match self {
            Self::Configmaps | Self::Pods => "v1",
            Self::Widgets => "bench.watchet.dev/v1",
            Self::Gadgets => "bench.watchet.dev/v2",
        }
    }

    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Configmaps => "ConfigMap",
            Self::Pods => "Pod",
            Self::Widgets => "Widget",
            Self::Gadgets => "Gadget",
        }
    }

    /// Returns true if a CustomResourceDefinition defines it.
    pub(super) const fn is_custom(self) -> bool {
        matches!(self, Self::Widgets | Self::Gadgets)
    }

    /// Returns true if servers can encode it like this: custom resources have no protobuf.
    pub(super) const fn has_encoding(self, encoding: Encoding) -> bool {
        !(self.is_custom() && matches!(encoding, Encoding::Protobuf))
    }
}

/// Returns the path of the collection in one namespace, or in all.
pub(super) fn collection(resource: Resource, namespace: Option<&str>) -> String {
    let (version, plural) = (resource.api_version(), resource.plural());
    let api = if resource.is_custom() { "apis" } else { "api" };
    match namespace {
        Some(namespace) => format!("/{api}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/{api}/{version}/{plural}"),
    }
}

/// Returns the query that selects objects created by `bench`: servers add their own objects to a
/// namespace.
pub(super) fn ours() -> String {
    let (key, value) = LABEL;
    format!("labelSelector={}%3D{value}", key.replace('/', "%2F"))
}

/// The content of one object.
#[derive(Debug, Clone, Default)]
pub(super) struct Spec<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    /// The node of a pod or of a custom resource.
    pub node: Option<&'a str>,
    pub labels: &'a [(String, String)],
    pub annotation: Option<(&'a str, &'a str)>,
    /// The resourceVersion of the object to replace.
    pub version: Option<u64>,
    /// The minimum size in bytes of JSON, reached by padding.
    pub size: usize,
}

/// Returns the JSON of an object.
pub(super) fn render(resource: Resource, spec: &Spec<'_>) -> Bytes {
    Bytes::from(object(resource, spec).to_string())
}

/// Returns the protobuf of a config map or pod.
pub(super) fn render_protobuf(resource: Resource, spec: &Spec<'_>) -> Bytes {
    protobuf::encode(&object(resource, spec))
}

fn object(resource: Resource, spec: &Spec<'_>) -> Value {
    let mut labels = Map::from_iter([(LABEL.0.to_owned(), json!(LABEL.1))]);
    let more = spec.labels.iter();
    labels.extend(more.map(|(key, value)| (key.clone(), json!(value))));
    let mut object = json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind(),
        "metadata": {"labels": labels, "name": spec.name, "namespace": spec.namespace},
    });
    let annotation = spec.annotation.map(|(key, value)| json!({key: value}));
    object["metadata"]["annotations"] = annotation.unwrap_or_else(|| json!({}));
    match resource {
        Resource::Configmaps => {
            object["data"] = json!({"payload": ""});
        }
        Resource::Pods => {
            object["spec"] = json!({
                // Set here, so that the server need not add defaults.
                "automountServiceAccountToken": false,
                "serviceAccountName": "default",
                "containers": [{
                    "name": "main",
                    "image": "registry.example/main:1",
                    "env": [{"name": "PAYLOAD", "value": ""}],
                }],
            });
        }
        // The two versions of a gadget have different names for the same field.
        Resource::Widgets => object["spec"] = custom_spec("payload"),
        Resource::Gadgets => object["spec"] = custom_spec(conversion::V2_FIELD),
    }
    if resource != Resource::Configmaps
        && let Some(node) = spec.node
    {
        object["spec"]["nodeName"] = json!(node);
    }
    let empty = object.to_string();
    let missing = spec.size.saturating_sub(empty.len());
    *payload(&mut object, resource) = Value::String(filling(spec.name, missing));
    // After the padding, whose length must not change with the version: the containers of a pod are
    // immutable.
    if let Some(version) = spec.version {
        object["metadata"]["resourceVersion"] = json!(version.to_string());
    }
    object
}

/// Returns the spec of a custom resource with the padding in `field`.
fn custom_spec(field: &str) -> Value {
    json!({
        field: "",
        "replicas": 3,
        "limits": {"min": 1, "max": 10},
        "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}],
    })
}

fn payload(object: &mut Value, resource: Resource) -> &mut Value {
    match resource {
        Resource::Widgets => &mut object["spec"]["payload"],
        Resource::Gadgets => &mut object["spec"][conversion::V2_FIELD],
        Resource::Configmaps => &mut object["data"]["payload"],
        Resource::Pods => &mut object["spec"]["containers"][0]["env"][0]["value"],
    }
}

/// Returns a text that does not compress well; the same for the same name.
fn filling(name: &str, length: usize) -> String {
    let seed = name.bytes().fold(length as u64, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.alphanumeric()).collect()
}

/// Creates a namespace and its service account `default`, unless they exist. A server creates no
/// pods in a namespace without it, and a kube-apiserver alone has no controller that creates it.
///
/// # Errors
/// The request fails.
pub(super) async fn make_namespace(
    connection: &mut Connection,
    name: &str,
) -> Result<(), ClientError> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    make(connection, "/api/v1/namespaces", body.to_string().into()).await?;
    let body = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": name},
    });
    let path = format!("/api/v1/namespaces/{name}/serviceaccounts");
    make(connection, &path, body.to_string().into()).await?;
    Ok(())
}

/// Creates an object; returns false if it exists.
///
/// # Errors
/// The request fails.
pub(super) async fn make(
    connection: &mut Connection,
    collection: &str,
    body: Bytes,
) -> Result<bool, ClientError> {
    match connection.send(Method::POST, collection, body).await {
        Ok(_) => Ok(true),
        Err(error) if error.status() == Some(http::StatusCode::CONFLICT) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_their_size_and_columns() {
        for (resource, kind) in [
            (Resource::Configmaps, "ConfigMap"),
            (Resource::Pods, "Pod"),
            (Resource::Widgets, "Widget"),
            (Resource::Gadgets, "Gadget"),
        ] {
            let labels = [("tier".to_owned(), "front".to_owned())];
            let spec = Spec {
                name: "bench-1",
                namespace: "bench",
                node: Some("node-7"),
                labels: &labels,
                annotation: Some(("a", "b")),
                version: None,
                size: 1_200,
            };
            let text = render(resource, &spec);
            assert_eq!(text.len(), 1_200);
            assert_eq!(render(resource, &spec), text, "deterministic");
            let object: Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(object["kind"], kind);
            assert_eq!(object["metadata"]["labels"]["tier"], "front");
            assert_eq!(object["metadata"]["labels"][LABEL.0], LABEL.1);
            assert_eq!(object["metadata"]["annotations"]["a"], "b");
            if resource != Resource::Configmaps {
                assert_eq!(object["spec"]["nodeName"], "node-7");
            }
            let small = render(resource, &Spec { size: 1, ..spec });
            assert!(serde_json::from_slice::<Value>(&small).is_ok());
        }
    }
}
