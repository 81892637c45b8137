//! Metrics of authentication.

use std::sync::Arc;

use super::exposition::{Exposition, Kind};
use super::value::Counter;

/// The metrics of authentication.
#[derive(Debug, Default)]
pub struct AuthenticationMetrics {
    /// Changes of the file `--authentication-config`.
    pub config_reloads: ConfigReloads,
    /// Uses of service account tokens.
    pub service_account_tokens: Arc<ServiceAccountTokenMetrics>,
}

/// Changes of a configuration file.
#[derive(Debug, Default)]
pub struct ConfigReloads {
    /// Those that were applied.
    pub success: Counter,
    /// Those that were rejected.
    pub failure: Counter,
}

/// Uses of service account tokens whose validity was extended, in requests and token reviews.
#[derive(Debug, Default)]
pub struct ServiceAccountTokenMetrics {
    /// Those before the time at which the token should have been replaced.
    pub valid: Counter,
    /// Those after it.
    pub stale: Counter,
}

impl AuthenticationMetrics {
    /// Writes all metrics.
    pub(super) fn write(&self, out: &mut Exposition) {
        let help = "Number of changes of the authentication configuration, by their result.";
        let name = "apiserver_authentication_config_controller_automatic_reloads_total";
        let mut family = out.family(name, Kind::Counter, help);
        let reloads = &self.config_reloads;
        for (status, count) in [("failure", &reloads.failure), ("success", &reloads.success)] {
            family.value(&[&[("status", status)]], count.get());
        }
        let tokens = &self.service_account_tokens;
        let help = "Number of uses of service account tokens that should have been replaced.";
        out.family("serviceaccount_stale_tokens_total", Kind::Counter, help)
            .value(&[], tokens.stale.get());
        let help = "Number of uses of service account tokens with extended validity, before they should be replaced.";
        out.family("serviceaccount_valid_tokens_total", Kind::Counter, help)
            .value(&[], tokens.valid.get());
    }
}
