//! CPU time and memory of a process on this machine, from /proc, without its children.

use std::io;
use std::time::Duration;

/// The unit of the times in /proc/PID/stat. Linux fixes it at 1/100 s on all supported
/// architectures; the kernel scales exact times to it.
const TICK: Duration = Duration::from_millis(10);

/// Why the process cannot be measured.
#[derive(Debug, thiserror::Error)]
#[error("cannot measure process {pid} (--pid): {source}")]
pub(super) struct ProcessError {
    pid: u32,
    source: io::Error,
}

/// A process to measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    pid: u32,
}

/// The resource usage of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    /// User and system time.
    pub cpu: Duration,
    /// Resident memory.
    pub rss_bytes: u64,
    /// Peak resident memory.
    pub rss_bytes_peak: u64,
}

impl Process {
    pub(super) fn new(pid: u32) -> Self {
        Self { pid }
    }

    /// Returns the current usage.
    ///
    /// # Errors
    /// The process or /proc does not exist.
    pub(super) fn usage(self) -> Result<Usage, ProcessError> {
        let pid = self.pid;
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        let usage = read("stat").and_then(|stat| {
            let status = read("status")?;
            parse(&stat, &status).ok_or_else(|| {
                let ended = "incomplete data in /proc: has the process exited?";
                io::Error::new(io::ErrorKind::InvalidData, ended)
            })
        });
        usage.map_err(|source| ProcessError { pid, source })
    }
}

fn parse(stat: &str, status: &str) -> Option<Usage> {
    // The second field is the program's name in parentheses, which may contain anything; utime and
    // stime are the 14th and 15th field, the state after the name is the third.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11);
    let mut ticks = || times.next()?.parse::<u32>().ok();
    let cpu = TICK * (ticks()? + ticks()?);
    let memory = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib * 1024)
    };
    Some(Usage {
        cpu,
        rss_bytes: memory("VmRSS:")?,
        rss_bytes_peak: memory("VmHWM:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";

    #[test]
    fn names_with_spaces_and_parentheses_parse() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 25 17 3 4 20 0 1 0 5 6 7";
        let usage = parse(stat, STATUS).unwrap();
        assert_eq!(usage.cpu, Duration::from_millis(420));
        assert_eq!(usage.rss_bytes, 1 << 20);
        assert_eq!(usage.rss_bytes_peak, 2 << 20);
        // A zombie has no memory.
        assert_eq!(parse(stat, "Name:\tx\n"), None);
        assert_eq!(parse("7 (a", STATUS), None);
    }

    #[test]
    fn usage_grows_with_work() {
        let process = Process::new(std::process::id());
        let before = process.usage().unwrap();
        let mut allocated = Vec::new();
        let mut after = before;
        while after.cpu < before.cpu + 2 * TICK {
            allocated.push(vec![1_u8; 64 * 1024]);
            after = process.usage().unwrap();
        }
        assert!(after.rss_bytes_peak >= before.rss_bytes);
        assert!(after.rss_bytes_peak >= after.rss_bytes);
        assert!(!allocated.is_empty());
    }

    #[test]
    fn an_error_names_the_missing_process() {
        // Above the maximum PID of Linux.
        let error = Process::new(1 << 30).usage().unwrap_err().to_string();
        assert!(error.contains("process 1073741824"), "{error}");
    }
}
