//! `Encryption`: the configuration that is in effect, and the KMS providers that it uses.

use std::sync::Arc;
#[cfg(feature = "kms")]
use std::time::Duration;

use arc_swap::ArcSwap;
#[cfg(feature = "kms")]
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;
use watchet_api::StorageKey;
use watchet_metrics::Metrics;

use crate::configuration::EncryptionConfiguration;
#[cfg(feature = "kms")]
use crate::kms::KmsProvider;
use crate::transformer::{Provider, Transformer, providers};

/// The interval between status requests to a healthy KMS plugin, as upstream.
#[cfg(feature = "kms")]
const PROBE_INTERVAL: Duration = Duration::from_mins(1);
/// The interval between status requests to an unhealthy KMS plugin.
#[cfg(feature = "kms")]
const FAILED_PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// The encryption of the values of a server.
#[derive(Debug)]
pub struct Encryption {
    /// The prefix of the keys in etcd, a part of the associated data of values.
    key_prefix: String,
    active: ArcSwap<Active>,
    metrics: Arc<Metrics>,
}

/// A configuration with its ciphers and plugins.
#[derive(Debug)]
struct Active {
    configuration: EncryptionConfiguration,
    /// The providers of each rule of the configuration, in their order.
    providers: Vec<Vec<Arc<Provider>>>,
    #[cfg(feature = "kms")]
    kms: Vec<Arc<KmsProvider>>,
}

/// The error of a configuration that cannot take effect.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ActivationError {
    /// A provider cannot be created from its configuration.
    #[error("{0}")]
    Invalid(String),
    /// The KMS plugins are not healthy; a later attempt may succeed.
    #[error("{0}")]
    Unhealthy(String),
}

impl Encryption {
    /// Returns the encryption with `configuration`. `key_prefix` is the prefix of the keys in the store: values of a
    /// server with another prefix cannot be decrypted. Must be called within a tokio runtime.
    ///
    /// Requests the status of the KMS plugins. If a plugin does not respond, [`Self::maintain`] repeats the request;
    /// until it succeeds, values of that provider cannot be decrypted or encrypted.
    ///
    /// # Errors
    /// [`ActivationError::Invalid`]
    pub async fn new(
        configuration: EncryptionConfiguration,
        key_prefix: &str,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, ActivationError> {
        let active = Active::new(configuration, &metrics)?;
        // The health of the providers has the result, and maintain() logs it.
        let _ = active.probe().await;
        Ok(Arc::new(Self {
            key_prefix: key_prefix.to_owned(),
            active: ArcSwap::from_pointee(active),
            metrics,
        }))
    }

    /// Replaces the configuration. Reads and writes in progress finish with the previous configuration.
    ///
    /// # Errors
    /// The previous configuration stays in effect if the new one is invalid or its KMS plugins are not healthy.
    pub async fn replace(
        &self,
        configuration: EncryptionConfiguration,
    ) -> Result<(), ActivationError> {
        let active = Active::new(configuration, &self.metrics)?;
        active.probe().await.map_err(ActivationError::Unhealthy)?;
        self.active.store(Arc::new(active));
        Ok(())
    }

    /// Checks that all KMS plugins were healthy at their last status request.
    ///
    /// # Errors
    /// The plugins that were not, with their problems.
    pub fn health(&self) -> Result<(), String> {
        self.active.load().health()
    }

    /// Returns true if a KMS plugin is configured.
    pub fn has_kms(&self) -> bool {
        #[cfg(feature = "kms")]
        return !self.active.load().kms.is_empty();
        #[cfg(not(feature = "kms"))]
        false
    }

    /// Requests the status of the KMS plugins every minute, or every 10 seconds while one is not healthy, until
    /// `cancel`. A new key ID in a status rotates the data encryption key.
    #[cfg(feature = "kms")]
    pub async fn maintain(&self, cancel: CancellationToken) {
        let mut was_healthy = true;
        loop {
            let health = self.health();
            match &health {
                Ok(()) if !was_healthy => tracing::info!("the KMS plugins are healthy again"),
                Err(error) if was_healthy => tracing::error!(%error, "a KMS plugin is not healthy"),
                _ => {}
            }
            was_healthy = health.is_ok();
            let pause = match was_healthy {
                true => PROBE_INTERVAL,
                false => FAILED_PROBE_INTERVAL,
            };
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            // The health of the provider has the failure.
            let _ = self.active.load_full().probe().await;
        }
    }

    /// Waits until `cancel`: without KMS there is nothing to do.
    #[cfg(not(feature = "kms"))]
    pub async fn maintain(&self, cancel: CancellationToken) {
        cancel.cancelled().await;
    }

    /// Returns the providers of a resource at this time; `None` if it is not encrypted.
    pub(crate) fn transformer(&self, group: &str, resource: &str) -> Option<Transformer> {
        let active = self.active.load();
        let rules = active.configuration.rules_of(group, resource);
        let providers = rules.into_iter().flat_map(|rule| &active.providers[rule]);
        let providers: Vec<_> = providers.cloned().collect();
        (!providers.is_empty()).then_some(Transformer(providers))
    }

    /// Returns the associated data of the value at `key`: the key in etcd, as upstream.
    pub(crate) fn context(&self, key: &StorageKey) -> Vec<u8> {
        [self.key_prefix.as_bytes(), key.as_str().as_bytes()].concat()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

impl Active {
    #[cfg_attr(not(feature = "kms"), allow(unused_variables, reason = "for KMS"))]
    fn new(
        configuration: EncryptionConfiguration,
        metrics: &Metrics,
    ) -> Result<Self, ActivationError> {
        let invalid = |error: &dyn std::fmt::Display| ActivationError::Invalid(error.to_string());
        #[cfg(feature = "kms")]
        let kms: Vec<Arc<KmsProvider>> = configuration
            .kms()
            .map(|kms| {
                let metrics = Arc::clone(&metrics.encryption().kms);
                KmsProvider::new(kms, metrics).map(Arc::new)
            })
            .collect::<Result<_, _>>()
            .map_err(|error| invalid(&error))?;
        #[cfg(feature = "kms")]
        let by_name = |name: &str| kms.iter().find(|one| one.name() == name).cloned();
        let mut of_rules = Vec::new();
        for rule in &configuration.rules {
            let mut of_rule = Vec::new();
            for provider in &rule.providers {
                #[cfg(feature = "kms")]
                let made = providers(provider, by_name);
                #[cfg(not(feature = "kms"))]
                let made = providers(provider);
                of_rule.extend(made.map_err(|error| invalid(&error))?);
            }
            of_rules.push(of_rule);
        }
        Ok(Self {
            configuration,
            providers: of_rules,
            #[cfg(feature = "kms")]
            kms,
        })
    }

    #[cfg(feature = "kms")]
    async fn probe(&self) -> Result<(), String> {
        // health() has the results, with the names of the plugins.
        let _ = join_all(self.kms.iter().map(|kms| kms.probe())).await;
        self.health()
    }

    #[cfg(not(feature = "kms"))]
    #[allow(clippy::unused_async, reason = "asynchronous with KMS")]
    async fn probe(&self) -> Result<(), String> {
        Ok(())
    }

    #[cfg(feature = "kms")]
    fn health(&self) -> Result<(), String> {
        let errors: Vec<String> = self
            .kms
            .iter()
            .filter_map(|kms| kms.health().err())
            .collect();
        match errors.is_empty() {
            true => Ok(()),
            false => Err(errors.join("; ")),
        }
    }

    #[cfg(not(feature = "kms"))]
    #[allow(clippy::unused_self, reason = "reads the plugins with KMS")]
    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}
