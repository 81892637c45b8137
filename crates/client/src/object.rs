//! The object types of informers: any type with Kubernetes metadata. Typed objects come from
//! `k8s-openapi` or the user; two untyped ones are defined here.

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A type with Kubernetes metadata. Every top-level type of `k8s-openapi` implements it; for
/// another type:
///
/// ```
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
/// use serde::{Deserialize, Serialize};
/// use watchet_client::KubeObject;
///
/// #[derive(Serialize, Deserialize)]
/// struct Foo {
///     metadata: ObjectMeta,
///     spec: FooSpec,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// struct FooSpec {
///     deployment_name: String,
///     replicas: i32,
/// }
///
/// impl KubeObject for Foo {
///     fn metadata(&self) -> &ObjectMeta {
///         &self.metadata
///     }
///     fn metadata_mut(&mut self) -> &mut ObjectMeta {
///         &mut self.metadata
///     }
/// }
/// ```
pub trait KubeObject: Send + Sync + 'static {
    /// Returns the metadata.
    fn metadata(&self) -> &ObjectMeta;

    /// Returns the metadata to be changed before the object is shared: objects in a store are
    /// immutable.
    fn metadata_mut(&mut self) -> &mut ObjectMeta;

    /// The `Accept` header of requests.
    const ACCEPT: &'static str = "application/json";

    /// Returns the object's kind and apiVersion; `None` if the Rust type determines them and
    /// deserialization checks them.
    fn types_mut(&mut self) -> Option<&mut TypeMeta> {
        None
    }
}

impl<T: Metadata<Ty = ObjectMeta> + Send + Sync + 'static> KubeObject for T {
    fn metadata(&self) -> &ObjectMeta {
        Metadata::metadata(self)
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        Metadata::metadata_mut(self)
    }
}

/// The kind and apiVersion of an object, which the items of a list often lack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TypeMeta {
    /// Group and version: `apps/v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The kind: `Deployment`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
}

/// An object of a type that is unknown at compile time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DynamicObject {
    /// Kind and apiVersion.
    #[serde(flatten)]
    pub types: TypeMeta,
    /// The metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The other members: `spec`, `status`, `data`.
    #[serde(flatten)]
    pub data: Map<String, Value>,
}

/// The metadata of an object of any type, which many controllers need nothing more of: servers
/// return it for `as=PartialObjectMetadata`, and it takes a fraction of the memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PartialObjectMetadata {
    /// `meta.k8s.io/v1`, `PartialObjectMetadata`.
    #[serde(flatten)]
    pub types: TypeMeta,
    /// The metadata of the object.
    #[serde(default)]
    pub metadata: ObjectMeta,
}

impl KubeObject for DynamicObject {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn types_mut(&mut self) -> Option<&mut TypeMeta> {
        Some(&mut self.types)
    }
}

impl KubeObject for PartialObjectMetadata {
    // The second choice is for servers without PartialObjectMetadata: the complete object
    // deserializes too.
    const ACCEPT: &'static str =
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn types_mut(&mut self) -> Option<&mut TypeMeta> {
        Some(&mut self.types)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn name_of<T: KubeObject>(object: &T) -> Option<&str> {
        object.metadata().name.as_deref()
    }

    #[test]
    fn typed_and_untyped_objects_have_metadata() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []},
        });
        let typed: Pod = serde_json::from_value(pod.clone()).unwrap();
        let dynamic: DynamicObject = serde_json::from_value(pod.clone()).unwrap();
        let partial: PartialObjectMetadata = serde_json::from_value(pod.clone()).unwrap();
        assert_eq!(name_of(&typed), Some("p"));
        assert_eq!(name_of(&dynamic), Some("p"));
        assert_eq!(name_of(&partial), Some("p"));
        assert_eq!(dynamic.types.kind, "Pod");
        assert_eq!(dynamic.data["spec"], json!({"containers": []}));
        assert_eq!(serde_json::to_value(&dynamic).unwrap(), pod);
    }
}
