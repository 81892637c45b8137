//! Metrics of the memory limit.

use super::exposition::{Exposition, Kind};

/// The state of the memory limit at a scrape.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemorySample {
    /// The limit without the headroom, in bytes; 0 is no limit.
    pub limit: u64,
    /// The used memory in bytes.
    pub used: u64,
    /// The bytes that requests in flight have reserved.
    pub reserved: u64,
    /// The pressure, from 0 (low) to 3 (critical).
    pub pressure: u64,
    /// How many lists were refused.
    pub refused_lists: u64,
    /// How many watches were refused.
    pub refused_watches: u64,
    /// How many writes were refused.
    pub refused_writes: u64,
    /// The bytes of events that histories dropped before their time.
    pub history_dropped: u64,
    /// How many responses were aborted because their clients did not read.
    pub responses_aborted: u64,
}

impl MemorySample {
    pub(super) fn write(&self, out: &mut Exposition) {
        let mut sample = |name, kind, help, value| out.family(name, kind, help).value(&[], value);
        sample(
            "watchet_memory_aborted_responses_total",
            Kind::Counter,
            "Number of responses aborted under memory pressure because their clients did not read.",
            self.responses_aborted,
        );
        sample(
            "watchet_memory_history_dropped_bytes_total",
            Kind::Counter,
            "Size of the watch events that were dropped early because of memory pressure, in bytes.",
            self.history_dropped,
        );
        sample(
            "watchet_memory_limit_bytes",
            Kind::Gauge,
            "`--memory-limit` minus 16 MiB (at most a quarter) of headroom; 0 is no limit.",
            self.limit,
        );
        sample(
            "watchet_memory_pressure",
            Kind::Gauge,
            "Memory pressure: 0 low, 1 moderate, 2 high, 3 critical.",
            self.pressure,
        );
        let mut rejected = out.family(
            "watchet_memory_rejected_requests_total",
            Kind::Counter,
            "Number of requests rejected with a 429 because of memory pressure.",
        );
        rejected.value(&[&[("request_kind", "list")]], self.refused_lists);
        rejected.value(&[&[("request_kind", "watch")]], self.refused_watches);
        rejected.value(&[&[("request_kind", "mutating")]], self.refused_writes);
        let mut sample = |name, kind, help, value| out.family(name, kind, help).value(&[], value);
        sample(
            "watchet_memory_reserved_bytes",
            Kind::Gauge,
            "Memory reserved by requests in flight, in bytes.",
            self.reserved,
        );
        sample(
            "watchet_memory_used_bytes",
            Kind::Gauge,
            "Memory that counts against the limit, in bytes.",
            self.used,
        );
    }
}
