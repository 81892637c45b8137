//! The paths that are not about objects; and routes requests for documents by them: discovery, OpenAPI, the version, the
//! keys of service account tokens.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{HOST, USER_AGENT};
use axum::http::request::Parts;
use axum::response::Response;
use serde_json::Value;

use crate::endpoints::discovery::{self, DiscoveryForm};
use crate::endpoints::flow_control;
use crate::endpoints::list_clients;
use crate::endpoints::method::check_is_read;
use crate::endpoints::openapi::{self, DocumentRequest};
use crate::endpoints::revisions;
use crate::endpoints::version;
use crate::error::HttpError;
use crate::request::accept::{accept_header, is_pretty};
use crate::request::query::Query;
use crate::response::document::{json_response, pretty_response, response};
use crate::response::ordered::{DISCOVERY, Ordered};
use crate::state::HttpState;

/// The paths that are not about objects, except those that depend on the served resources and the health checks: `/`
/// lists them. Their first segments are values of a metric's label.
const PATHS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
];

/// Returns true if `segment` is the first one of a path that is not about objects; that of `/` is empty.
pub(crate) fn is_first_segment(segment: &str) -> bool {
    let begins = |path: &&str| path.split('/').nth(1) == Some(segment);
    segment.is_empty() || PATHS.iter().any(begins)
}

/// Serves the document of a path.
///
/// # Errors
/// 404 if there is no document at this path, 405 for a method other than GET and HEAD.
pub(crate) async fn document(
    state: &HttpState,
    parts: &Parts,
    segments: &[&str],
) -> Result<Response, HttpError> {
    let found = match segments {
        ["openapi", version @ ("v2" | "v3"), path @ ..] if *version == "v3" || path.is_empty() => {
            check_is_read(parts)?;
            return openapi(state, parts, version, &path.join("/")).await;
        }
        segments if segments == list_clients::PATH => return list_clients::respond(state, parts),
        ["debug", "api_priority_and_fairness", name] => {
            return flow_control::dump(state, parts, name);
        }
        ["api"] | ["apis"] => {
            check_is_read(parts)?;
            return discover(state, parts, segments == ["api"]);
        }
        ["debug", "storage", "revisions"] => {
            check_is_read(parts)?;
            Some(revisions::document(state, parts).await?)
        }
        [""] => Some(root(state)),
        ["version"] => Some(version::version(state.config.git_commit)),
        [".well-known", "openid-configuration"] => {
            let issuer = state.config.tokens.issuer();
            Some(issuer.configuration_document(address(parts)))
        }
        ["openid", "v1", "jwks"] => {
            check_is_read(parts)?;
            let keys = state.config.tokens.issuer().keys_document();
            let body = Body::from(keys.to_string());
            return Ok(response(StatusCode::OK, "application/jwk-set+json", body));
        }
        ["api", version] => discovery::resource_list(&state.registry.resources(), "", version),
        ["apis", group] => discovery::group(&state.registry.resources(), group),
        ["apis", group, version] if !group.is_empty() => {
            discovery::resource_list(&state.registry.resources(), group, version)
        }
        _ => None,
    };
    let document = found.ok_or(HttpError::NoSuchPath)?;
    check_is_read(parts)?;
    Ok(ordered_response(parts, &document))
}

async fn openapi(
    state: &HttpState,
    parts: &Parts,
    version: &str,
    path: &str,
) -> Result<Response, HttpError> {
    let resources = state.registry.resources();
    if version == "v3" && path.is_empty() {
        return Ok(ordered_response(parts, &openapi::index(&resources)));
    }
    let accept = accept_header(parts)?;
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    let request = DocumentRequest {
        resources: &resources,
        types: state.registry.types(),
        tasks: &state.config.connections,
        headers: &parts.headers,
        accept: accept.as_deref(),
        hash: query.text("hash"),
    };
    match version {
        "v3" => state.openapi.v3(request, path).await,
        _ => state.openapi.v2(request).await,
    }
}

/// Returns a JSON document as a response, indented for interactive clients.
fn ordered_response(parts: &Parts, document: &Value) -> Response {
    let document = &Ordered::new(document, &DISCOVERY);
    match is_pretty(parts.uri.query(), parts.headers.get(USER_AGENT)) {
        true => pretty_response(StatusCode::OK, document),
        false => json_response(StatusCode::OK, document),
    }
}

fn discover(state: &HttpState, parts: &Parts, core: bool) -> Result<Response, HttpError> {
    let resources = state.registry.resources();
    match discovery::negotiate(accept_header(parts)?.as_deref())? {
        DiscoveryForm::Aggregated => {
            let document = discovery::aggregated(&resources, core);
            Ok(discovery::aggregated_response(&document, &parts.headers))
        }
        DiscoveryForm::Legacy if core => Ok(ordered_response(
            parts,
            &discovery::api_versions(address(parts)),
        )),
        DiscoveryForm::Legacy => Ok(ordered_response(parts, &discovery::group_list(&resources))),
    }
}

/// Returns the server's address as the client used it.
fn address(parts: &Parts) -> &str {
    let host = parts.headers.get(HOST).and_then(|v| v.to_str().ok());
    let authority = parts.uri.authority().map(|a| a.as_str());
    authority.or(host).unwrap_or_default()
}

fn root(state: &HttpState) -> Value {
    let checks = state.config.checks.iter().map(|c| c.name().to_owned());
    let mut names: Vec<String> = checks.collect();
    names.extend(["ping", "shutdown"].map(str::to_owned));
    discovery::root_paths(PATHS, &state.registry.resources(), &names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_segments_are_those_of_the_paths() {
        for known in ["", "api", "apis", "openid", ".well-known", "livez"] {
            assert!(is_first_segment(known), "{known}");
        }
        for unknown in ["ap", "jwks", "v1", "healthz2"] {
            assert!(!is_first_segment(unknown), "{unknown}");
        }
    }
}
