//! Reviews: questions about who somebody is and what he may do, which are answered from what the
//! requests themselves are judged by and stored nowhere.

use std::sync::Arc;

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReviewSpec,
    SelfSubjectRulesReviewSpec, SubjectAccessReviewSpec,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::api::{Object, StatusCause, UserInfo, WriteOptions};
use crate::registry::authorization::{Action, Permissions, authorize, permissions};
use crate::registry::{ApiError, Target, metadata};

/// The answer to the question `body`, which was checked for its shape.
pub(super) fn answer(
    target: &Target,
    mut body: Value,
    options: &WriteOptions,
) -> Result<Arc<Object>, ApiError> {
    let asker = &options.user;
    let status = match &*target.resource.kind {
        "SelfSubjectReview" => {
            check_metadata(target, &body, Vec::new())?;
            json!({"userInfo": **asker})
        }
        "SelfSubjectAccessReview" => {
            let spec: SelfSubjectAccessReviewSpec = spec(target, &body)?;
            let about = (&spec.resource_attributes, &spec.non_resource_attributes);
            check_metadata(target, &body, problems_of_attributes(about.0, about.1))?;
            decision(asker, about.1.as_ref())
        }
        "SubjectAccessReview" => subject_access_review(target, &body)?,
        "LocalSubjectAccessReview" => local_subject_access_review(target, &body)?,
        "SelfSubjectRulesReview" => {
            let spec: SelfSubjectRulesReviewSpec = spec(target, &body)?;
            if spec.namespace.unwrap_or_default().is_empty() {
                return Err(ApiError::BadRequest("no namespace on request".to_owned()));
            }
            rules(asker)
        }
        other => {
            let told = format!("a {other} is no review");
            return Err(ApiError::MethodNotAllowed(told));
        }
    };
    body["status"] = status;
    crate::registry::subresource::answer(target, &body)
}

/// The specification in a body.
///
/// # Errors
/// 400 when a member is of another type.
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

fn subject_access_review(target: &Target, body: &Value) -> Result<Value, ApiError> {
    let spec: SubjectAccessReviewSpec = spec(target, body)?;
    let problems = problems_of_subject(&spec);
    check_metadata(target, body, problems)?;
    let paths = spec.non_resource_attributes.clone();
    Ok(decision(&subject(spec), paths.as_ref()))
}

fn local_subject_access_review(target: &Target, body: &Value) -> Result<Value, ApiError> {
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let spec: SubjectAccessReviewSpec = spec(target, body)?;
    let of = |about: &ResourceAttributes| about.namespace.clone().unwrap_or_default();
    let asked = spec.resource_attributes.as_ref().map(of);
    let mut problems = problems_of_subject(&spec);
    if spec.non_resource_attributes.is_some() {
        problems.push(StatusCause::invalid(
            "spec.nonResourceAttributes",
            "",
            "disallowed on this kind of request",
        ));
    }
    check_metadata(target, body, problems)?;
    if asked.is_some_and(|asked| asked != namespace) {
        return Err(ApiError::BadRequest(format!(
            "spec.resourceAttributes.namespace must match namespace: {namespace}"
        )));
    }
    Ok(decision(&subject(spec), None))
}

fn subject(spec: SubjectAccessReviewSpec) -> UserInfo {
    UserInfo {
        name: spec.user.unwrap_or_default(),
        uid: spec.uid.unwrap_or_default(),
        groups: spec.groups.unwrap_or_default(),
        extra: spec.extra.unwrap_or_default(),
    }
}

fn problems_of_subject(spec: &SubjectAccessReviewSpec) -> Vec<StatusCause> {
    let (objects, paths) = (&spec.resource_attributes, &spec.non_resource_attributes);
    let mut problems = problems_of_attributes(objects, paths);
    let nobody = spec.user.as_deref().unwrap_or_default().is_empty();
    if nobody && spec.groups.as_ref().is_none_or(Vec::is_empty) {
        let why = "at least one of user or group must be specified";
        problems.push(StatusCause::invalid("spec.user", "", why));
    }
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

/// Refuses what is wrong with a review, its metadata included, which name nothing.
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

fn decision(user: &UserInfo, path: Option<&NonResourceAttributes>) -> Value {
    let path = path.map(|about| about.path.as_deref().unwrap_or_default());
    let told = authorize(user, path.map_or(Action::Objects, Action::Path));
    json!({"allowed": told.allowed, "reason": told.reason})
}

fn rules(user: &UserInfo) -> Value {
    let (objects, paths) = match permissions(user) {
        Permissions::Everything => {
            let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
            (
                everything,
                json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]),
            )
        }
        Permissions::Paths(paths) => (
            json!([]),
            json!([{"verbs": ["*"], "nonResourceURLs": paths}]),
        ),
    };
    json!({"resourceRules": objects, "nonResourceRules": paths, "incomplete": false})
}

#[cfg(test)]
mod tests;
