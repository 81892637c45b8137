//! Discovery: the served groups, versions and resources, as legacy documents and as the aggregated
//! document. Their content comes from the registry's resources.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{ETAG, HeaderMap, IF_NONE_MATCH, VARY};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256, Sha512};

use watchet_registry::{Resource, Subresource};

use crate::error::HttpError;
use crate::request::accept::clauses;
use crate::response::document::response;
use crate::response::headers::set_header;
use crate::response::ordered::{DISCOVERY, Ordered};

const AGGREGATED_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The form of a discovery document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiscoveryForm {
    /// One document per group and version.
    Legacy,
    /// One document for all.
    Aggregated,
}

/// Negotiates the form; JSON only.
pub(crate) fn negotiate(accept: Option<&str>) -> Result<DiscoveryForm, HttpError> {
    for clause in clauses(accept) {
        if !clause.covers("application/json") {
            continue;
        }
        match (clause.param("as"), clause.param("g"), clause.param("v")) {
            ("", _, _) => return Ok(DiscoveryForm::Legacy),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => {
                return Ok(DiscoveryForm::Aggregated);
            }
            _ => {}
        }
    }
    Err(HttpError::NotAcceptable {
        accepted: format!("application/json, {AGGREGATED_TYPE}"),
    })
}

/// Returns the groups other than core, in order, each with its versions, preferred first.
fn groups(resources: &[Arc<Resource>]) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for resource in resources.iter().filter(|r| !r.group.is_empty()) {
        let at = match groups.iter().position(|(name, _)| *name == resource.group) {
            Some(at) => at,
            None => {
                groups.push((&resource.group, Vec::new()));
                groups.len() - 1
            }
        };
        if !groups[at].1.contains(&&*resource.version) {
            groups[at].1.push(&resource.version);
        }
    }
    groups
}

/// Returns the document of `/api`; `address` is the server's address as the client used it.
pub(crate) fn api_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// Returns the document of `/apis`.
pub(crate) fn group_list(resources: &[Arc<Resource>]) -> Value {
    let groups: Vec<Value> = groups(resources)
        .into_iter()
        .map(|(name, versions)| Value::Object(group_members(name, &versions)))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns the document of `/apis/<group>`.
pub(crate) fn group(resources: &[Arc<Resource>], name: &str) -> Option<Value> {
    let (name, versions) = groups(resources).into_iter().find(|(n, _)| *n == name)?;
    let mut members = group_members(name, &versions);
    members.insert("kind".to_owned(), "APIGroup".into());
    members.insert("apiVersion".to_owned(), "v1".into());
    Some(Value::Object(members))
}

fn group_members(name: &str, versions: &[&str]) -> Map<String, Value> {
    let version = |v: &&str| json!({"groupVersion": format!("{name}/{v}"), "version": v});
    let mut members = Map::new();
    members.insert("name".to_owned(), name.into());
    let all: Vec<Value> = versions.iter().map(version).collect();
    members.insert("preferredVersion".to_owned(), all[0].clone());
    members.insert("versions".to_owned(), all.into());
    members
}

/// Returns the document of `/api/v1` or `/apis/<group>/<version>`.
pub(crate) fn resource_list(
    resources: &[Arc<Resource>],
    group: &str,
    version: &str,
) -> Option<Value> {
    let mut listed = Vec::new();
    let mut group_version = String::new();
    for resource in of_version(resources, group, version) {
        group_version = resource.api_version();
        listed.push(legacy_resource(resource));
        for subresource in &resource.subresources {
            listed.push(legacy_subresource(resource, subresource));
        }
    }
    (!listed.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group_version,
            "resources": listed,
        })
    })
}

fn of_version<'a>(
    resources: &'a [Arc<Resource>],
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'a Arc<Resource>> {
    resources
        .iter()
        .filter(move |r| r.group == group && r.version == version)
}

fn legacy_resource(resource: &Resource) -> Value {
    let mut value = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.offered(),
    });
    if resource.is_stored() {
        value["storageVersionHash"] = storage_version_hash(resource).into();
    }
    add_names(&mut value, resource);
    value
}

fn add_names(value: &mut Value, resource: &Resource) {
    if !resource.short_names.is_empty() {
        value["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        value["categories"] = json!(resource.categories);
    }
}

fn legacy_subresource(resource: &Resource, subresource: &Subresource) -> Value {
    let (group, version, kind) = subresource_kind(resource, subresource);
    let mut value = json!({
        "name": format!("{}/{}", resource.plural, subresource.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": kind,
        "verbs": subresource.verbs,
    });
    if (group, version) != (&resource.group, &resource.version) {
        value["group"] = group.into();
        value["version"] = version.into();
    }
    value
}

/// Returns the group, version and kind of a subresource's bodies.
fn subresource_kind<'a>(
    resource: &'a Resource,
    subresource: &Subresource,
) -> (&'a str, &'a str, &'a str) {
    match subresource.body {
        Some(body) => (body.group, body.version, body.kind),
        None => (&resource.group, &resource.version, &resource.kind),
    }
}

/// Returns the `storageVersionHash`, which changes with the stored type: the start of the SHA-256
/// of its group, version and kind.
fn storage_version_hash(resource: &Resource) -> String {
    let Resource {
        group,
        version,
        kind,
        ..
    } = resource;
    let digest = Sha256::digest(format!("{group}/{version}/{kind}"));
    STANDARD.encode(&digest[..8])
}

/// Returns the aggregated document of core (`/api`) or of all other groups (`/apis`).
pub(crate) fn aggregated(resources: &[Arc<Resource>], core: bool) -> Value {
    let groups = match core {
        true => vec![("", vec!["v1"])],
        false => groups(resources),
    };
    let items: Vec<Value> = groups
        .into_iter()
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|version| aggregated_version(resources, name, version))
                .collect();
            let mut metadata = json!({"creationTimestamp": null});
            if !name.is_empty() {
                metadata["name"] = name.into();
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_version(resources: &[Arc<Resource>], group: &str, version: &str) -> Value {
    let resources: Vec<Value> = of_version(resources, group, version)
        .map(|resource| aggregated_resource(resource))
        .collect();
    json!({"version": version, "freshness": "Current", "resources": resources})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind = |(group, version, kind): (&str, &str, &str)| json!({"group": group, "version": version, "kind": kind});
    let mut value = json!({
        "resource": resource.plural,
        "responseKind": kind((&resource.group, &resource.version, &resource.kind)),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.offered(),
    });
    add_names(&mut value, resource);
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|subresource| {
            json!({
                "subresource": subresource.name,
                "responseKind": kind(subresource_kind(resource, subresource)),
                "verbs": subresource.verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        value["subresources"] = subresources.into();
    }
    value
}

/// Returns the response of an aggregated document, with an ETag; 304 if the request has that ETag.
pub(crate) fn aggregated_response(document: &Value, request: &HeaderMap) -> Response {
    let json = serde_json::to_string(&Ordered::new(document, &DISCOVERY))
        .expect("a document of texts, lists and maps can be written");
    let digest = Sha512::digest(json.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    let etag = format!("\"{hex}\"");
    let matched = request
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| matches!(tag.trim().trim_start_matches("W/"), tag if tag == etag || tag == "*"));
    let mut answer = if matched {
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        answer
    } else {
        response(StatusCode::OK, AGGREGATED_TYPE, Body::from(json))
    };
    set_header(&mut answer, ETAG, &etag);
    answer
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("Accept"));
    answer
}

/// Returns the document of `/`: `fixed` and the paths of groups and health checks, without those of single caches, which
/// change.
pub(crate) fn root_paths(
    fixed: &[&str],
    resources: &[Arc<Resource>],
    health_checks: &[String],
) -> Value {
    let mut paths: Vec<String> = fixed.iter().map(|&path| path.to_owned()).collect();
    for (group, versions) in groups(resources) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|v| format!("/apis/{group}/{v}")));
    }
    paths.extend(health_checks.iter().map(|name| format!("/readyz/{name}")));
    paths.sort_unstable();
    json!({"paths": paths})
}

#[cfg(test)]
mod tests;
