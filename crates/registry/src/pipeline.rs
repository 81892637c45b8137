//! The write pipeline: the steps from a request body to the object that is stored, for creates, updates and patches, in
//! upstream's order. Each step has a module of its own; `guaranteed_update` writes the result to storage.

use std::borrow::Cow;

use serde_json::Value;

use super::admission_adapter::{AdmissionAttributes, write_options};
use super::allocator::{ObjectIdentity, WriteId};
use super::causes::Causes;
use super::error::ApiError;
use super::guaranteed_update::Change;
use super::registry::Registry;
use super::resource::Resource;
use super::stored_form::Current;
use super::target::Target;
use super::{conversion, metadata, preconditions, ratchet, scale};
use watchet_admission::request::Operation;
use watchet_api::{ResourceVersion, StatusCause, WriteOptions};
use watchet_schema::{KindType, managed, memory_of};

/// The pipeline of one write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pipeline<'a> {
    pub(crate) registry: &'a Registry,
    /// The name in it is empty until the server has generated the name of the object.
    pub(crate) target: &'a Target,
    pub(crate) options: &'a WriteOptions,
    /// Identifies the write for an allocator.
    pub(crate) id: WriteId,
}

/// The state of `managedFields` in the object of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ManagedFields {
    /// As the client has sent them.
    Stale,
    /// They include this write.
    Current,
}

impl<'a> Pipeline<'a> {
    pub(crate) fn new(
        registry: &'a Registry,
        target: &'a Target,
        options: &'a WriteOptions,
    ) -> Self {
        Self {
            registry,
            target,
            options,
            id: WriteId::new(),
        }
    }

    /// Runs the first half of a create, up to the mutating webhooks, and returns the object in stored form. The caller
    /// has checked the shape of `body`, which is in the version of the client.
    ///
    /// # Errors
    /// The errors of admission; 413 if the defaults are too large.
    pub(crate) async fn draft(&self, body: Value) -> Result<Value, ApiError> {
        let object = conversion::to_storage(self.registry.types(), &self.target.resource, body);
        self.begin(object, ManagedFields::Stale).await
    }

    /// Does the same as [`Self::draft`] for the result of an apply, which is in stored form.
    ///
    /// # Errors
    /// The errors of [`Self::draft`].
    pub(crate) async fn draft_applied(&self, object: Value) -> Result<Value, ApiError> {
        self.begin(object, ManagedFields::Current).await
    }

    async fn begin(&self, mut object: Value, fields: ManagedFields) -> Result<Value, ApiError> {
        let resource = &self.target.resource;
        metadata::wipe_system_fields(&mut object);
        metadata::dedupe_owners(&mut object, &self.options.warnings);
        self.set_defaults(&mut object)?;
        self.check_memory(&object, None)?;
        if fields == ManagedFields::Stale {
            resource.strategy.canonicalize(&mut object);
            self.manage(None, &mut object).await?;
        }
        let mut object = self.mutated(Operation::Create, object, None).await?;
        // Objects that webhooks added need defaults too.
        self.set_defaults(&mut object)?;
        Ok(object)
    }

    /// Runs the second half of a create, once the object has its name: the fields that the server sets, validation, and
    /// validating admission.
    ///
    /// # Errors
    /// 422; those of admission.
    pub(crate) async fn complete(&self, mut object: Value) -> Result<Value, ApiError> {
        let resource = &self.target.resource;
        metadata::fill_created(resource, &mut object);
        let strategy = &resource.strategy;
        strategy.prepare_for_create(resource, &self.options.user, &mut object);
        let mut causes = Causes::default();
        metadata::problems_of_new(resource, &object, &mut causes);
        strategy.validate(resource, &object, &mut causes);
        if let Some(schema) = strategy.schema_validator() {
            let tasks = self.registry.tasks();
            schema.validate(tasks, None, &object, &mut causes).await?;
        }
        self.reject_if_any(causes.into_vec())?;
        strategy.set_derived_status(self.registry, None, &mut object);
        self.reserve(None, &mut object).await?;
        if let Err(error) = self.admit(Operation::Create, &object, None).await {
            self.release_unstored(None, &object, &error).await;
            return Err(error);
        }
        Ok(object)
    }

    /// Sets the defaults of fields that the client left out, and prunes unknown fields by the schema.
    fn set_defaults(&self, object: &mut Value) -> Result<(), ApiError> {
        let resource = &self.target.resource;
        resource.strategy.set_defaults(resource, object);
        resource.strategy.apply_schema(object)
    }

    /// Reserves the values that only one object can have. A write to a subresource reserves nothing.
    async fn reserve(
        &self,
        old: Option<(&Value, ResourceVersion)>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        let allocator = self.target.resource.strategy.allocator();
        let Some(allocator) = allocator.filter(|_| self.target.subresource.is_none()) else {
            return Ok(());
        };
        let (storage, owner, dry_run) =
            (&*self.registry.storage, self.owner(), self.options.dry_run);
        allocator
            .reserve(storage, owner, self.id, old, object, dry_run)
            .await
    }

    /// Releases the values reserved for an object that the write has not stored in place of `current`, because of
    /// `error`.
    pub(crate) async fn release_unstored(
        &self,
        current: Option<&Current>,
        object: &Value,
        error: &ApiError,
    ) {
        let allocator = self.target.resource.strategy.allocator();
        if let Some(allocator) = allocator.filter(|_| !self.options.dry_run) {
            let (storage, owner) = (&*self.registry.storage, self.owner());
            let old = current.map(Current::versioned);
            allocator
                .release_unstored(storage, owner, Some(self.id), old, object, Some(error))
                .await;
        }
    }

    fn owner(&self) -> ObjectIdentity<'_> {
        ObjectIdentity {
            storage_prefix: &self.target.resource.storage_prefix,
            namespace: self.target.namespace.as_deref().unwrap_or_default(),
            name: &self.target.name,
        }
    }

    /// Returns `object` after mutating admission.
    async fn mutated(
        &self,
        operation: Operation,
        object: Value,
        old: Option<&Current>,
    ) -> Result<Value, ApiError> {
        let options = || self.options_object(operation);
        let attributes = self.attributes(operation, &options);
        self.registry.mutated(attributes, object, old).await
    }

    /// Runs validating admission.
    async fn admit(
        &self,
        operation: Operation,
        object: &Value,
        old: Option<&Current>,
    ) -> Result<(), ApiError> {
        let options = || self.options_object(operation);
        let attributes = self.attributes(operation, &options);
        self.registry.admit(attributes, object, old).await
    }

    fn attributes<'b>(
        &'b self,
        operation: Operation,
        options: &'b (dyn Fn() -> Value + Sync),
    ) -> AdmissionAttributes<'b> {
        AdmissionAttributes {
            operation,
            target: self.target,
            user: &self.options.user,
            dry_run: self.options.dry_run,
            warnings: &self.options.warnings,
            audit_annotations: &self.options.audit_annotations,
            options,
        }
    }

    /// Returns the options of the write as an API object.
    fn options_object(&self, operation: Operation) -> Value {
        let kind = match operation {
            Operation::Create => "CreateOptions",
            _ => "UpdateOptions",
        };
        write_options(kind, self.options)
    }

    /// Returns the change of `current` to `body`, which is in the version of the client. The caller has checked it
    /// against the URL.
    ///
    /// # Errors
    /// 409 if the body has another version or uid; 422; those of admission.
    pub(crate) async fn replace_with_body(
        &self,
        current: &Current,
        body: Value,
    ) -> Result<Change, ApiError> {
        let resource = &self.target.resource;
        let name = &self.target.name;
        preconditions::check_uid(resource, name, Some(current), &body)?;
        preconditions::check_version(resource, name, current, &body)?;
        let object = match scale::is_of(self.target) {
            true => scale::applied(self.target, &current.value, &body)?,
            false => conversion::to_storage(self.registry.types(), resource, body),
        };
        self.replace(current, object, ManagedFields::Stale).await
    }

    /// Returns the change of `current` to the result of an apply, which is in stored form.
    ///
    /// # Errors
    /// 422; those of admission.
    pub(crate) async fn replace_with_applied(
        &self,
        current: &Current,
        applied: Value,
    ) -> Result<Change, ApiError> {
        self.replace(current, applied, ManagedFields::Current).await
    }

    async fn replace(
        &self,
        current: &Current,
        mut object: Value,
        fields: ManagedFields,
    ) -> Result<Change, ApiError> {
        let resource = &self.target.resource;
        self.set_defaults(&mut object)?;
        self.check_memory(&object, Some(&current.value))?;
        if fields == ManagedFields::Stale {
            resource.strategy.canonicalize(&mut object);
            self.manage(Some(&current.value), &mut object).await?;
        }
        let mut object = self
            .mutated(Operation::Update, object, Some(current))
            .await?;
        self.set_defaults(&mut object)?;
        let subresource = self.target.subresource.as_deref();
        let entries = object["metadata"]["managedFields"].take();
        let strategy = &resource.strategy;
        strategy.prepare_for_update(resource, subresource, &current.value, &mut object);
        metadata::reset_immutable(&current.value, &mut object);
        metadata::put_managed_fields(entries, &mut object);
        metadata::dedupe_owners(&mut object, &self.options.warnings);
        resource.strategy.canonicalize(&mut object);
        let mut stored = self.with_defaults(&current.value);
        let mut causes = self.problems_of_update(&stored, &object).await?;
        if !causes.is_empty()
            && let Some(canonical) = self.canonical(&stored)
        {
            stored = Cow::Owned(canonical);
            causes = self.problems_of_update(&stored, &object).await?;
        }
        self.reject_if_any(causes)?;
        let stored = &*stored;
        self.reserve(Some((stored, current.at)), &mut object)
            .await?;
        if desired_state_differs(resource, stored, &object) {
            metadata::bump_generation(&mut object);
        }
        // This follows the generation, which the status may refer to.
        strategy.set_derived_status(self.registry, subresource, &mut object);
        managed::restore_unchanged_times(&current.value, &mut object);
        if let Err(error) = self.admit(Operation::Update, &object, Some(current)).await {
            self.release_unstored(Some(current), &object, &error).await;
            return Err(error);
        }
        // The write that removes the last finalizer also deletes the object.
        if is_finished(resource, &object) && object != current.value {
            return Ok(Change::Finish(object));
        }
        Ok(Change::Put(object))
    }

    /// Returns a stored object with the current defaults and in the current stored form, so that differences from these
    /// do not count as changes by the client.
    fn with_defaults<'v>(&self, stored: &'v Value) -> Cow<'v, Value> {
        let resource = &self.target.resource;
        let mut object = Cow::Borrowed(stored);
        if !resource.strategy.keeps_form() {
            resource.strategy.set_defaults(resource, object.to_mut());
            resource.strategy.canonicalize(object.to_mut());
        }
        object
    }

    /// Returns a stored built-in object with its quantities in canonical form, if that differs: a patch reads and writes
    /// them in that form, which is not a change by the client.
    fn canonical(&self, stored: &Value) -> Option<Value> {
        if !self.target.resource.strategy.is_builtin() {
            return None;
        }
        // The version of the request may have other members.
        let text = |name: &str| stored[name].as_str().unwrap_or_default();
        let kind = KindType::builtin(self.registry.types(), text("apiVersion"), text("kind"))?;
        let canonical = kind.conform(stored).value;
        (canonical != *stored).then_some(canonical)
    }

    /// Returns the problems of `object` that `stored` does not have already.
    async fn problems_of_update(
        &self,
        stored: &Value,
        object: &Value,
    ) -> Result<Vec<StatusCause>, ApiError> {
        let schema = self.target.resource.strategy.schema_validator();
        let ratcheted = schema.filter(|schema| !schema.has_ratcheting());
        // Transition rules compare with the old object, so such a schema implements ratcheting itself.
        let ratcheting = schema.filter(|schema| schema.has_ratcheting());
        let tasks = self.registry.tasks();
        let mut causes = self.problems_of_change(stored, object);
        if let Some(schema) = ratcheted {
            schema
                .validate(tasks, Some(stored), object, &mut causes)
                .await?;
        }
        if !causes.is_empty() {
            let mut before = self.problems_of_change(stored, stored);
            if let Some(schema) = ratcheted {
                schema
                    .validate(tasks, Some(stored), stored, &mut before)
                    .await?;
            }
            causes = ratchet::without_old(causes, stored, object, before).into();
        }
        if let Some(schema) = ratcheting {
            schema
                .validate(tasks, Some(stored), object, &mut causes)
                .await?;
        }
        Ok(causes.into_vec())
    }

    /// Returns the problems of a change from `old` to `new`, except those by a schema.
    fn problems_of_change(&self, old: &Value, new: &Value) -> Causes {
        let resource = &self.target.resource;
        let subresource = self.target.subresource.as_deref();
        let mut causes = Causes::default();
        metadata::problems_of_update(resource, old, new, &mut causes);
        let strategy = &resource.strategy;
        strategy.validate_update(resource, subresource, old, new, &mut causes);
        causes
    }

    /// Returns an error if there are `causes`.
    fn reject_if_any(&self, causes: Vec<StatusCause>) -> Result<(), ApiError> {
        if causes.is_empty() {
            return Ok(());
        }
        let Target { resource, name, .. } = self.target;
        Err(ApiError::invalid(resource, name, causes))
    }

    /// Checks the memory that `object` takes with its defaults. An object that takes more already, as `current`, may not
    /// grow.
    ///
    /// # Errors
    /// 413
    fn check_memory(&self, object: &Value, current: Option<&Value>) -> Result<(), ApiError> {
        let limit = self.target.resource.strategy.object_bytes_max();
        let memory = memory_of(object);
        if memory <= limit || current.is_some_and(|current| memory <= memory_of(current)) {
            return Ok(());
        }
        Err(ApiError::TooLarge(format!(
            "the object is too large: with its defaults it takes {memory} bytes of memory, and at most {limit} are \
             allowed: use fewer or larger values, or several objects"
        )))
    }
}

/// Returns true if nothing prevents the deletion of `object`, as this write is about to store it.
fn is_finished(resource: &Resource, object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata["deletionTimestamp"].is_string()
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !resource.strategy.has_finalizers(object)
}

/// Returns true if the desired state differs: anything except metadata and status. The status of a custom resource
/// without that subresource is part of it.
fn desired_state_differs(resource: &Resource, a: &Value, b: &Value) -> bool {
    let is_status_desired = !resource.strategy.is_builtin() && !resource.has_status();
    let is_desired = |(member, _): &(&String, &Value)| match member.as_str() {
        "metadata" | "apiVersion" | "kind" => false,
        "status" => is_status_desired,
        _ => true,
    };
    match (a.as_object(), b.as_object()) {
        (Some(a), Some(b)) => !a.iter().filter(is_desired).eq(b.iter().filter(is_desired)),
        (a, b) => a.is_some() != b.is_some(),
    }
}
