//! The settings of authorization. The files are read where they are loaded.

use std::time::Duration;

use crate::authorizers::{AuthorizerType, ReviewVersion};
use crate::server::config::file_setting::FileSetting;
use crate::server::config::flags::Flags;
use crate::server::config::setting_value::{ConfigError, SettingValue, Source, parsed_duration};

/// The settings of authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum AuthorizationConfig {
    /// `--authorization-config`
    File(FileSetting),
    /// `--authorization-mode`; the webhook is that of the mode `Webhook`.
    Modes(Vec<AuthorizerType>, Option<WebhookConfig>),
}

/// The webhook of the mode `Webhook`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct WebhookConfig {
    /// `--authorization-webhook-config-file`
    pub file: FileSetting,
    /// `--authorization-webhook-version`
    pub version: ReviewVersion,
    /// `--authorization-webhook-cache-authorized-ttl`
    pub authorized_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`
    pub unauthorized_ttl: Duration,
}

impl AuthorizationConfig {
    /// Validates the settings.
    ///
    /// # Errors
    /// A value is invalid, or two settings exclude each other.
    pub(super) fn check(flags: &Flags) -> Result<Self, ConfigError> {
        let webhook = webhook(flags)?;
        let mode = &flags.authorization_mode;
        if let Some(file) = flags.authorization_config.non_empty() {
            let excluded = [
                mode,
                &flags.authorization_webhook_config_file,
                &flags.authorization_webhook_version,
                &flags.authorization_webhook_cache_authorized_ttl,
                &flags.authorization_webhook_cache_unauthorized_ttl,
            ];
            let given = excluded
                .into_iter()
                .find(|one| one.source != Source::Default);
            return match given {
                None => Ok(Self::File(FileSetting::new(file))),
                Some(given) => Err(file.error(format_args!(
                    "can not be specified when --authorization-mode or --authorization-webhook-* flags are \
                     defined: remove {}",
                    given.name()
                ))),
            };
        }
        let modes = modes(mode)?;
        let file = &flags.authorization_webhook_config_file;
        match (modes.contains(&AuthorizerType::Webhook), &webhook) {
            (true, None) => Err(mode.error(format_args!(
                "authorization-mode Webhook's authorization config file not passed: give --{}",
                file.flag
            ))),
            (false, Some(_)) => Err(file.error(format_args!(
                "cannot specify --{} without mode Webhook: add it to --{}",
                file.flag, mode.flag
            ))),
            _ => Ok(Self::Modes(modes, webhook)),
        }
    }
}

fn webhook(flags: &Flags) -> Result<Option<WebhookConfig>, ConfigError> {
    let setting = &flags.authorization_webhook_version;
    let version = match setting.text.as_str() {
        "v1" => ReviewVersion::V1,
        "v1beta1" => ReviewVersion::V1Beta1,
        _ => return Err(setting.error("must be v1 or v1beta1")),
    };
    let authorized_ttl = parsed_duration(&flags.authorization_webhook_cache_authorized_ttl)?;
    let unauthorized_ttl = parsed_duration(&flags.authorization_webhook_cache_unauthorized_ttl)?;
    let file = flags.authorization_webhook_config_file.non_empty();
    Ok(file.map(|file| WebhookConfig {
        file: FileSetting::new(file),
        version,
        authorized_ttl,
        unauthorized_ttl,
    }))
}

/// Parses the modes, which are asked in their order.
///
/// # Errors
/// A mode is unknown, is given twice, or there is none.
fn modes(setting: &SettingValue) -> Result<Vec<AuthorizerType>, ConfigError> {
    let known = "use Node, RBAC, Webhook, AlwaysAllow or AlwaysDeny";
    let mut modes = Vec::new();
    for name in setting.text.split(',').map(str::trim) {
        let mode = match (name, AuthorizerType::from_name(name)) {
            (_, Some(mode)) => mode,
            ("ABAC", None) => {
                return Err(setting.error(format_args!("the mode ABAC is not supported: {known}")));
            }
            (_, None) => {
                return Err(setting.error(format_args!(
                    "{name:?} is not a mode: {known}, separated by commas"
                )));
            }
        };
        if modes.contains(&mode) {
            return Err(setting.error(format_args!("has the mode {name} twice: remove one")));
        }
        modes.push(mode);
    }
    Ok(modes)
}
