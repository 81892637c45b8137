//! `Event`: what is recorded about one stage of a request. It serializes as `Event` of `audit.k8s.io/v1`.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::Offset;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::policy::{Level, Stage};
use watchet_api::{Status, StatusDetails, UserInfo};

/// The maximum length of a user agent in bytes; a longer one is truncated, as upstream.
const USER_AGENT_BYTES_MAX: usize = 1024;

/// The beginning of an encoded event.
pub(crate) const TYPE: &[u8] = br#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","#;

/// The maximum capacity of a buffer between two events in bytes.
const BUFFER_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Reused, because an event is encoded before its size is known.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An event of one stage of a request.
#[derive(Debug, Clone)]
pub struct Event<'a> {
    /// How much it contains.
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
    /// The user that the request acts as, if another.
    pub impersonated_user: Option<&'a UserInfo>,
    /// The client and the proxies in between, the client first.
    pub source_ips: &'a [IpAddr],
    /// The header `User-Agent`.
    pub user_agent: &'a str,
    /// The resource, if the request is about one.
    pub object: Option<ObjectReference<'a>>,
    /// `None` before there is a response.
    pub response: Option<ResponseStatus<'a>>,
    /// From level Request on.
    pub request_object: Option<&'a Value>,
    /// At level RequestResponse.
    pub response_object: Option<&'a Value>,
    /// When the request arrived.
    pub received: Timestamp,
    /// When the stage began.
    pub reached: Timestamp,
    /// What authorization and admission have recorded.
    pub annotations: &'a BTreeMap<String, String>,
}

impl Event<'_> {
    /// Returns the JSON with a line break.
    ///
    /// # Errors
    /// A value cannot be represented in JSON.
    pub(crate) fn line(&self) -> serde_json::Result<Bytes> {
        BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            serde_json::to_writer(&mut *buffer, self)?;
            buffer.push(b'\n');
            // An allocation without unused capacity, which would not be counted.
            let line = Bytes::copy_from_slice(buffer);
            buffer.shrink_to(BUFFER_BYTES_MAX);
            Ok(line)
        })
    }
}

/// The resource of a request; empty members are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference<'a> {
    /// Plural.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource: Cow<'a, str>,
    /// The namespace.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: Cow<'a, str>,
    /// The name in the path, or in the object of the request.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Cow<'a, str>,
    /// The uid in the object of the request.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: Cow<'a, str>,
    /// The API group.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_group: Cow<'a, str>,
    /// The version of the group.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_version: Cow<'a, str>,
    /// The resourceVersion in the object of the request.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource_version: Cow<'a, str>,
    /// The subresource.
    #[serde(skip_serializing_if = "str::is_empty")]
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusView<'a> {
    metadata: &'a Map<String, Value>,
    #[serde(skip_serializing_if = "str::is_empty")]
    status: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a StatusDetails>,
    code: u16,
}

impl Serialize for ResponseStatus<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |part: fn(&Status) -> &String| self.status.map_or("", |status| part(status));
        let view = StatusView {
            metadata: &Map::new(),
            status: text(|status| &status.status),
            message: text(|status| &status.message),
            reason: text(|status| &status.reason),
            details: self.status.and_then(|status| status.details.as_ref()),
            code: self.code,
        };
        view.serialize(serializer)
    }
}

/// The members of an event in upstream's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    request_uri: &'a str,
    verb: &'a str,
    user: &'a UserInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<&'a UserInfo>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[IpAddr]>::is_empty")]
    source_ips: &'a [IpAddr],
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<&'a ObjectReference<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<ResponseStatus<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<&'a Value>,
    #[serde(serialize_with = "micro_time")]
    request_received_timestamp: Timestamp,
    #[serde(serialize_with = "micro_time")]
    stage_timestamp: Timestamp,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
}

/// Serializes as `MicroTime`: always with six digits of the second. Written out, because the formatter takes several times
/// as long, and every event has two times.
#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature of serialize_with"
)]
fn micro_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    let utc = Offset::UTC.to_datetime(*time);
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    for (digits, number) in [
        (0..4, i32::from(utc.year())),
        (5..7, utc.month().into()),
        (8..10, utc.day().into()),
        (11..13, utc.hour().into()),
        (14..16, utc.minute().into()),
        (17..19, utc.second().into()),
        (20..26, utc.subsec_nanosecond() / 1_000),
    ] {
        let mut rest = number.unsigned_abs();
        for digit in text[digits].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
    match std::str::from_utf8(&text) {
        Ok(text) if utc.year() >= 0 => serializer.serialize_str(text),
        Ok(_) | Err(_) => serializer.collect_str(&format_args!("{time:.6}")),
    }
}

impl Serialize for Event<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let user_agent = truncated(self.user_agent);
        let view = View {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: self.level.as_str(),
            audit_id: self.audit_id,
            stage: self.stage.as_str(),
            request_uri: &self.request_uri,
            verb: self.verb,
            user: self.user,
            impersonated_user: self.impersonated_user,
            source_ips: self.source_ips,
            user_agent: &user_agent,
            object_ref: self.object.as_ref(),
            response_status: self.response,
            request_object: self.request_object,
            response_object: self.response_object,
            request_received_timestamp: self.received,
            stage_timestamp: self.reached,
            annotations: self.annotations,
        };
        view.serialize(serializer)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_six_digits_of_the_second() {
        for time in [
            "1970-01-01T00:00:00Z",
            "2026-11-23T15:58:02.338954999Z",
            "2024-02-29T23:59:59.000001Z",
            "9999-12-30T22:00:00.9Z",
            "-000009-01-01T00:00:00.5Z",
        ] {
            let time: Timestamp = time.parse().unwrap();
            let mut text = Vec::new();
            micro_time(&time, &mut serde_json::Serializer::new(&mut text)).unwrap();
            assert_eq!(String::from_utf8(text).unwrap(), format!("\"{time:.6}\""));
        }
    }
}
