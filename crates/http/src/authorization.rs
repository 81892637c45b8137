//! Impersonation and authorization of a request. Every request passes here, right after its `RequestInfo` is
//! known and before anything is read or written.

use std::sync::Arc;

use axum::http::request::Parts;

use crate::audit;
use crate::error::HttpError;
use crate::request::percent::decode_bytes;
use crate::request::query::Query;
use crate::request::received_request::ReceivedRequest;
use crate::request::request_info::{InvalidPath, RequestInfo, ResourceRequest, Verb};
use crate::watch_access::Requirements;
use watchet_api::UserInfo;
use watchet_auth::impersonation::{self, ImpersonationError};
use watchet_auth::{Attributes, Authorizer, Credential, Decision};
use watchet_registry::path_segment_problems;

impl From<ImpersonationError> for HttpError {
    fn from(error: ImpersonationError) -> Self {
        Self::Denied(Box::new(error.status()))
    }
}

/// Replaces the user in the extensions of the request by the impersonated one, and calls `authorizer`. The extensions
/// of a watch get its [`Requirements`].
///
/// # Errors
/// 403 if the impersonation or the request is not allowed; 400 if the impersonation is invalid; 500 if the authorizer
/// cannot decide.
pub(crate) async fn authorize(
    authorizer: &dyn Authorizer,
    parts: &mut Parts,
    info: &Result<RequestInfo, InvalidPath>,
) -> Result<(), HttpError> {
    let user = parts.extensions.get::<Arc<UserInfo>>().cloned();
    let user = user.unwrap_or_default();
    let impersonation = impersonation::impersonate(authorizer, &user, &parts.headers).await?;
    let attributes = attributes(Arc::clone(&impersonation.user), parts, info);
    parts.extensions.insert(impersonation.user);
    let decision = authorizer.authorize(&attributes).await;
    annotate(parts, &decision);
    if let Some(error) = decision.error() {
        return Err(HttpError::Internal(format!(
            "authorization failed: {error}"
        )));
    }
    if !decision.is_allowed() {
        let status = attributes.forbidden(decision.reason());
        return Err(HttpError::Denied(Box::new(status)));
    }
    if matches!(info, Ok(RequestInfo::Resource(request)) if request.verb == Some(Verb::Watch)) {
        let requirements = Requirements {
            credential: parts.extensions.remove::<Credential>(),
            impersonation: impersonation.permissions,
            request: attributes,
        };
        parts.extensions.insert(requirements);
    }
    Ok(())
}

/// Records the decision for the audit log.
fn annotate(parts: &Parts, decision: &Decision) {
    if parts.extensions.get::<ReceivedRequest>().is_none() {
        return; // The request is not recorded.
    }
    let verdict = match decision.is_allowed() {
        true => "allow",
        false => "forbid",
    };
    let annotations = audit::annotations(parts);
    annotations.add("authorization.k8s.io/decision", verdict);
    annotations.add("authorization.k8s.io/reason", decision.reason());
}

/// Returns the attributes of a request. A path that is invalid, and therefore never served, is no resource
/// request.
fn attributes(
    user: Arc<UserInfo>,
    parts: &Parts,
    info: &Result<RequestInfo, InvalidPath>,
) -> Attributes {
    let path = parts.uri.path();
    let attributes = Attributes {
        user,
        path: decoded(path).unwrap_or_else(|| path.to_owned()),
        ..Attributes::default()
    };
    match info {
        Ok(RequestInfo::Resource(request)) => Attributes {
            is_resource_request: true,
            ..of_resource(attributes, request, parts.uri.query())
        },
        Ok(RequestInfo::NonResource(_)) | Err(_) => Attributes {
            verb: parts.method.as_str().to_ascii_lowercase(),
            ..attributes
        },
    }
}

fn decoded(path: &str) -> Option<String> {
    match path.contains('%') {
        true => String::from_utf8(decode_bytes(path, false)?).ok(),
        false => None,
    }
}

/// Adds the attributes of a request about objects, by upstream's rules.
fn of_resource(
    mut attributes: Attributes,
    request: &ResourceRequest,
    query: Option<&str>,
) -> Attributes {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let verb = request.verb.map_or("", Verb::as_str);
    attributes.verb = verb.to_owned();
    attributes.api_group.clone_from(&request.group);
    attributes.api_version.clone_from(&request.version);
    attributes.resource.clone_from(&request.resource);
    attributes.subresource = text(&request.subresource);
    attributes.namespace = text(&request.namespace);
    attributes.name = text(&request.name);
    if request.resource == "namespaces" && request.namespace.is_none() {
        attributes.namespace = text(&request.name);
    }
    let has_selectors = matches!(
        request.verb,
        Some(Verb::List | Verb::Watch | Verb::DeleteCollection)
    );
    if let Some(query) = query
        && has_selectors
        && !request.is_watch_path
    {
        // An invalid query is rejected when the options are decoded.
        let query = Query::parse(query).unwrap_or_default();
        let selector = |name| query.get(name).unwrap_or_default();
        attributes.field_selector = selector("fieldSelector").parse().unwrap_or_default();
        attributes.label_selector = selector("labelSelector").parse().unwrap_or_default();
    }
    let reads_collection = matches!(request.verb, Some(Verb::List | Verb::Watch));
    if reads_collection
        && attributes.name.is_empty()
        && let Some(name) = attributes.field_selector.exact("metadata.name")
        && path_segment_problems(name).is_empty()
    {
        attributes.name = name.to_owned();
    }
    attributes
}
