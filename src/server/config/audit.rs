//! The settings of audit logging. The policy and the kubeconfig of the webhook are read where they are loaded.

use std::str::FromStr;

use crate::audit::{
    BatchOptions, LogFormat, LogOptions, Mode, Rotation, Throttle, Truncate, WebhookOptions,
};
use crate::server::config::file_setting::FileSetting;
use crate::server::config::flags::Flags;
use crate::server::config::setting_value::{
    ConfigError, SettingValue, parsed_bool, parsed_duration,
};

/// The settings of audit logging, which has at least one of the backends.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::server) struct AuditConfig {
    /// `--audit-policy-file`
    pub policy: FileSetting,
    /// `--audit-log-*`, if the log is configured.
    pub log: Option<LogConfig>,
    /// `--audit-webhook-*`, if the webhook is configured.
    pub webhook: Option<WebhookConfig>,
}

/// The settings of the log.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::server) struct LogConfig {
    /// `--audit-log-path`; `-` is stdout.
    pub file: FileSetting,
    /// The others.
    pub options: LogOptions,
}

/// The settings of the webhook.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::server) struct WebhookConfig {
    /// `--audit-webhook-config-file`
    pub kubeconfig: FileSetting,
    /// The others.
    pub options: WebhookOptions,
}

impl AuditConfig {
    /// Validates the settings; `None` if there is no audit logging.
    ///
    /// # Errors
    /// A value is invalid, or there is a policy without a backend or a backend without a policy.
    pub(super) fn check(flags: &Flags) -> Result<Option<Self>, ConfigError> {
        let (log, webhook) = (LogConfig::check(flags)?, WebhookConfig::check(flags)?);
        let policy = &flags.audit_policy_file;
        let backend = log.as_ref().map(|log| &log.file);
        let backend = backend.or(webhook.as_ref().map(|webhook| &webhook.kubeconfig));
        match (policy.non_empty(), backend) {
            (None, None) => Ok(None),
            (None, Some(backend)) => {
                Err(backend.error(format_args!("needs --{} too", policy.flag)))
            }
            (Some(policy), None) => Err(policy.error(format_args!(
                "needs --{} or --{} too",
                flags.audit_log_path.flag, flags.audit_webhook_config_file.flag
            ))),
            (Some(policy), Some(_)) => Ok(Some(Self {
                policy: FileSetting::new(policy),
                log,
                webhook,
            })),
        }
    }
}

impl LogConfig {
    fn check(flags: &Flags) -> Result<Option<Self>, ConfigError> {
        let truncate = truncate(
            &flags.audit_log_truncate_enabled,
            &flags.audit_log_truncate_max_event_size,
            &flags.audit_log_truncate_max_batch_size,
        )?;
        let rotation = Rotation {
            size_max: number(&flags.audit_log_maxsize)?,
            backups_max: number(&flags.audit_log_maxbackup)?,
            age_max: number(&flags.audit_log_maxage)?,
            compress: parsed_bool(&flags.audit_log_compress)?,
        };
        let format = match flags.audit_log_format.text.as_str() {
            "json" => LogFormat::Json,
            "legacy" => LogFormat::Legacy,
            _ => return Err(flags.audit_log_format.error("must be json or legacy")),
        };
        check_version(&flags.audit_log_version)?;
        let mode = mode(&flags.audit_log_mode)?;
        let batch = BatchSettings {
            buffer_size: &flags.audit_log_batch_buffer_size,
            max_size: &flags.audit_log_batch_max_size,
            max_wait: &flags.audit_log_batch_max_wait,
            throttle_enable: &flags.audit_log_batch_throttle_enable,
            throttle_qps: &flags.audit_log_batch_throttle_qps,
            throttle_burst: &flags.audit_log_batch_throttle_burst,
        };
        let batch = batch.check()?;
        let file = flags.audit_log_path.non_empty().map(FileSetting::new);
        Ok(file.map(|file| Self {
            options: LogOptions {
                path: file.path.clone(),
                rotation,
                format,
                mode,
                batch,
                truncate,
            },
            file,
        }))
    }
}

impl WebhookConfig {
    fn check(flags: &Flags) -> Result<Option<Self>, ConfigError> {
        let truncate = truncate(
            &flags.audit_webhook_truncate_enabled,
            &flags.audit_webhook_truncate_max_event_size,
            &flags.audit_webhook_truncate_max_batch_size,
        )?;
        check_version(&flags.audit_webhook_version)?;
        let batch = BatchSettings {
            buffer_size: &flags.audit_webhook_batch_buffer_size,
            max_size: &flags.audit_webhook_batch_max_size,
            max_wait: &flags.audit_webhook_batch_max_wait,
            throttle_enable: &flags.audit_webhook_batch_throttle_enable,
            throttle_qps: &flags.audit_webhook_batch_throttle_qps,
            throttle_burst: &flags.audit_webhook_batch_throttle_burst,
        };
        let options = WebhookOptions {
            mode: mode(&flags.audit_webhook_mode)?,
            initial_backoff: parsed_duration(&flags.audit_webhook_initial_backoff)?,
            batch: batch.check()?,
            truncate,
        };
        let kubeconfig = flags.audit_webhook_config_file.non_empty();
        Ok(kubeconfig.map(|kubeconfig| Self {
            kubeconfig: FileSetting::new(kubeconfig),
            options,
        }))
    }
}

/// The values of `--audit-log-batch-*` or `--audit-webhook-batch-*`.
struct BatchSettings<'a> {
    buffer_size: &'a SettingValue,
    max_size: &'a SettingValue,
    max_wait: &'a SettingValue,
    throttle_enable: &'a SettingValue,
    throttle_qps: &'a SettingValue,
    throttle_burst: &'a SettingValue,
}

impl BatchSettings<'_> {
    fn check(&self) -> Result<BatchOptions, ConfigError> {
        let throttle = Throttle {
            qps: positive(self.throttle_qps, |qps: f64| qps > 0.0 && qps.is_finite())?,
            burst: positive(self.throttle_burst, |burst| burst > 0)?,
        };
        let is_positive = |size: usize| size > 0;
        Ok(BatchOptions {
            buffer_size: positive(self.buffer_size, is_positive)?,
            size_max: positive(self.max_size, is_positive)?,
            wait_max: parsed_duration(self.max_wait)?,
            throttle: parsed_bool(self.throttle_enable)?.then_some(throttle),
        })
    }
}

fn check_version(setting: &SettingValue) -> Result<(), ConfigError> {
    match setting.text.as_str() {
        "audit.k8s.io/v1" => Ok(()),
        _ => Err(setting.error("must be audit.k8s.io/v1")),
    }
}

fn mode(setting: &SettingValue) -> Result<Mode, ConfigError> {
    match setting.text.as_str() {
        "batch" => Ok(Mode::Batch),
        "blocking" => Ok(Mode::Blocking),
        "blocking-strict" => Ok(Mode::BlockingStrict),
        _ => Err(setting.error("must be batch, blocking or blocking-strict")),
    }
}

/// Returns the maximum sizes, if they are enabled; they must be valid in any case, as upstream.
fn truncate(
    enabled: &SettingValue,
    event: &SettingValue,
    batch: &SettingValue,
) -> Result<Option<Truncate>, ConfigError> {
    let truncate = Truncate {
        event_bytes_max: positive(event, |size| size > 0)?,
        batch_bytes_max: positive(batch, |size| size > 0)?,
    };
    if truncate.batch_bytes_max < truncate.event_bytes_max {
        let problem = format_args!("must not be less than --{}", event.flag);
        return Err(batch.error(problem));
    }
    Ok(parsed_bool(enabled)?.then_some(truncate))
}

fn number<T: FromStr>(setting: &SettingValue) -> Result<T, ConfigError> {
    let number = setting.text.parse();
    number.map_err(|_| setting.error("must be a number, 0 or more"))
}

fn positive<T: FromStr + Copy>(
    setting: &SettingValue,
    is_valid: impl Fn(T) -> bool,
) -> Result<T, ConfigError> {
    let number = setting.text.parse().ok();
    let number = number.filter(|number| is_valid(*number));
    number.ok_or_else(|| setting.error("must be a positive number"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::server::config::server_config::Config;
    use crate::server::config::setting_value::Source;
    use crate::server::config::settings::Settings;

    fn check(flags: &[(&str, &str)]) -> Result<Option<AuditConfig>, String> {
        let mut settings = Settings::default();
        for (flag, text) in flags {
            settings.give(flag, *text, Source::Flag);
        }
        let config = Config::check(&settings);
        config
            .map(|config| config.audit)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_of_the_webhook_are_upstreams() {
        let webhook = [
            ("audit-policy-file", "p"),
            ("audit-webhook-config-file", "w"),
        ];
        let config = check(&webhook).unwrap().unwrap();
        assert_eq!(config.log, None);
        let expect = WebhookOptions {
            mode: Mode::Batch,
            initial_backoff: Duration::from_secs(10),
            batch: BatchOptions {
                buffer_size: 10_000,
                size_max: 400,
                wait_max: Duration::from_secs(30),
                throttle: Some(Throttle {
                    qps: 10.0,
                    burst: 15,
                }),
            },
            truncate: None,
        };
        assert_eq!(config.webhook.unwrap().options, expect);
    }

    #[test]
    fn errors_name_the_flag_and_the_remedy() {
        for (flag, value, expect) in [
            (
                "audit-policy-file",
                "p",
                "needs --audit-log-path or --audit-webhook-config-file too",
            ),
            ("audit-log-path", "l", "needs --audit-policy-file too"),
            (
                "audit-webhook-config-file",
                "w",
                "needs --audit-policy-file too",
            ),
            (
                "audit-log-mode",
                "async",
                "must be batch, blocking or blocking-strict",
            ),
            (
                "audit-webhook-mode",
                "async",
                "must be batch, blocking or blocking-strict",
            ),
            ("audit-log-format", "text", "must be json or legacy"),
            (
                "audit-log-version",
                "audit.k8s.io/v1beta1",
                "must be audit.k8s.io/v1",
            ),
            ("audit-webhook-version", "v1", "must be audit.k8s.io/v1"),
            ("audit-log-batch-max-size", "0", "must be a positive number"),
            ("audit-log-batch-max-wait", "1", "must be a duration"),
            ("audit-log-maxage", "-1", "must be a number, 0 or more"),
            ("audit-log-compress", "maybe", "must be true or false"),
            (
                "audit-webhook-batch-buffer-size",
                "0",
                "must be a positive number",
            ),
            (
                "audit-webhook-batch-max-size",
                "0",
                "must be a positive number",
            ),
            (
                "audit-webhook-batch-throttle-qps",
                "NaN",
                "must be a positive number",
            ),
            (
                "audit-webhook-batch-throttle-burst",
                "0",
                "must be a positive number",
            ),
            ("audit-webhook-initial-backoff", "10", "must be a duration"),
            (
                "audit-log-truncate-max-event-size",
                "0",
                "must be a positive number",
            ),
            (
                "audit-webhook-truncate-max-batch-size",
                "102399",
                "must not be less than --audit-webhook-truncate-max-event-size",
            ),
        ] {
            let error = check(&[(flag, value)]).unwrap_err();
            let expect = format!("--{flag} {value:?}: {expect}");
            assert!(error.starts_with(&expect), "{error}");
        }
    }
}
