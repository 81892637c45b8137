//! Handles reviews of users and their permissions: they call the authorizer of requests and are not stored.

use std::sync::Arc;

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReviewSpec,
    SelfSubjectRulesReviewSpec, SubjectAccessReviewSpec,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::review_selectors::{field_selector, label_selector, selector_problems};
use watchet_api::{Object, StatusCause, UserInfo, WriteOptions};
use watchet_auth::{Attributes, Authorizer};
use watchet_registry::{ApiError, Target, metadata};

/// Reviews `body`, which has already been decoded as its kind.
pub(super) async fn review(
    authorizer: &dyn Authorizer,
    target: &Target,
    mut body: Value,
    options: &WriteOptions,
) -> Result<Arc<Object>, ApiError> {
    let user = &options.user;
    let status = match &*target.resource.kind {
        "SelfSubjectReview" => {
            check_metadata(target, &body, Vec::new())?;
            json!({"userInfo": **user})
        }
        "SelfSubjectAccessReview" => {
            let spec: SelfSubjectAccessReviewSpec = spec(target, &body)?;
            let (resource, path) = (spec.resource_attributes, spec.non_resource_attributes);
            let mut problems = problems_of_attributes(&resource, &path);
            problems.extend(resource.iter().flat_map(selector_problems));
            check_metadata(target, &body, problems)?;
            decide(authorizer, attributes(user.clone(), resource, path)).await
        }
        "SubjectAccessReview" => decide(authorizer, subject_access_review(target, &body)?).await,
        "LocalSubjectAccessReview" => {
            decide(authorizer, local_subject_access_review(target, &body)?).await
        }
        "SelfSubjectRulesReview" => {
            let spec: SelfSubjectRulesReviewSpec = spec(target, &body)?;
            let namespace = spec.namespace.unwrap_or_default();
            if namespace.is_empty() {
                return Err(ApiError::BadRequest("no namespace on request".to_owned()));
            }
            json!(authorizer.rules(user, &namespace).await)
        }
        other => {
            let message = format!("a {other} is no review");
            return Err(ApiError::MethodNotAllowed(message));
        }
    };
    body["status"] = status;
    watchet_registry::response::unstored(target, &body)
}

/// Returns the specification in a body.
///
/// # Errors
/// 400 if a member has another type.
pub(super) fn spec<T: DeserializeOwned>(target: &Target, body: &Value) -> Result<T, ApiError> {
    let spec = match &body["spec"] {
        Value::Null => Value::Object(Map::new()),
        given => given.clone(),
    };
    serde_json::from_value(spec).map_err(|error| {
        let body = target.of_bodies();
        let (kind, version) = (&body.kind, &body.version);
        ApiError::BadRequest(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: spec: {error}"
        ))
    })
}

fn subject_access_review(target: &Target, body: &Value) -> Result<Attributes, ApiError> {
    let spec: SubjectAccessReviewSpec = spec(target, body)?;
    check_metadata(target, body, problems_of_subject(&spec))?;
    Ok(subject_attributes(spec))
}

fn local_subject_access_review(target: &Target, body: &Value) -> Result<Attributes, ApiError> {
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let spec: SubjectAccessReviewSpec = spec(target, body)?;
    let resource = spec.resource_attributes.as_ref();
    let given = resource.map(|resource| resource.namespace.clone().unwrap_or_default());
    let mut problems = problems_of_subject(&spec);
    if spec.non_resource_attributes.is_some() {
        problems.push(StatusCause::invalid(
            "spec.nonResourceAttributes",
            "",
            "disallowed on this kind of request",
        ));
    }
    check_metadata(target, body, problems)?;
    if given.is_some_and(|given| given != namespace) {
        return Err(ApiError::BadRequest(format!(
            "spec.resourceAttributes.namespace must match namespace: {namespace}"
        )));
    }
    Ok(subject_attributes(spec))
}

fn subject_attributes(spec: SubjectAccessReviewSpec) -> Attributes {
    let user = UserInfo {
        name: spec.user.unwrap_or_default(),
        uid: spec.uid.unwrap_or_default(),
        groups: spec.groups.unwrap_or_default(),
        extra: spec.extra.unwrap_or_default(),
    };
    let (resource, path) = (spec.resource_attributes, spec.non_resource_attributes);
    attributes(Arc::new(user), resource, path)
}

/// Returns the attributes of a review, which has either those of a resource or those of a path.
fn attributes(
    user: Arc<UserInfo>,
    resource: Option<ResourceAttributes>,
    path: Option<NonResourceAttributes>,
) -> Attributes {
    let Some(resource) = resource else {
        let path = path.unwrap_or_default();
        return Attributes {
            user,
            verb: path.verb.unwrap_or_default(),
            path: path.path.unwrap_or_default(),
            ..Attributes::default()
        };
    };
    let version = resource.version.filter(|version| !version.is_empty());
    Attributes {
        user,
        verb: resource.verb.unwrap_or_default(),
        is_resource_request: true,
        api_group: resource.group.unwrap_or_default(),
        api_version: version.unwrap_or_else(|| "*".to_owned()),
        resource: resource.resource.unwrap_or_default(),
        subresource: resource.subresource.unwrap_or_default(),
        namespace: resource.namespace.unwrap_or_default(),
        name: resource.name.unwrap_or_default(),
        path: String::new(),
        field_selector: field_selector(resource.field_selector.as_ref()),
        label_selector: label_selector(resource.label_selector.as_ref()),
    }
}

fn problems_of_subject(spec: &SubjectAccessReviewSpec) -> Vec<StatusCause> {
    let (objects, paths) = (&spec.resource_attributes, &spec.non_resource_attributes);
    let mut problems = problems_of_attributes(objects, paths);
    let has_no_user = spec.user.as_deref().unwrap_or_default().is_empty();
    if has_no_user && spec.groups.as_ref().is_none_or(Vec::is_empty) {
        let why = "at least one of user or group must be specified";
        problems.push(StatusCause::invalid("spec.user", "", why));
    }
    problems.extend(objects.iter().flat_map(selector_problems));
    problems
}

fn problems_of_attributes(
    objects: &Option<ResourceAttributes>,
    paths: &Option<NonResourceAttributes>,
) -> Vec<StatusCause> {
    let (field, why) = match (objects, paths) {
        (Some(_), Some(_)) => (
            "spec.nonResourceAttributes",
            "cannot be specified in combination with resourceAttributes",
        ),
        (None, None) => (
            "spec.resourceAttributes",
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => return Vec::new(),
    };
    vec![StatusCause::invalid(field, "", why)]
}

/// Rejects a review with `problems`, or with metadata, which must be empty.
fn check_metadata(
    target: &Target,
    body: &Value,
    mut problems: Vec<StatusCause>,
) -> Result<(), ApiError> {
    let local = target.resource.namespaced;
    let members = metadata::of(body).as_object();
    let allowed = |member: &str| member == "managedFields" || (local && member == "namespace");
    let empty = |value: &Value| match value {
        Value::String(text) => text.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    let mut members = members.into_iter().flatten();
    if members.any(|(member, value)| !allowed(member) && !empty(value)) {
        let why = match local {
            true => "must be empty except for namespace",
            false => "must be empty",
        };
        problems.push(StatusCause::invalid("metadata", "", why));
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid(&target.resource, "", problems)),
    }
}

async fn decide(authorizer: &dyn Authorizer, attributes: Attributes) -> Value {
    let decision = authorizer.authorize(&attributes).await;
    let mut status = json!({"allowed": decision.is_allowed()});
    if decision.is_denied() {
        status["denied"] = true.into();
    }
    if !decision.reason().is_empty() {
        status["reason"] = decision.reason().into();
    }
    if let Some(error) = decision.error() {
        status["evaluationError"] = error.into();
    }
    status
}

#[cfg(test)]
mod tests;
