//! Metrics of authentication.

use super::exposition::{Exposition, Kind};
use super::value::Counter;

/// The metrics of authentication.
#[derive(Debug, Default)]
pub struct AuthenticationMetrics {
    /// Changes of the file `--authentication-config`.
    pub config_reloads: ConfigReloads,
}

/// Changes of a configuration file.
#[derive(Debug, Default)]
pub struct ConfigReloads {
    /// Those that were applied.
    pub success: Counter,
    /// Those that were rejected.
    pub failure: Counter,
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
    }
}
