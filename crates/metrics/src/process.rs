//! Metrics of the process, read from `/proc` at each scrape; only its start time and version on
//! other systems.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use super::exposition::{Exposition, Kind};

/// The auxiliary vector entry with the number of clock ticks per second.
const AT_CLKTCK: u64 = 17;

/// This process.
#[derive(Debug)]
pub(super) struct Process {
    /// The creation time of the metrics, in seconds since 1970.
    started: f64,
}

impl Process {
    /// Returns a process that started now.
    pub(super) fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            started: since.map_or(0.0, |since| since.as_secs_f64()),
        }
    }

    /// Writes the available metrics.
    pub(super) fn write(&self, out: &mut Exposition) {
        let mut sample = |name, kind, help, value: Option<f64>| {
            if let Some(value) = value {
                out.family(name, kind, help).value(&[], value);
            }
        };
        sample(
            "process_cpu_seconds_total",
            Kind::Counter,
            "Total user and system CPU time spent in seconds.",
            cpu_seconds(),
        );
        sample(
            "process_max_fds",
            Kind::Gauge,
            "Maximum number of open file descriptors.",
            max_fds(),
        );
        sample(
            "process_open_fds",
            Kind::Gauge,
            "Number of open file descriptors.",
            // Excludes the descriptor of this directory.
            fs::read_dir("/proc/self/fd")
                .ok()
                .map(|fds| fds.count().saturating_sub(1) as f64),
        );
        sample(
            "process_resident_memory_bytes",
            Kind::Gauge,
            "Resident memory size in bytes.",
            status_bytes("VmRSS:"),
        );
        sample(
            "process_start_time_seconds",
            Kind::Gauge,
            "Start time of the process since unix epoch in seconds.",
            Some(self.started),
        );
        sample(
            "process_virtual_memory_bytes",
            Kind::Gauge,
            "Virtual memory size in bytes.",
            status_bytes("VmSize:"),
        );
        out.family("watchet_build_info", Kind::Gauge, "The running version.")
            .value(&[&[("version", env!("CARGO_PKG_VERSION"))]], 1);
    }
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name is the second field, in parentheses, and may contain anything. After it
    // the state is the third field; user and system time are the 14th and 15th.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / ticks_per_second()?)
}

/// Reads the auxiliary vector: pairs of a type and a value, native words.
fn ticks_per_second() -> Option<f64> {
    const WORD: usize = size_of::<usize>();
    let vector = fs::read("/proc/self/auxv").ok()?;
    let word = |bytes: &[u8]| Some(usize::from_ne_bytes(bytes.try_into().ok()?) as u64);
    vector
        .chunks_exact(2 * WORD)
        .find_map(|pair| {
            let (kind, value) = pair.split_at(WORD);
            (word(kind)? == AT_CLKTCK).then(|| word(value)).flatten()
        })
        .map(|ticks| ticks as f64)
}

fn max_fds() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let soft = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?
        .split_whitespace()
        .next()?;
    soft.parse().ok()
}

/// Reads a line of `/proc/self/status`, which is in KiB.
fn status_bytes(name: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn values_are_read_from_proc() {
        // Uses some CPU time.
        let began = std::time::SystemTime::now();
        while began.elapsed().is_ok_and(|t| t.as_millis() < 50) {
            std::hint::spin_loop();
        }
        assert_eq!(ticks_per_second(), Some(100.0), "a constant of Linux");
        let cpu = cpu_seconds().unwrap();
        assert!((0.01..3600.0).contains(&cpu), "{cpu}");
        let (resident, virtual_) = (status_bytes("VmRSS:"), status_bytes("VmSize:"));
        assert!(resident.unwrap() > 1e6 && resident < virtual_);
        assert!(max_fds().unwrap() >= 16.0);
    }
}
