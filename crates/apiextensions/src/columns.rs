//! The columns of a definition in Tables (`additionalPrinterColumns`), and the cells of an object.

use jiff::Timestamp;
use serde_json::{Number, Value, json};

use super::definition::{Column, Version};
use super::json_path::JsonPath;
use watchet_registry::age;
use watchet_registry::table_columns::{NAME, TableColumn};

/// The columns of one version and how their cells are computed.
#[derive(Debug, Clone)]
pub(crate) struct Printer {
    columns: Vec<TableColumn>,
    /// The cells after the name.
    cells: Vec<Cell>,
}

#[derive(Debug, Clone)]
struct Cell {
    r#type: String,
    /// `None` for an invalid path, whose cell is empty; such a definition is rejected when it is written.
    path: Option<JsonPath>,
}

impl Printer {
    /// Returns the columns of `version`. The default is the age.
    pub(super) fn new(version: &Version) -> Self {
        let age = Column {
            name: "Age".to_owned(),
            r#type: "date".to_owned(),
            description: "How long ago the object was created.".to_owned(),
            json_path: ".metadata.creationTimestamp".to_owned(),
            ..Column::default()
        };
        let own = match version.additional_printer_columns.as_slice() {
            [] => std::slice::from_ref(&age),
            own => own,
        };
        let column = |column: &Column| TableColumn {
            name: column.name.clone().into(),
            r#type: column.r#type.clone().into(),
            format: column.format.clone().into(),
            description: match column.description.is_empty() {
                true => format!(
                    "Custom resource definition column (in JSONPath format): {}",
                    column.json_path
                ),
                false => column.description.clone(),
            }
            .into(),
            priority: column.priority,
        };
        let cell = |column: &Column| Cell {
            r#type: column.r#type.clone(),
            path: JsonPath::parse(&column.json_path).ok(),
        };
        Self {
            columns: std::iter::once(NAME)
                .chain(own.iter().map(column))
                .collect(),
            cells: own.iter().map(cell).collect(),
        }
    }

    /// Returns the name and the columns of the definition.
    pub(crate) fn columns(&self) -> &[TableColumn] {
        &self.columns
    }

    /// Returns the cells of `object` in the same order, at the time `now`.
    pub(crate) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let name = &object["metadata"]["name"];
        let rest = self.cells.iter().map(|cell| cell.of(object, now));
        std::iter::once(name.clone()).chain(rest).collect()
    }
}

impl Cell {
    /// Returns the first value that the path finds, if it has the type of the column.
    fn of(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.as_ref().map(|path| path.find(object));
        let Some(value) = found.unwrap_or_default().first().copied() else {
            return Value::Null;
        };
        match (&*self.r#type, value) {
            ("string", value) => text(value).into(),
            ("boolean", Value::Bool(_)) => value.clone(),
            ("integer", Value::Number(number)) => integer(number),
            ("number", Value::Number(number)) => json!(number.as_f64()),
            ("date", Value::String(_)) => match age::time(value) {
                Some(time) => age::age(Some(time), now).into(),
                None => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}

/// Returns a number without its fraction.
fn integer(number: &Number) -> Value {
    match (number.as_i64(), number.as_f64()) {
        (Some(whole), _) => whole.into(),
        #[allow(
            clippy::cast_possible_truncation,
            reason = "it saturates, as a conversion in Go does"
        )]
        (None, Some(fraction)) => (fraction as i64).into(),
        (None, None) => Value::Null,
    }
}

/// Formats any value as the text of a cell.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<no value>".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(r#type: &str, path: &str) -> Value {
        let version: Version = serde_json::from_value(json!({
            "additionalPrinterColumns": [{"name": "C", "type": r#type, "jsonPath": path}],
        }))
        .unwrap();
        let object = json!({
            "metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"n": 3, "f": 2.7, "b": true, "s": "t", "l": [1, "a"], "o": {"k": null}},
        });
        let now = "2026-01-01T00:01:05Z".parse().unwrap();
        let cells = Printer::new(&version).cells(&object, now);
        assert_eq!(cells[0], "x");
        cells[1].clone()
    }

    #[test]
    fn cells_follow_their_type() {
        for (r#type, path, expected) in [
            ("string", ".spec.s", json!("t")),
            ("string", ".spec.n", json!("3")),
            ("string", ".spec.b", json!("true")),
            ("string", ".spec.l", json!("[1,\"a\"]")),
            ("string", ".spec.o.k", json!("<no value>")),
            ("string", ".spec.none", Value::Null),
            ("integer", ".spec.n", json!(3)),
            ("integer", ".spec.f", json!(2)),
            ("integer", ".spec.s", Value::Null),
            ("number", ".spec.n", json!(3.0)),
            ("number", ".spec.f", json!(2.7)),
            ("boolean", ".spec.b", json!(true)),
            ("boolean", ".spec.s", Value::Null),
            ("date", ".metadata.creationTimestamp", json!("65s")),
            ("date", ".spec.s", json!("<invalid>")),
            ("date", ".spec.n", Value::Null),
        ] {
            assert_eq!(cell(r#type, path), expected, "{type} {path}");
        }
    }

    #[test]
    fn default_column_is_age() {
        let printer = Printer::new(&Version::default());
        let names: Vec<&str> = printer.columns().iter().map(|c| &*c.name).collect();
        assert_eq!(names, ["Name", "Age"]);
    }
}
