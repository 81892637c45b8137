//! Sets up logging to stderr. Log lines contain text of clients and webhooks, so control characters are escaped in
//! whatever is written: such a text can neither add a line nor send a sequence to a terminal.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::http::LogLevel;
use crate::server::config::server_config::{LogConfig, LogFormat, log_filter};

/// The level of the logger that [`init`] has installed: a process has one logger.
static LEVEL: OnceLock<Arc<ReloadableLevel>> = OnceLock::new();

/// Installs the logger. A second call does nothing, so that an embedding program can use its own.
pub(in crate::server) fn init(config: &LogConfig) {
    let (subscriber, level) = subscriber(config, io::stderr);
    match subscriber.try_init() {
        // `LEVEL` was not set before, because only one logger can be installed.
        Ok(()) => drop(LEVEL.set(Arc::new(level))),
        Err(error) => tracing::debug!(%error, "logging is already set up"),
    }
}

/// Returns the level of the logger; `None` if an embedding program installed its own logger.
pub(in crate::server) fn level() -> Option<Arc<dyn LogLevel>> {
    let level = Arc::clone(LEVEL.get()?);
    Some(level)
}

/// The log level, which can be changed while the process runs.
struct ReloadableLevel {
    /// The level as it was set.
    text: Mutex<String>,
    set_filter: Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>,
}

impl fmt::Debug for ReloadableLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReloadableLevel").field(&self.text).finish()
    }
}

impl LogLevel for ReloadableLevel {
    fn get(&self) -> String {
        self.text.lock().clone()
    }

    fn set(&self, level: &str) -> Result<(), String> {
        let filter = log_filter(level)?;
        let mut text = self.text.lock();
        (self.set_filter)(filter).map_err(|error| error.to_string())?;
        let before = std::mem::replace(&mut *text, level.to_owned());
        drop(text);
        tracing::info!(before, level, "log level changed");
        Ok(())
    }
}

/// Returns the logger that writes to what `output` returns, and its level.
fn subscriber<W: Write + 'static>(
    config: &LogConfig,
    output: impl Fn() -> W + Send + Sync + 'static,
) -> (Box<dyn tracing::Subscriber + Send + Sync>, ReloadableLevel) {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(log_filter(&config.level).unwrap_or_default())
        .with_writer(move || EscapingWriter(output()))
        // Colors are control characters.
        .with_ansi(false);
    let level = |set_filter| ReloadableLevel {
        text: Mutex::new(config.level.clone()),
        set_filter,
    };
    match config.format {
        LogFormat::Text => {
            let lines = lines.with_filter_reloading();
            let handle = lines.reload_handle();
            let level = level(Box::new(move |filter| handle.reload(filter)));
            (Box::new(lines.finish()), level)
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_filter_reloading();
            let handle = lines.reload_handle();
            let level = level(Box::new(move |filter| handle.reload(filter)));
            (Box::new(lines.finish()), level)
        }
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
    use crate::server::config::server_config::LOG_LEVELS;

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

    fn config(format: LogFormat) -> LogConfig {
        LogConfig {
            level: "info".to_owned(),
            format,
        }
    }

    #[test]
    fn the_level_changes_while_the_logger_is_used() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let written = Written::default();
            let output = written.clone();
            let (subscriber, level) = subscriber(&config(format), move || output.clone());
            let lines = |part: &str| {
                let text = String::from_utf8(written.0.lock().clone()).unwrap();
                text.matches(part).count()
            };
            tracing::subscriber::with_default(subscriber, || {
                let log = || tracing::debug!("fine");
                log();
                assert_eq!(lines("fine"), 0);
                for (debug, number_of_lines) in [("debug", 1), ("4", 2), ("watchet=debug", 3)] {
                    level.set(debug).unwrap();
                    assert_eq!(level.get(), debug);
                    log();
                    level.set("info").unwrap();
                    log();
                    assert_eq!(lines("fine"), number_of_lines, "{debug}");
                }
                let many = "a=info,".repeat(1000);
                for invalid in ["loud", &many] {
                    assert_eq!(level.set(invalid), Err(LOG_LEVELS.to_owned()));
                }
                // As a regular expression it took seconds to compile, and megabytes that were never freed.
                let value = "[01]*1".to_owned() + &"[01]".repeat(30);
                level.set(&format!("info,[s{{f={value}}}]=info")).unwrap();
                level.set("info").unwrap();
                assert_eq!(level.get(), "info");
                assert_eq!(lines("log level changed"), 8);
            });
        }
    }

    /// The error text of a webhook began a line of its own, and colored it.
    #[test]
    fn control_characters_of_others_are_escaped() {
        let hostile = "denied\n2026-01-01T00:00:00Z  INFO forged\r\u{1b}[31m\u{9b}31m\u{7f}\0";
        for format in [LogFormat::Text, LogFormat::Json] {
            let written = Written::default();
            let output = written.clone();
            let (subscriber, _) = subscriber(&config(format), move || output.clone());
            tracing::subscriber::with_default(subscriber, || {
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
