//! The objects that are written: config maps and pods of a given size, and their paths. They cost
//! the same as real ones; their content is arbitrary.

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};

use super::args::Resource;
use super::client::{ClientError, Connection};

/// The label of all objects that `bench` creates.
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "watchet-bench");

impl Resource {
    /// Returns the plural name in paths.
    pub(super) const fn plural(self) -> &'static str {
        match self {
            Self::Configmaps => "configmaps",
            Self::Pods => "pods",
        }
    }
}

/// Returns the path of the collection in one namespace, or in all.
pub(super) fn collection(resource: Resource, namespace: Option<&str>) -> String {
    let plural = resource.plural();
    match namespace {
        Some(namespace) => format!("/api/v1/namespaces/{namespace}/{plural}"),
        None => format!("/api/v1/{plural}"),
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
    /// The node of a pod.
    pub node: Option<&'a str>,
    pub labels: &'a [(String, String)],
    pub annotation: Option<(&'a str, &'a str)>,
    /// The minimum size in bytes of JSON, reached by padding.
    pub size: usize,
}

/// Returns the JSON of an object.
pub(super) fn render(resource: Resource, spec: &Spec<'_>) -> Bytes {
    let mut labels = Map::from_iter([(LABEL.0.to_owned(), json!(LABEL.1))]);
    let more = spec.labels.iter();
    labels.extend(more.map(|(key, value)| (key.clone(), json!(value))));
    let mut object = json!({
        "apiVersion": "v1",
        "metadata": {"labels": labels, "name": spec.name, "namespace": spec.namespace},
    });
    let annotation = spec.annotation.map(|(key, value)| json!({key: value}));
    object["metadata"]["annotations"] = annotation.unwrap_or_else(|| json!({}));
    match resource {
        Resource::Configmaps => {
            object["kind"] = json!("ConfigMap");
            object["data"] = json!({"payload": ""});
        }
        Resource::Pods => {
            object["kind"] = json!("Pod");
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
            if let Some(node) = spec.node {
                object["spec"]["nodeName"] = json!(node);
            }
        }
    }
    let empty = object.to_string();
    let missing = spec.size.saturating_sub(empty.len());
    *payload(&mut object, resource) = Value::String(filling(spec.name, missing));
    Bytes::from(object.to_string())
}

fn payload(object: &mut Value, resource: Resource) -> &mut Value {
    match resource {
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

/// Creates a namespace, unless it exists.
///
/// # Errors
/// The request fails.
pub(super) async fn make_namespace(
    connection: &mut Connection,
    name: &str,
) -> Result<(), ClientError> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    make(connection, "/api/v1/namespaces", body.to_string().into()).await?;
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
        for (resource, kind) in [(Resource::Configmaps, "ConfigMap"), (Resource::Pods, "Pod")] {
            let labels = [("tier".to_owned(), "front".to_owned())];
            let spec = Spec {
                name: "bench-1",
                namespace: "bench",
                node: Some("node-7"),
                labels: &labels,
                annotation: Some(("a", "b")),
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
            if resource == Resource::Pods {
                assert_eq!(object["spec"]["nodeName"], "node-7");
            }
            let small = render(resource, &Spec { size: 1, ..spec });
            assert!(serde_json::from_slice::<Value>(&small).is_ok());
        }
    }
}
