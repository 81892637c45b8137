//! Sets up logging to stderr. Log lines contain text of clients and webhooks, so control characters are escaped in
//! whatever is written: such a text can neither add a line nor send a sequence to a terminal.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::server::config::server_config::{LogConfig, LogFormat};

/// Installs the logger. A second call does nothing, so that an embedding program can use its own.
pub(in crate::server) fn init(config: &LogConfig) {
    if let Err(error) = subscriber(config, io::stderr).try_init() {
        tracing::debug!(%error, "logging is already set up");
    }
}

/// Returns the logger that writes to what `output` returns.
fn subscriber<W: Write + 'static>(
    config: &LogConfig,
    output: impl Fn() -> W + Send + Sync + 'static,
) -> Box<dyn tracing::Subscriber + Send + Sync> {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&config.filter))
        .with_writer(move || EscapingWriter(output()))
        // Colors are control characters.
        .with_ansi(false);
    match config.format {
        LogFormat::Text => Box::new(lines.finish()),
        LogFormat::Json => Box::new(lines.json().flatten_event(true).finish()),
    }
}

/// Writes log lines, of which each call of `write` has one, and escapes the control characters within them. The escape
/// sequences are those of JSON, whose strings are the only part of a JSON line that can have a control character.
struct EscapingWriter<W>(W);

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let (text, end) = match line.strip_suffix(b"\n") {
            Some(text) => (text, "\n"),
            None => (line, ""),
        };
        let text = String::from_utf8_lossy(text);
        match text.contains(char::is_control) {
            true => self.0.write_all((escaped(&text) + end).as_bytes())?,
            false => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns `text` with its control characters escaped.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            c if c.is_control() => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The error text of a webhook began a line of its own, and colored it.
    #[test]
    fn control_characters_of_others_are_escaped() {
        let hostile = "denied\n2026-01-01T00:00:00Z  INFO forged\r\u{1b}[31m\u{9b}31m\u{7f}\0";
        for format in [LogFormat::Text, LogFormat::Json] {
            let written = Written::default();
            let output = written.clone();
            let config = LogConfig {
                filter: "info".to_owned(),
                format,
            };
            tracing::subscriber::with_default(subscriber(&config, move || output.clone()), || {
                tracing::warn!(error = %hostile, quoted = ?hostile, "{hostile}");
            });
            let text = String::from_utf8(written.0.lock().clone()).unwrap();
            let line = text.strip_suffix('\n').unwrap();
            assert!(!line.contains(char::is_control), "{line:?}");
            assert!(line.contains("forged"), "{line}");
            if format == LogFormat::Json {
                let parsed: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(parsed["error"], hostile);
            }
        }
    }
}
