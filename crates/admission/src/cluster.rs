//! The cluster as admission reads and writes it; the server implements the trait.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::error::AdmissionError;
pub use super::error::Unavailable;
use super::request::{AdmissionRequest, GroupVersionKind, GroupVersionResource};
use watchet_api::LabelSelector;
use watchet_auth::Authorizer;

/// The same resource in another version or group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equivalent {
    /// The resource.
    pub resource: GroupVersionResource,
    /// The kind.
    pub kind: GroupVersionKind,
}

/// Which objects are the parameters of a policy.
#[derive(Debug, Clone, PartialEq)]
pub enum ParamQuery {
    /// The object with this name.
    Name(String),
    /// The objects that match the selector.
    Selector(LabelSelector),
}

/// The parameters of a policy cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// No such kind is served.
    #[error("failed to find resource referenced by paramKind: '{0}'")]
    NoSuchKind(String),
    /// The kind is namespaced, and neither the binding nor the write has a namespace.
    #[error(
        "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
    )]
    NoNamespace,
    /// The kind is cluster-scoped, and the binding names a namespace.
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    NeedlessNamespace,
    /// The parameters cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

/// A resource in whichever version, as upstream's GroupResource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupResource<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// The plural name.
    pub resource: &'a str,
}

impl<'a> GroupResource<'a> {
    /// Creates the identifier of a resource.
    pub const fn new(group: &'a str, resource: &'a str) -> Self {
        Self { group, resource }
    }
}

/// The resource of a kind, as upstream's RESTMapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The resource.
    pub resource: GroupVersionResource,
    /// True if the objects are namespaced.
    pub is_namespaced: bool,
}

/// The state of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceState {
    /// There is no such namespace.
    Absent,
    /// New objects can be created in it.
    Active,
    /// It is being deleted; no new objects can be created in it.
    Terminating,
}

/// The required freshness of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The state of the watch cache, like upstream's listers. A list also has every object that this server has created,
    /// so that a LimitRange applies to the next pod of the client that created it. For that, upstream reads LimitRanges and
    /// quotas from storage if its lister has none in the namespace.
    Cached,
    /// A state at least as recent as storage at the beginning of the call.
    Latest,
}

/// The cluster cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// The cluster cannot be read or written now; the client can retry.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The reason.
    #[error("{0}")]
    Failed(String),
}

impl ClusterError {
    /// Returns the error of a plugin that cannot read what it needs: the one that `failed` makes of the reason,
    /// unless the client can try again.
    pub fn or_failed(self, failed: impl FnOnce(String) -> AdmissionError) -> AdmissionError {
        match self {
            Self::Unavailable(unavailable) => AdmissionError::Unavailable(unavailable),
            Self::Failed(why) => failed(why),
        }
    }
}

impl From<ClusterError> for AdmissionError {
    fn from(error: ClusterError) -> Self {
        error.or_failed(Self::Internal)
    }
}

/// A change that a mutating policy makes.
#[derive(Debug, Clone, PartialEq)]
pub enum Mutation {
    /// Merges an apply configuration, as server-side apply does.
    Apply(Value),
    /// Applies a JSON patch, or nothing of it if one of its tests fails.
    Patch(json_patch::Patch),
}

/// The error of a mutation that was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MutationError {
    /// The failure policy decides.
    #[error("{0}")]
    Failed(String),
    /// 500: the result cannot be read.
    #[error("{0}")]
    Internal(String),
    /// 503: the type of this kind is not known.
    #[error("the type of {0} is not known")]
    NoType(String),
}

/// The cluster.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// Returns the namespace `name`.
    ///
    /// # Errors
    /// It cannot be read.
    async fn namespace(&self, name: &str) -> Result<Option<Value>, ClusterError>;

    /// Returns the state of a namespace; the latest state if this server has just deleted it.
    ///
    /// # Errors
    /// It cannot be read.
    async fn namespace_state(&self, name: &str) -> Result<NamespaceState, ClusterError>;

    /// Returns an object in the resource's preferred version. `namespace` is empty for cluster-scoped
    /// resources.
    ///
    /// # Errors
    /// It cannot be read, or the resource is not served.
    async fn object(
        &self,
        resource: GroupResource<'_>,
        namespace: &str,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<Value>, ClusterError>;

    /// Returns an object as the watch cache has it, or as storage has it if the cache does not know it yet.
    ///
    /// # Errors
    /// The errors of [`object`](Self::object).
    async fn object_or_latest(
        &self,
        resource: GroupResource<'_>,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ClusterError> {
        let cached = self.object(resource, namespace, name, Freshness::Cached);
        if let Some(found) = cached.await? {
            return Ok(Some(found));
        }
        let latest = self.object(resource, namespace, name, Freshness::Latest);
        latest.await
    }

    /// Returns the objects of a namespace, or those of all namespaces if `namespace` is empty, in the
    /// resource's preferred version.
    ///
    /// # Errors
    /// They cannot be read, or the resource is not served.
    async fn objects(
        &self,
        resource: GroupResource<'_>,
        namespace: &str,
        freshness: Freshness,
    ) -> Result<Vec<Value>, ClusterError>;

    /// Returns the resource of a kind, if it is served.
    fn mapping(&self, kind: &GroupVersionKind) -> Option<Mapping>;

    /// Replaces the status of an object, which is in the resource's preferred version. Returns false if the
    /// object has changed since it was read, or does not exist any more.
    ///
    /// # Errors
    /// It cannot be written.
    async fn replace_status(
        &self,
        resource: GroupResource<'_>,
        object: &Value,
    ) -> Result<bool, ClusterError>;

    /// Returns the authorizer of requests, for plugins and expressions.
    fn authorizer(&self) -> Arc<dyn Authorizer>;

    /// Returns the other groups and versions that `resource` is served in.
    fn equivalents(&self, resource: &GroupVersionResource) -> Vec<Equivalent>;

    /// Converts `object` to `kind`, the kind of an equivalent resource.
    ///
    /// # Errors
    /// It cannot be converted.
    async fn convert(&self, object: Value, kind: &GroupVersionKind) -> Result<Value, String>;

    /// Applies `patch` to `object`, and defaults the result.
    ///
    /// # Errors
    /// The patch cannot be applied, or its result is no object of `kind`.
    async fn patched(
        &self,
        write: &AdmissionRequest<'_>,
        kind: &GroupVersionKind,
        object: Value,
        patch: json_patch::Patch,
    ) -> Result<Value, String>;

    /// Returns `object` after a mutation, with its defaults.
    ///
    /// # Errors
    /// See [`MutationError`].
    async fn mutated(
        &self,
        write: &AdmissionRequest<'_>,
        kind: &GroupVersionKind,
        object: &Value,
        mutation: Mutation,
    ) -> Result<Value, MutationError>;

    /// Returns the parameters of a policy: the objects of `kind` that match `query`. If the kind is namespaced, they are
    /// in the namespace that the binding names (`binding_namespace`), else in that of the write.
    ///
    /// # Errors
    /// See [`ParamError`].
    async fn params(
        &self,
        kind: &GroupVersionKind,
        binding_namespace: &str,
        write_namespace: &str,
        query: &ParamQuery,
    ) -> Result<Vec<Value>, ParamError>;
}
