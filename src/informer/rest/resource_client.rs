//! `ResourceClient`: the verbs on the objects of one resource. Watching, which goes on, is the business
//! of the informer's source.

use std::marker::PhantomData;

use bytes::Bytes;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ListMeta};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{ApiResource, Call, Path, RestClient, RestError};
use crate::informer::KubeObject;

/// The objects of one resource, in one namespace or in all, as values of `T`.
///
/// ```
/// use k8s_openapi::api::core::v1::Namespace;
/// use serde_json::json;
/// use watchet::informer::{ApiResource, DynamicObject, Kubeconfig, ListParams, Patch};
/// use watchet::informer::{RestClient, RestConfig};
/// use watchet::testing::Server;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = Server::start().await?;
/// # let kubeconfig: Kubeconfig = server.kubeconfig().parse()?;
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

/// Which objects a list has, and of which state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListParams {
    /// `app=web,tier notin (x)`
    pub labels: Option<String>,
    /// `spec.nodeName=n1`
    pub fields: Option<String>,
    /// At most so many objects; `None`: all of them.
    pub limit: Option<u32>,
    /// Where the list before ended.
    pub continue_token: Option<String>,
    /// `None`: the latest state; `"0"`: any; else one at least as new, unless `exact`.
    pub resource_version: Option<String>,
    /// The state at exactly this version.
    pub exact: bool,
}

/// A list of objects.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
pub struct ObjectList<T> {
    /// The list's type: `v1`.
    #[serde(default, rename = "apiVersion")]
    pub api_version: String,
    /// The list's type: `PodList`.
    #[serde(default)]
    pub kind: String,
    /// Its version, and where it goes on.
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects.
    #[serde(default, deserialize_with = "null_is_none")]
    pub items: Vec<T>,
}

/// Go writes a list without anything in it as null.
pub(super) fn null_is_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// What is to be changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// RFC 6902: a list of operations.
    Json(Value),
    /// RFC 7386: members to set, and null for those to remove.
    Merge(Value),
    /// Kubernetes' own: lists are merged by their keys. Not for custom resources.
    Strategic(Value),
    /// Server-side apply: what `manager` wants of the object.
    Apply {
        /// The whole intent, with `apiVersion` and `kind`.
        object: Value,
        /// Who wants it.
        manager: String,
        /// Fields are taken from other managers.
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

impl<T> ResourceClient<T> {
    pub(super) fn new(client: RestClient, resource: ApiResource) -> Self {
        Self {
            client,
            resource,
            namespace: None,
            holds: PhantomData,
        }
    }

    /// The same in one namespace. Objects that are in none are not affected.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The client that it asks by.
    pub fn client(&self) -> &RestClient {
        &self.client
    }

    /// Whose objects these are.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// The one namespace that is looked at, if it is one.
    pub fn only_namespace(&self) -> Option<&str> {
        self.namespace
            .as_deref()
            .filter(|_| self.resource.namespaced)
    }

    /// Where the collection is.
    pub(in crate::informer) fn path(&self) -> Path {
        self.resource.path(self.namespace.as_deref())
    }

    fn one(&self, name: &str) -> Result<Path, RestError> {
        if matches!(name, "" | "." | "..") || name.contains('/') {
            return Err(RestError::Request(format!(
                "{} {name:?}: this is no name",
                self.resource
            )));
        }
        if self.resource.namespaced && self.namespace.is_none() {
            return Err(RestError::Request(format!(
                "{} {name:?}: one object is in one namespace, and none is named",
                self.resource
            )));
        }
        Ok(self.path().segment(name))
    }
}

impl<T: KubeObject + DeserializeOwned> ResourceClient<T> {
    /// The object called `name`, as it is now.
    ///
    /// # Errors
    /// [`RestError`]; there is none: [`RestError::is_not_found`].
    pub async fn get(&self, name: &str) -> Result<T, RestError> {
        self.answered(Call::get(&self.one(name)?)).await
    }

    /// The objects that `params` tell.
    ///
    /// # Errors
    /// [`RestError`]; the version or the page is gone: [`RestError::is_expired`].
    pub async fn list(&self, params: &ListParams) -> Result<ObjectList<T>, RestError> {
        let path = params.write(self.path());
        let call = Call {
            accept: T::ACCEPT,
            ..Call::get(&path)
        };
        let mut list: ObjectList<T> = self.client.fetch_json(call).await?;
        // The items of a list need not say their type: it is the list's.
        let kind = list.kind.strip_suffix("List").unwrap_or_default();
        for types in list.items.iter_mut().filter_map(KubeObject::types_mut) {
            if types.kind.is_empty() && !kind.is_empty() {
                kind.clone_into(&mut types.kind);
                types.api_version.clone_from(&list.api_version);
            }
        }
        Ok(list)
    }

    /// Deletes the object called `name`. One that has finalizers, or a grace period, goes later.
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

    /// Changes the object called `name`.
    ///
    /// # Errors
    /// [`RestError`]
    pub async fn patch(&self, name: &str, patch: &Patch) -> Result<T, RestError> {
        self.patch_at(self.one(name)?, patch).await
    }

    /// Changes the status of the object called `name`.
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
    /// Makes `object`; returns it as it was made.
    ///
    /// # Errors
    /// [`RestError`]; there is one: [`RestError::is_already_exists`].
    pub async fn create(&self, object: &T) -> Result<T, RestError> {
        if self.resource.namespaced && self.namespace.is_none() {
            let namespace = object.metadata().namespace.clone();
            let namespace = namespace.unwrap_or_else(|| self.client.default_namespace().to_owned());
            // Boxed: a future cannot hold itself.
            return Box::pin(self.clone().namespace(namespace).create(object)).await;
        }
        self.write(Method::POST, self.path(), object).await
    }

    /// Replaces the object of that name; returns it as it is then. With a resourceVersion in its
    /// metadata only if it still has that.
    ///
    /// # Errors
    /// [`RestError`]; it has changed: [`RestError::is_conflict`].
    pub async fn update(&self, object: &T) -> Result<T, RestError> {
        self.write(Method::PUT, self.own(object)?, object).await
    }

    /// As [`Self::update`], of the status only.
    ///
    /// # Errors
    /// [`RestError`]
    pub async fn update_status(&self, object: &T) -> Result<T, RestError> {
        let path = self.own(object)?.segment("status");
        self.write(Method::PUT, path, object).await
    }

    /// Where `object` is.
    fn own(&self, object: &T) -> Result<Path, RestError> {
        let metadata = object.metadata();
        let name = metadata.name.as_deref().unwrap_or_default();
        match (&self.namespace, &metadata.namespace) {
            (None, Some(namespace)) => self.clone().namespace(namespace).one(name),
            _ => self.one(name),
        }
    }

    async fn write(&self, method: Method, path: Path, object: &T) -> Result<T, RestError> {
        // Types of one's own may not say what they are, and the server wants to know.
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
    /// Adds them to a path.
    pub(in crate::informer) fn write(&self, path: Path) -> Path {
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
