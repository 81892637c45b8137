//! One document of a configuration: YAML or JSON with an `apiVersion` and a `kind`, decoded strictly.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The maximum size of a configuration file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An `apiVersion` and a `kind` that a configuration may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind(pub(super) &'static str, pub(super) &'static str);

/// A document that is parsed but not decoded.
#[derive(Debug)]
pub(super) struct Document(Value);

impl Document {
    /// Parses YAML or JSON.
    ///
    /// # Errors
    /// The text is neither, or has a member twice.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let options = serde_saphyr::options! {
            // YAML 1.1 parses `off` and `yes` as booleans.
            strict_booleans: true,
            // The message must be one line.
            with_snippet: false,
        };
        let value = serde_saphyr::from_str_with_options(text, options);
        let value = value.map_err(|error| format!("is not valid YAML: {error}"))?;
        Ok(Self(value))
    }

    /// Creates a document from a part of another one.
    pub(super) fn of(value: Value) -> Self {
        Self(value)
    }

    /// Decodes the members other than `apiVersion` and `kind`, which must be one of `kinds`.
    ///
    /// # Errors
    /// The document is of another kind, or has a member that `T` does not have or that has another type.
    pub(super) fn decode<T: DeserializeOwned>(self, kinds: &[Kind]) -> Result<T, String> {
        let Value::Object(mut members) = self.0 else {
            let Kind(version, kind) = kinds[0];
            return Err(format!(
                "must be a mapping with apiVersion: {version} and kind: {kind}"
            ));
        };
        let (version, kind) = (members.remove("apiVersion"), members.remove("kind"));
        let text = |value: &Option<Value>| match value {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let (version, kind) = (text(&version), text(&kind));
        if !kinds.iter().any(|Kind(v, k)| *v == version && *k == kind) {
            let supported = kinds.iter().map(|Kind(v, k)| format!("{v} {k}"));
            let supported = supported.collect::<Vec<_>>().join(", ");
            return Err(format!(
                "apiVersion {version:?} and kind {kind:?} are not supported: write one of {supported}"
            ));
        }
        serde_json::from_value(Value::Object(members)).map_err(|error| error.to_string())
    }
}

/// Reads a configuration file.
///
/// # Errors
/// The file cannot be read, is not UTF-8 or is too large.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let named = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let size = std::fs::metadata(path).map_err(|error| named(&error))?;
    if size.len() > FILE_BYTES_MAX {
        return Err(named(
            &"is larger than 1 MiB, so it is no configuration file",
        ));
    }
    std::fs::read_to_string(path).map_err(|error| named(&error))
}
