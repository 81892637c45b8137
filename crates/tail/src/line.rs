//! Formats a change as a line: short, wide or JSON. Characters that are not printable are escaped,
//! so that no object can control the terminal.

use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::args::Form;
use super::difference::{self, FieldChange};
use super::managers::author;
use watchet_client::{Deleted, DynamicObject, Notification, key_of};

/// The maximum number of changed fields on a short line, and of characters of a value.
const FIELDS_MAX: usize = 8;
const VALUE_MAX: usize = 60;

/// Formats lines.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    pub form: Form,
    /// Whether to use colours.
    pub colours: bool,
    /// The time zone of the shown times.
    pub zone: TimeZone,
}

/// A change to format.
struct Change<'a> {
    /// The event type, as in a watch.
    event_type: &'static str,
    sign: char,
    colour: &'static str,
    object: &'a Arc<DynamicObject>,
    changes: Vec<FieldChange>,
    /// Whether the change was not observed (the final state is unknown).
    missed: bool,
    /// The field manager that made the change, for the wide form only; `None` if it is unknown. It is unknown for a deletion,
    /// because the managed fields of the object are those of earlier writes.
    author: Option<String>,
}

impl Lines {
    /// Returns the line for `notification` at `now`, without a line end; `None` if nothing changed.
    ///
    /// # Errors
    /// The object cannot be serialized as JSON, which is a bug.
    pub(super) fn line(
        &self,
        notification: &Notification<DynamicObject>,
        now: Timestamp,
    ) -> serde_json::Result<Option<String>> {
        let change = match notification {
            Notification::Added {
                is_in_initial_list: true,
                ..
            } => return Ok(None),
            Notification::Added { object, .. } => Change {
                event_type: "ADDED",
                sign: '+',
                colour: "32",
                object,
                changes: Vec::new(),
                missed: false,
                author: match self.form {
                    Form::Wide => author(None, &serde_json::to_value(&**object)?, &[]),
                    Form::Short | Form::Json => None,
                },
            },
            Notification::Updated { old, new } => {
                if old.metadata.resource_version == new.metadata.resource_version {
                    return Ok(None);
                }
                let (before, after) =
                    (serde_json::to_value(&**old)?, serde_json::to_value(&**new)?);
                let changes = difference::between(&before, &after);
                Change {
                    event_type: "MODIFIED",
                    sign: '~',
                    colour: "33",
                    object: new,
                    author: match self.form {
                        Form::Wide => author(Some(&before), &after, &changes),
                        Form::Short | Form::Json => None,
                    },
                    changes,
                    missed: false,
                }
            }
            Notification::Deleted(deleted) => Change {
                event_type: "DELETED",
                sign: '-',
                colour: "31",
                object: deleted.object(),
                changes: Vec::new(),
                missed: matches!(deleted, Deleted::Unknown(_)),
                author: None,
            },
        };
        match self.form {
            Form::Json => self.json(&change, now).map(Some),
            Form::Short | Form::Wide => Ok(Some(self.text(&change, now))),
        }
    }

    fn json(&self, change: &Change<'_>, now: Timestamp) -> serde_json::Result<String> {
        let changes: Vec<Value> = change
            .changes
            .iter()
            .map(|change| {
                let mut field = json!({"path": change.path});
                for (name, value) in [("old", &change.old), ("new", &change.new)] {
                    if let Some(value) = value {
                        field[name] = value.clone();
                    }
                }
                field
            })
            .collect();
        let mut line = json!({
            "time": now.to_string(),
            "type": change.event_type,
            "key": key_of(&**change.object).as_str(),
            "resourceVersion": change.object.metadata.resource_version,
            "object": serde_json::to_value(&**change.object)?,
        });
        if change.event_type == "MODIFIED" {
            line["changes"] = Value::from(changes);
        }
        if change.missed {
            line["finalStateUnknown"] = Value::from(true);
        }
        serde_json::to_string(&line)
    }

    fn text(&self, change: &Change<'_>, now: Timestamp) -> String {
        let wide = self.form == Form::Wide;
        let time = now
            .to_zoned(self.zone.clone())
            .strftime("%H:%M:%S")
            .to_string();
        let key = escaped(key_of(&**change.object).as_str());
        let sign = self.painted(change.colour, &change.sign.to_string());
        let mut line = format!("{time} {sign} {key}");
        if wide {
            let version = change.object.metadata.resource_version.as_deref();
            write!(line, " @{}", escaped(version.unwrap_or("?")))
                .expect("writing to a String cannot fail");
            if let Some(author) = &change.author {
                write!(line, " by {}", escaped(author)).expect("writing to a String cannot fail");
            }
        }
        let shown = if wide { usize::MAX } else { FIELDS_MAX };
        for (at, change) in change.changes.iter().take(shown).enumerate() {
            let separator = if at == 0 { "  " } else { ", " };
            let path = self.painted("1", &escaped(&change.path));
            let [old, new] = [&change.old, &change.new].map(|value| text_of(value.as_ref(), wide));
            write!(line, "{separator}{path}: {old} -> {new}")
                .expect("writing to a String cannot fail");
        }
        match change.changes.len().saturating_sub(shown) {
            0 => {}
            more => write!(line, ", and {more} more").expect("writing to a String cannot fail"),
        }
        if change.event_type == "MODIFIED" && change.changes.is_empty() {
            line += "  (only bookkeeping fields)";
        }
        if change.missed {
            line += "  (while disconnected)";
        }
        line
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        match self.colours {
            true => format!("\x1b[{colour}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// Returns the text of a value on a line: at most 60 characters of it, unless `whole`.
pub fn text_of(value: Option<&Value>, whole: bool) -> String {
    let text = match value {
        None => return "(none)".to_owned(),
        // A value that could be mistaken for something else is quoted.
        Some(Value::String(text)) if is_word(text) => text.clone(),
        Some(value) => value.to_string(),
    };
    let text = escaped(&text);
    if whole || text.chars().count() <= VALUE_MAX {
        return text;
    }
    let cut: String = text.chars().take(VALUE_MAX).collect();
    format!("{cut}…")
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text != "(none)" && !text.contains([' ', ',', '"', '{', '['])
}

/// Escapes the characters that a terminal interprets.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // Control characters and those that change the text direction.
            c if c.is_control() => escaped.extend(c.escape_unicode()),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                escaped.extend(c.escape_unicode());
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchet_client::{DeletedFinalStateUnknown, ObjectKey};

    fn object(version: u64, spec: Value) -> Arc<DynamicObject> {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {
            "name": "web", "namespace": "n", "resourceVersion": version.to_string(),
            "managedFields": [
                {"manager": "first", "operation": "Update", "time": "2026-01-01T00:00:00Z"},
                {"manager": "last", "operation": "Update", "time": format!("2026-01-02T00:00:{version:02}Z")}],
        }});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn updated(old: Value, new: Value) -> Notification<DynamicObject> {
        Notification::Updated {
            old: object(1, old),
            new: object(2, new),
        }
    }

    fn line(form: Form, notification: &Notification<DynamicObject>) -> Option<String> {
        let lines = Lines {
            form,
            colours: false,
            zone: TimeZone::UTC,
        };
        let now: Timestamp = "2026-11-22T05:06:07.5Z".parse().unwrap();
        lines.line(notification, now).unwrap()
    }

    fn check(form: Form, notification: &Notification<DynamicObject>, expected: &str) {
        assert_eq!(line(form, notification).as_deref(), Some(expected));
    }

    #[test]
    fn a_change_is_a_line() {
        let notification = updated(
            json!({"a": "Pending", "b": 1}),
            json!({"a": "Running", "c": "x y"}),
        );
        check(
            Form::Short,
            &notification,
            r#"05:06:07 ~ n/web  spec.a: Pending -> Running, spec.b: 1 -> (none), spec.c: (none) -> "x y""#,
        );
        let notification = updated(json!({"a": 1}), json!({"a": 2}));
        check(
            Form::Wide,
            &notification,
            "05:06:07 ~ n/web @2 by last (Update)  spec.a: 1 -> 2",
        );
        let notification = updated(json!({}), json!({}));
        check(
            Form::Short,
            &notification,
            "05:06:07 ~ n/web  (only bookkeeping fields)",
        );
        let added = |is_in_initial_list| Notification::Added {
            object: object(1, json!({})),
            is_in_initial_list,
        };
        check(Form::Short, &added(false), "05:06:07 + n/web");
        assert_eq!(
            line(Form::Short, &added(true)),
            None,
            "an object of the initial list"
        );
        let deleted = Notification::Deleted(Deleted::Observed(object(1, json!({}))));
        check(Form::Short, &deleted, "05:06:07 - n/web");
        // It was shown as deleted by the manager of the last write.
        check(Form::Wide, &deleted, "05:06:07 - n/web @1");
        let missed = Deleted::Unknown(DeletedFinalStateUnknown {
            key: ObjectKey::new(Some("n"), "web"),
            object: object(1, json!({})),
        });
        check(
            Form::Short,
            &Notification::Deleted(missed),
            "05:06:07 - n/web  (while disconnected)",
        );
        let same = Notification::Updated {
            old: object(1, json!({})),
            new: object(1, json!({})),
        };
        assert_eq!(
            line(Form::Short, &same),
            None,
            "an update without a new version is not printed"
        );
    }

    #[test]
    fn short_lines_are_limited_and_wide_ones_are_not() {
        let many = |value: &str| -> Value {
            let members = (0..10).map(|n| (format!("f{n}"), Value::from(value)));
            Value::Object(members.collect())
        };
        let notification = updated(many("a"), many(&"x".repeat(100)));
        let short = line(Form::Short, &notification).unwrap();
        assert!(
            short.contains(&format!("spec.f0: a -> {}…,", "x".repeat(60))),
            "{short}"
        );
        assert!(short.ends_with(", and 2 more"), "{short}");
        let wide = line(Form::Wide, &notification).unwrap();
        assert!(
            wide.ends_with(&format!("spec.f9: a -> {}", "x".repeat(100))),
            "{wide}"
        );
    }

    #[test]
    fn json_has_the_changes_and_the_object() {
        let notification = updated(json!({"a": 1}), json!({"b": [2]}));
        let parsed: Value =
            serde_json::from_str(&line(Form::Json, &notification).unwrap()).unwrap();
        assert_eq!(parsed["type"], "MODIFIED");
        assert_eq!(parsed["time"], "2026-11-22T05:06:07.5Z");
        assert_eq!(
            (&parsed["key"], &parsed["resourceVersion"]),
            (&json!("n/web"), &json!("2"))
        );
        let expected = json!([{"path": "spec.a", "old": 1}, {"path": "spec.b", "new": [2]}]);
        assert_eq!(parsed["changes"], expected);
        assert_eq!(parsed["object"]["spec"], json!({"b": [2]}));
    }

    #[test]
    fn terminal_control_characters_are_escaped() {
        let notification = updated(json!({}), json!({"\u{1b}[2J": "a\u{9b}31m\u{202e}b"}));
        let notification = line(Form::Wide, &notification).unwrap();
        assert!(
            !notification.contains(['\u{1b}', '\u{9b}', '\u{202e}']),
            "{notification:?}"
        );
        assert!(notification.contains(r"\u{1b}"), "{notification}");
    }

    #[test]
    fn signs_and_paths_have_colours() {
        let lines = Lines {
            form: Form::Short,
            colours: true,
            zone: TimeZone::UTC,
        };
        let notification = updated(json!({"a": 1}), json!({"a": 2}));
        let line = lines
            .line(&notification, Timestamp::UNIX_EPOCH)
            .unwrap()
            .unwrap();
        assert_eq!(
            line,
            "00:00:00 \x1b[33m~\x1b[0m n/web  \x1b[1mspec.a\x1b[0m: 1 -> 2"
        );
    }
}
