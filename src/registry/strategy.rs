//! The interface between the verbs, which are the same for all resources, and what differs from resource to
//! resource. Each [`Resource`] holds its [`Strategy`]; only the code that makes the table of resources chooses it.
//! The model is `rest.RESTCreateStrategy`, `RESTUpdateStrategy` and `RESTDeleteStrategy` of upstream.

use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::allocator::Allocator;
use super::conversion::VersionConverter;
use super::error::Causes;
use super::names::NameRule;
use super::scale::ScalePaths;
use super::table_columns::TableColumn;
use super::{ApiError, Posted, Registry, Resource, Target};
use crate::api::{
    DeleteOptions, ListOptions, Object, ResourceVersion, StatusCause, UserInfo, WriteOptions,
};
use crate::auth::TokenAuthenticator;
use crate::cacher::ObjectList;
use crate::schema::{KindType, Types};

/// The facts about how objects of a resource are written and deleted.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// Which names objects can have.
    pub(crate) name_rule: NameRule,
    /// Objects count the changes of their desired state.
    pub(crate) has_generation: bool,
    /// A PUT creates an object that does not exist.
    pub(crate) allows_create_on_update: bool,
    /// A PUT needs no resourceVersion.
    pub(crate) allows_unconditional_update: bool,
    /// Storage deletes objects after this time.
    pub(crate) ttl: Option<Duration>,
    /// A finished delete returns the last state of the object instead of a Status.
    pub(crate) returns_deleted_object: bool,
    /// A delete without a propagation policy orphans the dependents.
    pub(crate) orphans_by_default: bool,
    /// Objects can have dependents, which the garbage collector deletes or orphans.
    pub(crate) is_garbage_collected: bool,
    /// The members of metadata that a write to the status writes too.
    pub(crate) metadata_written_with_status: &'static [&'static str],
    /// Finalizers need no domain.
    pub(crate) allows_unqualified_finalizers: bool,
    /// Readiness waits for the cache, because every write or the table of resources depends on it.
    pub(crate) is_cache_required: bool,
    /// The objects are the namespaces.
    pub(crate) is_namespaces: bool,
}

impl Rules {
    /// The rules of most built-in resources.
    pub(crate) const DEFAULT: Self = Self {
        name_rule: NameRule::Subdomain,
        has_generation: false,
        allows_create_on_update: false,
        allows_unconditional_update: true,
        ttl: None,
        returns_deleted_object: false,
        orphans_by_default: false,
        is_garbage_collected: true,
        metadata_written_with_status: &["annotations", "labels"],
        allows_unqualified_finalizers: false,
        is_cache_required: false,
        is_namespaces: false,
    };
}

/// How long the deletion of an object takes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grace {
    /// The object is being deleted already, and this delete does not make that any sooner.
    Pending,
    /// So many seconds from the first delete.
    Seconds(i64),
}

/// How one resource differs from others. The methods that most resources do not need have a default that changes
/// and refuses nothing.
pub(crate) trait Strategy: Any + Debug + Send + Sync {
    /// The facts about the resource.
    fn rules(&self) -> &Rules {
        &Rules::DEFAULT
    }

    /// Returns false if the resource is defined at run time: its definition can change between two requests.
    fn is_builtin(&self) -> bool {
        true
    }

    /// Returns false if clients cannot request the resource, because objects are only stored in its version.
    fn is_served(&self) -> bool {
        true
    }

    /// Refuses new objects while the definition of the resource is being deleted.
    ///
    /// # Errors
    /// [`ApiError::MethodNotAllowed`].
    fn check_creatable(&self) -> Result<(), ApiError> {
        Ok(())
    }

    /// The warning to clients that use the resource in this version.
    fn deprecation_warning(&self) -> Option<&str> {
        None
    }

    /// The type of the objects, unless it is a built-in one.
    fn kind_type(&self) -> Option<&KindType> {
        None
    }

    /// The `openAPIV3Schema` of a resource that is defined at run time.
    fn open_api_schema(&self) -> Option<&Arc<Value>> {
        None
    }

    /// Returns a number that differs between the versions of one definition; 0 for a built-in.
    fn version_number(&self) -> u32 {
        0
    }

    /// Describes why the field selector `label` cannot be used.
    fn unknown_field_label(&self, resource: &Resource, label: &str) -> String {
        match resource.columns.fields().is_empty() {
            true => format!(
                "{label:?} is not a known field selector: \
                 only \"metadata.name\", \"metadata.namespace\""
            ),
            false => format!("field label not supported: {label}"),
        }
    }

    /// The columns of a Table of the objects.
    fn table_columns(&self) -> &[TableColumn] {
        &[]
    }

    /// The cells of `object` in the order of the columns, as they read at `now`.
    fn table_cells(&self, _object: &Value, _now: Timestamp) -> Vec<Value> {
        Vec::new()
    }

    /// Returns true if the server has a type of this name, or of a list of it. Decides which error a client gets that
    /// sends an object of another kind.
    fn is_known_kind(&self, _group: &str, _version: &str, _kind: &str) -> bool {
        false
    }

    /// The strategy of the kinds of subresources, such as Scale, if they need another one.
    fn body_strategy(&self) -> Option<Arc<dyn Strategy>> {
        None
    }

    /// Fills in the fields that a client may leave out.
    fn set_defaults(&self, _resource: &Resource, _object: &mut Value) {}

    /// Prunes and defaults an object by a schema.
    ///
    /// # Errors
    /// 413 if the defaults are too large.
    fn apply_schema(&self, _object: &mut Value) -> Result<(), ApiError> {
        Ok(())
    }

    /// Brings an object into the form in which it is stored. Idempotent.
    fn canonicalize(&self, _object: &mut Value) {}

    /// Returns a name for an object that a client gave neither a name nor a `generateName`.
    fn default_name(&self) -> Option<String> {
        None
    }

    /// Sets the fields of a new object that the server decides. The object has its name and uid.
    fn prepare_for_create(&self, _resource: &Resource, _user: &UserInfo, _object: &mut Value) {}

    /// Resets the fields of `object` that a write to `subresource` of `stored` may not change.
    fn prepare_for_update(
        &self,
        resource: &Resource,
        subresource: Option<&str>,
        stored: &Value,
        object: &mut Value,
    ) {
        reset_unwritable(resource, subresource, stored, object);
    }

    /// Adds the problems of a new object.
    fn validate(&self, _resource: &Resource, _object: &Value, _causes: &mut Causes) {}

    /// Adds the problems of `new` as the successor of `old`, written to the object or its subresource.
    fn validate_update(
        &self,
        _resource: &Resource,
        _subresource: Option<&str>,
        _old: &Value,
        _new: &Value,
        _causes: &mut Causes,
    ) {
    }

    /// Returns the problems of an object that are only looked for if there are no others, and that an update does
    /// not tolerate even if the stored object has them.
    fn strict_problems(&self, _object: &Value) -> Vec<StatusCause> {
        Vec::new()
    }

    /// Sets status fields that follow from the valid object.
    fn set_derived_status(
        &self,
        _registry: &Registry,
        _subresource: Option<&str>,
        _object: &mut Value,
    ) {
    }

    /// Returns true if a finalizer outside of the metadata holds back the deletion.
    fn has_finalizers(&self, _object: &Value) -> bool {
        false
    }

    /// Returns how long a delete with `options` takes.
    fn grace(&self, _stored: &Value, _options: &DeleteOptions) -> Grace {
        Grace::Seconds(0)
    }

    /// Returns the warning to a client that deletes without a propagation policy.
    fn default_propagation_warning(&self) -> Option<&'static str> {
        None
    }

    /// Changes an object that is about to be deleted or marked as being deleted.
    fn begin_deletion(&self, _object: &mut Value) {}

    /// Changes an object that was marked as being deleted.
    fn mark_terminating(&self, _object: &mut Value) {}

    /// Returns true if one stored object has two representations, and this resource has the one that is not stored.
    fn differs_from_storage(&self) -> bool {
        false
    }

    /// Returns the stored form of an object of this resource.
    fn to_storage(&self, _types: &Arc<Types>, object: Value) -> Value {
        object
    }

    /// Returns what clients of this resource see of an object in stored form.
    fn presented(&self, object: Value) -> Value {
        object
    }

    /// Returns an object of this kind in another of its versions.
    fn to_version<'o>(
        &self,
        _types: &Arc<Types>,
        object: &'o Value,
        _api_version: &str,
    ) -> Cow<'o, Value> {
        Cow::Borrowed(object)
    }

    /// Where objects have their scale.
    fn scale_paths(&self) -> ScalePaths {
        ScalePaths::default()
    }

    /// Begins to store an object. The write is under way until the token is dropped.
    ///
    /// # Errors
    /// [`ApiError::NotServed`]: the definition has changed, and the write has to be decided again.
    fn begin_write(&self) -> Result<Option<TaskTrackerToken>, ApiError> {
        Ok(None)
    }

    /// Waits until a write at version `at` has taken effect in this server. Called before the write returns, also
    /// for writes of the server itself.
    fn after_store<'a>(
        &'a self,
        _registry: &'a Registry,
        _at: ResourceVersion,
    ) -> Option<BoxFuture<'a, ()>> {
        None
    }

    /// Waits until the write of a client has taken effect in this server.
    fn after_request<'a>(&'a self, _written: &'a Object) -> Option<BoxFuture<'a, ()>> {
        None
    }

    /// Converts between the versions of the resource, if it has several.
    fn converter(&self) -> Option<&dyn VersionConverter> {
        None
    }

    /// Validates by a schema, beside [`Self::validate`].
    fn schema_validator(&self) -> Option<&dyn SchemaValidator> {
        None
    }

    /// Allocates values that only one object can have.
    fn allocator(&self) -> Option<&dyn Allocator> {
        None
    }

    /// Reads objects that are not stored.
    fn virtual_objects(&self) -> Option<&dyn VirtualObjects> {
        None
    }

    /// Handles the POST requests that do not create an object of the resource.
    fn post_handler(&self) -> Option<&dyn PostHandler> {
        None
    }
}

/// The strategy of a resource that differs from others in nothing.
#[derive(Debug)]
pub(crate) struct Plain;

impl Strategy for Plain {}

/// Validates objects by a schema, which may take long.
#[async_trait]
pub(crate) trait SchemaValidator: Send + Sync {
    /// Returns true if an update tolerates the problems of the stored object by rules of the schema.
    fn has_ratcheting(&self) -> bool;

    /// Adds the problems of `object`, which replaces `old`.
    ///
    /// # Errors
    /// The server is shutting down.
    async fn validate(
        &self,
        registry: &Registry,
        old: Option<&Value>,
        object: &Value,
        causes: &mut Causes,
    ) -> Result<(), ApiError>;
}

/// Reads of objects that are made for each request.
#[async_trait]
pub(crate) trait VirtualObjects: Send + Sync {
    /// Returns one object.
    ///
    /// # Errors
    /// 404.
    async fn get(&self, registry: &Registry, target: &Target) -> Result<Arc<Object>, ApiError>;

    /// Returns all objects that `options` select.
    ///
    /// # Errors
    /// 400 for options that are not supported.
    async fn list(
        &self,
        registry: &Registry,
        resource: &Arc<Resource>,
        options: &ListOptions,
    ) -> Result<ObjectList, ApiError>;
}

/// Handles POST requests to subresources, and to resources that are not stored.
#[async_trait]
pub(crate) trait PostHandler: Send + Sync {
    /// Handles a request whose body was checked against the URL.
    ///
    /// # Errors
    /// Those of the request.
    async fn post(
        &self,
        registry: &Registry,
        target: &Target,
        body: Value,
        options: &WriteOptions,
        tokens: &TokenAuthenticator,
    ) -> Result<Posted, ApiError>;
}

/// Resets what a write to `subresource` may not change, as for most resources: the status can only be written by
/// its subresource, which writes nothing else.
pub(crate) fn reset_unwritable(
    resource: &Resource,
    subresource: Option<&str>,
    stored: &Value,
    object: &mut Value,
) {
    match subresource {
        Some("status") => {
            let mut reset = stored.clone();
            put(
                &mut reset,
                "status",
                object.get_mut("status").map(Value::take),
            );
            for member in resource.strategy.rules().metadata_written_with_status {
                let value = object["metadata"].get_mut(*member).map(Value::take);
                put(&mut reset["metadata"], member, value);
            }
            *object = reset;
        }
        // Upstream lets it write the metadata too.
        Some("finalize") => put(object, "status", stored.get("status").cloned()),
        _ if has_status(resource) => put(object, "status", stored.get("status").cloned()),
        _ => {}
    }
}

pub(crate) fn has_status(resource: &Resource) -> bool {
    resource.subresource("status").is_some()
}

/// Sets or removes a member; of what is no object nothing can be removed.
pub(crate) fn put(object: &mut Value, member: &str, value: Option<Value>) {
    match (value, object.as_object_mut()) {
        (Some(value), Some(members)) if !value.is_null() => {
            members.insert(member.to_owned(), value);
        }
        (_, Some(members)) => {
            members.remove(member);
        }
        (_, None) => {}
    }
}

/// Returns true if nothing holds back the deletion of `object`, as it was just written.
pub(crate) fn is_finished(resource: &Resource, object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata["deletionTimestamp"].is_string()
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !resource.strategy.has_finalizers(object)
}

/// Returns true if the desired state differs: anything but metadata and status. The status of a custom resource
/// without that subresource is part of it.
pub(crate) fn desired_state_differs(resource: &Resource, a: &Value, b: &Value) -> bool {
    let status_counts = !resource.strategy.is_builtin() && !has_status(resource);
    let desired = |(member, _): &(&String, &Value)| match member.as_str() {
        "metadata" | "apiVersion" | "kind" => false,
        "status" => status_counts,
        _ => true,
    };
    match (a.as_object(), b.as_object()) {
        (Some(a), Some(b)) => !a.iter().filter(desired).eq(b.iter().filter(desired)),
        (a, b) => a.is_some() != b.is_some(),
    }
}
