//! The value of a setting with its source, and errors about it.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::api::parse_go_duration;

/// The source of a value, weakest first: a later one overrides an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, Deserialize)]
pub(in crate::server) enum Source {
    /// The built-in default.
    Default,
    /// The configuration file at this path.
    File(String),
    /// The environment.
    Environment,
    /// The command line.
    Flag,
}

/// The value of a setting as text, with its source.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(in crate::server) struct SettingValue {
    /// The name of the flag, without `--`.
    pub flag: String,
    /// The value; empty if there is none.
    pub text: String,
    /// The source.
    pub source: Source,
}

impl From<String> for SettingValue {
    fn from(text: String) -> Self {
        Self {
            flag: String::new(),
            text,
            source: Source::Flag,
        }
    }
}

/// Returns the environment variable of a flag, as in `WATCHET_DATA_DIR`.
pub(in crate::server) fn variable_of(flag: &str) -> String {
    format!("WATCHET_{}", flag.replace('-', "_").to_uppercase())
}

/// Returns what separates the values of a list in its text. Upstream's pairs of files have commas themselves.
pub(in crate::server) fn separator_of(flag: &str) -> &'static str {
    match flag {
        "tls-sni-cert-key" => ";",
        _ => ",",
    }
}

/// Returns the key of a flag in the file, as in `dataDir`.
pub(in crate::server) fn file_key_of(flag: &str) -> String {
    let mut words = flag.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |key, word| {
        let (initial, rest) = word.split_at(1);
        key + &initial.to_uppercase() + rest
    })
}

impl SettingValue {
    /// Returns the value, or `None` if it is empty.
    pub(in crate::server) fn non_empty(&self) -> Option<Self> {
        (!self.text.is_empty()).then(|| self.clone())
    }

    /// Returns the setting's name as spelled in the source.
    pub(in crate::server) fn name(&self) -> String {
        match &self.source {
            Source::Default | Source::Flag => format!("--{}", self.flag),
            Source::Environment => variable_of(&self.flag),
            Source::File(path) => format!("{} in {path}", file_key_of(&self.flag)),
        }
    }

    /// Creates an error about this value.
    pub(in crate::server) fn error(&self, problem: impl fmt::Display) -> ConfigError {
        let name = self.name();
        if self.text.is_empty() {
            ConfigError(format!("{name}: {problem}"))
        } else {
            ConfigError(format!("{name} {:?}: {problem}", self.text))
        }
    }
}

/// An invalid configuration: one line with the key, the value and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(in crate::server) struct ConfigError(String);

impl ConfigError {
    /// Creates an error that is not about the value of a setting. Line breaks, as in parsers'
    /// messages, become spaces.
    pub(in crate::server) fn new(message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self(message.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Creates an error about the file at `path`.
    pub(in crate::server) fn file(path: &Path, problem: impl fmt::Display) -> Self {
        Self::new(format_args!("{}: {problem}", path.display()))
    }
}

/// Parses a duration of Go, such as 1m30s.
///
/// # Errors
/// It is not one.
pub(in crate::server) fn parsed_duration(setting: &SettingValue) -> Result<Duration, ConfigError> {
    parse_go_duration(&setting.text)
        .ok_or_else(|| setting.error("must be a duration such as 30s, 5m0s or 1h30m"))
}

/// Parses a boolean as [`parse_bool`] does.
///
/// # Errors
/// It is not one.
pub(in crate::server) fn parsed_bool(setting: &SettingValue) -> Result<bool, ConfigError> {
    parse_bool(&setting.text).ok_or_else(|| setting.error("must be true or false"))
}

/// Parses a boolean as Go's strconv.ParseBool does.
pub(in crate::server) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
