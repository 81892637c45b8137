//! Raw settings: the one table of every setting's name, default and help, and the layers (flags,
//! environment, file, defaults) in which values are given. It keeps texts and where they came from;
//! what a text means is checked in `config`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

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

const SERVING: &str = "Serving";
const AUTHENTICATION: &str = "Authentication";
const STORAGE: &str = "Storage";
const WATCH_CACHE: &str = "Watch cache";
const SERVICES: &str = "Services";
const ADMISSION: &str = "Admission";
const CONTROLLERS: &str = "Controllers";
const PROCESS: &str = "Process";

/// Every setting, in the order of the help and of `config/watchet.yaml`.
pub(super) const SPECS: [Spec; 31] = [
    Spec {
        setting: Setting::BindAddress,
        name: "bind-address",
        value_name: "IP",
        default: "127.0.0.1",
        heading: SERVING,
        help: "IP address to listen on; 0.0.0.0 or :: for all interfaces",
    },
    Spec {
        setting: Setting::SecurePort,
        name: "secure-port",
        value_name: "PORT",
        default: "6443",
        heading: SERVING,
        help: "Port of HTTPS; 0 takes a free one, which the kubeconfig then names",
    },
    Spec {
        setting: Setting::InsecurePort,
        name: "insecure-port",
        value_name: "PORT",
        default: "0",
        heading: SERVING,
        help: "Port of plain HTTP/1.1 and h2c WITHOUT AUTHENTICATION, for load tests and curl; \
               allowed on a loopback address only; 0 is off, `auto` takes a free port",
    },
    Spec {
        setting: Setting::TlsCertFile,
        name: "tls-cert-file",
        value_name: "FILE",
        default: "",
        heading: SERVING,
        help: "PEM file with the serving certificate, followed by its chain \
               [default: one signed by the CA in <data-dir>/pki]",
    },
    Spec {
        setting: Setting::TlsPrivateKeyFile,
        name: "tls-private-key-file",
        value_name: "FILE",
        default: "",
        heading: SERVING,
        help: "PEM file with the private key of --tls-cert-file",
    },
    Spec {
        setting: Setting::WriteKubeconfig,
        name: "write-kubeconfig",
        value_name: "FILE",
        default: "",
        heading: AUTHENTICATION,
        help: "Where to write a kubeconfig with an admin credential, mode 0600 \
               [default: <data-dir>/kubeconfig]",
    },
    Spec {
        setting: Setting::ClientCaFile,
        name: "client-ca-file",
        value_name: "FILE",
        default: "",
        heading: AUTHENTICATION,
        help: "PEM file with more CAs whose client certificates are accepted (user: common name, \
               groups: organizations); the CA in <data-dir>/pki always is",
    },
    Spec {
        setting: Setting::TokenAuthFile,
        name: "token-auth-file",
        value_name: "FILE",
        default: "",
        heading: AUTHENTICATION,
        help: "CSV file of accepted bearer tokens, a line each: token,user,uid[,\"group1,group2\"]",
    },
    Spec {
        setting: Setting::ServiceAccountIssuer,
        name: "service-account-issuer",
        value_name: "URL,...",
        default: "https://kubernetes.default.svc.cluster.local",
        heading: AUTHENTICATION,
        help: "Who issues the tokens of service accounts; tokens of the second and later ones are \
               accepted too",
    },
    Spec {
        setting: Setting::ServiceAccountKeyFile,
        name: "service-account-key-file",
        value_name: "FILE,...",
        default: "",
        heading: AUTHENTICATION,
        help: "PEM files with more keys whose signatures of service accounts' tokens are believed; \
               the key that signs always is",
    },
    Spec {
        setting: Setting::ServiceAccountSigningKeyFile,
        name: "service-account-signing-key-file",
        value_name: "FILE",
        default: "",
        heading: AUTHENTICATION,
        help: "PEM file with the private key (RSA, or ECDSA with P-256 or P-384) that signs service \
               accounts' tokens; give the same to all servers of one etcd \
               [default: one kept in <data-dir>/pki]",
    },
    Spec {
        setting: Setting::ApiAudiences,
        name: "api-audiences",
        value_name: "NAME,...",
        default: "",
        heading: AUTHENTICATION,
        help: "Whom service accounts' tokens must be for to be accepted here \
               [default: --service-account-issuer]",
    },
    Spec {
        setting: Setting::DataDir,
        name: "data-dir",
        value_name: "DIR",
        default: "./.watchet",
        heading: STORAGE,
        help: "Directory of the embedded store, and with every kind of storage of the CA, the \
               certificates and the kubeconfig; one process at a time may use it",
    },
    Spec {
        setting: Setting::Storage,
        name: "storage",
        value_name: "KIND",
        default: "embedded",
        heading: STORAGE,
        help: "Where objects are kept: `embedded` (in --data-dir), `memory` (gone at exit) or \
               `etcd` (see --etcd-servers)",
    },
    Spec {
        setting: Setting::Durability,
        name: "durability",
        value_name: "WHEN",
        default: "fsync",
        heading: STORAGE,
        help: "When the embedded store forces writes to disk: `fsync` (before each is \
               acknowledged), `interval` (often, in the background) or `none` (at exit)",
    },
    Spec {
        setting: Setting::EtcdServers,
        name: "etcd-servers",
        value_name: "URL,...",
        default: "",
        heading: STORAGE,
        help: "etcd endpoints, e.g. http://127.0.0.1:2379; needed by --storage etcd",
    },
    Spec {
        setting: Setting::EtcdPrefix,
        name: "etcd-prefix",
        value_name: "PATH",
        default: "/registry",
        heading: STORAGE,
        help: "Where in etcd the keys begin",
    },
    Spec {
        setting: Setting::EtcdCafile,
        name: "etcd-cafile",
        value_name: "FILE",
        default: "",
        heading: STORAGE,
        help: "PEM file with the CA of etcd's serving certificates",
    },
    Spec {
        setting: Setting::EtcdCertfile,
        name: "etcd-certfile",
        value_name: "FILE",
        default: "",
        heading: STORAGE,
        help: "PEM file with the certificate to show to etcd",
    },
    Spec {
        setting: Setting::EtcdKeyfile,
        name: "etcd-keyfile",
        value_name: "FILE",
        default: "",
        heading: STORAGE,
        help: "PEM file with the private key of --etcd-certfile",
    },
    Spec {
        setting: Setting::EtcdCompactionInterval,
        name: "etcd-compaction-interval",
        value_name: "DURATION",
        default: "5m0s",
        heading: STORAGE,
        help: "How long history (what a client that comes back resumes from) is kept at least, in any \
               kind of storage; 0 keeps it until something else compacts etcd, or for ever",
    },
    Spec {
        setting: Setting::WatchHistoryWindow,
        name: "watch-history-window",
        value_name: "DURATION",
        default: "1m15s",
        heading: WATCH_CACHE,
        help: "How long each cache remembers changes, for watches that lag or come back; below a minute, \
               the time between two bookmarks, an idle watch may be unable to resume",
    },
    Spec {
        setting: Setting::WatchHistoryBytesMax,
        name: "watch-history-bytes-max",
        value_name: "BYTES",
        default: "256Mi",
        heading: WATCH_CACHE,
        help: "How much memory the changes of one resource may take, before the window is over",
    },
    Spec {
        setting: Setting::WatchCacheConsistencyCheckInterval,
        name: "watch-cache-consistency-check-interval",
        value_name: "DURATION",
        default: "0",
        heading: WATCH_CACHE,
        help: "How often each cache is compared with storage, which costs a list; 0 is never",
    },
    Spec {
        setting: Setting::ServiceClusterIpRange,
        name: "service-cluster-ip-range",
        value_name: "CIDR[,CIDR]",
        default: "10.96.0.0/12",
        heading: SERVICES,
        help: "Where the addresses of services come from; two ranges of different families, with a \
               comma between, make a cluster of both, and the first is that of services that do not \
               say which they want",
    },
    Spec {
        setting: Setting::EnableAdmissionPlugins,
        name: "enable-admission-plugins",
        value_name: "NAME,...",
        default: "",
        heading: ADMISSION,
        help: "Admission plugins that run beside the default ones, under kube-apiserver's names: \
               OwnerReferencesPermissionEnforcement, or any default one; NodeRestriction has no effect \
               yet",
    },
    Spec {
        setting: Setting::DisableAdmissionPlugins,
        name: "disable-admission-plugins",
        value_name: "NAME,...",
        default: "",
        heading: ADMISSION,
        help: "Default admission plugins that do not run, e.g. ServiceAccount; a name that is unknown \
               is answered with those that are known",
    },
    Spec {
        setting: Setting::Controllers,
        name: "controllers",
        value_name: "NAME,...",
        default: "*",
        heading: CONTROLLERS,
        help: "Which controllers run inside: `*` is all, `NAME` is that one, `-NAME` is not that one \
               (`*,-NAME` all others, `-NAME` alone none); a name that there is not is answered \
               with those that there are",
    },
    Spec {
        setting: Setting::ShutdownGracePeriod,
        name: "shutdown-grace-period",
        value_name: "DURATION",
        default: "30s",
        heading: PROCESS,
        help: "How long requests in flight may take to end after SIGTERM or SIGINT",
    },
    Spec {
        setting: Setting::LogLevel,
        name: "log-level",
        value_name: "LEVEL",
        default: "info",
        heading: PROCESS,
        help: "`error`, `warn`, `info`, `debug` or `trace`; a filter such as \
               `info,watchet::cacher=debug`; or a number as upstream's -v takes",
    },
    Spec {
        setting: Setting::LogFormat,
        name: "log-format",
        value_name: "FORMAT",
        default: "text",
        heading: PROCESS,
        help: "Lines on stderr as `text` or `json`",
    },
];

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
