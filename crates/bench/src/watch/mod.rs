//! `bench watch`: many watchers, changes of objects on a schedule, and a count of the received
//! events. The phases of a run: create objects, open the watches, write, wait, count.

mod event_log;
mod tally;
mod watchers;
mod writers;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::args::{Mode, Protocol, Resource, WatchArgs, WatchLoadArgs};
use super::client::{self, CONNECTING_MAX, ClientError};
use super::error::BenchError;
use super::meter::{Consumption, Meter};
use super::objects::collection;
use super::pace::Pace;
use super::progress::Progress;
use super::read::list_of;
use super::report::Report;
use super::target::Target;
use event_log::EventLog;
use tally::{Faults, Tally};
use watchers::Plan;
use watchet_tasks::Tasks;
use writers::{Changes, NAMESPACE, WriterResult, Writers};

/// How often the run polls its counters.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long open watches are idle before memory is measured, and how long they stay open after the
/// last event to detect duplicates.
const SETTLE_TIME: Duration = Duration::from_millis(500);

impl WatchLoadArgs {
    /// Returns the resource of the objects.
    pub(super) fn resource(&self) -> Resource {
        self.resource.unwrap_or(match self.mode {
            Mode::Broadcast => Resource::Configmaps,
            Mode::Selective => Resource::Pods,
        })
    }
}

impl Mode {
    /// Returns the watched namespace; all for the watch of a node's pods, as by a kubelet.
    pub(super) const fn watched_namespace(self) -> Option<&'static str> {
        match self {
            Self::Broadcast => Some(NAMESPACE),
            Self::Selective => None,
        }
    }
}

/// The result of a run.
struct Outcome {
    written: WriterResult,
    /// Receipts per second, by the second.
    throughput: Vec<(f64, f64)>,
    faults: Faults,
    acknowledged: u32,
    ended: u32,
    open_elapsed: Duration,
    elapsed: Duration,
    opening: Consumption,
    /// `None` if the server has exited.
    writing: Option<Consumption>,
}

/// Runs the load.
///
/// # Errors
/// The target rejects the setup, or a watch cannot be opened.
pub(super) async fn run(args: WatchArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    let load = &args.load;
    let connections = connections(load, target.protocol)?;
    let tasks = Tasks::new();
    let log = Arc::new(EventLog::new(load.events));
    let changes = Changes {
        run: fastrand::u32(..),
        resource: load.resource(),
        size: load.size,
        objects: match load.mode {
            Mode::Broadcast => load.writers.get(),
            Mode::Selective => load.watchers.get(),
        },
    };
    let from = client::with_connection(target, &tasks, async |connection| {
        changes.make(connection).await?;
        let path = format!("{}?limit=1", collection(load.resource(), None));
        Ok(list_of(connection, &path).await?.version)
    });
    let plan = Arc::new(Plan {
        target: Arc::clone(target),
        run: changes.run,
        events: load.events,
        watchers: load.watchers.get(),
        connections,
        mode: load.mode,
        resource: load.resource(),
        accept: args.responses.accept,
        from: from.await?,
        log: Arc::clone(&log),
        opening: Semaphore::new(CONNECTING_MAX),
        stop: tasks.token().child_token(),
    });
    // The writers have a thread of their own.
    let meter = Meter::new(&args.report, 1);
    let outcome = measure(load, &plan, changes, &tasks, &meter).await;
    let cleaned = client::with_connection(target, &tasks, async |connection| {
        changes.clean(connection).await
    });
    let cleaned = cleaned.await;
    tasks.cancel();
    let mut report = build_report(load, &plan, &outcome?);
    if let Err(error) = cleaned {
        let fault = format!("the changed objects could not be deleted: {error}");
        report.faults.push(fault);
    }
    Ok(report)
}

fn connections(load: &WatchLoadArgs, protocol: Protocol) -> Result<u32, BenchError> {
    let connections = load.connections.unwrap_or(load.watchers);
    if connections > load.watchers {
        let problem = "--connections: must not be more than --watchers";
        return Err(BenchError::Usage(problem.to_owned()));
    }
    if protocol == Protocol::Http1 && connections < load.watchers {
        let problem = "--connections: HTTP/1.1 carries one watch each: omit it, or use --http 2";
        return Err(BenchError::Usage(problem.to_owned()));
    }
    if !(load.rate.is_finite() && load.rate >= 0.0) {
        let problem = "--rate: must be a number of changes per second, or 0 for no limit";
        return Err(BenchError::Usage(problem.to_owned()));
    }
    if load.mode == Mode::Selective && load.resource() == Resource::Configmaps {
        let problem = "--resource configmaps: they have no node, which --mode selective needs";
        return Err(BenchError::Usage(problem.to_owned()));
    }
    for (flag, seconds) in [("--timeout", load.timeout), ("--hold", load.hold)] {
        Duration::try_from_secs_f64(seconds)
            .map_err(|error| BenchError::Usage(format!("{flag}: {error}")))?;
    }
    Ok(connections.get())
}

type Watching = Vec<JoinHandle<Result<Vec<Tally>, ClientError>>>;

async fn measure(
    load: &WatchLoadArgs,
    plan: &Arc<Plan>,
    changes: Changes,
    tasks: &Tasks,
    meter: &Meter,
) -> Result<Outcome, BenchError> {
    let (target, log) = (Arc::clone(&plan.target), Arc::clone(&plan.log));
    let writers = Writers::connect(changes, load.writers.get(), target, log, tasks).await?;
    let before = meter.read()?;
    let begin = Instant::now();
    let watching = open_all(plan, tasks).await?;
    let open_elapsed = begin.elapsed();
    sleep(SETTLE_TIME).await;
    let open = meter.read()?;
    sleep(Duration::from_secs_f64(load.hold)).await;

    let begin = Instant::now();
    let held = meter.read()?;
    let writing = writers.write(Pace::start(load.events, load.rate));
    let (written, throughput) = arrive(load, plan, writing).await?;
    let elapsed = begin.elapsed();
    // A server that has exited has no usage; its exit is already a fault.
    let after = meter.read();
    sleep(SETTLE_TIME).await;

    let ended = plan.log.ended.load(Ordering::Relaxed);
    plan.stop.cancel();
    let mut tallies = Vec::new();
    for watching in watching {
        tallies.extend(watching.await??);
    }
    Ok(Outcome {
        written,
        throughput,
        faults: watchers::faults(tallies, &plan.log),
        acknowledged: plan.log.acknowledgements(),
        ended,
        open_elapsed,
        elapsed,
        opening: meter.between(&before, &open),
        writing: match ended {
            0 => Some(meter.between(&held, &after?)),
            _ => after.ok().map(|after| meter.between(&held, &after)),
        },
    })
}

/// Opens all watches and waits for them.
async fn open_all(plan: &Arc<Plan>, tasks: &Tasks) -> Result<Watching, BenchError> {
    let spawn = |number| {
        let connection = Arc::clone(plan).connection(number, tasks.clone());
        tasks.spawn("watchers", connection)
    };
    let watching: Watching = (0..plan.connections).map(spawn).collect();
    let mut progress = Progress::begin("watches", plan.watchers.into());
    loop {
        let opened = plan.log.opened.load(Ordering::Relaxed);
        progress.set(opened.into());
        if plan.log.ended.load(Ordering::Relaxed) > 0 {
            return Err(why(watching, plan).await);
        }
        if opened == plan.watchers {
            progress.end();
            return Ok(watching);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Returns why a watch ended before all were open.
async fn why(watching: Watching, plan: &Plan) -> BenchError {
    plan.stop.cancel();
    for watching in watching {
        match watching.await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return error.into(),
            Err(error) => return error.into(),
        }
    }
    BenchError::Ended("a watch ended right after it was opened")
}

/// Waits for the writers, and then until every event has been received, the time limit is over, or
/// no watch is left. Also returns the receipts per second.
async fn arrive(
    load: &WatchLoadArgs,
    plan: &Plan,
    writing: JoinHandle<Result<WriterResult, BenchError>>,
) -> Result<(WriterResult, Vec<(f64, f64)>), BenchError> {
    let receivers = match load.mode {
        Mode::Broadcast => load.watchers,
        Mode::Selective => NonZeroU32::MIN,
    };
    let mut progress = Progress::begin("delivered", expected(load.events, receivers));
    let mut delivered = || {
        let delivered = plan.log.delivered.load(Ordering::Relaxed);
        progress.set(delivered);
        delivered
    };
    while !writing.is_finished() {
        delivered();
        sleep(POLL_INTERVAL).await;
    }
    let written = writing.await??;
    let expected = expected(plan.log.acknowledgements(), receivers);
    let last_write = Instant::now();
    let timeout = Duration::from_secs_f64(load.timeout);
    while delivered() < expected
        && last_write.elapsed() < timeout
        && plan.log.ended.load(Ordering::Relaxed) < plan.watchers
    {
        sleep(POLL_INTERVAL).await;
    }
    Ok((written, progress.end()))
}

fn expected(events: u32, receivers: NonZeroU32) -> u64 {
    u64::from(events) * u64::from(receivers.get())
}

fn build_report(load: &WatchLoadArgs, plan: &Plan, outcome: &Outcome) -> Report {
    let log = &plan.log;
    let delivered = log.delivered.load(Ordering::Relaxed);
    let latencies = log.latencies();
    let mut report = Report::default();
    report.text("load", "watch");
    report.text("target", &plan.target.url);
    report.text("resource", plan.resource.plural());
    report.text("mode", format!("{:?}", load.mode).to_lowercase());
    report.count("watchers", plan.watchers);
    report.count("connections", plan.connections);
    report.text("accept", plan.accept.name());
    report.count("size_bytes", load.size as u64);
    report.number("rate_per_s", load.rate);
    report.number("open_ms", outcome.open_elapsed.as_secs_f64() * 1e3);
    report.count("events_sent", outcome.acknowledged);
    report.count("events_delivered", delivered);
    report.count("events_lost", outcome.faults.lost);
    report.count("events_duplicate", outcome.faults.duplicate);
    report.count("events_out_of_order", outcome.faults.out_of_order);
    report.count("events_foreign", outcome.faults.foreign);
    report.count("bytes", log.bytes.load(Ordering::Relaxed));
    report.count("writes_failed", outcome.written.failed);
    report.count("watches_ended", outcome.ended);
    report.number(
        "write_late_ms_max",
        outcome.written.late_max.as_secs_f64() * 1e3,
    );
    report.number("elapsed_ms", outcome.elapsed.as_secs_f64() * 1e3);
    report.number(
        "deliveries_per_s",
        delivered as f64 / outcome.elapsed.as_secs_f64(),
    );
    report.latency("latency_us_last", &latencies.last);
    report.latency("latency_us_each", &log.to_each.total());
    report.latency("latency_us_write", &latencies.write);
    report.latency("latency_us_write_to_last", &latencies.write_to_last);
    report.timeline("latency_us_last", &latencies.last_timeline);
    report.throughput = outcome.throughput.clone();
    consumption(&mut report, plan, outcome, delivered);
    faults(&mut report, load, outcome);
    report
}

fn consumption(report: &mut Report, plan: &Plan, outcome: &Outcome, delivered: u64) {
    if let Some(server) = &outcome.opening.server {
        let grown = server
            .rss_bytes_after
            .saturating_sub(server.rss_bytes_before);
        let watchers = f64::from(plan.watchers);
        report.number("rss_kib_per_watcher", grown as f64 / 1024.0 / watchers);
        let opening = server.cpu.as_secs_f64();
        report.number("open_cpu_us_per_watcher", opening * 1e6 / watchers);
    }
    let Some(writing) = &outcome.writing else {
        return;
    };
    report.consumption(writing);
    let Some(server) = &writing.server else {
        return;
    };
    let cpu_us = server.cpu.as_secs_f64() * 1e6;
    if delivered > 0 {
        report.number("cpu_us_per_event", cpu_us / delivered as f64);
    }
    if outcome.acknowledged > 0 {
        report.number("cpu_us_per_write", cpu_us / f64::from(outcome.acknowledged));
    }
}

fn faults(report: &mut Report, load: &WatchLoadArgs, outcome: &Outcome) {
    let (faults, written) = (&outcome.faults, &outcome.written);
    report.fault(faults.lost, "events were lost");
    report.fault(faults.duplicate, "events were received twice");
    report.fault(faults.out_of_order, "events came out of order");
    report.fault(
        faults.foreign,
        "events were received by watchers whose selector does not match",
    );
    report.fault(outcome.ended.into(), "watches ended early");
    let first = written.first_failure.as_ref().map(ToString::to_string);
    report.fault(
        written.failed,
        format_args!("writes failed, the first: {}", first.unwrap_or_default()),
    );
    let tried = u64::from(outcome.acknowledged) + written.failed;
    let unsent = u64::from(load.events).saturating_sub(tried);
    report.fault(unsent, "changes were not written: no connection was left");
    if let Some(error) = &faults.error {
        report.faults.push(format!("a watch received {error}"));
    }
}
