//! The path to a value in the messages of errors.

use std::fmt::{self, Write as _};

/// Maximum length of a reported path in bytes. A key can have megabytes.
pub(super) const PATH_BYTES_MAX: usize = 4_096;

/// The path to a value, formatted only for errors.
#[derive(Clone, Copy)]
pub(super) struct Path<'p> {
    pub(super) before: Option<&'p Path<'p>>,
    pub(super) step: Step<'p>,
}

#[derive(Clone, Copy)]
pub(super) enum Step<'p> {
    /// A field of an object type.
    Field(&'p str),
    /// A key of a map, or an unknown field.
    Key(&'p str),
    Item(usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(before) = self.before {
            before.fmt(f)?;
        }
        match self.step {
            Step::Field(name) | Step::Key(name) => {
                let dot = if self.before.is_some() { "." } else { "" };
                write!(f, "{dot}{name}")
            }
            Step::Item(index) => write!(f, "[{index}]"),
        }
    }
}

impl Path<'_> {
    /// Returns the text of the path, of at most [`PATH_BYTES_MAX`]. Stops there: a path is formatted for each mistake.
    pub(super) fn shortened(&self) -> String {
        let mut text = ShortText(String::new());
        match write!(text, "{self}") {
            Ok(()) => text.0,
            Err(_) => text.0 + "...",
        }
    }
}

/// Text that ends with an error when it is too long.
struct ShortText(String);

impl fmt::Write for ShortText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let space = PATH_BYTES_MAX - self.0.len();
        if text.len() <= space {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(&text[..text.floor_char_boundary(space)]);
        Err(fmt::Error)
    }
}
