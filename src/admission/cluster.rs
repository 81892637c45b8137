//! What admission has to know of the cluster beyond the write itself; told by whoever has it.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::attributes::{Attributes, GroupVersionKind, GroupVersionResource};
use super::authorizer::Authorizer;
use crate::api::LabelSelector;

/// The same resource in another version or group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equivalent {
    /// Its name there.
    pub resource: GroupVersionResource,
    /// Its kind there.
    pub kind: GroupVersionKind,
}

/// Which objects are the parameters of a policy.
#[derive(Debug, Clone, PartialEq)]
pub enum ParamQuery {
    /// The one of this name.
    Name(String),
    /// Those that this selects.
    Selector(LabelSelector),
}

/// Why the parameters of a policy cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// No such kind is served.
    #[error("failed to find resource referenced by paramKind: '{0}'")]
    NoSuchKind(String),
    /// The kind lives in namespaces, and there is none to look into.
    #[error(
        "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
    )]
    NoNamespace,
    /// The kind lives in no namespace, and the binding names one.
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    NeedlessNamespace,
    /// They cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

/// The cluster.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// The namespace of this name.
    ///
    /// # Errors
    /// It cannot be read.
    async fn namespace(&self, name: &str) -> Result<Option<Value>, String>;

    /// Who decides what users may do, for expressions that ask.
    fn authorizer(&self) -> Arc<dyn Authorizer>;

    /// What else `resource` is served as, for rules that name that.
    fn equivalents(&self, resource: &GroupVersionResource) -> Vec<Equivalent>;

    /// `object` in the form of `kind`, which is an equivalent's.
    ///
    /// # Errors
    /// It cannot be converted.
    async fn convert(&self, object: Value, kind: &GroupVersionKind) -> Result<Value, String>;

    /// `object` after `patch`, with the defaults that it has got a place for by that.
    ///
    /// # Errors
    /// The patch cannot be applied, or leaves no object of `kind`.
    async fn patched(
        &self,
        write: &Attributes<'_>,
        kind: &GroupVersionKind,
        object: Value,
        patch: json_patch::Patch,
    ) -> Result<Value, String>;

    /// The parameters of a policy: objects of `kind` that `query` means, in `given`, the namespace that the binding
    /// names, else, if they live in one, in that of the write.
    ///
    /// # Errors
    /// See [`ParamError`].
    async fn params(
        &self,
        kind: &GroupVersionKind,
        given: &str,
        of_write: &str,
        query: &ParamQuery,
    ) -> Result<Vec<Value>, ParamError>;
}
