//! The settings of the start and the end of the process.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use crate::server::config::flags::Flags;
use crate::server::config::setting_value::{
    ConfigError, SettingValue, parse_bool, parsed_duration,
};

/// How the process reports that it is ready, and when and how it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct LifetimeConfig {
    /// `--ready-file`
    pub ready_file: Option<PathBuf>,
    /// `--exit-with-parent`
    pub exit_with: Option<SupervisingProcess>,
    /// `--shutdown-grace-period`
    pub shutdown_grace: Duration,
}

/// The process whose end also ends the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum SupervisingProcess {
    /// The process that started the server.
    Parent,
    /// The process with this ID.
    Id(NonZeroU32),
}

impl LifetimeConfig {
    /// Validates the settings.
    ///
    /// # Errors
    /// The first invalid value.
    pub(in crate::server) fn check(flags: &Flags) -> Result<Self, ConfigError> {
        let setting = &flags.ready_file;
        let ready_file = setting.non_empty().map(|file| PathBuf::from(file.text));
        if ready_file.as_ref().is_some_and(|path| path.is_dir()) {
            return Err(setting.error("is a directory: give a file"));
        }
        Ok(Self {
            ready_file,
            exit_with: supervising_process(&flags.exit_with_parent)?,
            shutdown_grace: parsed_duration(&flags.shutdown_grace_period)?,
        })
    }
}

fn supervising_process(setting: &SettingValue) -> Result<Option<SupervisingProcess>, ConfigError> {
    if let Some(enabled) = parse_bool(&setting.text) {
        return Ok(enabled.then_some(SupervisingProcess::Parent));
    }
    let id: Option<i32> = setting.text.parse().ok();
    let id = id.and_then(|id| u32::try_from(id).ok());
    let id = id.and_then(NonZeroU32::new);
    id.map(|id| Some(SupervisingProcess::Id(id)))
        .ok_or_else(|| setting.error("must be true, false, or the ID of a process, 2 or more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Option<SupervisingProcess>, String> {
        let setting = SettingValue {
            flag: "exit-with-parent".to_owned(),
            ..SettingValue::from(text.to_owned())
        };
        supervising_process(&setting).map_err(|error| error.to_string())
    }

    #[test]
    fn exit_with_parent_is_a_boolean_or_a_process_id() {
        assert_eq!(check("false"), Ok(None));
        assert_eq!(check("0"), Ok(None));
        assert_eq!(check("true"), Ok(Some(SupervisingProcess::Parent)));
        let id = NonZeroU32::new(4711).unwrap();
        assert_eq!(check("4711"), Ok(Some(SupervisingProcess::Id(id))));
        for wrong in ["", "parent", "-4", "4294967296"] {
            let error = check(wrong).unwrap_err();
            assert!(error.contains("must be true, false, or"), "{error}");
        }
    }
}
