//! The write pipeline: the steps from a request body to the object that is stored, for creates, updates and patches, in
//! upstream's order. Each step has a module of its own; `guaranteed_update` writes the result to storage.

use serde_json::Value;

use super::admission_adapter;
use super::admission_adapter::Question;
use super::allocator::WriteId;
use super::error::Causes;
use super::guaranteed_update::{Change, Current};
use super::scale;
use super::strategy::{desired_state_differs, is_finished};
use super::{ApiError, Registry, Target, conversion, metadata, ratchet, update};
use crate::admission::request::Operation;
use crate::api::{ResourceVersion, StatusCause, WriteOptions};
use crate::schema::managed;

/// One write on its way: of what, in which place, with which options and by whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writing<'a> {
    pub(crate) registry: &'a Registry,
    /// Its name is empty while the object's is still to be generated.
    pub(crate) target: &'a Target,
    pub(crate) options: &'a WriteOptions,
    /// Identifies it in the reservations of an allocator.
    pub(crate) id: WriteId,
}

/// Whether an object says yet who manages its fields once it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fields {
    ToManage,
    Managed,
}

impl<'a> Writing<'a> {
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

    /// The first half of a create: what the client and those who may change it want stored, in stored
    /// form. `body` was checked for its shape; it is in the form that the client sees.
    pub(crate) async fn draft(&self, body: Value) -> Result<Value, ApiError> {
        let object = conversion::to_storage(self.registry.types(), &self.target.resource, body);
        self.begin(object, Fields::ToManage).await
    }

    /// The same of an object in stored form that an apply made.
    pub(crate) async fn draft_applied(&self, object: Value) -> Result<Value, ApiError> {
        self.begin(object, Fields::Managed).await
    }

    async fn begin(&self, mut object: Value, fields: Fields) -> Result<Value, ApiError> {
        let resource = &self.target.resource;
        metadata::wipe_system_fields(&mut object);
        metadata::dedupe_owners(&mut object, &self.options.warnings);
        self.set_defaults(&mut object)?;
        if fields == Fields::ToManage {
            resource.strategy.canonicalize(&mut object);
            self.manage(None, &mut object).await?;
        }
        let mut object = self.mutated(Operation::Create, object, None).await?;
        // What webhooks add has defaults of its own.
        self.set_defaults(&mut object)?;
        Ok(object)
    }

    /// The second half, once the object has its name: what the server makes of it, and whether it may
    /// be stored so.
    pub(crate) async fn complete(&self, mut object: Value) -> Result<Value, ApiError> {
        let resource = &self.target.resource;
        metadata::fill_created(resource, &mut object);
        let strategy = &resource.strategy;
        strategy.prepare_for_create(resource, &self.options.user, &mut object);
        let mut causes = Causes::default();
        metadata::problems_of_new(resource, &object, &mut causes);
        strategy.validate(resource, &object, &mut causes);
        if let Some(schema) = strategy.schema_validator() {
            schema
                .validate(self.registry, None, &object, &mut causes)
                .await?;
        }
        self.refuse_for(causes.into_vec())?;
        self.refuse_for(strategy.strict_problems(&object))?;
        strategy.set_derived_status(self.registry, None, &mut object);
        self.reserve(None, &mut object).await?;
        if let Err(refusal) = self.admit(Operation::Create, &object, None).await {
            self.withdraw(None, &object, &refusal).await;
            return Err(refusal);
        }
        Ok(object)
    }

    /// Fills in what the client left out, and prunes by the schema.
    fn set_defaults(&self, object: &mut Value) -> Result<(), ApiError> {
        let resource = &self.target.resource;
        resource.strategy.set_defaults(resource, object);
        resource.strategy.apply_schema(object)
    }

    /// Reserves what only one object can have.
    async fn reserve(
        &self,
        old: Option<(&Value, ResourceVersion)>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        let Some(allocator) = self.target.resource.strategy.allocator() else {
            return Ok(());
        };
        let dry_run = self.options.dry_run;
        allocator
            .reserve(self.registry, self.target, self.id, old, object, dry_run)
            .await
    }

    /// Releases what was reserved for an object that was to follow `current` and is not stored.
    pub(crate) async fn withdraw(&self, current: Option<&Current>, object: &Value, why: &ApiError) {
        let allocator = self.target.resource.strategy.allocator();
        if let Some(allocator) = allocator.filter(|_| !self.options.dry_run) {
            let (identity, id) = (self.target.into(), Some(self.id));
            allocator
                .withdraw(self.registry, identity, id, current, object, Some(why))
                .await;
        }
    }

    /// What the webhooks make of `object`.
    async fn mutated(
        &self,
        operation: Operation,
        object: Value,
        old: Option<&Current>,
    ) -> Result<Value, ApiError> {
        let options = || self.told_options(operation);
        let question = self.question(operation, &options);
        self.registry.mutated(question, object, old).await
    }

    /// Lets those judge who may refuse.
    async fn admit(
        &self,
        operation: Operation,
        object: &Value,
        old: Option<&Current>,
    ) -> Result<(), ApiError> {
        let options = || self.told_options(operation);
        let question = self.question(operation, &options);
        self.registry.admit(question, object, old).await
    }

    fn question<'b>(
        &'b self,
        operation: Operation,
        options: &'b (dyn Fn() -> Value + Sync),
    ) -> Question<'b> {
        Question {
            operation,
            target: self.target,
            user: &self.options.user,
            dry_run: self.options.dry_run,
            warnings: &self.options.warnings,
            audit_annotations: &self.options.audit_annotations,
            options,
        }
    }

    fn told_options(&self, operation: Operation) -> Value {
        let kind = match operation {
            Operation::Create => "CreateOptions",
            _ => "UpdateOptions",
        };
        admission_adapter::write_options(kind, self.options)
    }

    /// The successor of `current` that a client asks for with `body`, which was checked against the
    /// URL and is in the form that the client sees.
    ///
    /// # Errors
    /// 409 when the body is about another version or another object of that name; 422.
    pub(crate) async fn succeed(&self, current: &Current, body: Value) -> Result<Change, ApiError> {
        let resource = &self.target.resource;
        let name = &self.target.name;
        update::check_uid(resource, name, Some(current), &body)?;
        update::check_version(resource, name, current, &body)?;
        let object = match scale::is_of(self.target) {
            true => scale::applied(self.target, &current.value, &body)?,
            false => conversion::to_storage(self.registry.types(), resource, body),
        };
        self.replace(current, object, Fields::ToManage).await
    }

    /// The same of an object in stored form, of which it is known who manages its fields.
    ///
    /// # Errors
    /// 422
    pub(crate) async fn follow(
        &self,
        current: &Current,
        applied: Value,
    ) -> Result<Change, ApiError> {
        self.replace(current, applied, Fields::Managed).await
    }

    async fn replace(
        &self,
        current: &Current,
        mut object: Value,
        fields: Fields,
    ) -> Result<Change, ApiError> {
        let resource = &self.target.resource;
        self.set_defaults(&mut object)?;
        if fields == Fields::ToManage {
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
        metadata::keep_from_stored(&current.value, &mut object);
        metadata::put_managed_fields(entries, &mut object);
        metadata::dedupe_owners(&mut object, &self.options.warnings);
        resource.strategy.canonicalize(&mut object);
        let mut stored = self.as_of_today(&current.value);
        let mut causes = self.problems_of_update(&stored, &object).await?;
        if !causes.is_empty()
            && let Some(canonical) = self.canonical(&stored)
        {
            stored = canonical;
            causes = self.problems_of_update(&stored, &object).await?;
        }
        self.refuse_for(causes)?;
        let stored = &stored;
        self.refuse_for(strategy.strict_problems(&object))?;
        self.reserve(Some((stored, current.at)), &mut object)
            .await?;
        if desired_state_differs(resource, stored, &object) {
            metadata::bump_generation(&mut object);
        }
        // Of this generation.
        strategy.set_derived_status(self.registry, subresource, &mut object);
        managed::restore_unchanged_times(&current.value, &mut object);
        if let Err(refusal) = self.admit(Operation::Update, &object, Some(current)).await {
            self.withdraw(Some(current), &object, &refusal).await;
            return Err(refusal);
        }
        // An object that nothing holds any longer goes with the write that let go of it.
        if is_finished(resource, &object) && object != current.value {
            return Ok(Change::Finish(object));
        }
        Ok(Change::Put(object))
    }

    /// A stored object as it would be, had it been written by this version: with what is filled in
    /// today, so that nobody is told to have changed that.
    fn as_of_today(&self, stored: &Value) -> Value {
        let mut object = stored.clone();
        let resource = &self.target.resource;
        resource.strategy.set_defaults(resource, &mut object);
        resource.strategy.canonicalize(&mut object);
        object
    }

    /// A stored built-in in the one form in which its quantities are read today, if it was stored in
    /// another: who patches it has not changed them.
    fn canonical(&self, stored: &Value) -> Option<Value> {
        let resource = &self.target.resource;
        let kind = self.registry.kind_type(resource);
        let kind = kind.filter(|_| resource.strategy.is_builtin())?;
        let canonical = kind.conform(stored).value;
        (canonical != *stored).then_some(canonical)
    }

    /// What is wrong with `object` that was not wrong with `stored` already.
    async fn problems_of_update(
        &self,
        stored: &Value,
        object: &Value,
    ) -> Result<Vec<StatusCause>, ApiError> {
        let schema = self.target.resource.strategy.schema_validator();
        let ratcheted = schema.filter(|schema| !schema.has_ratcheting());
        // Rules of a schema may be about the change, so it decides itself what an update tolerates.
        let ratcheting = schema.filter(|schema| schema.has_ratcheting());
        let registry = self.registry;
        let mut causes = self.problems_of_succession(stored, object);
        if let Some(schema) = ratcheted {
            schema
                .validate(registry, Some(stored), object, &mut causes)
                .await?;
        }
        if !causes.is_empty() {
            let mut before = self.problems_of_succession(stored, stored);
            if let Some(schema) = ratcheted {
                schema
                    .validate(registry, Some(stored), stored, &mut before)
                    .await?;
            }
            causes = ratchet::without_old(causes, stored, object, before).into();
        }
        if let Some(schema) = ratcheting {
            schema
                .validate(registry, Some(stored), object, &mut causes)
                .await?;
        }
        Ok(causes.into_vec())
    }

    /// What is wrong with `new` as the successor of `old`, but for what definitions say.
    fn problems_of_succession(&self, old: &Value, new: &Value) -> Causes {
        let resource = &self.target.resource;
        let subresource = self.target.subresource.as_deref();
        let mut causes = Causes::default();
        metadata::problems_of_update(resource, old, new, &mut causes);
        let strategy = &resource.strategy;
        strategy.validate_update(resource, subresource, old, new, &mut causes);
        causes
    }

    /// Refuses the object for what is wrong with it, if anything is.
    fn refuse_for(&self, causes: Vec<StatusCause>) -> Result<(), ApiError> {
        if causes.is_empty() {
            return Ok(());
        }
        let Target { resource, name, .. } = self.target;
        Err(ApiError::invalid(resource, name, causes))
    }
}
