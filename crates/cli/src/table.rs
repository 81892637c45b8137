//! Prints the Tables that the server formats, as kubectl does.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use watchet_tail::escaped;

/// The Accept header for a Table.
pub(crate) const ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// A Table of `meta.k8s.io/v1`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Table {
    #[serde(default)]
    pub column_definitions: Vec<Column>,
    #[serde(default)]
    pub rows: Option<Vec<Row>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Column {
    name: String,
    #[serde(default)]
    priority: i32,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Row {
    cells: Vec<Value>,
    object: Option<Value>,
}

/// What to print.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    /// Columns of lower priority too.
    pub wide: bool,
    pub with_namespace: bool,
    /// The time of the state, for which ages are computed.
    pub at: Option<Timestamp>,
}

impl Table {
    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.as_ref().map_or(0, Vec::len)
    }

    /// Returns the text of the table.
    pub(crate) fn text(&self, format: Format) -> String {
        let shown = |(_, column): &(usize, &Column)| format.wide || column.priority == 0;
        let columns: Vec<(usize, &Column)> = self
            .column_definitions
            .iter()
            .enumerate()
            .filter(shown)
            .collect();
        let mut head: Vec<String> = Vec::new();
        head.extend(format.with_namespace.then(|| "NAMESPACE".to_owned()));
        head.extend(columns.iter().map(|(_, column)| column.name.to_uppercase()));
        let mut lines = vec![head];
        for row in self.rows.iter().flatten() {
            let mut cells = Vec::new();
            if format.with_namespace {
                let namespace = row.metadata("namespace").unwrap_or_default();
                cells.push(escaped(namespace));
            }
            cells.extend(columns.iter().map(|(index, column)| {
                let age = format.at.filter(|_| column.name == "Age");
                let age = age.and_then(|at| row.age(at));
                age.unwrap_or_else(|| cell(row.cells.get(*index)))
            }));
            lines.push(cells);
        }
        aligned(&lines)
    }
}

impl Row {
    fn metadata(&self, member: &str) -> Option<&str> {
        self.object.as_ref()?.get("metadata")?.get(member)?.as_str()
    }

    /// Returns the age of the object at the time `at`. The server's cells contain the present age.
    fn age(&self, at: Timestamp) -> Option<String> {
        let created: Timestamp = self.metadata("creationTimestamp")?.parse().ok()?;
        Some(human_duration(
            (at.as_second() - created.as_second()).max(0),
        ))
    }
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "<none>".to_owned(),
        Some(Value::String(text)) if text.is_empty() => String::new(),
        Some(Value::String(text)) => escaped(text),
        Some(other) => escaped(&other.to_string()),
    }
}

/// Returns lines with aligned columns, three spaces apart.
pub(crate) fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            row.push_str(&format!("{cell:<width$}   "));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// Returns a duration as kubectl prints ages: `5s`, `3m12s`, `2h`, `4d`.
pub(crate) fn human_duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => match seconds % 60 {
            0 => format!("{minutes}m"),
            rest => format!("{minutes}m{rest}s"),
        },
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => match minutes % 60 {
            0 => format!("{hours}h"),
            rest => format!("{hours}h{rest}m"),
        },
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => match hours % 24 {
            0 => format!("{days}d"),
            rest => format!("{days}d{rest}h"),
        },
        () if days < 730 => format!("{days}d"),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_are_as_in_kubectl() {
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (192, "3m12s"),
            (600, "10m"),
            (10_800, "3h"),
            (12_600, "3h30m"),
            (100_000, "27h"),
            (260_000, "3d"),
            (86_400 * 30, "30d"),
            (86_400 * 800, "2y"),
        ] {
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn ages_are_those_of_the_past() {
        let table: Table = serde_json::from_value(json!({
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Age", "priority": 0},
                {"name": "IP", "priority": 1}],
            "rows": [{"cells": ["web-0", "60m", null], "object": {"metadata": {
                "namespace": "shop", "creationTimestamp": "2026-11-27T10:00:00Z"}}}],
        }))
        .unwrap();
        let format = |wide, with_namespace, at: Option<&str>| Format {
            wide,
            with_namespace,
            at: at.map(|at| at.parse().unwrap()),
        };
        assert_eq!(
            table.text(format(false, false, Some("2026-11-27T10:05:00Z"))),
            "NAME    AGE\nweb-0   5m\n"
        );
        assert_eq!(
            table.text(format(true, true, None)),
            "NAMESPACE   NAME    AGE   IP\nshop        web-0   60m   <none>\n"
        );
    }
}
