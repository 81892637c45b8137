//! `Event`: the record of one stage of a request.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::Value;

use crate::policy::{Level, Stage};
use watchet_api::{Status, UserInfo};

/// The maximum length of a user agent in bytes; a longer one is truncated, as upstream.
const USER_AGENT_BYTES_MAX: usize = 1024;

/// The beginning of an encoded event.
pub(crate) const TYPE: &[u8] = br#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","#;

/// An event of one stage of a request.
#[derive(Debug, Clone)]
pub struct Event<'a> {
    /// The level of the request.
    pub level: Level,
    /// The header `Audit-Id` of the response; the same for all stages.
    pub audit_id: &'a str,
    /// The stage.
    pub stage: Stage,
    /// The path and the query, as sent.
    pub request_uri: Cow<'a, str>,
    /// The verb on a resource, or the method in lower case.
    pub verb: &'a str,
    /// The authenticated user; empty if the authentication failed.
    pub user: &'a UserInfo,
    /// The impersonated user, if there is one.
    pub impersonated_user: Option<&'a UserInfo>,
    /// The addresses of the client and of the proxies before the server, the client first.
    pub source_ips: &'a [IpAddr],
    /// The header `User-Agent`.
    pub user_agent: &'a str,
    /// The resource; `None` for other paths.
    pub object: Option<ObjectReference<'a>>,
    /// The status of the response; `None` before the response.
    pub response: Option<ResponseStatus<'a>>,
    /// The object in the request; recorded at the levels Request and RequestResponse.
    pub request_object: Option<&'a Value>,
    /// The object in the response; recorded at the level RequestResponse.
    pub response_object: Option<&'a Value>,
    /// When the request arrived.
    pub received: Timestamp,
    /// When the stage began.
    pub reached: Timestamp,
    /// The annotations that authorization and admission have recorded.
    pub annotations: &'a BTreeMap<String, String>,
}

/// The resource of a request; empty members are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectReference<'a> {
    /// Plural.
    pub resource: Cow<'a, str>,
    /// The namespace.
    pub namespace: Cow<'a, str>,
    /// The name in the path, or in the object of the request.
    pub name: Cow<'a, str>,
    /// The uid in the object of the request.
    pub uid: Cow<'a, str>,
    /// The API group.
    pub api_group: Cow<'a, str>,
    /// The version of the group.
    pub api_version: Cow<'a, str>,
    /// The resourceVersion in the object of the request.
    pub resource_version: Cow<'a, str>,
    /// The subresource.
    pub subresource: Cow<'a, str>,
}

/// The status of a response.
#[derive(Debug, Clone, Copy)]
pub struct ResponseStatus<'a> {
    /// The status code.
    pub code: u16,
    /// The body of the response, if that is a `Status`.
    pub status: Option<&'a Status>,
}

/// Returns a user agent of at most the maximum length.
pub(crate) fn truncated(user_agent: &str) -> Cow<'_, str> {
    match user_agent.len() > USER_AGENT_BYTES_MAX {
        true => {
            let end = user_agent.floor_char_boundary(USER_AGENT_BYTES_MAX);
            format!("{}...TRUNCATED", &user_agent[..end]).into()
        }
        false => user_agent.into(),
    }
}
