//! `Printer`: the columns of a resource and how to print an object's cells.

use jiff::Timestamp;
use serde_json::Value;

use watchet_registry::table_columns::TableColumn;

/// The columns of a resource, and the function that returns an object's cells in the same order.
#[derive(Debug)]
pub(crate) struct Printer {
    pub(crate) columns: &'static [TableColumn],
    pub(crate) cells: fn(&Value, Timestamp) -> Vec<Value>,
}
