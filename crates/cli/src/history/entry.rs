//! An entry of a history: a version of the object, or an Event about it.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::diff::changes_json;
use crate::output::{self, Paint};
use crate::revisions::local;
use watchet_tail::{FieldChange, escaped};

/// A version of the object.
#[derive(Debug, Clone)]
pub(super) struct Version {
    pub revision: String,
    /// When it was written; `None` if that is unknown.
    pub time: Option<Timestamp>,
    /// The type of the watch event; `RETAINED` for the oldest version, whose change is not retained.
    pub event_type: String,
    /// The field manager; `None` if it is unknown.
    pub author: Option<String>,
    pub changes: Vec<FieldChange>,
    /// True if the version before is not retained.
    pub has_unknown_changes: bool,
}

impl Version {
    /// Returns the oldest version that is retained.
    pub(super) fn oldest(object: &Value) -> Self {
        let revision = object["metadata"]["resourceVersion"].as_str();
        let managed = object["metadata"]["managedFields"].as_array();
        let times = managed.into_iter().flatten();
        let times = times.filter_map(|entry| entry["time"].as_str()?.parse().ok());
        Self {
            revision: revision.unwrap_or_default().to_owned(),
            time: times.max(),
            event_type: "RETAINED".to_owned(),
            author: None,
            changes: Vec::new(),
            has_unknown_changes: false,
        }
    }
}

/// An entry of a history.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    Version(Version),
    /// An Event (`v1`) and its time.
    Event(Timestamp, Value),
}

/// Adds Events to the versions, which are in order: each before the first later version.
pub(super) fn insert_events(entries: &mut Vec<Entry>, mut events: Vec<(Timestamp, Value)>) {
    events.sort_by_key(|(time, _)| *time);
    for (time, event) in events {
        let is_later = |entry: &Entry| match entry {
            Entry::Version(version) => version.time.is_some_and(|other| other > time),
            Entry::Event(other, _) => *other > time,
        };
        let at = entries.iter().position(is_later).unwrap_or(entries.len());
        entries.insert(at, Entry::Event(time, event));
    }
}

impl Entry {
    /// Returns the lines of the entry.
    pub(super) fn text(&self, paint: Paint) -> String {
        match self {
            Self::Version(version) => version.text(paint),
            Self::Event(time, event) => {
                let text = |member: &str| event[member].as_str().unwrap_or_default();
                let source = match event["source"]["component"].as_str() {
                    Some(component) if !component.is_empty() => component,
                    _ => text("reportingComponent"),
                };
                let count = match event["count"].as_u64() {
                    Some(count) if count > 1 => format!(", {count} times"),
                    _ => String::new(),
                };
                let line = format!(
                    "Event {} {}: {} ({source}{count})",
                    text("type"),
                    text("reason"),
                    text("message")
                );
                format!("{}  {}\n", local(*time), escaped(&line))
            }
        }
    }

    /// Returns the entry as JSON.
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Version(version) => json!({
                "type": version.event_type,
                "time": version.time.map(|time| time.to_string()),
                "resourceVersion": version.revision,
                "manager": version.author,
                "changes": changes_json(&version.changes),
            }),
            Self::Event(time, event) => {
                json!({"type": "EVENT", "time": time.to_string(), "event": event})
            }
        }
    }
}

impl Version {
    fn text(&self, paint: Paint) -> String {
        let time = match self.time {
            Some(time) => local(time),
            None => "time unknown       ".to_owned(),
        };
        let (colour, sign, what) = match self.event_type.as_str() {
            "ADDED" => ("32", "+", "created "),
            "DELETED" => ("31", "-", "deleted "),
            "RETAINED" => ("36", "=", "oldest retained version"),
            _ => ("33", "~", ""),
        };
        let sign = paint.paint(colour, sign);
        let author = match (&self.author, self.event_type.as_str()) {
            (_, "RETAINED") => String::new(),
            (author, _) => format!("by {}", author.as_deref().unwrap_or("unknown")),
        };
        let revision = escaped(&self.revision);
        let author = escaped(&author);
        let mut text = format!("{time}  @{revision} {sign} {what}{author}\n");
        if self.has_unknown_changes {
            text.push_str("    (the version before is not retained)\n");
        } else if self.event_type == "MODIFIED" && self.changes.is_empty() {
            text.push_str("    (only managed fields, resourceVersion or generation)\n");
        }
        output::push_changes(&mut text, &self.changes, paint);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_between_the_versions() {
        let version = |revision: &str, time: Option<&str>| {
            Entry::Version(Version {
                revision: revision.to_owned(),
                time: time.map(|time| time.parse().unwrap()),
                event_type: "MODIFIED".to_owned(),
                author: None,
                changes: Vec::new(),
                has_unknown_changes: false,
            })
        };
        let mut entries = vec![
            version("1", Some("2026-11-27T10:00:00Z")),
            version("2", None),
            version("3", Some("2026-11-27T10:00:09Z")),
        ];
        let event = |reason: &str, time: &str| (time.parse().unwrap(), json!({"reason": reason}));
        insert_events(
            &mut entries,
            vec![
                event("c", "2026-11-27T10:00:30Z"),
                event("b", "2026-11-27T10:00:05Z"),
                event("a", "2026-11-27T10:00:01Z"),
            ],
        );
        let names: Vec<String> = entries
            .iter()
            .map(|entry| match entry {
                Entry::Version(version) => version.revision.clone(),
                Entry::Event(_, event) => event["reason"].as_str().unwrap().to_owned(),
            })
            .collect();
        assert_eq!(names, ["1", "2", "a", "b", "3", "c"]);
    }
}
