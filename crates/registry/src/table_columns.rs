//! The columns of Tables.

use std::borrow::Cow;

/// One column of a Table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    /// The heading.
    pub name: Cow<'static, str>,
    /// An OpenAPI type: `string`, `integer`.
    pub r#type: Cow<'static, str>,
    /// An OpenAPI format; `name` marks the column that names the object.
    pub format: Cow<'static, str>,
    /// The description of the column.
    pub description: Cow<'static, str>,
    /// Clients always show columns of priority 0; `-o wide` shows all.
    pub priority: i32,
}

impl TableColumn {
    /// Returns a column of text.
    pub const fn text(name: &'static str, description: &'static str) -> Self {
        Self::column(name, "string", "", description, 0)
    }

    /// Returns a column of integers.
    pub const fn integer(name: &'static str, description: &'static str) -> Self {
        Self::column(name, "integer", "", description, 0)
    }

    /// Returns a column of booleans.
    pub const fn boolean(name: &'static str, description: &'static str) -> Self {
        Self::column(name, "boolean", "", description, 0)
    }

    /// Returns a column of text that only `-o wide` shows.
    pub const fn wide(name: &'static str, description: &'static str) -> Self {
        Self::column(name, "string", "", description, 1)
    }

    /// Returns a column.
    pub const fn column(
        name: &'static str,
        r#type: &'static str,
        format: &'static str,
        description: &'static str,
        priority: i32,
    ) -> Self {
        Self {
            name: Cow::Borrowed(name),
            r#type: Cow::Borrowed(r#type),
            format: Cow::Borrowed(format),
            description: Cow::Borrowed(description),
            priority,
        }
    }
}

/// The description of the column `Name`.
pub const NAME_DESCRIPTION: &str = "What the object is called, unique in its namespace.";
/// The column `Name`.
pub const NAME: TableColumn = TableColumn::column("Name", "string", "name", NAME_DESCRIPTION, 0);
/// The column `Age`.
pub const AGE: TableColumn = TableColumn::text("Age", "How long ago the object was created.");
