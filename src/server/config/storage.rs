//! The settings of the storage: which back end (`--storage`), and what each needs.

use std::time::Duration;

use crate::protobuf::StorageMediaType;
use crate::server::config::bytes;
use crate::server::config::file_setting::{CertificateFiles, FileSetting, certificate_files};
use crate::server::config::flags::Flags;
use crate::server::config::setting_value::{ConfigError, SettingValue, parsed_duration};
use crate::server::envtest::store::Store;
use crate::storage::embedded::HistoryRetention;

/// The minimum of `--history-retention-bytes-max`: space for several objects of the maximum size.
const HISTORY_BYTES_MIN: usize = 16 << 20;

/// The minimum of `--history-retention`: several times the precision of the times of revisions.
const RETENTION_MIN: Duration = Duration::from_secs(10);

/// The storage of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum StorageConfig {
    /// Files in the data directory.
    Embedded {
        /// `--durability`
        durability: DurabilityConfig,
    },
    /// The store of another process of this program, which envtest started as `etcd`.
    EnvtestEtcd {
        /// `--etcd-servers`
        servers: Vec<String>,
        /// The storage that the process provides.
        store: Store,
    },
    /// In memory.
    Memory,
    /// In etcd.
    Etcd(Box<EtcdConfig>),
}

/// When the embedded store syncs writes to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum DurabilityConfig {
    /// Before they are acknowledged.
    Fsync,
    /// In the background.
    Interval,
    /// At exit.
    None,
}

/// The etcd client settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct EtcdConfig {
    /// `--etcd-servers`
    pub servers: Vec<String>,
    /// `--etcd-prefix`, with a leading and without a trailing slash.
    pub prefix: String,
    /// `--etcd-cafile`
    pub ca: Option<FileSetting>,
    /// `--etcd-certfile` and `--etcd-keyfile`
    pub identity: Option<CertificateFiles>,
}

/// Validates the settings of the storage.
///
/// # Errors
/// A value is invalid, or a setting has no effect with the selected back end.
pub(super) fn storage(flags: &Flags) -> Result<StorageConfig, ConfigError> {
    let kind = flags.storage.clone();
    let setting = flags.durability.clone();
    let durability = match setting.text.as_str() {
        "fsync" => DurabilityConfig::Fsync,
        "interval" => DurabilityConfig::Interval,
        "none" => DurabilityConfig::None,
        _ => return Err(setting.error("must be fsync, interval or none")),
    };
    // Validated for any storage, so that mistakes are found early.
    let etcd = etcd(flags)?;
    match kind.text.as_str() {
        "embedded" => {
            refuse_etcd_settings(flags, &kind).map(|()| StorageConfig::Embedded { durability })
        }
        "memory" => refuse_etcd_settings(flags, &kind).map(|()| StorageConfig::Memory),
        "etcd" if etcd.servers.is_empty() => {
            Err(kind.error("needs --etcd-servers, e.g. --etcd-servers http://127.0.0.1:2379"))
        }
        "etcd" => Ok(StorageConfig::Etcd(Box::new(etcd))),
        _ => Err(kind.error("must be embedded, memory or etcd")),
    }
}

/// Validates the retention of history; `None` if it is that of the compaction interval.
///
/// # Errors
/// A value is invalid, or the storage is etcd: all its servers would need the same retention.
pub(super) fn retention(flags: &Flags) -> Result<Option<HistoryRetention>, ConfigError> {
    let setting = flags.history_retention.clone();
    let time = parsed_duration(&setting)?;
    let size = flags.history_retention_bytes_max.clone();
    let bytes_max = bytes::parse(&size.text)
        .filter(|bytes| *bytes >= HISTORY_BYTES_MIN)
        .ok_or_else(|| size.error("must be an amount such as 512Mi or 10Gi, at least 16Mi"))?;
    if time.is_zero() {
        return Ok(None);
    }
    if time < RETENTION_MIN {
        return Err(setting.error("must be at least 10s, or 0"));
    }
    if flags.storage.text == "etcd" {
        return Err(setting.error(
            "is for --storage embedded or memory: with etcd, set --etcd-compaction-interval on all of its servers",
        ));
    }
    Ok(Some(HistoryRetention {
        time,
        bytes_max: bytes_max as u64,
    }))
}

/// Validates the encoding of the objects in storage.
///
/// # Errors
/// It is not supported.
pub(super) fn media_type(setting: &SettingValue) -> Result<StorageMediaType, ConfigError> {
    let parsed: Result<StorageMediaType, _> = setting.text.parse();
    parsed.map_err(|_| {
        setting.error("must be application/json or application/vnd.kubernetes.protobuf")
    })
}

/// Rejects etcd settings with another storage, since they would have no effect. They are allowed if
/// a stronger layer selects the storage: `--storage memory` may override a file with etcd settings.
fn refuse_etcd_settings(flags: &Flags, kind: &SettingValue) -> Result<(), ConfigError> {
    let only_etcd = [
        &flags.etcd_servers,
        &flags.etcd_cafile,
        &flags.etcd_certfile,
        &flags.etcd_keyfile,
    ];
    match only_etcd
        .into_iter()
        .filter_map(|value| value.non_empty())
        .find(|setting| setting.source >= kind.source)
    {
        Some(setting) => Err(setting.error(format_args!(
            "is for --storage etcd, but storage is {}: add `--storage etcd` or remove it",
            kind.text
        ))),
        None => Ok(()),
    }
}

/// Validates the settings of the etcd client.
///
/// # Errors
/// A value is invalid.
pub(in crate::server) fn etcd(flags: &Flags) -> Result<EtcdConfig, ConfigError> {
    let setting = flags.etcd_servers.clone();
    let servers: Vec<String> = setting
        .text
        .split(',')
        .map(|server| server.trim().to_owned())
        .filter(|server| !server.is_empty())
        .collect();
    if let Some(wrong) = servers.iter().find(|server| !is_endpoint(server)) {
        return Err(setting.error(format_args!(
            "{wrong:?} is not an endpoint: write http://HOST:PORT or https://HOST:PORT"
        )));
    }
    let ca = flags.etcd_cafile.non_empty().map(FileSetting::new);
    let identity = certificate_files(&flags.etcd_certfile, &flags.etcd_keyfile)?;
    let plain = servers.iter().find(|server| server.starts_with("http://"));
    if let (Some(server), Some(file)) = (
        plain,
        ca.as_ref()
            .or(identity.as_ref().map(|files| &files.certificate)),
    ) {
        return Err(file.error(format_args!(
            "is for TLS, but --etcd-servers has {server:?}: write https:// or remove the file"
        )));
    }
    Ok(EtcdConfig {
        servers,
        prefix: etcd_prefix(&flags.etcd_prefix)?,
        ca,
        identity,
    })
}

/// Returns true for a URL, or `host:port`, whose scheme the TLS files then imply.
fn is_endpoint(server: &str) -> bool {
    let url = match server.contains("://") {
        true => server.to_owned(),
        false => format!("http://{server}"),
    };
    let Ok(uri) = url.parse::<http::Uri>() else {
        return false;
    };
    let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    let bare = uri.path() == "/" && uri.query().is_none();
    scheme && bare && uri.host().is_some_and(|host| !host.is_empty()) && uri.port_u16().is_some()
}

/// Normalizes the prefix: as upstream, a leading slash is optional and a trailing one is ignored.
fn etcd_prefix(setting: &SettingValue) -> Result<String, ConfigError> {
    let path = setting.text.trim_matches('/');
    let sound = path
        .split('/')
        .all(|segment| !matches!(segment, "" | "." | ".."));
    if !sound {
        return Err(
            setting.error("must be a path such as /registry, without empty or dot segments")
        );
    }
    Ok(format!("/{path}"))
}
