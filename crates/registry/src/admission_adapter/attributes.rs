//! The attributes of a write, and the admission requests that are built from them.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::resource::Resource;
use crate::stored_form::Current;
use crate::target::Target;
use crate::{conversion, scale};
use watchet_admission::plugins::Request;
use watchet_admission::request::{
    AdmissionRequest, GroupVersionKind, GroupVersionResource, Operation, RequestOptions,
};
use watchet_api::{
    AuditAnnotations, FieldValidation, ResourceVersion, UserInfo, Warnings, WriteOptions,
};

/// The attributes of a write that the admission chain decides on, without its objects.
#[derive(Clone, Copy)]
pub(crate) struct AdmissionAttributes<'a> {
    pub(crate) operation: Operation,
    pub(crate) target: &'a Target,
    pub(crate) user: &'a UserInfo,
    pub(crate) dry_run: bool,
    pub(crate) warnings: &'a Warnings,
    pub(crate) audit_annotations: &'a AuditAnnotations,
    /// Returns the options of the request as an API object.
    pub(crate) options: &'a (dyn Fn() -> Value + Sync),
}

impl<'a> AdmissionAttributes<'a> {
    /// Returns the attributes by which plugins decide whether they handle the write.
    pub(crate) fn request(&self) -> Request<'a> {
        let resource = &self.target.resource;
        Request {
            operation: self.operation,
            group: &resource.group,
            resource: &resource.plural,
            subresource: self.target.subresource.as_deref().unwrap_or_default(),
        }
    }

    /// Returns the attributes of a POST to a subresource or of a review.
    pub(crate) fn of_post(
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

/// Returns the options of a create or an update as an API object.
pub(crate) fn write_options(kind: &str, options: &WriteOptions) -> Value {
    let mut object = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    if options.dry_run {
        object["dryRun"] = json!(["All"]);
    }
    if !options.field_manager.is_empty() {
        object["fieldManager"] = options.field_manager.as_str().into();
    }
    object["fieldValidation"] = match options.field_validation {
        FieldValidation::Ignore => "Ignore",
        FieldValidation::Warn => "Warn",
        FieldValidation::Strict => "Strict",
    }
    .into();
    object
}

/// Returns the request for webhooks and policies, with the objects in the version of the client.
///
/// # Errors
/// As [`scale::of`].
pub(crate) fn client_request<'a>(
    attributes: AdmissionAttributes<'a>,
    object: Value,
    old: Option<&Current>,
) -> Result<AdmissionRequest<'a>, ApiError> {
    let target = attributes.target;
    let at = old.map_or(ResourceVersion::ZERO, |old| old.at);
    let old_object = match old {
        Some(old) => admission_object(target, old.value.clone(), at)?,
        None => Value::Null,
    };
    Ok(AdmissionRequest {
        object: Cow::Owned(admission_object(target, object, at)?),
        old_object: Cow::Owned(old_object),
        ..plugin_request(attributes, Cow::Owned(Value::Null), None)
    })
}

/// Returns the request for plugins, with the objects in stored form.
pub(crate) fn plugin_request<'a>(
    attributes: AdmissionAttributes<'a>,
    object: Cow<'a, Value>,
    old: Option<&'a Current>,
) -> AdmissionRequest<'a> {
    let target = attributes.target;
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
        operation: attributes.operation,
        resource: resource_of(resource),
        kind,
        subresource,
        name: &target.name,
        namespace: of_itself
            .or(target.namespace.as_deref())
            .unwrap_or_default(),
        user: attributes.user,
        dry_run: attributes.dry_run,
        options: RequestOptions(attributes.options),
        warnings: attributes.warnings,
        audit_annotations: attributes.audit_annotations,
        object,
        old_object: old.map_or(Cow::Owned(Value::Null), |old| Cow::Borrowed(&old.value)),
    }
}

/// Returns an object as a client of `target` sees it, with the resourceVersion of the stored object that it replaces.
fn admission_object(
    target: &Target,
    object: Value,
    at: ResourceVersion,
) -> Result<Value, ApiError> {
    if object.is_null() {
        return Ok(object);
    }
    if scale::is_of(target) {
        return scale::of(&target.resource, &object, at);
    }
    let mut object = conversion::from_storage(&target.resource, object);
    if !at.is_zero() {
        object["metadata"]["resourceVersion"] = at.to_string().into();
    }
    Ok(object)
}

pub(crate) fn kind_of(resource: &Resource) -> GroupVersionKind {
    GroupVersionKind {
        group: resource.group.clone(),
        version: resource.version.clone(),
        kind: resource.kind.clone(),
    }
}

pub(crate) fn resource_of(resource: &Resource) -> GroupVersionResource {
    GroupVersionResource {
        group: resource.group.clone(),
        version: resource.version.clone(),
        resource: resource.plural.clone(),
    }
}
