//! `MemoryMonitor`: keeps the memory below `--memory-limit`. It measures the memory, publishes the pressure in the
//! [`ServerMemory`], and releases memory.
//!
//! | pressure | from | actions, in addition to those of lower levels |
//! |---|---|---|
//! | moderate | 70 % | the cache of encodings shrinks; the memory is measured more often |
//! | high | 80 % | the histories of the watch caches shrink (`cacher`) |
//! | critical | 90 % | lists and watches get a 429 (`http`); responses whose clients do not read are aborted, idle connections end |
//! | (full) | 95 % | responses and new connections wait (`http`, `transport`), large writes get a 429 |
//!
//! The allocator returns freed memory to the system within about a second (`malloc_conf.c`).

mod cgroup;
mod meter;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::api::{EncodingCache, MemoryPressure, ServerMemory};
use crate::http::ResponseTracker;
use crate::server::config::memory::MemoryLimit;
use crate::server::transport::connections::Connections;
use crate::tasks::Tasks;
use cgroup::Cgroup;
use meter::{CgroupMeter, Meter, ProcessMeter};
use watchet_metrics::LogInterval;

/// How often the memory is measured: without pressure, and with it.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
const SAMPLE_INTERVAL_UNDER_PRESSURE: Duration = Duration::from_millis(20);

/// How often responses are aborted while the pressure is critical. It takes about a second until the memory of one returns to the
/// system.
const ABORT_INTERVAL: Duration = Duration::from_secs(1);

/// A client that has read nothing for this time does not read.
const UNREAD_MAX: Duration = Duration::from_secs(5);

/// While responses wait for memory, a client may read nothing for this time.
const UNREAD_MAX_IF_FULL: Duration = Duration::from_secs(1);

/// The part of the limit of a control group that is left for what is not measured: page tables, stacks, allocations between two
/// measurements.
const CGROUP_MARGIN_DIVISOR: usize = 16;

/// What is left for memory that is used before it is measured or counted: request heads, responses to refused requests. With a limit
/// of 90 MiB it was 10 MiB. At most a quarter of the limit.
const UNCOUNTED_BYTES: usize = 16 << 20;

/// The part of the limit that the cache of encodings may take: without pressure, and at each level.
const ENCODINGS_DIVISOR_LOW: usize = 4;
const ENCODINGS_DIVISOR_MODERATE: usize = 16;
const ENCODINGS_DIVISOR_HIGH: usize = 64;

/// The interval of the message that responses were aborted.
const ABORT_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// While the memory cannot be measured, the last measurement counts for this time. After it the limit has no effect: with an old
/// measurement, the server would refuse lists for ever.
const MEASUREMENT_AGE_MAX: Duration = Duration::from_secs(10);

/// The interval of the message that the memory cannot be measured.
const FAILURE_INTERVAL: Duration = Duration::from_secs(60);

/// The memory limit of this server and its meter.
#[derive(Debug)]
pub(in crate::server) struct Memory {
    /// The limit and the pressure.
    pub(in crate::server) server_memory: Arc<ServerMemory>,
    meter: Box<dyn Meter>,
}

impl Memory {
    /// Determines the limit.
    pub(in crate::server) fn new(limit: MemoryLimit) -> Self {
        let cgroup = match limit {
            MemoryLimit::Auto => Cgroup::find(Path::new("/")),
            MemoryLimit::Disabled | MemoryLimit::Bytes(_) => None,
        };
        let bytes = match (limit, &cgroup) {
            (MemoryLimit::Bytes(bytes), _) => Some(bytes),
            (_, Some(group)) => Some(group.limit - group.limit / CGROUP_MARGIN_DIVISOR),
            (MemoryLimit::Auto | MemoryLimit::Disabled, None) => None,
        };
        if let (Some(group), Some(bytes)) = (&cgroup, bytes) {
            tracing::info!(
                bytes,
                cgroup = group.limit,
                "memory limit set from the control group"
            );
        }
        let bytes = bytes.map(|bytes| bytes - UNCOUNTED_BYTES.min(bytes / 4));
        let process = ProcessMeter;
        Self {
            server_memory: ServerMemory::new(bytes),
            meter: match cgroup {
                Some(cgroup) => Box::new(CgroupMeter { cgroup, process }),
                None => Box::new(process),
            },
        }
    }

    /// Starts the monitor in `tasks`, if there is a limit.
    pub(in crate::server) fn start(
        self,
        encodings: &Arc<EncodingCache>,
        responses: &Arc<ResponseTracker>,
        connections: &Arc<Connections>,
        tasks: &Tasks,
    ) {
        let Some(limit) = self.server_memory.limit() else {
            return;
        };
        let monitor = MemoryMonitor {
            limit,
            server_memory: self.server_memory,
            meter: self.meter,
            encodings: Arc::clone(encodings),
            responses: Arc::clone(responses),
            connections: Arc::clone(connections),
            last_abort: None,
            last_measurement: None,
            failures: LogInterval::new(FAILURE_INTERVAL),
            abort_log: LogInterval::new(ABORT_LOG_INTERVAL),
        };
        // Not awaited: its end is logged by the group if it panics.
        drop(monitor.spawn(tasks));
    }
}

/// Measures the memory and releases it under pressure.
#[derive(Debug)]
struct MemoryMonitor {
    limit: usize,
    server_memory: Arc<ServerMemory>,
    meter: Box<dyn Meter>,
    encodings: Arc<EncodingCache>,
    responses: Arc<ResponseTracker>,
    connections: Arc<Connections>,
    last_abort: Option<Instant>,
    last_measurement: Option<Measurement>,
    failures: LogInterval,
    abort_log: LogInterval,
}

/// The result of a meter.
#[derive(Debug, Clone, Copy)]
struct Measurement {
    used: usize,
    at: Instant,
}

impl MemoryMonitor {
    /// Measures until the group is cancelled, in a thread of its own: a task would wait for the tasks of all clients, and memory
    /// grew for two seconds without a measurement.
    fn spawn(mut self, tasks: &Tasks) -> JoinHandle<()> {
        let stop = tasks.token();
        tasks.spawn_blocking("memory", move || {
            self.restrict_encodings(MemoryPressure::Low);
            while !stop.is_cancelled() {
                self.sample();
                std::thread::sleep(match self.server_memory.pressure() {
                    MemoryPressure::Low => SAMPLE_INTERVAL,
                    _ => SAMPLE_INTERVAL_UNDER_PRESSURE,
                });
            }
        })
    }

    /// Measures once and releases memory.
    fn sample(&mut self) {
        self.responses.measure_time();
        let measured = self.meter.used();
        let is_measured = measured.is_ok();
        let used = measured.unwrap_or_else(|error| self.used_without_measurement(&error));
        if is_measured {
            let at = Instant::now();
            self.last_measurement = Some(Measurement { used, at });
        }
        let before = self.server_memory.pressure();
        // Also without a measurement: what is counted as allocated since the last one would add up, until all responses wait.
        let changed = self.server_memory.record(used);
        if let Some(pressure) = changed {
            self.log(before, pressure, used);
            self.restrict_encodings(pressure);
        }
        if is_measured && changed.unwrap_or(before) == MemoryPressure::Critical {
            self.release_clients();
        }
    }

    /// Returns the used memory that counts although it could not be measured because of `error`.
    fn used_without_measurement(&mut self, error: &io::Error) -> usize {
        if let Some(last) = self.last_measurement
            && last.at.elapsed() < MEASUREMENT_AGE_MAX
        {
            tracing::debug!(%error, used = last.used, "cannot measure the memory, so the last measurement counts");
            return last.used;
        }
        if let Some(suppressed) = self.failures.next() {
            tracing::warn!(%error, suppressed, "cannot measure the memory, so --memory-limit has no effect");
        }
        0
    }

    fn log(&self, before: MemoryPressure, now: MemoryPressure, used: usize) {
        let (before, level, limit) = (before.as_str(), now.as_str(), self.limit);
        match now {
            MemoryPressure::Low | MemoryPressure::Moderate => {
                tracing::info!(level, before, used, limit, "memory pressure changed");
            }
            MemoryPressure::High | MemoryPressure::Critical => {
                tracing::warn!(level, before, used, limit, "memory pressure changed");
            }
        }
    }

    fn restrict_encodings(&self, pressure: MemoryPressure) {
        self.encodings.restrict(match pressure {
            MemoryPressure::Low => self.limit / ENCODINGS_DIVISOR_LOW,
            MemoryPressure::Moderate => self.limit / ENCODINGS_DIVISOR_MODERATE,
            MemoryPressure::High => self.limit / ENCODINGS_DIVISOR_HIGH,
            MemoryPressure::Critical => 0,
        });
    }

    /// Aborts responses whose clients do not read, and ends idle connections.
    fn release_clients(&mut self) {
        let connections = self.connections.release_idle();
        let is_due = self
            .last_abort
            .is_none_or(|last| last.elapsed() >= ABORT_INTERVAL);
        let responses = match is_due {
            true => self.abort_unread(),
            false => 0,
        };
        if (responses > 0 || connections > 0)
            && let Some(suppressed) = self.abort_log.next()
        {
            tracing::warn!(
                responses,
                connections,
                suppressed,
                "aborted responses whose clients do not read, and ended idle connections, to release memory"
            );
        }
    }

    /// Aborts responses whose clients do not read. Returns how many.
    fn abort_unread(&mut self) -> usize {
        let unread = match self.server_memory.is_full() {
            true => UNREAD_MAX_IF_FULL,
            false => UNREAD_MAX,
        };
        let aborted = self
            .responses
            .abort_unread(unread, self.server_memory.excess());
        if aborted.count > 0 {
            self.last_abort = Some(Instant::now());
            self.server_memory.count_responses_aborted(aborted.count);
        }
        aborted.count
    }
}

#[cfg(test)]
mod tests;
