//! The columns of Tables, which show objects as rows for people.

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
    /// For people.
    pub description: Cow<'static, str>,
    /// 0 is always shown; above, only by `-o wide`.
    pub priority: i32,
}

impl TableColumn {
    pub(crate) const fn text(name: &'static str, description: &'static str) -> Self {
        Self::column(name, "string", "", description, 0)
    }

    pub(crate) const fn integer(name: &'static str, description: &'static str) -> Self {
        Self::column(name, "integer", "", description, 0)
    }

    pub(crate) const fn boolean(name: &'static str, description: &'static str) -> Self {
        Self::column(name, "boolean", "", description, 0)
    }

    pub(crate) const fn wide(name: &'static str, description: &'static str) -> Self {
        Self::column(name, "string", "", description, 1)
    }

    pub(crate) const fn column(
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

pub(crate) const NAME_DESCRIPTION: &str = "What the object is called, unique in its namespace.";
pub(crate) const NAME: TableColumn =
    TableColumn::column("Name", "string", "name", NAME_DESCRIPTION, 0);
pub(crate) const AGE: TableColumn =
    TableColumn::text("Age", "How long ago the object was created.");
