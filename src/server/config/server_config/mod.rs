//! The validated configuration. Values are parsed and invalid combinations rejected; files are not
//! opened here but where they are loaded, with the same kind of error.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use crate::admission::{EnabledPlugins, PluginConfigurations};
use crate::builtin::RegistryConfig;
use crate::cacher::CacherConfig;
use crate::controllers;
use crate::server::config::audit::AuditConfig;
use crate::server::config::authentication::AuthenticationConfig;
use crate::server::config::authorization::AuthorizationConfig;
use crate::server::config::bytes;
use crate::server::config::encryption::EncryptionSettings;
use crate::server::config::file_setting::{CertificateFiles, FileSetting, certificate_files};
use crate::server::config::flags::Flags;
use crate::server::config::lifetime::LifetimeConfig;
use crate::server::config::memory::MemoryLimit;
use crate::server::config::requests::RequestLimits;
use crate::server::config::setting_value::{ConfigError, SettingValue, parsed_duration};
use crate::server::config::settings::Settings;
use crate::server::config::sni::{SniCertificate, sni_certificates};
use crate::server::config::storage::{StorageConfig, media_type, retention, storage};
use crate::server::config::tls::{TlsParameters, extra_names};
use crate::server::config::token_config::TokenConfig;
use crate::services::ServiceRanges;
use crate::storage::embedded::HistoryRetention;

/// The configuration of `watchet serve`.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::server) struct Config {
    /// `--data-dir`
    pub data_dir: PathBuf,
    /// `--write-kubeconfig`
    pub kubeconfig: PathBuf,
    /// The addresses to listen on.
    pub listen: Listen,
    /// The TLS versions and cipher suites of the HTTPS port.
    pub tls: TlsParameters,
    /// `--console`
    pub console: bool,
    /// `--profiling`
    pub profiling: bool,
    /// The limits of requests.
    pub requests: RequestLimits,
    /// `--memory-limit`
    pub memory: MemoryLimit,
    /// The serving certificate, if not signed by the server's own CA.
    pub serving_certificate: Option<CertificateFiles>,
    /// `--tls-sni-cert-key`
    pub sni_certificates: Vec<SniCertificate>,
    /// `--tls-san`
    pub extra_names: Vec<String>,
    /// `--client-ca-file`
    pub client_ca_file: Option<FileSetting>,
    /// `--token-auth-file`
    pub token_auth_file: Option<FileSetting>,
    /// Issuers of JSON Web Tokens, anonymous requests, the token webhook.
    pub authentication: AuthenticationConfig,
    /// The settings of service account tokens.
    pub tokens: TokenConfig,
    /// The settings of authorization.
    pub authorization: AuthorizationConfig,
    /// The audit log, if one is configured.
    pub audit: Option<AuditConfig>,
    /// The storage of objects.
    pub storage: StorageConfig,
    /// The encryption of stored values, if it is configured.
    pub encryption: Option<EncryptionSettings>,
    /// `--etcd-compaction-interval`; zero never compacts.
    pub compaction_interval: Duration,
    /// `--history-retention` and `--history-retention-bytes-max`
    pub retention: Option<HistoryRetention>,
    /// The watch caches, the service ranges and the admission plugins.
    pub registry: RegistryConfig,
    /// `--admission-control-config-file`
    pub admission_config_file: Option<FileSetting>,
    /// `--controllers`
    pub controllers: controllers::Selection,
    /// The start and the end of the process.
    pub lifetime: LifetimeConfig,
    /// `--tracing-config-file`
    pub tracing_config_file: Option<FileSetting>,
    /// The log settings.
    pub log: LogConfig,
}

/// The addresses to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct Listen {
    /// `--bind-address`
    pub address: IpAddr,
    /// `--secure-port`; 0 for any free port.
    pub secure_port: u16,
    /// `--insecure-port`; 0 for any free port, `None` if disabled.
    pub insecure_port: Option<u16>,
    /// `--max-connections`, of all ports together.
    pub connections_max: NonZeroUsize,
}

/// The log settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct LogConfig {
    /// The level as it was given: `--log-level`.
    pub level: String,
    /// `--log-format`
    pub format: LogFormat,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Config {
    /// Validates `settings`.
    ///
    /// # Errors
    /// The first invalid value, in the order of the help.
    pub(in crate::server) fn check(settings: &Settings) -> Result<Self, ConfigError> {
        let flags = &settings.flags();
        let listen = listen(flags)?;
        let serving_certificate =
            certificate_files(&flags.tls_cert_file, &flags.tls_private_key_file)?;
        let file = |value: &SettingValue| value.non_empty().map(FileSetting::new);
        let (data_dir, kubeconfig) = paths(flags)?;
        Ok(Self {
            data_dir,
            kubeconfig,
            listen,
            tls: TlsParameters::check(flags)?,
            sni_certificates: sni_certificates(&flags.tls_sni_cert_key)?,
            extra_names: extra_names(flags)?,
            console: boolean(&flags.console)?,
            profiling: boolean(&flags.profiling)?,
            requests: RequestLimits::check(flags)?,
            memory: MemoryLimit::check(&flags.memory_limit)?,
            serving_certificate,
            client_ca_file: file(&flags.client_ca_file),
            token_auth_file: file(&flags.token_auth_file),
            authentication: AuthenticationConfig::check(flags)?,
            tokens: TokenConfig::check(flags)?,
            authorization: AuthorizationConfig::check(flags)?,
            audit: AuditConfig::check(flags)?,
            storage: storage(flags)?,
            encryption: EncryptionSettings::check(flags)?,
            compaction_interval: parsed_duration(&flags.etcd_compaction_interval)?,
            retention: retention(flags)?,
            registry: RegistryConfig {
                caches: watch_cache(flags)?,
                service_ranges: service_ranges(flags)?,
                plugins: plugins(flags)?,
                plugin_configurations: PluginConfigurations::default(),
                storage_media_type: media_type(&flags.storage_media_type)?,
                encoding_cache_bytes: encoding_cache_bytes(&flags.encoding_cache_bytes_max)?,
            },
            admission_config_file: file(&flags.admission_control_config_file),
            controllers: controllers(flags)?,
            lifetime: LifetimeConfig::check(flags)?,
            tracing_config_file: file(&flags.tracing_config_file),
            log: log(flags)?,
        })
    }
}

/// Returns the data directory and the path of the kubeconfig.
fn paths(flags: &Flags) -> Result<(PathBuf, PathBuf), ConfigError> {
    let data_dir = PathBuf::from(flags.data_dir.text.clone());
    if data_dir.is_file() {
        return Err(flags.data_dir.error("is a file: give a directory"));
    }
    let Some(setting) = flags.write_kubeconfig.non_empty() else {
        let kubeconfig = data_dir.join("kubeconfig");
        return match kubeconfig.is_dir() {
            true => {
                let problem = format_args!("{} is a directory: give a file", kubeconfig.display());
                Err(flags.write_kubeconfig.error(problem))
            }
            false => Ok((data_dir, kubeconfig)),
        };
    };
    let kubeconfig = PathBuf::from(&setting.text);
    let parent = kubeconfig.parent().filter(|parent| *parent != "");
    if kubeconfig.is_dir() {
        let problem = format_args!("{} is a directory: give a file", kubeconfig.display());
        return Err(setting.error(problem));
    }
    // The data directory is created with its parents.
    let is_created = |parent: &Path| data_dir.starts_with(parent) || parent.starts_with(&data_dir);
    let missing = parent.filter(|parent| !parent.is_dir() && !is_created(parent));
    if let Some(missing) = missing {
        let missing = missing.display();
        return Err(setting.error(format_args!(
            "the directory {missing} does not exist: create it"
        )));
    }
    Ok((data_dir, kubeconfig))
}

fn boolean(setting: &SettingValue) -> Result<bool, ConfigError> {
    match setting.text.as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(setting.clone().error("must be true or false")),
    }
}

fn listen(flags: &Flags) -> Result<Listen, ConfigError> {
    let setting = flags.bind_address.clone();
    let address: IpAddr = setting.text.parse().map_err(|_| {
        setting.error("must be an IP address such as 127.0.0.1, ::1 or 0.0.0.0, without a port")
    })?;
    let secure = flags.secure_port.clone();
    let secure_port = port(
        &secure,
        "must be a port number, 0 to 65535 (0 takes a free one)",
    )?;
    let insecure = flags.insecure_port.clone();
    let insecure_port = match insecure.text.as_str() {
        "auto" => Some(0),
        _ => Some(port(
            &insecure,
            "must be a port number, 1 to 65535, 0 for off or `auto`",
        )?)
        .filter(|port| *port != 0),
    };
    if insecure_port.is_some() && !address.is_loopback() {
        return Err(insecure.error(format_args!(
            "serves without authentication, so it is refused unless --bind-address is a loopback \
             address, and that is {address}: remove one of the two"
        )));
    }
    if insecure_port == Some(secure_port) && secure_port != 0 {
        return Err(insecure.error("is the HTTPS port too (--secure-port): choose another"));
    }
    let connections = flags.max_connections.clone();
    let connections_max = connections
        .text
        .parse()
        .map_err(|_| connections.error("must be a number of connections, 1 or more"))?;
    Ok(Listen {
        address,
        secure_port,
        insecure_port,
        connections_max,
    })
}

fn port(setting: &SettingValue, problem: &str) -> Result<u16, ConfigError> {
    setting.text.parse().map_err(|_| setting.error(problem))
}

/// The minimum memory for history: a few objects of the maximum size.
const HISTORY_BYTES_MIN: usize = 16 << 20;

fn watch_cache(flags: &Flags) -> Result<CacherConfig, ConfigError> {
    let defaults = CacherConfig::default();
    let setting = flags.watch_history_window.clone();
    let history_window = parsed_duration(&setting)?;
    if history_window.is_zero() {
        return Err(setting.error("must be longer than 0"));
    }
    let setting = flags.watch_history_bytes_max.clone();
    let history_bytes_max = bytes::parse(&setting.text)
        .filter(|bytes| *bytes >= HISTORY_BYTES_MIN)
        .ok_or_else(|| setting.error("must be an amount such as 256Mi or 1Gi, at least 16Mi"))?;
    let interval = parsed_duration(&flags.watch_cache_consistency_check_interval)?;
    Ok(CacherConfig {
        history_window,
        history_bytes_max,
        consistency_check_period: Some(interval).filter(|interval| !interval.is_zero()),
        ..defaults
    })
}

/// Returns the memory for encodings of objects other than JSON, in bytes.
fn encoding_cache_bytes(setting: &SettingValue) -> Result<usize, ConfigError> {
    bytes::parse(&setting.text).ok_or_else(|| {
        let setting = setting.clone();
        setting.error("must be an amount such as 256Mi or 1Gi, or 0")
    })
}

fn service_ranges(flags: &Flags) -> Result<ServiceRanges, ConfigError> {
    let setting = flags.service_cluster_ip_range.clone();
    ServiceRanges::parse(&setting.text).map_err(|error| setting.error(error))
}

fn plugins(flags: &Flags) -> Result<EnabledPlugins, ConfigError> {
    let enable = flags.enable_admission_plugins.clone();
    let disable = flags.disable_admission_plugins.clone();
    // Each flag separately first, so that an error names the flag with the wrong name.
    EnabledPlugins::parse(&enable.text, "").map_err(|error| enable.error(error))?;
    EnabledPlugins::parse(&enable.text, &disable.text).map_err(|error| disable.error(error))
}

fn controllers(flags: &Flags) -> Result<controllers::Selection, ConfigError> {
    let setting = flags.controllers.clone();
    controllers::Selection::parse(&setting.text).map_err(|error| setting.error(error))
}

fn log(flags: &Flags) -> Result<LogConfig, ConfigError> {
    let setting = flags.log_level.clone();
    log_filter(&setting.text).map_err(|problem| setting.error(problem))?;
    let level = setting.text;
    let setting = flags.log_format.clone();
    let format = match setting.text.as_str() {
        "text" => LogFormat::Text,
        "json" => LogFormat::Json,
        _ => return Err(setting.error("must be text or json")),
    };
    Ok(LogConfig { level, format })
}

/// The maximum length of a log level in bytes: a filter of some thousand modules costs each log line time.
const LOG_LEVEL_BYTES_MAX: usize = 4096;

/// What `--log-level` accepts, for errors.
pub(in crate::server) const LOG_LEVELS: &str = "must be error, warn, info, debug, trace, a number, or a filter of at most 4096 bytes such as \
                                                info,watchet_cacher=debug";

/// Returns the log filter. A level alone applies to this crate; libraries need an explicit filter. The warnings of the
/// HTTP/2 library are about clients that break the protocol, as often as they like.
///
/// # Errors
/// [`LOG_LEVELS`]: it is none of them, or too long.
pub(in crate::server) fn log_filter(text: &str) -> Result<EnvFilter, &'static str> {
    // Upstream's verbosity: 0 to 3 for operators, 4 and 5 for debugging, above that for tracing.
    let level = match text.parse::<u32>() {
        Ok(0..=3) => "info",
        Ok(4..=5) => "debug",
        Ok(_) => "trace",
        Err(_) => text,
    };
    let filter = match level {
        "error" => level.to_owned(),
        "warn" | "info" | "debug" | "trace" => format!("warn,h2=error,watchet={level}"),
        _ if text.contains(['=', ',']) && text.len() <= LOG_LEVEL_BYTES_MAX => level.to_owned(),
        _ => return Err(LOG_LEVELS),
    };
    // The values of fields are compared as texts: a short regular expression can need gigabytes.
    let builder = EnvFilter::builder().with_regex(false);
    builder.parse(filter).map_err(|_| LOG_LEVELS)
}

#[cfg(test)]
mod tests;
