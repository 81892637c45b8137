//! The settings of encryption at rest. The configuration is read where it is loaded.

use crate::encryption::EncryptionConfiguration;
use crate::server::config::file_setting::FileSetting;
use crate::server::config::flags::Flags;
use crate::server::config::setting_value::ConfigError;

/// The settings of encryption at rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct EncryptionSettings {
    /// `--encryption-provider-config`
    pub file: FileSetting,
    /// `--encryption-provider-config-automatic-reload`
    pub reloads: bool,
}

impl EncryptionSettings {
    /// Validates the settings; `None` if nothing is encrypted.
    ///
    /// # Errors
    /// A value is invalid, or the reload is set without the file.
    pub(super) fn check(flags: &Flags) -> Result<Option<Self>, ConfigError> {
        let setting = &flags.encryption_provider_config_automatic_reload;
        let reloads = match setting.text.as_str() {
            "true" => true,
            "false" => false,
            _ => return Err(setting.clone().error("must be true or false")),
        };
        match flags.encryption_provider_config.non_empty() {
            Some(file) => Ok(Some(Self {
                file: FileSetting::new(file),
                reloads,
            })),
            None if reloads => {
                let other = &flags.encryption_provider_config.flag;
                Err(setting.clone().error(format_args!("needs --{other} too")))
            }
            None => Ok(None),
        }
    }

    /// Reads the configuration.
    ///
    /// # Errors
    /// The file cannot be read, or the configuration is invalid.
    pub(in crate::server) fn read(&self) -> Result<EncryptionConfiguration, ConfigError> {
        let configuration = self.file.read()?.parse();
        configuration.map_err(|error| {
            self.file.error(format_args!(
                "is not a valid EncryptionConfiguration: {error}"
            ))
        })
    }
}
