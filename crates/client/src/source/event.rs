//! Decodes a watch event in one pass.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use watchet_api::Status;

/// The annotation of the bookmark that ends the initial events (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The type of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Added,
    Modified,
    Deleted,
}

/// A watch event.
#[derive(Debug)]
pub(super) enum Event<T> {
    /// `ADDED`, `MODIFIED`, `DELETED`
    Change(Verb, T),
    /// `BOOKMARK`
    Bookmark(Bookmark),
    /// `ERROR`
    Error(Box<Status>),
    /// An unknown type.
    Unknown(String),
}

/// The object of a BOOKMARK event.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Bookmark {
    #[serde(default)]
    metadata: BookmarkMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BookmarkMetadata {
    resource_version: String,
    annotations: Option<BTreeMap<String, String>>,
}

impl Bookmark {
    /// Returns the resource version.
    pub(super) fn version(&self) -> &str {
        &self.metadata.resource_version
    }

    /// Returns true if the bookmark ends the initial events.
    pub(super) fn ends_initial_events(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(INITIAL_EVENTS_END))
            .map(String::as_str)
            == Some("true")
    }
}

/// Decodes only the type of an event's object, after it could not be decoded as the expected one.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Peek {
    #[serde(rename = "type")]
    event_type: String,
    object: PeekedTypes,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PeekedTypes {
    kind: String,
    api_version: String,
}

impl Peek {
    /// Returns the kind if it is not `kind` of `api_version`. A `Status` and a
    /// `PartialObjectMetadata` are never unexpected.
    pub(super) fn unexpected(self, api_version: &str, kind: &str) -> Option<String> {
        let PeekedTypes {
            kind: given,
            api_version: version,
        } = self.object;
        let other = self.event_type != "ERROR"
            && given != "PartialObjectMetadata"
            && !given.is_empty()
            && !kind.is_empty()
            && (given != kind || !version.is_empty() && version != api_version);
        other.then(|| format!("{version}, Kind={given}"))
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Event<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EventVisitor(PhantomData))
    }
}

struct EventVisitor<T>(PhantomData<T>);

/// A member of an event.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Member {
    Type,
    Object,
    #[serde(other)]
    Other,
}

/// The type of an event, which determines that of its object.
enum Type {
    Change(Verb),
    Bookmark,
    Error,
    Unknown(String),
}

impl<'de> Deserialize<'de> for Type {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TypeVisitor)
    }
}

struct TypeVisitor;

impl Visitor<'_> for TypeVisitor {
    type Value = Type;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event type")
    }

    fn visit_str<E>(self, text: &str) -> Result<Type, E> {
        Ok(match text {
            "ADDED" => Type::Change(Verb::Added),
            "MODIFIED" => Type::Change(Verb::Modified),
            "DELETED" => Type::Change(Verb::Deleted),
            "BOOKMARK" => Type::Bookmark,
            "ERROR" => Type::Error,
            other => Type::Unknown(other.to_owned()),
        })
    }
}

impl Type {
    /// Decodes the following object according to the type.
    fn object<'de, T: DeserializeOwned, A: MapAccess<'de>>(
        self,
        map: &mut A,
    ) -> Result<Event<T>, A::Error> {
        Ok(match self {
            Self::Change(verb) => Event::Change(verb, map.next_value()?),
            Self::Bookmark => Event::Bookmark(map.next_value()?),
            Self::Error => Event::Error(map.next_value()?),
            Self::Unknown(text) => {
                map.next_value::<IgnoredAny>()?;
                Event::Unknown(text)
            }
        })
    }

    /// Decodes an object that preceded its type.
    fn buffered<T: DeserializeOwned>(self, object: &RawValue) -> serde_json::Result<Event<T>> {
        Ok(match self {
            Self::Change(verb) => Event::Change(verb, serde_json::from_str(object.get())?),
            Self::Bookmark => Event::Bookmark(serde_json::from_str(object.get())?),
            Self::Error => Event::Error(serde_json::from_str(object.get())?),
            Self::Unknown(text) => Event::Unknown(text),
        })
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for EventVisitor<T> {
    type Value = Event<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a watch event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event<T>, A::Error> {
        let mut event_type = None;
        let mut buffered: Option<Box<RawValue>> = None;
        let mut event = None;
        while let Some(member) = map.next_key()? {
            match (member, event_type.take()) {
                (Member::Type, _) => event_type = Some(map.next_value::<Type>()?),
                (Member::Object, Some(event_type)) => event = Some(event_type.object(&mut map)?),
                // No server is known to write this order, but it is valid.
                (Member::Object, None) => buffered = Some(map.next_value()?),
                (Member::Other, before) => {
                    map.next_value::<IgnoredAny>()?;
                    event_type = before;
                }
            }
        }
        match (event, event_type, buffered) {
            (Some(event), ..) => Ok(event),
            (None, Some(event_type), Some(object)) => {
                event_type.buffered(&object).map_err(A::Error::custom)
            }
            (None, Some(_), None) => Err(A::Error::missing_field("object")),
            (None, None, _) => Err(A::Error::missing_field("type")),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn decode(line: &str) -> serde_json::Result<Event<ConfigMap>> {
        serde_json::from_str(line)
    }

    #[test]
    fn members_are_decoded_in_any_order() {
        let object = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#;
        for line in [
            format!(r#"{{"type":"MODIFIED","object":{object}}}"#),
            format!(r#"{{"object":{object},"x":[],"type":"MODIFIED"}}"#),
        ] {
            match decode(&line).unwrap() {
                Event::Change(Verb::Modified, map) => {
                    assert_eq!(map.metadata.name.as_deref(), Some("a"));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(
            decode(r#"{"type":"SURPRISE","object":{"x":1}}"#),
            Ok(Event::Unknown(text)) if text == "SURPRISE"
        ));
        for half in [
            r#"{"type":"ADDED"}"#,
            r#"{"object":{}}"#,
            "{}",
            "[]",
            r#"{"type":"ADDED","obj"#,
        ] {
            assert!(decode(half).is_err(), "{half}");
        }
    }

    #[test]
    fn bookmarks_and_errors_are_distinguished() {
        let bookmark = |line| match decode(line).unwrap() {
            Event::Bookmark(bookmark) => (
                bookmark.version().to_owned(),
                bookmark.ends_initial_events(),
            ),
            other => panic!("{other:?}"),
        };
        let plain = r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"5","annotations":null}}}"#;
        assert_eq!(bookmark(plain), ("5".into(), false));
        let end = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"6","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        assert_eq!(bookmark(end), ("6".into(), true));
        let error = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}}"#;
        assert!(matches!(decode(error).unwrap(), Event::Error(status) if status.code == 410));
    }

    #[test]
    fn an_object_of_another_kind_is_detected() {
        let line = r#"{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1"}}"#;
        assert!(decode(line).is_err());
        let peek = || serde_json::from_str::<Peek>(line).unwrap();
        assert_eq!(
            peek().unexpected("v1", "ConfigMap").as_deref(),
            Some("v1, Kind=Secret")
        );
        assert_eq!(peek().unexpected("v1", "Secret"), None);
        assert_eq!(peek().unexpected("v1", ""), None);
    }
}
