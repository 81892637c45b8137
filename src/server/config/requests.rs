//! `--max-requests-inflight`, `--max-mutating-requests-inflight` and `--request-timeout`.

use std::time::Duration;

use crate::http::HttpConfig;
use crate::server::config::flags::Flags;
use crate::server::config::setting_value::{ConfigError, SettingValue, parsed_duration};

/// The limits of requests, with the meaning of kube-apiserver's flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct RequestLimits {
    /// Reads in flight, without watches.
    pub reads: usize,
    /// Writes in flight.
    pub writes: usize,
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
        Ok(Self {
            reads: in_flight(&flags.max_requests_inflight)?,
            writes: in_flight(&flags.max_mutating_requests_inflight)?,
            timeout,
        })
    }

    /// Returns `config` with these limits.
    pub(in crate::server) fn apply(&self, config: HttpConfig) -> HttpConfig {
        HttpConfig {
            reads_in_flight_max: self.reads,
            writes_in_flight_max: self.writes,
            request_timeout: self.timeout,
            write_timeout: config.write_timeout.min(self.timeout),
            ..config
        }
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
