//! What the policy and the events need of a request: its attributes, addresses and headers.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderValue, Uri};
use serde::Deserialize;

use crate::request::request_info::{ResourceRequest, Verb};
use watchet_api::UserInfo;
use watchet_audit::policy::{RequestAttributes, ResourceAttributes};
use watchet_audit::{ObjectReference, source_ips};

/// The address of the client, an extension of requests.
#[derive(Debug, Clone, Copy)]
pub struct ClientAddress(pub SocketAddr);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ObjectWithMetadata {
    pub(super) metadata: ObjectMetadata,
}

/// The members of an object's metadata that an event has.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ObjectMetadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
}

pub(super) fn attributes<'a>(
    uri: &'a Uri,
    method: &'a str,
    resource: Option<&'a ResourceRequest>,
    user: Option<&'a UserInfo>,
) -> RequestAttributes<'a> {
    fn part(part: &Option<String>) -> &str {
        part.as_deref().unwrap_or_default()
    }
    RequestAttributes {
        user,
        verb: match resource {
            Some(request) => request.verb.map_or("", Verb::as_str),
            None => method,
        },
        path: uri.path(),
        resource: resource.map(|request| ResourceAttributes {
            group: &request.group,
            version: &request.version,
            resource: &request.resource,
            subresource: part(&request.subresource),
            namespace: match &*request.resource {
                // The namespace of a namespace is itself, as upstream.
                "namespaces" if request.namespace.is_none() => part(&request.name),
                _ => part(&request.namespace),
            },
            name: part(&request.name),
        }),
    }
}

/// Returns the reference to an object; what the path does not have comes from `metadata`.
pub(super) fn reference<'a>(
    requested: &ResourceAttributes<'a>,
    metadata: Option<ObjectMetadata>,
) -> ObjectReference<'a> {
    let metadata = metadata.unwrap_or_default();
    let or = |text: &'a str, other: String| match text {
        "" => Cow::Owned(other),
        text => Cow::Borrowed(text),
    };
    ObjectReference {
        resource: requested.resource.into(),
        namespace: or(requested.namespace, metadata.namespace),
        name: or(requested.name, metadata.name),
        uid: metadata.uid.into(),
        api_group: requested.group.into(),
        api_version: requested.version.into(),
        resource_version: metadata.resource_version.into(),
        subresource: requested.subresource.into(),
    }
}

pub(super) fn addresses(headers: &HeaderMap, client: Option<&ClientAddress>) -> Vec<IpAddr> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let client = client.map(|client| client.0.ip());
    source_ips(header("x-forwarded-for"), header("x-real-ip"), client)
}

pub(super) fn request_uri(uri: &Uri) -> Cow<'_, str> {
    uri.path_and_query()
        .map_or("/", |path| path.as_str())
        .into()
}

pub(super) fn text(header: Option<&HeaderValue>) -> &str {
    let text = header.and_then(|value| value.to_str().ok());
    text.unwrap_or_default()
}
