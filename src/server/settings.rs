//! Raw settings: every setting with its name, default and help, and the layers (flags,
//! environment, file, defaults) in which values are given. It keeps texts and where they came from;
//! what a text means is checked in `config`.

mod specs;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub(super) use specs::SPECS;

/// A setting of `watchet serve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(
    missing_docs,
    reason = "SPECS documents each of them, for people at a terminal too"
)]
pub(super) enum Setting {
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

/// What is known of a setting before anybody has given it a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    /// Which.
    pub setting: Setting,
    /// Its name: the flag without `--`. The spellings of environment and file are made from it.
    pub name: &'static str,
    /// What stands for the value in the help.
    pub value_name: &'static str,
    /// The default; empty when it has none.
    pub default: &'static str,
    /// Under which heading the help shows it.
    pub heading: &'static str,
    /// The help.
    pub help: &'static str,
}

impl Spec {
    /// `WATCHET_DATA_DIR`
    pub(super) fn env(&self) -> String {
        format!("WATCHET_{}", self.name.replace('-', "_").to_uppercase())
    }

    /// `dataDir`
    pub(super) fn file_key(&self) -> String {
        let mut words = self.name.split('-');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |key, word| {
            let (initial, rest) = word.split_at(1);
            key + &initial.to_uppercase() + rest
        })
    }
}

impl Setting {
    /// Its row of [`SPECS`].
    pub(super) fn spec(self) -> &'static Spec {
        SPECS
            .iter()
            .find(|spec| spec.setting == self)
            .expect("SPECS has a row for every setting, which a test shows")
    }
}

/// Where a value was given, weakest first: a later one wins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// Nowhere.
    Default,
    /// The configuration file at this path.
    File(PathBuf),
    /// The environment.
    Environment,
    /// The command line.
    Flag,
}

/// A setting's value as text, and where it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    /// Which setting.
    pub setting: Setting,
    /// The value; empty when there is none.
    pub text: String,
    /// Where it was given.
    pub source: Source,
}

impl Given {
    /// The setting's name as the person who gave the value spelled it.
    pub(super) fn name(&self) -> String {
        let spec = self.setting.spec();
        match &self.source {
            Source::Default | Source::Flag => format!("--{}", spec.name),
            Source::Environment => spec.env(),
            Source::File(path) => format!("{} in {}", spec.file_key(), path.display()),
        }
    }

    /// An error about this value.
    pub(super) fn error(&self, problem: impl fmt::Display) -> ConfigError {
        let name = self.name();
        if self.text.is_empty() {
            ConfigError(format!("{name}: {problem}"))
        } else {
            ConfigError(format!("{name} {:?}: {problem}", self.text))
        }
    }
}

/// A wrong configuration: one line that names the key, the value and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct ConfigError(String);

impl ConfigError {
    /// An error that is not about the value of a setting. Line ends, as parsers put them into their
    /// messages, become spaces.
    pub(super) fn new(message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self(message.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// An error about the file at `path`.
    pub(super) fn file(path: &Path, problem: impl fmt::Display) -> Self {
        Self::new(format_args!("{}: {problem}", path.display()))
    }
}

/// The values of all layers. An empty text is a value too: it takes a setting back to its default,
/// whatever a weaker layer says.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings(BTreeMap<Setting, Given>);

impl Settings {
    /// Adds a value, unless a stronger layer has given one. Of two in one layer the later wins.
    pub(super) fn give(&mut self, setting: Setting, text: impl Into<String>, source: Source) {
        let kept = self.0.get(&setting);
        if kept.is_none_or(|kept| kept.source <= source) {
            let text = text.into();
            let given = Given {
                setting,
                text,
                source,
            };
            self.0.insert(setting, given);
        }
    }

    /// Adds what the environment says; returns the variables that look like settings and are none.
    pub(super) fn give_environment(
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

    /// The value of `setting`: given, or the default.
    pub(super) fn get(&self, setting: Setting) -> Given {
        match self.0.get(&setting) {
            Some(given) if !given.text.is_empty() => given.clone(),
            _ => Given {
                setting,
                text: setting.spec().default.to_owned(),
                source: Source::Default,
            },
        }
    }

    /// The value of `setting`, if it has one at all.
    pub(super) fn find(&self, setting: Setting) -> Option<Given> {
        Some(self.get(setting)).filter(|given| !given.text.is_empty())
    }
}

/// The environment's spelling of `--config`, which is no setting: the file cannot name itself.
pub(super) const CONFIG_ENV: &str = "WATCHET_CONFIG";

#[cfg(test)]
mod tests;
