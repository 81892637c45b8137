//! The write pipeline (§1.5): what becomes of a body on its way to storage, in one place for creates,
//! updates and patches. The order is upstream's. What a step does is told by its module; how the
//! result gets into storage is the business of `write`.

use serde_json::Value;

use super::admission_adapter;
use super::admission_adapter::Question;
use super::error::Causes;
use super::guaranteed_update::{Change, Current};
use super::scale;
use super::{ApiError, Registry, Target, conversion, metadata, ratchet, strategy, update};
use crate::admission::request::Operation;
use crate::api::{StatusCause, WriteOptions};
use crate::builtin::subresources::{certificates, pods};
use crate::schema::managed;
use crate::services;
use crate::services::Writer;
use crate::{apiextensions, builtin};

/// One write on its way: of what, in which place, with which options and by whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writing<'a> {
    pub(crate) registry: &'a Registry,
    /// Its name is empty while the object's is still to be generated.
    pub(crate) target: &'a Target,
    pub(crate) options: &'a WriteOptions,
    /// By whom it claims what is one object's only.
    pub(crate) writer: Writer,
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
            writer: Writer::new(),
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
        builtin::default(resource, &mut object);
        apiextensions::fill(resource, &mut object)?;
        if fields == Fields::ToManage {
            strategy::prepare(resource, &mut object);
            self.manage(None, &mut object).await?;
        }
        let mut object = self.mutated(Operation::Create, object, None).await?;
        // What webhooks add has defaults of its own.
        builtin::default(resource, &mut object);
        apiextensions::fill(resource, &mut object)?;
        Ok(object)
    }

    /// The second half, once the object has its name: what the server makes of it, and whether it may
    /// be stored so.
    pub(crate) async fn complete(&self, mut object: Value) -> Result<Value, ApiError> {
        let resource = &self.target.resource;
        metadata::fill_created(resource, &mut object);
        strategy::prepare_create(resource, &mut object);
        certificates::sign(resource, &self.options.user, &mut object);
        let mut causes = Causes::default();
        metadata::problems_of_new(resource, &object, &mut causes);
        builtin::problems_of_new(resource, &object, &mut causes);
        apiextensions::problems(self.registry, resource, None, &object, &mut causes).await?;
        self.refuse_for(causes.into_vec())?;
        self.registry.check_configuration(resource, &object)?;
        self.registry.check_types(resource, None, &mut object);
        let dry_run = self.options.dry_run;
        let Self {
            registry,
            target,
            writer,
            ..
        } = *self;
        services::allocate(registry, target, writer, None, &mut object, dry_run).await?;
        if let Err(refusal) = self.admit(Operation::Create, &object, None).await {
            self.withdraw(None, &object, &refusal).await;
            return Err(refusal);
        }
        Ok(object)
    }

    /// Gives up what was claimed for an object that was to follow `current` and is not stored.
    pub(crate) async fn withdraw(&self, current: Option<&Current>, object: &Value, why: &ApiError) {
        if !self.options.dry_run {
            let (owner, writer) = (self.target.into(), Some(self.writer));
            services::withdraw(self.registry, owner, writer, current, object, Some(why)).await;
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
        builtin::default(resource, &mut object);
        apiextensions::fill(resource, &mut object)?;
        if fields == Fields::ToManage {
            strategy::prepare(resource, &mut object);
            self.manage(Some(&current.value), &mut object).await?;
        }
        let mut object = self
            .mutated(Operation::Update, object, Some(current))
            .await?;
        builtin::default(resource, &mut object);
        apiextensions::fill(resource, &mut object)?;
        let subresource = self.target.subresource.as_deref();
        let entries = object["metadata"]["managedFields"].take();
        strategy::keep_from_stored(resource, subresource, &current.value, &mut object);
        metadata::keep_from_stored(&current.value, &mut object);
        metadata::put_managed_fields(entries, &mut object);
        metadata::dedupe_owners(&mut object, &self.options.warnings);
        strategy::prepare(resource, &mut object);
        builtin::prepare_update(resource, &current.value, &mut object);
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
        let Self {
            registry,
            target,
            writer,
            ..
        } = *self;
        registry.check_configuration(resource, &object)?;
        let (old, dry_run) = (Some((stored, current.at)), self.options.dry_run);
        services::allocate(registry, target, writer, old, &mut object, dry_run).await?;
        if strategy::desired_state_differs(resource, stored, &object) {
            metadata::bump_generation(&mut object);
        }
        // Of this generation.
        registry.check_types(resource, subresource, &mut object);
        managed::restore_unchanged_times(&current.value, &mut object);
        if let Err(refusal) = self.admit(Operation::Update, &object, Some(current)).await {
            self.withdraw(Some(current), &object, &refusal).await;
            return Err(refusal);
        }
        // An object that nothing holds any longer goes with the write that let go of it.
        if strategy::is_finished(resource, &object) && object != current.value {
            return Ok(Change::Finish(object));
        }
        Ok(Change::Put(object))
    }

    /// A stored object as it would be, had it been written by this version: with what is filled in
    /// today, so that nobody is told to have changed that.
    fn as_of_today(&self, stored: &Value) -> Value {
        let mut object = stored.clone();
        builtin::default(&self.target.resource, &mut object);
        strategy::prepare(&self.target.resource, &mut object);
        object
    }

    /// A stored built-in in the one form in which its quantities are read today, if it was stored in
    /// another: who patches it has not changed them.
    fn canonical(&self, stored: &Value) -> Option<Value> {
        let resource = &self.target.resource;
        let kind = self.registry.kind_type(resource);
        let kind = kind.filter(|_| resource.custom.is_none())?;
        let canonical = kind.conform(stored).value;
        (canonical != *stored).then_some(canonical)
    }

    /// What is wrong with `object` that was not wrong with `stored` already.
    async fn problems_of_update(
        &self,
        stored: &Value,
        object: &Value,
    ) -> Result<Vec<StatusCause>, ApiError> {
        let (registry, resource) = (self.registry, &self.target.resource);
        // A schema's rules may be about the change, and it has a ratchet of its own.
        let by_schema = resource.custom.is_some();
        let mut causes = self.problems_of_succession(stored, object);
        if !by_schema {
            apiextensions::problems(registry, resource, Some(stored), object, &mut causes).await?;
        }
        if !causes.is_empty() {
            let mut before = self.problems_of_succession(stored, stored);
            if !by_schema {
                apiextensions::problems(registry, resource, Some(stored), stored, &mut before)
                    .await?;
            }
            causes = ratchet::without_old(causes, stored, object, before).into();
        }
        if by_schema {
            apiextensions::problems(registry, resource, Some(stored), object, &mut causes).await?;
        }
        Ok(causes.into_vec())
    }

    /// What is wrong with `new` as the successor of `old`, but for what definitions say.
    fn problems_of_succession(&self, old: &Value, new: &Value) -> Causes {
        let resource = &self.target.resource;
        let subresource = self.target.subresource.as_deref();
        let mut causes = Causes::default();
        metadata::problems_of_update(resource, old, new, &mut causes);
        builtin::problems_of_update(resource, subresource, old, new, &mut causes);
        if resource.is("", "pods") {
            let of_part = pods::problems(subresource, old, new);
            of_part.into_iter().for_each(|cause| causes.push(cause));
        }
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
