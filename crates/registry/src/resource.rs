//! A served resource: its names, the facts about it, and its [`Strategy`], which implements how it differs from other
//! resources. Only the code that makes the table of resources chooses the strategy. The model is
//! `rest.RESTCreateStrategy`, `RESTUpdateStrategy` and `RESTDeleteStrategy` of upstream.

use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::allocator::Allocator;
use super::causes::Causes;
use super::error::ApiError;
use super::fields::put;
use super::printed_fields::PrintedFields;
use super::rules::{Grace, Rules};
use super::scale_paths::ScalePaths;
use super::schema_validator::SchemaValidator;
use super::subresource::Subresource;
use super::table_columns::TableColumn;
use super::version_converter::VersionConverter;
use watchet_admission::ConfigurationKind;
use watchet_admission::types::Kinds;
use watchet_api::{ColumnSet, DeleteOptions, FieldRef, ListOptions, Object, UserInfo};
use watchet_cacher::ObjectList;
use watchet_schema::openapi::SchemaText;
use watchet_schema::{KindType, OBJECT_BYTES_MAX, Types};
use watchet_storage::Storage;

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
    /// Its objects are in namespaces.
    pub namespaced: bool,
    /// Served subresources.
    pub subresources: Vec<Subresource>,
    /// Verbs in discovery: create delete deletecollection get list patch update watch, as served.
    pub verbs: Vec<String>,
    /// Below the storage root: `deployments`, `minions`, `services/specs`.
    pub storage_prefix: String,
    /// Selectable fields.
    pub columns: Arc<ColumnSet>,
    /// See `CachedResource::triggers`.
    pub triggers: Vec<FieldRef>,
    /// How it differs from other resources.
    pub strategy: Arc<dyn Strategy>,
}

impl Resource {
    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<Subresource> {
        self.subresources.iter().copied().find(|s| s.name == name)
    }

    /// Returns the verbs in discovery. While the definition of the resource is being deleted these do not include
    /// those that write.
    pub fn offered(&self) -> Vec<&str> {
        let is_terminating = self.strategy.check_creatable().is_err();
        let writes = |verb: &str| matches!(verb, "create" | "patch" | "update");
        let verbs = self.verbs.iter().map(String::as_str);
        verbs
            .filter(|verb| self.strategy.is_advertised(verb))
            .filter(|verb| !is_terminating || !writes(verb))
            .collect()
    }

    /// The plural name with its group, as errors name it: `pods`, `deployments.apps`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns true if its objects are stored. Reviews are not.
    pub fn is_stored(&self) -> bool {
        !self.storage_prefix.is_empty()
    }

    /// Returns false if a CustomResourceDefinition defines it.
    pub fn is_builtin(&self) -> bool {
        self.strategy.is_builtin()
    }

    /// The warning to clients that use the resource in this version.
    pub fn deprecation_warning(&self) -> Option<&str> {
        self.strategy.deprecation_warning()
    }

    /// The `openAPIV3Schema` of a resource that is defined at run time.
    pub fn open_api_schema(&self) -> Option<&SchemaText> {
        self.strategy.open_api_schema()
    }

    /// Returns a number that differs between the versions of one definition; 0 for a built-in.
    pub fn version_number(&self) -> u32 {
        self.strategy.version_number()
    }

    /// The columns of a Table of its objects.
    pub fn table_columns(&self) -> &[TableColumn] {
        self.strategy.table_columns()
    }

    /// The cells of `object` in the order of the columns, as they read at `now`. Fields that are missing or of another
    /// type read as upstream's missing fields.
    pub fn table_cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        self.strategy.table_cells(object, now)
    }

    /// Returns true if the resource has this group (empty for core) and plural name.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// Returns the resource that the bodies of requests are of: this one, or the kind of its subresource.
    pub fn of_bodies(self: &Arc<Self>, subresource: Option<&str>) -> Arc<Self> {
        let part = subresource.and_then(|name| self.subresource(name));
        let Some((part, body)) = part.and_then(|part| Some((part, part.body?))) else {
            return self.clone();
        };
        let strategy = self.strategy.body_strategy();
        Arc::new(Self {
            group: body.group.to_owned(),
            version: body.version.to_owned(),
            kind: body.kind.to_owned(),
            plural: part.name.to_owned(),
            strategy: strategy.unwrap_or_else(|| self.strategy.clone()),
            ..Self::clone(self)
        })
    }

    /// Returns true if the resource has the subresource `status`.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Resets the fields that a write to `subresource` of `stored` may not change, as for most resources: only the
    /// subresource `status` writes the status, and it writes nothing else.
    pub fn reset_unwritable(&self, subresource: Option<&str>, stored: &Value, object: &mut Value) {
        match subresource {
            Some("status") => {
                let mut reset = stored.clone();
                let status = object.get_mut("status").map(Value::take);
                put(&mut reset, "status", status);
                for member in self.strategy.rules().metadata_written_with_status {
                    let value = object["metadata"].get_mut(*member).map(Value::take);
                    put(&mut reset["metadata"], member, value);
                }
                *object = reset;
            }
            // Upstream lets it write the metadata too.
            Some("finalize") => put(object, "status", stored.get("status").cloned()),
            _ if self.has_status() => put(object, "status", stored.get("status").cloned()),
            _ => {}
        }
    }
}

/// How one resource differs from others. The methods that most resources do not need have a default that changes
/// and refuses nothing.
pub trait Strategy: Any + Debug + Send + Sync {
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

    /// Returns false if discovery does not show that the resource has the verb.
    fn is_advertised(&self, _verb: &str) -> bool {
        true
    }

    /// Returns the storage of the objects if that is not the server's.
    fn own_storage(&self) -> Option<Arc<dyn Storage>> {
        None
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
    fn open_api_schema(&self) -> Option<&SchemaText> {
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

    /// Returns the fields of an object that [`table_cells`](Self::table_cells) reads.
    fn printed_fields(&self) -> PrintedFields {
        PrintedFields::all()
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

    /// Returns true if neither [`Self::set_defaults`] nor [`Self::canonicalize`] changes any object, so that a large stored
    /// object need not be copied.
    fn keeps_form(&self) -> bool {
        false
    }

    /// The estimated memory in bytes that an object may take with its defaults, as `memory_of` of `watchet-schema` counts.
    fn object_bytes_max(&self) -> usize {
        OBJECT_BYTES_MAX
    }

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
        resource.reset_unwritable(subresource, stored, object);
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

    /// Sets status fields that follow from the valid object. `kinds` has the types of the served kinds.
    fn set_derived_status(
        &self,
        _kinds: &dyn Kinds,
        _subresource: Option<&str>,
        _object: &mut Value,
    ) {
    }

    /// Returns true if the object has finalizers outside of its metadata.
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

    /// Changes an object before it is deleted or marked as being deleted.
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

    /// Returns an object in stored form as clients of this resource see it.
    fn convert_from_storage(&self, object: Value) -> Value {
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

    /// Returns true if objects in protobuf lack defaults: kube-apiserver sets these when it reads an object, or protobuf
    /// does not have the members.
    fn is_stored_without_defaults(&self) -> bool {
        false
    }

    /// Returns a stored value in JSON in the version that this server stores, if it is an object of another one.
    fn upgrade_stored(&self, _stored: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Returns the paths of the fields that the subresource `scale` shows.
    fn scale_paths(&self) -> ScalePaths {
        ScalePaths::default()
    }

    /// Begins to store an object. The write is in progress until the token is dropped.
    ///
    /// # Errors
    /// [`ApiError::NotServed`]: the definition has changed, and the write has to be decided again.
    fn begin_write(&self) -> Result<Option<TaskTrackerToken>, ApiError> {
        Ok(None)
    }

    /// Returns the kind of admission configurations that the objects are. A write returns once the configuration is in
    /// force in this server.
    fn admission_configuration(&self) -> Option<ConfigurationKind> {
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
}

/// The strategy that changes and refuses nothing.
#[derive(Debug)]
pub struct Plain;

impl Strategy for Plain {}

/// Reads objects that the server computes for each request and does not store.
#[async_trait]
pub trait VirtualObjects: Send + Sync {
    /// Returns one object.
    ///
    /// # Errors
    /// 404.
    async fn get(
        &self,
        storage: &dyn Storage,
        resource: &Arc<Resource>,
        name: &str,
    ) -> Result<Arc<Object>, ApiError>;

    /// Returns all objects that `options` select.
    ///
    /// # Errors
    /// 400 for options that are not supported.
    async fn list(
        &self,
        storage: &dyn Storage,
        resource: &Arc<Resource>,
        options: &ListOptions,
    ) -> Result<ObjectList, ApiError>;
}
