//! `AuditFiles`: what the files of audit logging contain. They are read before anything is changed on the disk.

use std::sync::Arc;
use std::time::Duration;

use crate::audit::policy::Policy;
use crate::audit::{Auditor, WebhookOptions};
use crate::client::{Kubeconfig, RestClient, RestConfig};
use crate::metrics::Metrics;
use crate::server::config::audit::{AuditConfig, LogConfig, WebhookConfig};
use crate::server::config::file_setting::FileSetting;
use crate::server::config::setting_value::ConfigError;

/// The time limit of a request to the webhook, as upstream.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// The policy and the backends.
pub(super) struct AuditFiles {
    policy: Policy,
    log: Option<LogConfig>,
    webhook: Option<(RestClient, WebhookOptions)>,
}

impl AuditFiles {
    /// Reads the policy and the kubeconfig of the webhook.
    ///
    /// # Errors
    /// A file cannot be read or used.
    pub(super) fn read(config: &AuditConfig) -> Result<Self, ConfigError> {
        let webhook = config.webhook.as_ref().map(|webhook| {
            let WebhookConfig {
                kubeconfig,
                options,
            } = webhook;
            Ok((webhook_client(kubeconfig)?, options.clone()))
        });
        Ok(Self {
            policy: policy(&config.policy)?,
            log: config.log.clone(),
            webhook: webhook.transpose()?,
        })
    }

    /// Opens the log.
    ///
    /// # Errors
    /// The log cannot be opened.
    pub(super) fn open(self, metrics: &Arc<Metrics>) -> Result<Auditor, ConfigError> {
        let mut auditor = Auditor::new(self.policy, Arc::clone(metrics));
        if let Some(LogConfig { file, options }) = &self.log {
            let opened = auditor.with_log(options);
            auditor =
                opened.map_err(|error| file.error(format_args!("cannot be opened: {error}")))?;
        }
        if let Some((client, options)) = self.webhook {
            auditor = auditor.with_webhook(client, options);
        }
        Ok(auditor)
    }
}

fn policy(file: &FileSetting) -> Result<Policy, ConfigError> {
    let policy = file.read()?.parse();
    policy.map_err(|error| file.error(format_args!("is no audit policy: {error}")))
}

/// Returns the client of the current context of a kubeconfig. Credentials that the client does not support are errors.
fn webhook_client(file: &FileSetting) -> Result<RestClient, ConfigError> {
    let invalid = |error: &dyn std::fmt::Display| file.error(error);
    let kubeconfig = Kubeconfig::load(&[&file.path]).map_err(|error| invalid(&error))?;
    let config = RestConfig::from_kubeconfig(&kubeconfig, None).map_err(|error| invalid(&error))?;
    if config.server.contains(['?', '#']) {
        let problem = "the server of the kubeconfig must be a URL without a query or a fragment";
        return Err(file.error(problem));
    }
    let config = RestConfig {
        timeout: WEBHOOK_TIMEOUT,
        ..config
    };
    RestClient::new(&config).map_err(|error| invalid(&error))
}
