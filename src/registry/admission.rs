//! Admission from the registry's side: a write is described to the gate, and the gate is told of the
//! cluster what it asks. Who decides what is said in
//! the room `admission`; where in a write it is asked, in `writing` and in `delete`.

mod follow;
mod typing;

use std::sync::Arc;

pub(super) use follow::follow;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::authorization::{Action, authorize};
use super::subresources::scale;
use super::write::{Current, Place};
use super::{
    ApiError, Registry, Resource, Target, builtin, conversion, custom, json_patch, metadata, read,
};
use crate::admission::attributes::{Attributes, GroupVersionKind, GroupVersionResource, Operation};
use crate::admission::authorizer::{Authorizer, Decision, Deed};
use crate::admission::cluster::{Cluster, Equivalent, ParamError, ParamQuery};
use crate::admission::{ConfigurationKind, problems};
use crate::api::{
    DeleteOptions, FieldValidation, ListOptions, ResourceVersion, UserInfo, Warnings, WriteOptions,
};
use crate::managed;

/// The group of the configurations.
const GROUP: &str = "admissionregistration.k8s.io";

/// What is asked of admission: a write, and who makes it.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) operation: Operation,
    pub(super) target: &'a Target,
    pub(super) user: &'a UserInfo,
    pub(super) dry_run: bool,
    pub(super) warnings: &'a Warnings,
    /// The options as a client gives them, made when they are needed.
    pub(super) options: &'a (dyn Fn() -> Value + Sync),
}

impl<'a> Question<'a> {
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
            options,
        }
    }
}

/// The policy that requests are judged by, for expressions.
struct Authorization;

impl Authorizer for Authorization {
    fn decide(&self, user: &UserInfo, deed: &Deed) -> Decision {
        let action = match deed.path.as_str() {
            "" => Action::Objects,
            path => Action::Path(path),
        };
        let decision = authorize(user, action);
        Decision {
            allowed: decision.allowed,
            reason: decision.reason.to_owned(),
        }
    }
}

impl Registry {
    /// What the webhooks make of `object` (null for a delete), which is in stored form.
    pub(super) async fn mutated(
        &self,
        question: Question<'_>,
        object: Value,
        old: Option<&Current>,
    ) -> Result<Value, ApiError> {
        if self.gate.lets_all_be().await? {
            return Ok(object);
        }
        let mut write = describe(question, object.clone(), old)?;
        let seen = write.object.clone();
        let until = Instant::now() + super::WRITE_DEADLINE;
        self.gate.mutate(self, &mut write, until).await?;
        if write.object == seen {
            return Ok(object);
        }
        let target = question.target;
        if scale::is_of(target) {
            // Who manages the number, the write has said already: a webhook is nobody's manager.
            return scale::applied(target, &object, &write.object);
        }
        let mut changed = conversion::to_storage(self.types(), &target.resource, write.object);
        if let Some(problem) = managed::problem(&changed) {
            let entries = object["metadata"]["managedFields"].clone();
            metadata::put_managed_fields(entries, &mut changed);
            question.warnings.add(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused \
                 by an outdated mutating admission controller; please fix your requests: {problem}"
            ));
        }
        Ok(changed)
    }

    /// Refuses a configuration of admission that could not work.
    pub(super) fn check_configuration(
        &self,
        resource: &Resource,
        object: &Value,
    ) -> Result<(), ApiError> {
        let kind = configuration_kind(resource);
        let problems = kind.map(|kind| problems(kind, object)).unwrap_or_default();
        match problems.is_empty() {
            true => Ok(()),
            false => {
                let name = metadata::text(object, "name");
                Err(ApiError::invalid(resource, name, problems))
            }
        }
    }

    /// After a write at version `at`: when it was one of a configuration of admission, waits until it is
    /// in force.
    pub(super) async fn settled(&self, resource: &Resource, at: ResourceVersion) {
        if let Some(kind) = configuration_kind(resource) {
            self.gate.in_force(kind, at).await;
        }
    }

    /// Has the write that is described judged.
    pub(super) async fn admit(
        &self,
        question: Question<'_>,
        object: &Value,
        old: Option<&Current>,
    ) -> Result<(), ApiError> {
        if self.gate.lets_all_in().await? {
            return Ok(());
        }
        let write = describe(question, object.clone(), old)?;
        let until = Instant::now() + super::WRITE_DEADLINE;
        Ok(self.gate.validate(self, &write, until).await?)
    }

    /// What admission makes of `part`, which is posted to a subresource or is a question, and stored
    /// nowhere.
    pub(super) async fn admitted_part(
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
    pub(super) async fn mutated_part(
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
    pub(super) async fn admit_part(
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
    pub(super) async fn admit_delete(
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
            options: &told,
        };
        self.mutated(question, Value::Null, Some(current)).await?;
        self.admit(question, &Value::Null, Some(current)).await
    }

    fn resource_of_kind(&self, kind: &GroupVersionKind) -> Option<Arc<Resource>> {
        let is = |r: &&Arc<Resource>| {
            r.group == kind.group && r.version == kind.version && r.kind == kind.kind
        };
        self.resources().iter().find(is).cloned()
    }
}

fn configuration_kind(resource: &Resource) -> Option<ConfigurationKind> {
    let mut kinds = ConfigurationKind::ALL.into_iter();
    kinds.find(|kind| resource.is(GROUP, kind.plural()))
}

/// The options of a create or an update, as a client would have to send them.
pub(super) fn write_options(kind: &str, options: &WriteOptions) -> Value {
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

fn describe<'a>(
    question: Question<'a>,
    object: Value,
    old: Option<&Current>,
) -> Result<Attributes<'a>, ApiError> {
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
    let of_itself = resource.is("", "namespaces").then_some(&*target.name);
    let at = old.map_or(ResourceVersion::ZERO, |old| old.at);
    Ok(Attributes {
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
        options: (question.options)(),
        warnings: question.warnings,
        object: shown(target, object, at)?,
        old_object: match old {
            Some(old) => shown(target, old.value.clone(), at)?,
            None => Value::Null,
        },
    })
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

#[async_trait]
impl Cluster for Registry {
    async fn namespace(&self, name: &str) -> Result<Option<Value>, String> {
        let place = Place::new(&self.namespaces, None, name).map_err(|e| e.to_string())?;
        if let Some(cached) = self.suggestion(&self.namespaces, &place.key) {
            let value = serde_json::from_slice(cached.body_slice());
            return value.map(Some).map_err(|error| error.to_string());
        }
        // The cache may not know it yet.
        match self.read_stored(&place).await {
            Ok(current) => Ok(Some(current.value)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn authorizer(&self) -> Arc<dyn Authorizer> {
        Arc::new(Authorization)
    }

    fn equivalents(&self, resource: &GroupVersionResource) -> Vec<Equivalent> {
        let Some(own) = self.resource(&resource.group, &resource.version, &resource.resource)
        else {
            return Vec::new();
        };
        let others = self.resources();
        // What is stored nowhere is in no place that others share.
        let same = others.iter().filter(|r| {
            Arc::ptr_eq(r, &own) || r.is_stored() && r.storage_prefix == own.storage_prefix
        });
        same.map(|r| Equivalent {
            resource: resource_of(r),
            kind: kind_of(r),
        })
        .collect()
    }

    async fn convert(&self, object: Value, kind: &GroupVersionKind) -> Result<Value, String> {
        let own = GroupVersionKind::of(&object);
        let (from, to) = (self.resource_of_kind(&own), self.resource_of_kind(kind));
        match (from, to) {
            (Some(_), Some(to)) if to.custom.is_some() => {
                let converted = custom::converted(&to, object).await;
                converted.map_err(|error| error.to_string())
            }
            (Some(from), Some(to)) => {
                let stored = conversion::to_storage(self.types(), &from, object);
                let mut shown = conversion::from_storage(&to, stored);
                shown["apiVersion"] = to.api_version().into();
                Ok(shown)
            }
            _ => Err(format!("cannot convert {own:?} to {kind:?}")),
        }
    }

    async fn patched(
        &self,
        write: &Attributes<'_>,
        kind: &GroupVersionKind,
        mut object: Value,
        patch: ::json_patch::Patch,
    ) -> Result<Value, String> {
        json_patch::apply(&mut object, &patch).map_err(|error| error.to_string())?;
        let is = GroupVersionKind::of(&object);
        if is != *kind {
            return Err(format!("the patch makes {is:?} of {kind:?}"));
        }
        let Some(resource) = self.resource_of_kind(kind) else {
            // A subresource's own kind, which has no defaults.
            return Ok(object);
        };
        metadata::check_shape(&resource, &mut object).map_err(|error| error.to_string())?;
        if let Some(kind) = self
            .kind_type(&resource)
            .filter(|_| resource.custom.is_none())
        {
            let decoded = kind.conform(&object);
            if let Some(misfit) = decoded.misfit {
                return Err(misfit);
            }
            object = decoded.value;
        }
        let namespace = Some(write.namespace).filter(|_| resource.namespaced);
        metadata::check_namespace(namespace, &mut object).map_err(|error| error.to_string())?;
        builtin::default(&resource, &mut object);
        Ok(object)
    }

    async fn params(
        &self,
        kind: &GroupVersionKind,
        given: &str,
        of_write: &str,
        query: &ParamQuery,
    ) -> Result<Vec<Value>, ParamError> {
        let resource = self.resource_of_kind(kind);
        let resource = resource.ok_or_else(|| ParamError::NoSuchKind(kind.to_string()))?;
        let namespace = match (resource.namespaced, given, of_write) {
            (true, "", "") => return Err(ParamError::NoNamespace),
            (true, "", of_write) => Some(of_write),
            (true, given, _) => Some(given),
            (false, "", _) => None,
            (false, ..) => return Err(ParamError::NeedlessNamespace),
        };
        let unreadable = |error: ApiError| ParamError::Unreadable(error.to_string());
        let mut options = ListOptions::default();
        let objects = match query {
            ParamQuery::Name(name) => {
                let target = Target {
                    resource: resource.clone(),
                    namespace: namespace.map(str::to_owned),
                    name: name.clone(),
                    subresource: None,
                };
                match read::get(self, &target, Default::default()).await {
                    Ok(object) => vec![object],
                    Err(error) if error.is_not_found() => Vec::new(),
                    Err(error) => return Err(unreadable(error)),
                }
            }
            ParamQuery::Selector(selector) => {
                options.labels = selector.clone();
                let list = read::list(self, &resource, namespace, &options).await;
                list.map_err(unreadable)?.items
            }
        };
        let shown = |object: &Arc<crate::api::Object>| -> Result<Value, ApiError> {
            let body = object.body_slice();
            let converted = self.converted(&resource, body)?;
            serde_json::from_slice(converted.as_deref().unwrap_or(body))
                .map_err(|e| crate::cacher::ReadError::Undecodable(e.to_string()).into())
        };
        let values = objects.iter().map(shown).collect::<Result<_, _>>();
        values.map_err(unreadable)
    }
}
