//! Raw settings: the table of names, defaults and help texts, and the layers (flags, environment,
//! file, defaults) that set them. Values are texts with their source; `config` parses them.

mod specs;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub(in crate::server) use specs::SPECS;

/// A setting of `watchet serve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(
    missing_docs,
    reason = "SPECS documents each of them, for users of --help too"
)]
pub(in crate::server) enum Setting {
    BindAddress,
    SecurePort,
    InsecurePort,
    TlsCertFile,
    TlsPrivateKeyFile,
    WriteKubeconfig,
    ClientCaFile,
    TokenAuthFile,
    ServiceAccountIssuer,
    ServiceAccountKeyFile,
    ServiceAccountSigningKeyFile,
    ApiAudiences,
    DataDir,
    Storage,
    Durability,
    EtcdServers,
    EtcdPrefix,
    EtcdCafile,
    EtcdCertfile,
    EtcdKeyfile,
    EtcdCompactionInterval,
    WatchHistoryWindow,
    WatchHistoryBytesMax,
    WatchCacheConsistencyCheckInterval,
    ServiceClusterIpRange,
    EnableAdmissionPlugins,
    DisableAdmissionPlugins,
    AdmissionControlConfigFile,
    Controllers,
    ShutdownGracePeriod,
    LogLevel,
    LogFormat,
}

/// The definition of a setting.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Spec {
    /// The setting.
    pub setting: Setting,
    /// The name: the flag without `--`, from which the names in the environment and in the file are
    /// derived.
    pub name: &'static str,
    /// The placeholder of the value in the help.
    pub value_name: &'static str,
    /// The default; empty if there is none.
    pub default: &'static str,
    /// The heading in the help.
    pub heading: &'static str,
    /// The help.
    pub help: &'static str,
}

impl Spec {
    /// Returns the environment variable, as in `WATCHET_DATA_DIR`.
    pub(in crate::server) fn env(&self) -> String {
        format!("WATCHET_{}", self.name.replace('-', "_").to_uppercase())
    }

    /// Returns the key in the file, as in `dataDir`.
    pub(in crate::server) fn file_key(&self) -> String {
        let mut words = self.name.split('-');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |key, word| {
            let (initial, rest) = word.split_at(1);
            key + &initial.to_uppercase() + rest
        })
    }
}

impl Setting {
    /// Returns the row of [`SPECS`].
    pub(in crate::server) fn spec(self) -> &'static Spec {
        SPECS
            .iter()
            .find(|spec| spec.setting == self)
            .expect("SPECS has a row for every setting, which a test checks")
    }
}

/// The source of a value, weakest first: a later one overrides an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum Source {
    /// The built-in default.
    Default,
    /// The configuration file at this path.
    File(PathBuf),
    /// The environment.
    Environment,
    /// The command line.
    Flag,
}

/// The value of a setting as text, with its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct SettingValue {
    /// The setting.
    pub setting: Setting,
    /// The value; empty if there is none.
    pub text: String,
    /// The source.
    pub source: Source,
}

impl SettingValue {
    /// Returns the setting's name as spelled in the source.
    pub(in crate::server) fn name(&self) -> String {
        let spec = self.setting.spec();
        match &self.source {
            Source::Default | Source::Flag => format!("--{}", spec.name),
            Source::Environment => spec.env(),
            Source::File(path) => format!("{} in {}", spec.file_key(), path.display()),
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

/// The values of all layers. An empty value resets a setting to its default, whatever a weaker
/// layer has.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct Settings(BTreeMap<Setting, SettingValue>);

impl Settings {
    /// Adds a value, unless a stronger layer has set one. EmbeddedServer one layer the last value counts.
    pub(in crate::server) fn give(
        &mut self,
        setting: Setting,
        text: impl Into<String>,
        source: Source,
    ) {
        let current = self.0.get(&setting);
        if current.is_none_or(|current| current.source <= source) {
            let text = text.into();
            let given = SettingValue {
                setting,
                text,
                source,
            };
            self.0.insert(setting, given);
        }
    }

    /// Adds the values of the environment; returns the variables that look like settings but are
    /// not.
    pub(in crate::server) fn give_environment(
        &mut self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Vec<String> {
        let mut unknown = Vec::new();
        for (name, value) in variables.filter(|(name, _)| name.starts_with("WATCHET_")) {
            match SPECS.iter().find(|spec| spec.env() == name) {
                Some(spec) => self.give(spec.setting, value, Source::Environment),
                None if name == CONFIG_ENV => {}
                None => unknown.push(name),
            }
        }
        unknown
    }

    /// Returns the value of `setting`, or its default.
    pub(in crate::server) fn get(&self, setting: Setting) -> SettingValue {
        match self.0.get(&setting) {
            Some(given) if !given.text.is_empty() => given.clone(),
            _ => SettingValue {
                setting,
                text: setting.spec().default.to_owned(),
                source: Source::Default,
            },
        }
    }

    /// Returns the value of `setting`, if there is one.
    pub(in crate::server) fn find(&self, setting: Setting) -> Option<SettingValue> {
        Some(self.get(setting)).filter(|given| !given.text.is_empty())
    }
}

/// The environment variable of `--config`, which is not a setting: the file cannot name itself.
pub(in crate::server) const CONFIG_ENV: &str = "WATCHET_CONFIG";

#[cfg(test)]
mod tests;
