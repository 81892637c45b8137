//! What each resource is and how it is written. (skeleton: signatures that other rooms build on)

pub mod printers;

use std::sync::Arc;

use serde_json::Value;

use crate::api::{
    ColumnSet, DeleteOptions, FieldRef, GetOptions, ListOptions, Object, StatusCause, WriteOptions,
};
use crate::cacher::{CacheWatcher, CacherConfig, ObjectList, ReadError};
use crate::storage::{Storage, StorageError};
use crate::tasks::Tasks;

/// One served resource, e.g. apps/v1 deployments.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    /// `v1`
    pub version: String,
    /// `Deployment`
    pub kind: String,
    /// `deployments`
    pub plural: String,
    /// `deployment`
    pub singular: String,
    /// `deploy`
    pub short_names: Vec<String>,
    /// `all`
    pub categories: Vec<String>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Served subresources: `status`, …
    pub subresources: Vec<String>,
    /// Verbs in discovery: create delete deletecollection get list patch update watch, as served.
    pub verbs: Vec<String>,
    /// Below the storage root: `deployments`, `minions`, `services/specs`.
    pub storage_prefix: String,
    /// Selectable fields.
    pub columns: Arc<ColumnSet>,
    /// See `CachedResource::triggers`.
    pub triggers: Vec<FieldRef>,
}

/// The object that a request is about.
#[derive(Debug, Clone)]
pub struct Target {
    /// Of which resource.
    pub resource: Arc<Resource>,
    /// From the URL.
    pub namespace: Option<String>,
    /// From the URL.
    pub name: String,
    /// `status`; `None` is the object itself.
    pub subresource: Option<String>,
}

/// A patch as it came.
#[derive(Debug, Clone)]
pub enum Patch {
    /// RFC 6902
    Json(json_patch::Patch),
    /// RFC 7396
    Merge(Value),
    /// Kubernetes' own, for built-ins
    Strategic(Value),
}

/// What a delete left.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// It is gone: answer a Success status with its uid.
    Gone(Arc<Object>),
    /// It is gone, and the resource answers with its last state.
    Last(Arc<Object>),
    /// It goes on until its finalizers or its grace period are done.
    Pending(Arc<Object>),
}

/// Why a request was not done. Matched once to a Status, in `http`.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// 404
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// Plural, with group: `deployments.apps`.
        resource: String,
        /// Which.
        name: String,
    },
    /// 409 AlreadyExists
    #[error("{resource} {name:?} already exists")]
    AlreadyExists {
        /// Plural, with group.
        resource: String,
        /// Which.
        name: String,
        /// The one that exists is terminating.
        being_deleted: bool,
    },
    /// 409 AlreadyExists after all tries of generateName
    #[error("no free name for generateName {base:?}")]
    NamesExhausted {
        /// Plural, with group.
        resource: String,
        /// The last name tried.
        base: String,
    },
    /// 409 Conflict
    #[error("Operation cannot be fulfilled on {resource} {name:?}: {detail}")]
    Conflict {
        /// Plural, with group.
        resource: String,
        /// Which.
        name: String,
        /// Why.
        detail: String,
    },
    /// 422 Invalid
    #[error("{kind} {name:?} is invalid: {causes:?}")]
    Invalid {
        /// The kind's group.
        group: String,
        /// The kind.
        kind: String,
        /// Which.
        name: String,
        /// One entry a problem.
        causes: Vec<StatusCause>,
    },
    /// 403
    #[error("{resource} {name:?} is forbidden: {detail}")]
    Forbidden {
        /// Plural, with group.
        resource: String,
        /// Which.
        name: String,
        /// Why.
        detail: String,
        /// With cause reason, field and message, e.g. `NamespaceTerminating`.
        causes: Vec<StatusCause>,
    },
    /// 400
    #[error("{0}")]
    BadRequest(String),
    /// 422 without causes: a patch that cannot be applied
    #[error("{0}")]
    Unprocessable(String),
    /// 413
    #[error("{0}")]
    TooLarge(String),
    /// 415
    #[error("{0}")]
    UnsupportedPatch(String),
    /// 405
    #[error("{0}")]
    MethodNotAllowed(String),
    /// A read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// The resources and the verbs on them. Cheap to share.
#[derive(Debug)]
pub struct Registry {}

impl Registry {
    /// The built-in resources over `storage`; caches start on first use, in tasks of `tasks`.
    pub fn new(_storage: Arc<dyn Storage>, _tasks: &Tasks, _config: CacherConfig) -> Arc<Self> {
        unimplemented!()
    }

    /// Makes what must exist before the first request: the four system namespaces.
    pub async fn bootstrap(&self) -> Result<(), ApiError> {
        unimplemented!()
    }

    /// The resource of this group (empty for core), version and plural name.
    pub fn resource(&self, _group: &str, _version: &str, _plural: &str) -> Option<Arc<Resource>> {
        unimplemented!()
    }

    /// Every served resource, groups in discovery order, preferred version of a group first.
    pub fn resources(&self) -> Vec<Arc<Resource>> {
        unimplemented!()
    }

    /// Each started cache, by name, and why it is not ready if it is not; for readiness checks.
    pub fn cache_readiness(&self) -> Vec<(String, Result<(), String>)> {
        unimplemented!()
    }

    /// One object.
    pub async fn get(
        &self,
        _target: &Target,
        _options: GetOptions,
    ) -> Result<Arc<Object>, ApiError> {
        unimplemented!()
    }

    /// A list, of one namespace or of all.
    pub async fn list(
        &self,
        _resource: &Arc<Resource>,
        _namespace: Option<&str>,
        _options: &ListOptions,
    ) -> Result<ObjectList, ApiError> {
        unimplemented!()
    }

    /// A watch, of one namespace or of all.
    pub async fn watch(
        &self,
        _resource: &Arc<Resource>,
        _namespace: Option<&str>,
        _options: &ListOptions,
    ) -> Result<CacheWatcher, ApiError> {
        unimplemented!()
    }

    /// A new object.
    pub async fn create(
        &self,
        _resource: &Arc<Resource>,
        _namespace: Option<&str>,
        _body: Value,
        _options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiError> {
        unimplemented!()
    }

    /// Replaces an object (PUT); also says whether it was created by that.
    pub async fn update(
        &self,
        _target: &Target,
        _body: Value,
        _options: &WriteOptions,
    ) -> Result<(Arc<Object>, bool), ApiError> {
        unimplemented!()
    }

    /// Patches an object.
    pub async fn patch(
        &self,
        _target: &Target,
        _patch: &Patch,
        _options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiError> {
        unimplemented!()
    }

    /// Deletes an object, or starts to.
    pub async fn delete(
        &self,
        _target: &Target,
        _options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        unimplemented!()
    }

    /// Deletes what a list selects, one by one; returns the objects.
    pub async fn delete_collection(
        &self,
        _resource: &Arc<Resource>,
        _namespace: Option<&str>,
        _selection: &ListOptions,
        _options: &DeleteOptions,
    ) -> Result<ObjectList, ApiError> {
        unimplemented!()
    }
}
