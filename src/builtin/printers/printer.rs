//! `Printer`: the columns of a resource and how to print an object's cells.

use jiff::Timestamp;
use serde_json::Value;

use crate::registry::table_columns::TableColumn;

/// The columns of a resource, and the function that returns an object's cells in the same order.
#[derive(Debug)]
pub(in crate::builtin) struct Printer {
    pub(in crate::builtin) columns: &'static [TableColumn],
    pub(in crate::builtin) cells: fn(&Value, Timestamp) -> Vec<Value>,
}
