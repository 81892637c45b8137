//! The columns of the two views, and their values in an object.

use std::cmp::Ordering;

use jiff::Timestamp;
use serde_json::Value;

use crate::status::bytes_text;
use crate::table::human_duration;

/// A view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// The open watches.
    Watchers,
    /// The watch caches.
    Caches,
}

/// How a value is printed, and sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Bytes,
    /// The time since this time.
    Age,
    Flag,
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    /// The title, and the name for `--sort`.
    pub title: &'static str,
    kind: Kind,
    /// JSON pointers to the value; several are joined by dots, without empty ones.
    pointers: &'static [&'static str],
    /// The text instead of an empty one.
    empty: &'static str,
}

const fn column(
    title: &'static str,
    kind: Kind,
    pointers: &'static [&'static str],
    empty: &'static str,
) -> Column {
    Column {
        title,
        kind,
        pointers,
        empty,
    }
}

const WATCHERS: &[Column] = &[
    column("NAME", Kind::Text, &["/metadata/name"], ""),
    column("USER", Kind::Text, &["/spec/user"], "-"),
    column(
        "RESOURCE",
        Kind::Text,
        &["/spec/resource", "/spec/group"],
        "-",
    ),
    column("NAMESPACE", Kind::Text, &["/spec/namespace"], "(all)"),
    column("PHASE", Kind::Text, &["/status/phase"], "-"),
    column("LAG", Kind::Number, &["/status/lag/events"], "-"),
    column("LAG-BYTES", Kind::Bytes, &["/status/lag/bytes"], "-"),
    column("LAG-TIME", Kind::Age, &["/status/lag/since"], "-"),
    column("EVENTS", Kind::Number, &["/status/sentEvents"], "-"),
    column("SENT", Kind::Bytes, &["/status/sentBytes"], "-"),
    column("AGE", Kind::Age, &["/metadata/creationTimestamp"], "-"),
    column("ADDRESS", Kind::Text, &["/spec/address"], "-"),
    column("USER-AGENT", Kind::Text, &["/spec/userAgent"], "-"),
];

const CACHES: &[Column] = &[
    column("NAME", Kind::Text, &["/metadata/name"], ""),
    column("READY", Kind::Flag, &["/status/ready"], "no"),
    column("OBJECTS", Kind::Number, &["/status/objects"], "0"),
    column("SIZE", Kind::Bytes, &["/status/objectBytes"], "0"),
    column(
        "ENCODINGS-SIZE",
        Kind::Bytes,
        &["/status/encodings/bytes"],
        "0",
    ),
    column("WATCHERS", Kind::Number, &["/status/watchers"], "0"),
    column("PARKED", Kind::Number, &["/status/parkedWatchers"], "0"),
    column("RELISTS", Kind::Number, &["/status/relists"], "0"),
    column("HISTORY", Kind::Number, &["/status/history/events"], "0"),
    column("HISTORY-SIZE", Kind::Bytes, &["/status/history/bytes"], "0"),
    column("HISTORY-AGE", Kind::Age, &["/status/history/since"], "-"),
    column("VERSION", Kind::Number, &["/status/resourceVersion"], "-"),
    column(
        "STORAGE-VERSION",
        Kind::Number,
        &["/status/storageResourceVersion"],
        "-",
    ),
    column("MESSAGE", Kind::Text, &["/status/message"], ""),
];

impl View {
    /// Returns the plural name of the resource.
    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Watchers => "watchers",
            Self::Caches => "watchcaches",
        }
    }

    /// Returns the columns.
    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Self::Watchers => WATCHERS,
            Self::Caches => CACHES,
        }
    }

    /// Returns the column by which the view is sorted at first: the largest values come first.
    pub(super) fn default_sort(self) -> usize {
        let title = match self {
            Self::Watchers => "EVENTS",
            Self::Caches => "OBJECTS",
        };
        self.column(title).unwrap_or(0)
    }

    /// Returns the index of the column `title`, in any case.
    pub(super) fn column(self, title: &str) -> Option<usize> {
        let columns = self.columns().iter();
        columns
            .map(|column| column.title)
            .position(|known| known.eq_ignore_ascii_case(title))
    }
}

impl Column {
    /// Returns true if a descending order is expected: the largest first.
    pub(super) fn is_descending(&self) -> bool {
        !matches!(self.kind, Kind::Text | Kind::Flag)
    }

    /// Returns true if the values are aligned on the right.
    pub(super) fn is_number(&self) -> bool {
        self.is_descending()
    }

    /// Returns the value in `object` at the time `now`, as text.
    pub(super) fn text(&self, object: &Value, now: Timestamp) -> String {
        let text = match self.kind {
            Kind::Bytes | Kind::Age if self.first(object).is_none() => String::new(),
            Kind::Text => self.joined(object),
            Kind::Flag => match self.first(object).and_then(Value::as_bool) {
                Some(true) => "yes".to_owned(),
                _ => String::new(),
            },
            Kind::Number => match self.first(object) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                _ => String::new(),
            },
            Kind::Bytes => match self.number(object, now) {
                bytes if bytes < 1024.0 => format!("{bytes}"),
                bytes => bytes_text(bytes as u64),
            },
            Kind::Age => human_duration(self.number(object, now) as i64),
        };
        match text.is_empty() {
            true => self.empty.to_owned(),
            false => watchet_tail::escaped(&text),
        }
    }

    /// Compares two objects by their values.
    pub(super) fn compare(&self, one: &Value, other: &Value, now: Timestamp) -> Ordering {
        match self.kind {
            Kind::Text => self.joined(one).cmp(&self.joined(other)),
            Kind::Flag => self.text(one, now).cmp(&self.text(other, now)),
            _ => self.number(one, now).total_cmp(&self.number(other, now)),
        }
    }

    fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        object.pointer(self.pointers.first()?)
    }

    fn joined(&self, object: &Value) -> String {
        let values = self.pointers.iter();
        let texts = values.filter_map(|pointer| object.pointer(pointer)?.as_str());
        let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
        texts.join(".")
    }

    fn number(&self, object: &Value, now: Timestamp) -> f64 {
        match self.first(object) {
            Some(Value::String(text)) if self.kind == Kind::Age => {
                let since: Option<Timestamp> = text.parse().ok();
                since.map_or(0.0, |since| {
                    now.duration_since(since).as_secs_f64().max(0.0)
                })
            }
            Some(Value::String(text)) => text.parse().unwrap_or(0.0),
            Some(value) => value.as_f64().unwrap_or(0.0),
            None => 0.0,
        }
    }
}
