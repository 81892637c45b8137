//! The JSON of an event: `Event` of `audit.k8s.io/v1`, with its members in upstream's order.

use std::cell::RefCell;
use std::io::Write as _;

use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::Offset;

use crate::event::{Event, ObjectReference, ResponseStatus, TYPE, truncated};
use crate::object_writer::{ObjectWriter, write_text, write_texts};
use watchet_api::{Status, UserInfo};

/// The maximum capacity of a buffer between two events in bytes.
const BUFFER_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// The buffer of the thread, reused because the size of an event is known only after its encoding.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Event<'_> {
    /// Returns the JSON with a line break.
    ///
    /// # Errors
    /// A value cannot be represented in JSON.
    pub(crate) fn line(&self) -> serde_json::Result<Bytes> {
        BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            write_event(buffer, self)?;
            buffer.push(b'\n');
            // A copy without unused capacity: the queue counts only the length.
            let line = Bytes::copy_from_slice(buffer);
            buffer.shrink_to(BUFFER_BYTES_MAX);
            Ok(line)
        })
    }
}

/// Appends the JSON of an event.
///
/// # Errors
/// A value cannot be represented in JSON.
fn write_event(buffer: &mut Vec<u8>, event: &Event<'_>) -> serde_json::Result<()> {
    buffer.extend_from_slice(TYPE);
    let mut object = ObjectWriter::of_begun(buffer);
    object.text("level", event.level.as_str())?;
    object.text("auditID", event.audit_id)?;
    object.text("stage", event.stage.as_str())?;
    object.text("requestURI", &event.request_uri)?;
    object.text("verb", event.verb)?;
    write_user(object.key("user"), event.user)?;
    if let Some(user) = event.impersonated_user {
        write_user(object.key("impersonatedUser"), user)?;
    }
    if !event.source_ips.is_empty() {
        object.value("sourceIPs", event.source_ips)?;
    }
    object.text_if_any("userAgent", &truncated(event.user_agent))?;
    if let Some(reference) = &event.object {
        write_reference(object.key("objectRef"), reference)?;
    }
    if let Some(response) = event.response {
        write_response(object.key("responseStatus"), response)?;
    }
    for (key, value) in [
        ("requestObject", event.request_object),
        ("responseObject", event.response_object),
    ] {
        if let Some(value) = value {
            object.value(key, value)?;
        }
    }
    write_time(object.key("requestReceivedTimestamp"), event.received)?;
    write_time(object.key("stageTimestamp"), event.reached)?;
    if !event.annotations.is_empty() {
        let mut annotations = ObjectWriter::begin(object.key("annotations"));
        for (key, value) in event.annotations {
            write_text(annotations.any_key(key)?, value)?;
        }
        annotations.end();
    }
    object.end();
    Ok(())
}

/// Appends a user, as [`UserInfo`] serializes.
fn write_user(buffer: &mut Vec<u8>, user: &UserInfo) -> serde_json::Result<()> {
    let UserInfo {
        name,
        uid,
        groups,
        extra,
    } = user;
    let mut object = ObjectWriter::begin(buffer);
    object.text_if_any("username", name)?;
    object.text_if_any("uid", uid)?;
    if !groups.is_empty() {
        object.texts("groups", groups)?;
    }
    if !extra.is_empty() {
        let mut members = ObjectWriter::begin(object.key("extra"));
        for (key, values) in extra {
            write_texts(members.any_key(key)?, values)?;
        }
        members.end();
    }
    object.end();
    Ok(())
}

fn write_reference(
    buffer: &mut Vec<u8>,
    reference: &ObjectReference<'_>,
) -> serde_json::Result<()> {
    let mut object = ObjectWriter::begin(buffer);
    for (key, text) in [
        ("resource", &reference.resource),
        ("namespace", &reference.namespace),
        ("name", &reference.name),
        ("uid", &reference.uid),
        ("apiGroup", &reference.api_group),
        ("apiVersion", &reference.api_version),
        ("resourceVersion", &reference.resource_version),
        ("subresource", &reference.subresource),
    ] {
        object.text_if_any(key, text)?;
    }
    object.end();
    Ok(())
}

fn write_response(buffer: &mut Vec<u8>, response: ResponseStatus<'_>) -> serde_json::Result<()> {
    let mut object = ObjectWriter::begin(buffer);
    object.key("metadata").extend_from_slice(b"{}");
    if let Some(Status {
        status,
        message,
        reason,
        details,
        ..
    }) = response.status
    {
        object.text_if_any("status", status)?;
        object.text_if_any("message", message)?;
        object.text_if_any("reason", reason)?;
        if let Some(details) = details {
            object.value("details", details)?;
        }
    }
    object.value("code", &response.code)?;
    object.end();
    Ok(())
}

/// Appends a `MicroTime`: always with six digits of the second. Written out, because the formatter takes several times as
/// long, and every event has two times.
fn write_time(buffer: &mut Vec<u8>, time: Timestamp) -> serde_json::Result<()> {
    let utc = Offset::UTC.to_datetime(time);
    let Ok(year) = u32::try_from(utc.year()) else {
        let written = write!(buffer, "\"{time:.6}\"");
        return written.map_err(serde_json::Error::io);
    };
    let number = |number: i8| u32::from(number.unsigned_abs());
    let microsecond = utc.subsec_nanosecond().unsigned_abs() / 1_000;
    let mut text = *b"\"0000-00-00T00:00:00.000000Z\"";
    for (digits, number) in [
        (1..5, year),
        (6..8, number(utc.month())),
        (9..11, number(utc.day())),
        (12..14, number(utc.hour())),
        (15..17, number(utc.minute())),
        (18..20, number(utc.second())),
        (21..27, microsecond),
    ] {
        let mut rest = number;
        for digit in text[digits].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
    buffer.extend_from_slice(&text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use crate::policy::{Level, Stage};

    fn encoded(event: &Event<'_>) -> Value {
        let mut buffer = Vec::new();
        write_event(&mut buffer, event).unwrap();
        serde_json::from_slice(&buffer).unwrap()
    }

    #[test]
    fn events_have_the_members_of_upstream() {
        let user = UserInfo {
            name: "jane \"x\"".to_owned(),
            uid: "u".to_owned(),
            groups: vec!["a".to_owned(), "b\n".to_owned()],
            extra: BTreeMap::from([("k\\".to_owned(), vec!["v".to_owned(), "w".to_owned()])]),
        };
        let unnamed = UserInfo::default();
        let annotations = BTreeMap::from([("a/b".to_owned(), "\"quoted\"".to_owned())]);
        let ips = ["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        let status = Status::failure(403, "Forbidden", "no\trole".to_owned());
        let object = json!({"kind": "Pod"});
        let received = "2026-11-24T09:50:00.12Z".parse().unwrap();
        let event = Event {
            level: Level::RequestResponse,
            audit_id: "1",
            stage: Stage::ResponseComplete,
            request_uri: "/api/v1/pods?labelSelector=a%3Db".into(),
            verb: "list",
            user: &user,
            impersonated_user: Some(&unnamed),
            source_ips: &ips,
            user_agent: "kubectl",
            object: Some(ObjectReference {
                resource: "pods".into(),
                namespace: "default".into(),
                name: "p".into(),
                uid: "u".into(),
                api_group: "g".into(),
                api_version: "v1".into(),
                resource_version: "7".into(),
                subresource: "status".into(),
            }),
            response: Some(ResponseStatus {
                code: 403,
                status: Some(&status),
            }),
            request_object: Some(&object),
            response_object: Some(&object),
            received,
            reached: received,
            annotations: &annotations,
        };
        let expected = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "1",
            "stage": "ResponseComplete", "requestURI": "/api/v1/pods?labelSelector=a%3Db", "verb": "list",
            "user": user, "impersonatedUser": {}, "sourceIPs": ["10.0.0.1", "::1"], "userAgent": "kubectl",
            "objectRef": {
                "resource": "pods", "namespace": "default", "name": "p", "uid": "u", "apiGroup": "g",
                "apiVersion": "v1", "resourceVersion": "7", "subresource": "status",
            },
            "responseStatus": {
                "metadata": {}, "status": "Failure", "message": "no\trole", "reason": "Forbidden", "code": 403,
            },
            "requestObject": object, "responseObject": object,
            "requestReceivedTimestamp": "2026-11-24T09:50:00.120000Z",
            "stageTimestamp": "2026-11-24T09:50:00.120000Z", "annotations": annotations,
        });
        assert_eq!(encoded(&event), expected);
        let mut text = Vec::new();
        write_event(&mut text, &event).unwrap();
        let text = String::from_utf8(text).unwrap();
        // Upstream's order.
        let places = [
            "kind",
            "apiVersion",
            "level",
            "auditID",
            "stage",
            "requestURI",
            "verb",
            "user",
            "impersonatedUser",
            "sourceIPs",
            "userAgent",
            "objectRef",
            "responseStatus",
            "requestObject",
            "responseObject",
            "requestReceivedTimestamp",
            "stageTimestamp",
            "annotations",
        ];
        let places = places.map(|key| text.find(&format!("\"{key}\":")).expect(key));
        assert!(places.is_sorted(), "{places:?}");

        let (annotations, minimal) = (
            BTreeMap::new(),
            Event {
                user: &unnamed,
                ..event.clone()
            },
        );
        let minimal = Event {
            impersonated_user: None,
            source_ips: &[],
            user_agent: "",
            object: None,
            response: None,
            request_object: None,
            response_object: None,
            annotations: &annotations,
            ..minimal
        };
        let mut expected = expected;
        expected["user"] = json!({});
        let absent = [
            "impersonatedUser",
            "sourceIPs",
            "userAgent",
            "objectRef",
            "responseStatus",
            "requestObject",
            "responseObject",
            "annotations",
        ];
        for key in absent {
            expected.as_object_mut().unwrap().remove(key);
        }
        assert_eq!(encoded(&minimal), expected);
    }

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
            write_time(&mut text, time).unwrap();
            assert_eq!(String::from_utf8(text).unwrap(), format!("\"{time:.6}\""));
        }
    }
}
