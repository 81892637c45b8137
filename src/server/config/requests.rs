//! `--enable-priority-and-fairness`, `--max-requests-inflight`, `--max-mutating-requests-inflight`, `--max-watches-per-user`
//! and `--request-timeout`.

use std::sync::Arc;
use std::time::Duration;

use crate::flowcontrol::FlowControl;
use crate::http::HttpConfig;
use crate::metrics::Metrics;
use crate::server::config::flags::Flags;
use crate::server::config::setting_value::{ConfigError, SettingValue, parsed_duration};

/// The limits of requests, with the meaning of kube-apiserver's flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct RequestLimits {
    /// Whether requests are admitted by FlowSchemas and priority levels.
    pub is_fair: bool,
    /// Reads in flight, without watches.
    pub reads: usize,
    /// Writes in flight.
    pub writes: usize,
    /// Open watches of a user; `None` is no limit.
    pub watches_per_user: Option<usize>,
    /// The time limit of a request that is not a watch.
    pub timeout: Duration,
}

/// The number of requests in flight that stands for no limit: more than a process can have.
const UNLIMITED: usize = 1 << 32;

impl RequestLimits {
    /// Parses the limits.
    ///
    /// # Errors
    /// A value is not a number, or no positive duration.
    pub(in crate::server) fn check(flags: &Flags) -> Result<Self, ConfigError> {
        let timeout = parsed_duration(&flags.request_timeout)?;
        if timeout.is_zero() {
            return Err(flags
                .request_timeout
                .clone()
                .error("must be longer than 0: the default is 1m0s"));
        }
        let is_fair = match flags.enable_priority_and_fairness.text.as_str() {
            "true" => true,
            "false" => false,
            _ => {
                let setting = flags.enable_priority_and_fairness.clone();
                return Err(setting.error("must be true or false"));
            }
        };
        Ok(Self {
            is_fair,
            reads: in_flight(&flags.max_requests_inflight)?,
            writes: in_flight(&flags.max_mutating_requests_inflight)?,
            watches_per_user: watches_per_user(&flags.max_watches_per_user)?,
            timeout,
        })
    }

    /// Creates the flow control, unless the limits of reads and writes are separate.
    pub(in crate::server) fn flow_control(&self, metrics: &Metrics) -> Option<Arc<FlowControl>> {
        let seats = self.reads + self.writes;
        self.is_fair
            .then(|| FlowControl::new(seats, Arc::clone(metrics.flow_control())))
    }

    /// Returns `config` with these limits.
    pub(in crate::server) fn apply(&self, config: HttpConfig) -> HttpConfig {
        HttpConfig {
            reads_in_flight_max: self.reads,
            writes_in_flight_max: self.writes,
            watches_per_user_max: self.watches_per_user,
            request_timeout: self.timeout,
            write_timeout: config.write_timeout.min(self.timeout),
            ..config
        }
    }
}

fn watches_per_user(setting: &SettingValue) -> Result<Option<usize>, ConfigError> {
    match setting.text.parse::<u32>() {
        Ok(0) => Ok(None),
        Ok(watches) => Ok(Some(watches as usize)),
        Err(_) => Err(setting
            .clone()
            .error("must be a number of watches; 0 is no limit")),
    }
}

fn in_flight(setting: &SettingValue) -> Result<usize, ConfigError> {
    match setting.text.parse::<u32>() {
        Ok(0) => Ok(UNLIMITED),
        Ok(requests) => Ok(requests as usize),
        Err(_) => Err(setting
            .clone()
            .error("must be a number of requests; 0 is no limit")),
    }
}
