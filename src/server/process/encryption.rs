//! Encryption at rest: takes the configuration into effect at the start and when its file changes.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::encryption::{ActivationError, Encryption, EncryptionConfiguration};
use crate::http::HealthCheck;
use crate::metrics::Metrics;
use crate::server::config::encryption::EncryptionSettings;
use crate::server::config::setting_value::ConfigError;
use crate::server::config::storage::StorageConfig;
use crate::server::process::reload::{ApplyError, Reload};

/// The prefix of keys in etcd unless it is configured. The embedded store has no prefix, but its values are encrypted
/// with this one, so that they can be copied to an etcd.
const DEFAULT_PREFIX: &str = "/registry";

/// Starts the encryption of a server over `storage`.
///
/// # Errors
/// A provider cannot be made of its configuration.
pub(in crate::server) async fn start(
    settings: Option<&EncryptionSettings>,
    configuration: Option<EncryptionConfiguration>,
    storage: &StorageConfig,
    metrics: &Arc<Metrics>,
) -> Result<Option<Arc<Encryption>>, ConfigError> {
    let (Some(settings), Some(configuration)) = (settings, configuration) else {
        return Ok(None);
    };
    let prefix = match storage {
        StorageConfig::Etcd(etcd) => &etcd.prefix,
        _ => DEFAULT_PREFIX,
    };
    let encryption = Encryption::new(configuration, prefix, Arc::clone(metrics)).await;
    let encryption = encryption.map_err(|error| settings.file.error(error))?;
    Ok(Some(encryption))
}

/// Returns the reload of the configuration, if it is enabled.
pub(in crate::server) fn reload(
    settings: Option<&EncryptionSettings>,
    encryption: Option<&Arc<Encryption>>,
    metrics: &Arc<Metrics>,
) -> Option<Reload> {
    let settings = settings.filter(|settings| settings.reloads)?.clone();
    let encryption = Arc::clone(encryption?);
    let metrics = Arc::clone(metrics);
    let runtime = Handle::current();
    Some(Reload::new(vec![settings.file.path.clone()], move || {
        let applied = apply(&settings, &encryption, &runtime);
        let metrics = metrics.encryption();
        match applied {
            Ok(()) => metrics.reloads.inc(),
            Err(_) => metrics.failed_reloads.inc(),
        }
        applied
    }))
}

/// Reads the configuration and takes it into effect. Must be called on a blocking thread.
fn apply(
    settings: &EncryptionSettings,
    encryption: &Encryption,
    runtime: &Handle,
) -> Result<(), ApplyError> {
    let configuration = settings.read().map_err(ApplyError::invalid)?;
    match runtime.block_on(encryption.replace(configuration)) {
        Ok(()) => Ok(()),
        Err(error @ ActivationError::Unhealthy(_)) => Err(ApplyError::Temporary(error.into())),
        Err(error) => Err(ApplyError::invalid(error)),
    }
}

/// Returns the health check of KMS plugins, with upstream's name.
pub(in crate::server) fn check(encryption: &Arc<Encryption>) -> HealthCheck {
    let encryption = Arc::clone(encryption);
    HealthCheck::new("kms-providers", move || {
        let health = encryption.health();
        async move { health }
    })
}
