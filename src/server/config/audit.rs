//! The settings of the audit log. The policy is read where it is loaded.

use std::str::FromStr;

use crate::audit::{Mode, Rotation};
use crate::server::config::file_setting::FileSetting;
use crate::server::config::flags::Flags;
use crate::server::config::setting_value::{ConfigError, SettingValue};

/// The settings of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct AuditConfig {
    /// `--audit-policy-file`
    pub policy: FileSetting,
    /// `--audit-log-path`; `-` is stdout.
    pub log: FileSetting,
    /// `--audit-log-maxsize`, `--audit-log-maxbackup` and `--audit-log-maxage`
    pub rotation: Rotation,
    /// `--audit-log-mode`
    pub mode: Mode,
}

impl AuditConfig {
    /// Validates the settings; `None` if there is no audit log.
    ///
    /// # Errors
    /// A value is invalid, or only one of the policy and the log is set.
    pub(super) fn check(flags: &Flags) -> Result<Option<Self>, ConfigError> {
        let rotation = Rotation {
            size_max: number(&flags.audit_log_maxsize)?,
            backups_max: number(&flags.audit_log_maxbackup)?,
            age_max: number(&flags.audit_log_maxage)?,
        };
        let mode = match flags.audit_log_mode.text.as_str() {
            "batch" => Mode::Batch,
            "blocking" => Mode::Blocking,
            _ => {
                return Err(flags
                    .audit_log_mode
                    .clone()
                    .error("must be batch or blocking"));
            }
        };
        let (policy, log) = (&flags.audit_policy_file, &flags.audit_log_path);
        let needs = |setting: SettingValue, other: &SettingValue| {
            setting.error(format_args!("needs --{} too", other.flag))
        };
        match (policy.non_empty(), log.non_empty()) {
            (None, None) => Ok(None),
            (Some(setting), None) => Err(needs(setting, log)),
            (None, Some(setting)) => Err(needs(setting, policy)),
            (Some(policy), Some(log)) => Ok(Some(Self {
                policy: FileSetting::new(policy),
                log: FileSetting::new(log),
                rotation,
                mode,
            })),
        }
    }
}

fn number<T: FromStr>(setting: &SettingValue) -> Result<T, ConfigError> {
    let number = setting.text.parse();
    number.map_err(|_| setting.clone().error("must be a number, 0 or more"))
}
