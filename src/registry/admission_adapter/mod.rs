//! Admission from the registry's side: a write is described to the gate, and the gate is told of the
//! cluster what it asks. Who decides what is said in
//! the room `admission`; where in a write it is asked, in `writing` and in `delete`.

mod cluster;
mod follow;
mod mutation;
mod typing;

use std::borrow::Cow;

pub(crate) use follow::follow;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::guaranteed_update::Current;
use super::scale;
use super::{ApiError, Registry, Resource, Target, conversion, metadata};
use crate::admission::plugins::{Request, Step};
use crate::admission::request::{
    AdmissionRequest, GroupVersionKind, GroupVersionResource, Operation, RequestOptions,
};
use crate::admission::{ConfigurationKind, Mutators};
use crate::api::{
    AuditAnnotations, DeleteOptions, FieldValidation, ResourceVersion, UserInfo, Warnings,
    WriteOptions,
};
use crate::schema::managed;

/// The group of the configurations.
const GROUP: &str = "admissionregistration.k8s.io";

/// What is asked of admission: a write, and who makes it.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) operation: Operation,
    pub(crate) target: &'a Target,
    pub(crate) user: &'a UserInfo,
    pub(crate) dry_run: bool,
    pub(crate) warnings: &'a Warnings,
    pub(crate) audit_annotations: &'a AuditAnnotations,
    /// The options as a client gives them, made when they are needed.
    pub(crate) options: &'a (dyn Fn() -> Value + Sync),
}

impl<'a> Question<'a> {
    /// What plugins decide by whether they handle it.
    fn request(&self) -> Request<'a> {
        let resource = &self.target.resource;
        Request {
            operation: self.operation,
            group: &resource.group,
            resource: &resource.plural,
            subresource: self.target.subresource.as_deref().unwrap_or_default(),
        }
    }

    fn of_part(
        target: &'a Target,
        write: &'a WriteOptions,
        options: &'a (dyn Fn() -> Value + Sync),
    ) -> Self {
        Self {
            operation: Operation::Create,
            target,
            user: &write.user,
            dry_run: write.dry_run,
            warnings: &write.warnings,
            audit_annotations: &write.audit_annotations,
            options,
        }
    }
}

impl Registry {
    /// Returns what the plugins, the policies and the webhooks make of `object` (null for a delete), which is
    /// in stored form. If a policy or a webhook changes it, there is a second round, in which every plugin
    /// runs again, and those policies and webhooks that ask for it.
    pub(crate) async fn mutated(
        &self,
        question: Question<'_>,
        object: Value,
        old: Option<&Current>,
    ) -> Result<Value, ApiError> {
        let object = self.mutated_by_plugins(question, object, old).await?;
        let until = Instant::now() + crate::registry::WRITE_DEADLINE;
        let Some(mut mutators) = self.gate.mutators(until).await? else {
            return Ok(object);
        };
        let object = self
            .mutated_by(&mut mutators, question, object, old)
            .await?;
        if !mutators.begin_second_round() {
            return Ok(object);
        }
        let object = self.mutated_by_plugins(question, object, old).await?;
        self.mutated_by(&mut mutators, question, object, old).await
    }

    async fn mutated_by_plugins(
        &self,
        question: Question<'_>,
        object: Value,
        old: Option<&Current>,
    ) -> Result<Value, ApiError> {
        if !self.plugins.mutates(question.request()) {
            return Ok(object);
        }
        let mut attributes = attributes(question, Cow::Owned(object), old);
        self.plugins.mutate(self, &mut attributes).await?;
        Ok(attributes.object.into_owned())
    }

    async fn mutated_by(
        &self,
        mutators: &mut Mutators<'_>,
        question: Question<'_>,
        object: Value,
        old: Option<&Current>,
    ) -> Result<Value, ApiError> {
        let mut write = describe(question, object.clone(), old)?;
        let seen = write.object.clone();
        mutators.mutate(self, &mut write).await?;
        let changed = write.object.into_owned();
        if changed == *seen {
            return Ok(object);
        }
        let target = question.target;
        if scale::is_of(target) {
            // Who manages the number, the write has said already: a webhook is nobody's manager.
            return scale::applied(target, &object, &changed);
        }
        let mut changed = conversion::to_storage(self.types(), &target.resource, changed);
        if let Some(problem) = managed::decode_error(&changed) {
            let entries = object["metadata"]["managedFields"].clone();
            metadata::put_managed_fields(entries, &mut changed);
            question.warnings.add(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused \
                 by an outdated mutating admission controller; please fix your requests: {problem}"
            ));
        }
        Ok(changed)
    }

    /// Waits until the configurations of this kind are in force as of version `at`.
    pub(crate) async fn configurations_in_force(
        &self,
        kind: ConfigurationKind,
        at: ResourceVersion,
    ) {
        self.gate.in_force(kind, at).await;
    }

    /// Validates a write by the plugins, policies and webhooks.
    pub(crate) async fn admit(
        &self,
        question: Question<'_>,
        object: &Value,
        old: Option<&Current>,
    ) -> Result<(), ApiError> {
        self.admit_by_plugins(question, object, old, Step::BeforeWebhooks)
            .await?;
        if !self.gate.lets_all_in().await? {
            let write = describe(question, object.clone(), old)?;
            let until = Instant::now() + crate::registry::WRITE_DEADLINE;
            self.gate.validate(self, &write, until).await?;
        }
        self.admit_by_plugins(question, object, old, Step::AfterWebhooks)
            .await
    }

    async fn admit_by_plugins(
        &self,
        question: Question<'_>,
        object: &Value,
        old: Option<&Current>,
        step: Step,
    ) -> Result<(), ApiError> {
        if !self.plugins.validates(question.request(), step) {
            return Ok(());
        }
        let attributes = attributes(question, Cow::Borrowed(object), old);
        Ok(self.plugins.validate(self, &attributes, step).await?)
    }

    /// What admission makes of `part`, which is posted to a subresource or is a question, and stored
    /// nowhere.
    pub(crate) async fn admitted_part(
        &self,
        target: &Target,
        part: Value,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        let part = self.mutated_part(target, part, options).await?;
        self.admit_part(target, &part, options).await?;
        Ok(part)
    }

    /// The first half of that: what the webhooks make of it.
    pub(crate) async fn mutated_part(
        &self,
        target: &Target,
        part: Value,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        let told = || write_options("CreateOptions", options);
        let question = Question::of_part(target, options, &told);
        self.mutated(question, part, None).await
    }

    /// The second: whether somebody refuses it.
    pub(crate) async fn admit_part(
        &self,
        target: &Target,
        part: &Value,
        options: &WriteOptions,
    ) -> Result<(), ApiError> {
        let told = || write_options("CreateOptions", options);
        let question = Question::of_part(target, options, &told);
        self.admit(question, part, None).await
    }

    /// Has the deletion of `current` judged.
    pub(crate) async fn admit_delete(
        &self,
        target: &Target,
        current: &Current,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let told = || {
            let mut told = serde_json::to_value(options).unwrap_or_default();
            if let Some(members) = told.as_object_mut() {
                // What was not given is not told.
                members.retain(|_, value| {
                    !value.is_null() && *value != Value::Bool(false) && *value != json!([])
                });
            }
            told["kind"] = "DeleteOptions".into();
            told["apiVersion"] = "meta.k8s.io/v1".into();
            told
        };
        let question = Question {
            operation: Operation::Delete,
            target,
            user: &options.user,
            dry_run: !options.dry_run.is_empty(),
            warnings: &options.warnings,
            audit_annotations: &options.audit_annotations,
            options: &told,
        };
        self.mutated(question, Value::Null, Some(current)).await?;
        self.admit(question, &Value::Null, Some(current)).await
    }
}

/// The options of a create or an update, as a client would have to send them.
pub(crate) fn write_options(kind: &str, options: &WriteOptions) -> Value {
    let mut told = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    if options.dry_run {
        told["dryRun"] = json!(["All"]);
    }
    if !options.field_manager.is_empty() {
        told["fieldManager"] = options.field_manager.as_str().into();
    }
    told["fieldValidation"] = match options.field_validation {
        FieldValidation::Ignore => "Ignore",
        FieldValidation::Warn => "Warn",
        FieldValidation::Strict => "Strict",
    }
    .into();
    told
}

/// Describes a write to webhooks and policies, in the version that the client speaks.
fn describe<'a>(
    question: Question<'a>,
    object: Value,
    old: Option<&Current>,
) -> Result<AdmissionRequest<'a>, ApiError> {
    let Question { target, .. } = question;
    let at = old.map_or(ResourceVersion::ZERO, |old| old.at);
    let old_object = match old {
        Some(old) => shown(target, old.value.clone(), at)?,
        None => Value::Null,
    };
    Ok(AdmissionRequest {
        object: Cow::Owned(shown(target, object, at)?),
        old_object: Cow::Owned(old_object),
        ..attributes(question, Cow::Owned(Value::Null), None)
    })
}

/// Describes a write to plugins: the objects are in stored form.
fn attributes<'a>(
    question: Question<'a>,
    object: Cow<'a, Value>,
    old: Option<&'a Current>,
) -> AdmissionRequest<'a> {
    let Question { target, .. } = question;
    let resource = &target.resource;
    let subresource = target.subresource.as_deref().unwrap_or_default();
    let body = resource.subresource(subresource).and_then(|sub| sub.body);
    let kind = match body {
        Some(body) => GroupVersionKind {
            group: body.group.to_owned(),
            version: body.version.to_owned(),
            kind: body.kind.to_owned(),
        },
        None => kind_of(resource),
    };
    let is_namespace = resource.strategy.rules().is_namespaces;
    let of_itself = is_namespace.then_some(&*target.name);
    AdmissionRequest {
        operation: question.operation,
        resource: resource_of(resource),
        kind,
        subresource,
        name: &target.name,
        namespace: of_itself
            .or(target.namespace.as_deref())
            .unwrap_or_default(),
        user: question.user,
        dry_run: question.dry_run,
        options: RequestOptions(question.options),
        warnings: question.warnings,
        audit_annotations: question.audit_annotations,
        object,
        old_object: old.map_or(Cow::Owned(Value::Null), |old| Cow::Borrowed(&old.value)),
    }
}

/// An object as the client of this target sees it; what a create or an update wants stored too, by the
/// version that it is based on.
fn shown(target: &Target, object: Value, at: ResourceVersion) -> Result<Value, ApiError> {
    if object.is_null() {
        return Ok(object);
    }
    if scale::is_of(target) {
        return scale::of(&target.resource, &object, at);
    }
    let mut shown = conversion::from_storage(&target.resource, object);
    if !at.is_zero() {
        shown["metadata"]["resourceVersion"] = at.to_string().into();
    }
    Ok(shown)
}

fn kind_of(resource: &Resource) -> GroupVersionKind {
    GroupVersionKind {
        group: resource.group.clone(),
        version: resource.version.clone(),
        kind: resource.kind.clone(),
    }
}

fn resource_of(resource: &Resource) -> GroupVersionResource {
    GroupVersionResource {
        group: resource.group.clone(),
        version: resource.version.clone(),
        resource: resource.plural.clone(),
    }
}
