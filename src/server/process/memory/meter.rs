//! Measures the memory that counts against the limit: that of the process, or of its control group.

use std::fs;
use std::io;
use std::path::Path;

use crate::server::process::memory::cgroup::Cgroup;

/// Measures the used memory.
pub(in crate::server) trait Meter: Send + std::fmt::Debug {
    /// Returns the used memory in bytes.
    ///
    /// # Errors
    /// The system does not report it.
    fn used(&mut self) -> io::Result<usize>;
}

/// Measures the private memory of this process.
#[derive(Debug)]
pub(in crate::server) struct ProcessMeter;

impl Meter for ProcessMeter {
    fn used(&mut self) -> io::Result<usize> {
        let status = fs::read_to_string(Path::new("/proc/self/status"))?;
        private_bytes(&status).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "/proc/self/status has no RssAnon",
            )
        })
    }
}

/// Measures the memory of a control group that the kernel cannot reclaim: also that of sockets, and of other processes in it.
#[derive(Debug)]
pub(in crate::server) struct CgroupMeter {
    pub(super) cgroup: Cgroup,
    pub(super) process: ProcessMeter,
}

impl Meter for CgroupMeter {
    fn used(&mut self) -> io::Result<usize> {
        // The limit may be that of an ancestor cgroup that contains other processes.
        Ok(self.cgroup.used()?.max(self.process.used()?))
    }
}

/// Returns the resident memory that belongs to no file, from the text of `/proc/<pid>/status`.
fn private_bytes(status: &str) -> Option<usize> {
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib << 10)
    };
    Some(value("RssAnon:")? + value("RssShmem:").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_without_files() {
        let status = "VmRSS:\t   30000 kB\nRssAnon:\t   20000 kB\nRssFile:\t    9000 kB\nRssShmem:\t    1000 kB\n";
        assert_eq!(private_bytes(status), Some(21_000 << 10));
        assert_eq!(private_bytes("VmRSS:\t 1 kB\n"), None);
    }

    #[test]
    fn an_allocation_is_measured() {
        let before = ProcessMeter.used().expect("Linux reports it");
        let allocation = vec![1_u8; 64 << 20];
        let after = ProcessMeter.used().expect("Linux reports it");
        let growth = after.saturating_sub(before);
        assert!(growth > 50 << 20, "{growth} for {}", allocation.len());
    }
}
