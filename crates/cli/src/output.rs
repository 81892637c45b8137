//! Writes the output of a command.

use std::io::{self, Write as _};

use super::error::CliError;
use watchet_tail::{FieldChange, colours, escaped, text_of};

/// Prints a text on stdout. A closed pipe is no error.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.map_err(CliError::Print),
    }
}

/// Prints a message on stderr; a closed stderr is ignored.
pub(crate) fn note(command: &str, text: &str) {
    let _written = writeln!(io::stderr(), "watchet {command}: {}", escaped(text));
}

/// Whether and how to use colours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    /// Uses colours if stdout is a terminal that has them.
    pub(crate) fn detect() -> Self {
        Self(colours())
    }

    /// Returns `text` in the colour of the SGR code.
    pub(crate) fn paint(self, code: &str, text: &str) -> String {
        match self.0 {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// Appends a line per changed field.
pub(crate) fn push_changes(text: &mut String, changes: &[FieldChange], paint: Paint) {
    for change in changes {
        let path = paint.paint("1", &escaped(&change.path));
        let [old, new] = [&change.old, &change.new].map(|value| text_of(value.as_ref(), true));
        text.push_str(&format!("    {path}: {old} -> {new}\n"));
    }
}
