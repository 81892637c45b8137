//! Measures a run: the server's process, and the load generator itself. A run in which the generator
//! was the bottleneck measures the generator, so it is not valid.
//!
//! The rule: the *share* of the generator is the time that its threads could run, which is the
//! elapsed time of each, less the time in which it was ready to run but no core was free. If its
//! CPU time is 90 % of this share or more, its threads were hardly ever idle: responses waited for
//! the generator, not the generator for responses. Rates of such a run are lower bounds of the
//! server's, its latencies include the generator's queue. The server's CPU time per request
//! remains valid.

use std::thread::available_parallelism;
use std::time::Duration;

use tokio::time::Instant;

use super::args::ReportArgs;
use super::process::{Process, ProcessError, Usage};
use super::report::Report;

/// The part of its share from which on the generator is the bottleneck.
const BOTTLENECK: f64 = 0.9;

/// The shortest run whose share is judged: in a shorter one, starting the tasks is most of the work.
const JUDGED_MIN: Duration = Duration::from_millis(200);

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meter {
    server: Option<Process>,
    /// The number of threads of the generator.
    threads: usize,
    saturate: bool,
}

/// The times and memory at one moment.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    at: Instant,
    server: Option<Usage>,
    /// `None` where the kernel has no /proc.
    generator: Option<Usage>,
}

/// What a phase of a run has consumed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Consumption {
    pub server: Option<ServerConsumption>,
    pub generator: Option<GeneratorConsumption>,
}

/// What the server has consumed.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerConsumption {
    pub cpu: Duration,
    pub rss_bytes_before: u64,
    pub rss_bytes_after: u64,
    pub rss_bytes_peak: u64,
}

/// What the generator has consumed.
#[derive(Debug, Clone, Copy)]
pub(super) struct GeneratorConsumption {
    pub cpu: Duration,
    /// The time that its threads could run.
    pub share: Duration,
    elapsed: Duration,
    threads: usize,
    saturate: bool,
}

impl Meter {
    /// Measures what the arguments select. `more_threads` run beside those of the runtime.
    pub(super) fn new(args: &ReportArgs, more_threads: usize) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        let threads = args.generator.threads.map_or(cores, usize::from);
        Self {
            server: args.pid.map(Process::new),
            threads: threads + more_threads,
            saturate: args.generator.saturate,
        }
    }

    /// Measures nothing but the generator, and judges nothing: for the preparation of a run.
    pub(super) fn none() -> Self {
        Self {
            server: None,
            threads: 1,
            saturate: true,
        }
    }

    /// Reads the present times.
    ///
    /// # Errors
    /// The server's process does not exist.
    pub(super) fn read(&self) -> Result<Reading, ProcessError> {
        Ok(Reading {
            at: Instant::now(),
            server: self.server.map(Process::usage).transpose()?,
            // Not an error: a system without /proc can generate load, but not check itself.
            generator: Process::new(std::process::id()).usage().ok(),
        })
    }

    /// Returns what was consumed between two readings.
    pub(super) fn between(&self, before: &Reading, after: &Reading) -> Consumption {
        let server = before.server.as_ref().zip(after.server.as_ref());
        let generator = before.generator.as_ref().zip(after.generator.as_ref());
        let elapsed = after.at - before.at;
        Consumption {
            server: server.map(|(before, after)| ServerConsumption {
                cpu: after.cpu_since(before),
                rss_bytes_before: before.rss_bytes,
                rss_bytes_after: after.rss_bytes,
                rss_bytes_peak: after.rss_bytes_peak,
            }),
            generator: generator.map(|(before, after)| {
                let present = elapsed * self.threads as u32;
                GeneratorConsumption {
                    cpu: after.cpu_since(before),
                    share: present.saturating_sub(after.waiting_since(before)),
                    elapsed,
                    threads: self.threads,
                    saturate: self.saturate,
                }
            }),
        }
    }
}

impl GeneratorConsumption {
    /// Returns which part of its share the generator has used.
    fn busy(&self) -> f64 {
        let share = self.share.max(self.cpu).as_secs_f64();
        if share == 0.0 {
            0.0
        } else {
            self.cpu.as_secs_f64() / share
        }
    }

    /// Returns true if the generator has limited the rate of the run.
    pub(super) fn is_bottleneck(&self) -> bool {
        self.elapsed >= JUDGED_MIN && self.busy() >= BOTTLENECK
    }
}

impl Report {
    /// Adds what a run has consumed, and whether it is valid.
    pub(super) fn consumption(&mut self, consumption: &Consumption) {
        if let Some(server) = &consumption.server {
            self.number("cpu_ms", server.cpu.as_secs_f64() * 1e3);
            self.count("rss_bytes_before", server.rss_bytes_before);
            self.count("rss_bytes_after", server.rss_bytes_after);
            self.count("rss_bytes_peak", server.rss_bytes_peak);
        }
        let Some(generator) = &consumption.generator else {
            self.text("generator_is_bottleneck", "unknown");
            return;
        };
        self.number("generator_cpu_ms", generator.cpu.as_secs_f64() * 1e3);
        self.number("generator_busy", generator.busy());
        let is_bottleneck = generator.is_bottleneck();
        self.text("generator_is_bottleneck", is_bottleneck.to_string());
        if is_bottleneck && !generator.saturate {
            self.faults.push(format!(
                "the run is not valid: the load generator was the bottleneck, with {:.0} % of the \
                 CPU time that {} threads could get; use more --threads, fewer connections or a \
                 lower rate, or accept it with --saturate",
                generator.busy() * 1e2,
                generator.threads,
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::process::tests::usage;
    use super::*;

    /// Returns what a generator of `threads` consumes that runs and waits for these times of 1 s.
    fn consumption(threads: usize, running_ms: u64, waiting_ms: u64) -> Consumption {
        let meter = Meter {
            server: None,
            threads,
            saturate: false,
        };
        let at = Instant::now();
        let reading = |after_ms, running_ms, waiting_ms| Reading {
            at: at + Duration::from_millis(after_ms),
            server: Some(usage(running_ms, waiting_ms, after_ms)),
            generator: Some(usage(running_ms, waiting_ms, 0)),
        };
        let before = reading(0, 500, 700);
        let after = reading(1_000, 500 + running_ms, 700 + waiting_ms);
        meter.between(&before, &after)
    }

    fn check(threads: usize, running_ms: u64, waiting_ms: u64, expected: bool) {
        let consumption = consumption(threads, running_ms, waiting_ms);
        let generator = consumption.generator.unwrap();
        let case = format!("{threads} threads, {running_ms} ms, {waiting_ms} ms: {generator:?}");
        assert_eq!(generator.is_bottleneck(), expected, "{case}");
        let mut report = Report::default();
        report.consumption(&consumption);
        assert_eq!(report.faults.len(), usize::from(expected), "{case}");
        let value = report.value("generator_is_bottleneck").unwrap();
        assert_eq!(value, expected.to_string(), "{case}");
    }

    #[tokio::test]
    async fn a_generator_that_is_never_idle_is_the_bottleneck() {
        check(1, 899, 0, false);
        check(1, 901, 0, true);
        check(2, 1_700, 0, false);
        check(2, 1_850, 0, true);
        // Other processes had the cores for half of the time; it was ready to run in all of it.
        check(2, 1_000, 990, true);
        check(1, 450, 510, true);
        // It had the cores for a part of the time only, but was idle for most of the rest.
        check(2, 300, 990, false);
        // More time than the threads have: the writers of `watch` end during the run.
        check(1, 1_200, 0, true);
    }

    #[tokio::test]
    async fn a_saturated_run_is_reported_and_can_be_accepted() {
        let mut consumption = consumption(1, 1_000, 0);
        if let Some(generator) = &mut consumption.generator {
            generator.saturate = true;
        }
        let mut report = Report::default();
        report.consumption(&consumption);
        assert_eq!(report.faults, [""; 0]);
        assert_eq!(report.value("generator_is_bottleneck").unwrap(), "true");
        assert_eq!(report.value("generator_busy").unwrap(), "1");
        assert_eq!(report.value("generator_cpu_ms").unwrap(), "1000");
        assert_eq!(report.value("cpu_ms").unwrap(), "1000");
        assert_eq!(report.value("rss_bytes_after").unwrap(), "1000");
    }

    #[tokio::test]
    async fn a_short_run_is_not_judged() {
        let meter = Meter {
            server: None,
            threads: 1,
            saturate: false,
        };
        let at = Instant::now();
        let reading = |after_ms| Reading {
            at: at + Duration::from_millis(after_ms),
            server: None,
            generator: Some(usage(after_ms, 0, 0)),
        };
        let short = meter.between(&reading(0), &reading(150));
        assert!(!short.generator.unwrap().is_bottleneck());
        let long = meter.between(&reading(0), &reading(250));
        assert!(long.generator.unwrap().is_bottleneck());
    }
}
