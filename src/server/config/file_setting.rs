//! Settings whose values are paths of files.

use std::fmt;
use std::path::PathBuf;

use crate::server::config::setting_value::{ConfigError, SettingValue};

/// A path from a setting, with the setting's spelling for error messages.
#[derive(Debug, Clone)]
pub(in crate::server) struct FileSetting {
    /// The file.
    pub path: PathBuf,
    /// The setting.
    pub given: SettingValue,
}

impl PartialEq for FileSetting {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for FileSetting {}

impl FileSetting {
    pub(in crate::server) fn new(given: SettingValue) -> Self {
        let path = PathBuf::from(&given.text);
        Self { path, given }
    }

    /// Creates an error about the file that names the setting.
    pub(in crate::server) fn error(&self, problem: impl fmt::Display) -> ConfigError {
        ConfigError::new(self.given.error(problem))
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// The file cannot be read or is not UTF-8.
    pub(in crate::server) fn read(&self) -> Result<String, ConfigError> {
        std::fs::read_to_string(&self.path)
            .map_err(|error| self.error(format_args!("cannot be read: {error}")))
    }
}

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct CertificateFiles {
    /// The chain, PEM.
    pub certificate: FileSetting,
    /// The private key, PEM.
    pub key: FileSetting,
}

/// Returns the pair of files that two settings name; `None` if both are empty.
///
/// # Errors
/// Only one of the two is set.
pub(super) fn certificate_files(
    certificate: &SettingValue,
    key: &SettingValue,
) -> Result<Option<CertificateFiles>, ConfigError> {
    let needs = |setting: &SettingValue, other: &SettingValue| {
        setting.error(format_args!("needs --{} too", other.flag))
    };
    match (certificate.non_empty(), key.non_empty()) {
        (Some(certificate), Some(key)) => Ok(Some(CertificateFiles {
            certificate: FileSetting::new(certificate),
            key: FileSetting::new(key),
        })),
        (None, None) => Ok(None),
        (Some(setting), None) => Err(needs(&setting, key)),
        (None, Some(setting)) => Err(needs(&setting, certificate)),
    }
}
