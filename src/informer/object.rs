//! What an informer can hold: any type with Kubernetes metadata. Typed ones come from `k8s-openapi` or
//! from the user, two untyped ones are here. How they are kept and fetched is not its business.

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A type with Kubernetes metadata. Every top-level type of `k8s-openapi` is one; a type of one's own
/// becomes one like this:
///
/// ```
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
/// use serde::{Deserialize, Serialize};
/// use watchet::informer::KubeObject;
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
    /// Its metadata.
    fn metadata(&self) -> &ObjectMeta;

    /// Its metadata, to be changed before it is shared: what a store hands out is immutable.
    fn metadata_mut(&mut self) -> &mut ObjectMeta;

    /// How it is asked for, as the header `Accept` has it.
    const ACCEPT: &'static str = "application/json";

    /// Where it says of which type it is; `None` when its own type in Rust says that, and refuses to
    /// be read from an object of another one.
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

/// Which type an object says that it is of. The items of a list often do not say so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TypeMeta {
    /// Group and version, as in `apps/v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// As in `Deployment`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
}

/// An object of a type that is not known when the program is built.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DynamicObject {
    /// Its type.
    #[serde(flatten)]
    pub types: TypeMeta,
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its other members: `spec`, `status`, `data`.
    #[serde(flatten)]
    pub data: Map<String, Value>,
}

/// The metadata of an object of any type, which is all that many controllers need: servers send it
/// when they are asked for `as=PartialObjectMetadata`, which takes a fraction of the memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PartialObjectMetadata {
    /// `meta.k8s.io/v1`, `PartialObjectMetadata`.
    #[serde(flatten)]
    pub types: TypeMeta,
    /// The object's metadata.
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
    // Servers that cannot cut it out send all of it, which can be read as well.
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
