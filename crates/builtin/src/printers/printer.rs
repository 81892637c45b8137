//! `Printer`: the columns of a resource and how to print an object's cells.

use jiff::Timestamp;
use serde_json::Value;

use watchet_registry::PrintedFields;
use watchet_registry::table_columns::TableColumn;

/// The columns of a resource, and the function that returns an object's cells in the same order.
#[derive(Debug)]
pub(crate) struct Printer {
    pub(crate) columns: &'static [TableColumn],
    /// The fields that `cells` reads.
    pub(crate) fields: Fields,
    pub(crate) cells: fn(&Value, Timestamp) -> Vec<Value>,
}

/// The fields of an object that the cells of a row are printed from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fields {
    /// All but the managed fields, which no cell is printed from.
    AllButManaged,
    /// Those at these paths, as in [`PrintedFields::from_paths`].
    Paths(&'static [&'static str]),
}

impl From<Fields> for PrintedFields {
    fn from(fields: Fields) -> Self {
        match fields {
            Fields::AllButManaged => Self::all_but_managed_fields(),
            Fields::Paths(paths) => Self::from_paths(paths),
        }
    }
}
