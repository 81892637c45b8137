//! Connects to the configured etcd, unless this build is without the feature `etcd`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Metrics;
use crate::server::config::setting_value::ConfigError;
use crate::server::config::storage::EtcdConfig;
use crate::server::process::open_error::OpenError;
use crate::storage::Storage;

/// The time limit for the first response of etcd: if everything is started at the same time, etcd
/// may still elect its leader.
#[cfg(feature = "etcd")]
const START_MAX: Duration = Duration::from_secs(30);

/// The pause between attempts.
#[cfg(feature = "etcd")]
const START_PAUSE: Duration = Duration::from_secs(1);

/// Returns the storage in the etcd of `config`, once it responds. `last_seen` is the file that retains the latest revision.
///
/// # Errors
/// [`OpenError::Config`], or [`OpenError::Unreachable`] if it does not respond for half a minute.
#[cfg(feature = "etcd")]
pub(super) async fn open(
    config: &EtcdConfig,
    compaction_interval: Duration,
    last_seen: &Path,
    metrics: &Metrics,
) -> Result<Arc<dyn Storage>, OpenError> {
    Ok(connect(config, compaction_interval, Some(last_seen), metrics).await?)
}

/// As [`open`], with the type of the back end.
#[cfg(feature = "etcd")]
pub(in crate::server) async fn connect(
    config: &EtcdConfig,
    compaction_interval: Duration,
    last_seen: Option<&Path>,
    metrics: &Metrics,
) -> Result<Arc<crate::storage::etcd3::Etcd3>, OpenError> {
    use crate::storage::etcd3::{ConnectError, Etcd3, Etcd3Config};
    use tokio::time::Instant;

    let identity = config.identity.as_ref();
    let etcd = Etcd3Config {
        endpoints: config.servers.clone(),
        prefix: config.prefix.clone(),
        ca_file: config.ca.as_ref().map(|file| file.path.clone()),
        cert_file: identity.map(|files| files.certificate.path.clone()),
        key_file: identity.map(|files| files.key.path.clone()),
        compaction_interval,
        lease_keys: metrics.lease_keys(),
        last_seen_file: last_seen.map(Path::to_owned),
        ..Etcd3Config::default()
    };
    let deadline = Instant::now() + START_MAX;
    loop {
        let error = match Etcd3::connect(etcd.clone()).await {
            Ok(storage) => return Ok(storage),
            Err(error @ (ConnectError::Unreachable { .. } | ConnectError::NotAdvanced(_))) => error,
            Err(error) => return Err(ConfigError::new(error).into()),
        };
        if Instant::now() + START_PAUSE >= deadline {
            return Err(match error {
                ConnectError::Unreachable { .. } => OpenError::Unreachable {
                    servers: config.servers.join(","),
                    error: error.to_string(),
                },
                error => ConfigError::new(error).into(),
            });
        }
        tracing::warn!(%error, "etcd cannot be used yet");
        tokio::time::sleep(START_PAUSE).await;
    }
}

/// Returns an error that says that this build has no support for etcd.
#[cfg(not(feature = "etcd"))]
pub(super) async fn open(
    config: &EtcdConfig,
    _compaction_interval: Duration,
    _last_seen: &Path,
    _metrics: &Metrics,
) -> Result<Arc<dyn Storage>, OpenError> {
    let servers = config.servers.join(",");
    Err(ConfigError::new(format!(
        "--etcd-servers {servers:?}: this build has no support for etcd; build it with the feature `etcd`, which is on by default"
    ))
    .into())
}
