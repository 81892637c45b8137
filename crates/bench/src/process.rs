//! CPU time and memory of a process on this machine, from /proc, without its children.

use std::collections::HashMap;
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

/// The resource usage of a process since its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Usage {
    /// User and system time, to the tick; includes threads that have ended.
    cpu: Duration,
    /// The exact times of the present threads, by their ID; empty if the kernel does not have them.
    threads: HashMap<u32, ThreadTimes>,
    /// Resident memory.
    pub rss_bytes: u64,
    /// Peak resident memory.
    pub rss_bytes_peak: u64,
}

/// The times of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ThreadTimes {
    running: Duration,
    /// The time in which it was ready to run, but no core was free.
    waiting: Duration,
}

impl Usage {
    /// Returns the CPU time since `earlier`: exact for the present threads. To the tick if threads
    /// that have ended used two ticks or more.
    pub(super) fn cpu_since(&self, earlier: &Self) -> Duration {
        let ticks = self.cpu.saturating_sub(earlier.cpu);
        let exact = self.of_threads_since(earlier, |times| times.running);
        // User and system time are each rounded down, so the earlier sum may be up to two ticks too small.
        if exact + 2 * TICK > ticks {
            exact
        } else {
            ticks
        }
    }

    /// Returns for how long the present threads were ready to run, but did not, since `earlier`.
    pub(super) fn waiting_since(&self, earlier: &Self) -> Duration {
        self.of_threads_since(earlier, |times| times.waiting)
    }

    fn of_threads_since(&self, earlier: &Self, time: fn(&ThreadTimes) -> Duration) -> Duration {
        let since = |(thread, times): (&u32, &ThreadTimes)| {
            let before = earlier.threads.get(thread).map_or(Duration::ZERO, time);
            time(times).saturating_sub(before)
        };
        self.threads.iter().map(since).sum()
    }
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
            let threads = threads(pid)?;
            parse(&stat, &status, threads).ok_or_else(|| {
                let ended = "incomplete data in /proc: has the process exited?";
                io::Error::new(io::ErrorKind::InvalidData, ended)
            })
        });
        usage.map_err(|source| ProcessError { pid, source })
    }
}

/// Returns the times of the threads of a process. A thread that ends meanwhile is left out.
fn threads(pid: u32) -> io::Result<HashMap<u32, ThreadTimes>> {
    let mut threads = HashMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        let name = entry.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok());
        let times = std::fs::read_to_string(entry.path().join("schedstat"));
        if let (Some(thread), Some(times)) = (thread, times.ok().and_then(|text| times_of(&text))) {
            threads.insert(thread, times);
        }
    }
    Ok(threads)
}

/// Parses /proc/PID/task/TID/schedstat: nanoseconds on a core, nanoseconds in a run queue, and a
/// number of time slices.
fn times_of(schedstat: &str) -> Option<ThreadTimes> {
    let mut fields = schedstat.split_ascii_whitespace();
    let mut nanoseconds = || Some(Duration::from_nanos(fields.next()?.parse().ok()?));
    Some(ThreadTimes {
        running: nanoseconds()?,
        waiting: nanoseconds()?,
    })
}

fn parse(stat: &str, status: &str, threads: HashMap<u32, ThreadTimes>) -> Option<Usage> {
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
        threads,
        rss_bytes: memory("VmRSS:")?,
        rss_bytes_peak: memory("VmHWM:")?,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";

    /// Returns the usage of a process with one thread, which runs and waits for these times.
    pub(crate) fn usage(running_ms: u64, waiting_ms: u64, rss_bytes: u64) -> Usage {
        let times = ThreadTimes {
            running: Duration::from_millis(running_ms),
            waiting: Duration::from_millis(waiting_ms),
        };
        Usage {
            cpu: Duration::from_millis(running_ms),
            threads: [(1, times)].into(),
            rss_bytes,
            rss_bytes_peak: 9,
        }
    }

    #[test]
    fn names_with_spaces_and_parentheses_parse() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 25 17 3 4 20 0 1 0 5 6 7";
        let usage = parse(stat, STATUS, HashMap::new()).unwrap();
        assert_eq!(usage.cpu, Duration::from_millis(420));
        assert_eq!(usage.rss_bytes, 1 << 20);
        assert_eq!(usage.rss_bytes_peak, 2 << 20);
        // A zombie has no memory.
        assert_eq!(parse(stat, "Name:\tx\n", HashMap::new()), None);
        assert_eq!(parse("7 (a", STATUS, HashMap::new()), None);
    }

    #[test]
    fn exact_times_are_used_unless_a_thread_has_ended() {
        assert_eq!(times_of("12 a 3"), None);
        let times = times_of("7000000 2000000 5\n").unwrap();
        let with = |ticks: u32, threads: &[(u32, ThreadTimes)]| Usage {
            cpu: TICK * ticks,
            threads: threads.iter().copied().collect(),
            rss_bytes: 0,
            rss_bytes_peak: 0,
        };
        let start = with(10, &[(1, ThreadTimes::default()), (2, times)]);
        let later = with(10, &[(1, times), (2, times)]);
        assert_eq!(later.cpu_since(&start), Duration::from_millis(7));
        assert_eq!(later.waiting_since(&start), Duration::from_millis(2));
        // Thread 2 has run for 40 ms since the start and has ended.
        let ended = with(14, &[(1, times)]);
        assert_eq!(ended.cpu_since(&start), Duration::from_millis(40));
        // User and system time were both close to the next tick at the start.
        let added = with(13, &[(1, times), (2, times), (3, times)]);
        assert_eq!(added.cpu_since(&start), Duration::from_millis(14));
    }

    #[test]
    fn usage_grows_with_work() {
        let process = Process::new(std::process::id());
        let before = process.usage().unwrap();
        let mut allocated = Vec::new();
        let mut after = before.clone();
        while after.cpu_since(&before) < 2 * TICK {
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
