//! `--memory-limit`.

use crate::server::config::bytes;
use crate::server::config::setting_value::{ConfigError, SettingValue};

/// A server needs some tens of MiB without any object, so a lower limit would refuse every list.
const LIMIT_MIN: usize = 64 << 20;

/// The configured memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum MemoryLimit {
    /// That of the control group of the process, if it has one.
    Auto,
    /// None.
    Disabled,
    /// This many bytes.
    Bytes(usize),
}

impl MemoryLimit {
    /// Parses the limit.
    ///
    /// # Errors
    /// It is no amount, or one that is too small.
    pub(in crate::server) fn check(setting: &SettingValue) -> Result<Self, ConfigError> {
        if setting.text == "auto" {
            return Ok(Self::Auto);
        }
        match bytes::parse(&setting.text) {
            Some(0) => Ok(Self::Disabled),
            Some(bytes) if bytes >= LIMIT_MIN => Ok(Self::Bytes(bytes)),
            _ => Err(setting.clone().error(
                "must be `auto` (the limit of the control group), 0 (no limit) or an amount such as 512Mi or 2Gi, at least 64Mi",
            )),
        }
    }
}
