//! `ResourceClient`: the verbs on the objects of one resource, except watch; see
//! [`HttpListerWatcher`](crate::HttpListerWatcher).

use std::marker::PhantomData;

use bytes::Bytes;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ListMeta};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{ApiResource, Call, Path, RestClient, RestError};
use crate::KubeObject;

/// The objects of one resource, in one namespace or in all, as values of `T`.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::Namespace;
/// use serde_json::json;
/// use watchet_client::{ApiResource, DynamicObject, Kubeconfig, ListParams, Patch};
/// use watchet_client::{RestClient, RestConfig};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let kubeconfig = Kubeconfig::load(&["kubeconfig"])?;
/// let client = RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None)?)?;
/// let maps = client
///     .resource::<DynamicObject>(ApiResource::namespaced("", "v1", "configmaps", "ConfigMap"))
///     .namespace("default");
/// let map = serde_json::from_value(json!({"metadata": {"name": "a", "labels": {"x": "1"}}}))?;
/// maps.create(&map).await?;
/// let patched = maps.patch("a", &Patch::Merge(json!({"data": {"k": "v"}}))).await?;
/// assert_eq!(patched.data["data"], json!({"k": "v"}));
/// let labelled = ListParams { labels: Some("x=1".into()), ..ListParams::default() };
/// let list = maps.list(&labelled).await?;
/// assert_eq!(list.items[0].types.kind, "ConfigMap");
/// maps.delete("a", &Default::default()).await?;
/// assert!(maps.list(&labelled).await?.items.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ResourceClient<T> {
    client: RestClient,
    resource: ApiResource,
    namespace: Option<String>,
    holds: PhantomData<fn() -> T>,
}

impl<T> Clone for ResourceClient<T> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            holds: PhantomData,
        }
    }
}

/// The parameters of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListParams {
    /// `app=web,tier notin (x)`
    pub labels: Option<String>,
    /// `spec.nodeName=n1`
    pub fields: Option<String>,
    /// The maximum number of objects; `None` for all.
    pub limit: Option<u32>,
    /// The continue token of the previous page.
    pub continue_token: Option<String>,
    /// `None` for the latest state, `"0"` for any, else a minimum unless `exact`.
    pub resource_version: Option<String>,
    /// Whether to list the state at exactly this version.
    pub exact: bool,
}

/// A list of objects.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
pub struct ObjectList<T> {
    /// The apiVersion of the list: `v1`.
    #[serde(default, rename = "apiVersion")]
    pub api_version: String,
    /// The kind of the list: `PodList`.
    #[serde(default)]
    pub kind: String,
    /// The resource version and the continue token.
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects.
    #[serde(default, deserialize_with = "null_is_none")]
    pub items: Vec<T>,
}

/// Deserializes null as an empty list, as Go encodes one.
pub(super) fn null_is_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A patch.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Patch {
    /// RFC 6902: a list of operations.
    Json(Value),
    /// RFC 7386: members to set, and null for those to remove.
    Merge(Value),
    /// Kubernetes' own: lists are merged by their keys. Not for custom resources.
    Strategic(Value),
    /// Server-side apply of the fields that `manager` owns.
    Apply {
        /// The applied configuration, with `apiVersion` and `kind`.
        object: Value,
        /// The field manager.
        manager: String,
        /// Whether to take over fields from other managers.
        force: bool,
    },
}

impl Patch {
    fn content_type(&self) -> &'static str {
        match self {
            Self::Json(_) => "application/json-patch+json",
            Self::Merge(_) => "application/merge-patch+json",
            Self::Strategic(_) => "application/strategic-merge-patch+json",
            Self::Apply { .. } => "application/apply-patch+yaml",
        }
    }

    fn body(&self) -> &Value {
        match self {
            Self::Json(body) | Self::Merge(body) | Self::Strategic(body) => body,
            Self::Apply { object, .. } => object,
        }
    }
}

impl RestClient {
    /// Returns a client for the objects of a resource, in all namespaces, as values of `T`.
    pub fn resource<T>(&self, resource: ApiResource) -> ResourceClient<T> {
        ResourceClient::new(self.clone(), resource)
    }
}

impl<T> ResourceClient<T> {
    pub(super) fn new(client: RestClient, resource: ApiResource) -> Self {
        Self {
            client,
            resource,
            namespace: None,
            holds: PhantomData,
        }
    }

    /// Returns a client restricted to one namespace; no effect on cluster-scoped resources.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Returns the client for requests.
    pub fn client(&self) -> &RestClient {
        &self.client
    }

    /// Returns the resource.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// Returns the namespace, if restricted to one.
    pub fn only_namespace(&self) -> Option<&str> {
        self.namespace
            .as_deref()
            .filter(|_| self.resource.namespaced)
    }

    /// Returns the path of the collection.
    pub(crate) fn path(&self) -> Path {
        self.resource.path(self.namespace.as_deref())
    }

    fn one(&self, name: &str) -> Result<Path, RestError> {
        if matches!(name, "" | "." | "..") || name.contains('/') {
            return Err(RestError::Request(format!(
                "{} {name:?}: not a valid name",
                self.resource
            )));
        }
        if self.resource.namespaced && self.namespace.is_none() {
            return Err(RestError::Request(format!(
                "{} {name:?}: the resource is namespaced, and no namespace is given",
                self.resource
            )));
        }
        Ok(self.path().segment(name))
    }
}

impl<T: KubeObject + DeserializeOwned> ResourceClient<T> {
    /// Reads the object `name`.
    ///
    /// # Errors
    /// [`RestError`]; if it does not exist: [`RestError::is_not_found`].
    pub async fn get(&self, name: &str) -> Result<T, RestError> {
        self.answered(Call::get(&self.one(name)?)).await
    }

    /// Lists objects.
    ///
    /// # Errors
    /// [`RestError`]; if the version or the continue token has expired: [`RestError::is_expired`].
    pub async fn list(&self, params: &ListParams) -> Result<ObjectList<T>, RestError> {
        let path = params.write(self.path());
        let call = Call {
            accept: T::ACCEPT,
            ..Call::get(&path)
        };
        let mut list: ObjectList<T> = self.client.fetch_json(call).await?;
        // The items of a list may lack a type: it is derived from the list's.
        let kind = list.kind.strip_suffix("List").unwrap_or_default();
        for types in list.items.iter_mut().filter_map(KubeObject::types_mut) {
            if types.kind.is_empty() && !kind.is_empty() {
                kind.clone_into(&mut types.kind);
                types.api_version.clone_from(&list.api_version);
            }
        }
        Ok(list)
    }

    /// Deletes the object `name`. With finalizers or a grace period it is deleted later.
    ///
    /// # Errors
    /// [`RestError`]
    pub async fn delete(&self, name: &str, options: &DeleteOptions) -> Result<(), RestError> {
        let path = self.one(name)?;
        let call = Call {
            method: Method::DELETE,
            body: self.written(options)?,
            ..Call::get(&path)
        };
        self.client.fetch(call).await.map(drop)
    }

    /// Patches the object `name`.
    ///
    /// # Errors
    /// [`RestError`]
    pub async fn patch(&self, name: &str, patch: &Patch) -> Result<T, RestError> {
        self.patch_at(self.one(name)?, patch).await
    }

    /// Patches the status of the object `name`.
    ///
    /// # Errors
    /// [`RestError`]
    pub async fn patch_status(&self, name: &str, patch: &Patch) -> Result<T, RestError> {
        self.patch_at(self.one(name)?.segment("status"), patch)
            .await
    }

    async fn patch_at(&self, path: Path, patch: &Patch) -> Result<T, RestError> {
        let path = match patch {
            Patch::Apply { manager, force, .. } => {
                path.query("fieldManager", manager).query("force", force)
            }
            _ => path,
        };
        let call = Call {
            method: Method::PATCH,
            content_type: patch.content_type(),
            body: self.written(patch.body())?,
            ..Call::get(&path)
        };
        self.answered(call).await
    }

    async fn answered(&self, call: Call<'_>) -> Result<T, RestError> {
        let accept = T::ACCEPT;
        self.client.fetch_json(Call { accept, ..call }).await
    }

    fn written(&self, body: &impl Serialize) -> Result<Bytes, RestError> {
        let written = serde_json::to_vec(body).map(Bytes::from);
        written.map_err(|error| RestError::Request(format!("{}: {error}", self.resource)))
    }
}

impl<T: KubeObject + DeserializeOwned + Serialize> ResourceClient<T> {
    /// Creates `object`; returns it as stored.
    ///
    /// # Errors
    /// [`RestError`]; if it exists: [`RestError::is_already_exists`].
    pub async fn create(&self, object: &T) -> Result<T, RestError> {
        if self.resource.namespaced && self.namespace.is_none() {
            let namespace = object.metadata().namespace.clone();
            let namespace = namespace.unwrap_or_else(|| self.client.default_namespace().to_owned());
            // Boxed: a recursive future.
            return Box::pin(self.clone().namespace(namespace).create(object)).await;
        }
        self.write(Method::POST, self.path(), object).await
    }

    /// Replaces the object; returns it as stored. A resourceVersion in its metadata is a
    /// precondition.
    ///
    /// # Errors
    /// [`RestError`]; if it has changed: [`RestError::is_conflict`].
    pub async fn update(&self, object: &T) -> Result<T, RestError> {
        self.write(Method::PUT, self.path_of(object)?, object).await
    }

    /// Replaces only the status, like [`Self::update`].
    ///
    /// # Errors
    /// [`RestError`]
    pub async fn update_status(&self, object: &T) -> Result<T, RestError> {
        let path = self.path_of(object)?.segment("status");
        self.write(Method::PUT, path, object).await
    }

    /// Returns the path of `object`.
    fn path_of(&self, object: &T) -> Result<Path, RestError> {
        let metadata = object.metadata();
        let name = metadata.name.as_deref().unwrap_or_default();
        match (&self.namespace, &metadata.namespace) {
            (None, Some(namespace)) => self.clone().namespace(namespace).one(name),
            _ => self.one(name),
        }
    }

    async fn write(&self, method: Method, path: Path, object: &T) -> Result<T, RestError> {
        // User-defined types may lack kind and apiVersion, which the server requires.
        let unwritable = |error| RestError::Request(format!("{}: {error}", self.resource));
        let mut body = serde_json::to_value(object).map_err(unwritable)?;
        if let Value::Object(members) = &mut body {
            let mut say = |member: &str, text: String| {
                let known = members.entry(member).or_insert(Value::Null);
                if known.as_str().is_none_or(str::is_empty) && !text.is_empty() {
                    *known = Value::String(text);
                }
            };
            say("apiVersion", self.resource.api_version());
            say("kind", self.resource.kind.clone());
        }
        let call = Call {
            method,
            body: self.written(&body)?,
            ..Call::get(&path)
        };
        self.answered(call).await
    }
}

impl ListParams {
    /// Appends the parameters to a path.
    pub(crate) fn write(&self, path: Path) -> Path {
        let path = path
            .query_some("labelSelector", self.labels.as_deref())
            .query_some("fieldSelector", self.fields.as_deref())
            .query_some("continue", self.continue_token.as_deref());
        let path = match self.limit {
            Some(limit) => path.query("limit", limit),
            None => path,
        };
        let path = path.query_some("resourceVersion", self.resource_version.as_deref());
        match self.exact {
            true => path.query("resourceVersionMatch", "Exact"),
            false => path,
        }
    }
}
