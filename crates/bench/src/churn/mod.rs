//! `bench churn`: creates, updates, patches, deletes, gets and lists while others watch, and checks
//! consistency: each watcher receives each change once and in order, its final state equals a list,
//! and each client reads its own writes.

mod collection;
pub(super) mod mix;
mod tally;
mod watcher;
mod worker;
mod write_log;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use http::Method;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::args::{ChurnArgs, ChurnLoadArgs};
use super::client::{self, CONNECTING_MAX, ClientError, Connection};
use super::error::BenchError;
use super::meter::{Consumption, Meter};
use super::objects;
use super::pace::Pace;
use super::progress::Progress;
use super::read::list_of;
use super::report::Report;
use super::target::Target;
use collection::{NAMESPACE, all};
use mix::Verb;
use tally::{Faults, Tally};
use watcher::Plan;
use watchet_tasks::Tasks;
use worker::{Work, Worker, WorkerResult};
use write_log::WriteLog;

/// How often the run polls its counters.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long watches stay open after the last event, to detect duplicates.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// The result of a run.
struct Outcome {
    worked: WorkerResult,
    faults: Faults,
    ended: u32,
    elapsed: Duration,
    consumption: Option<Consumption>,
    /// Requests per second, by the second.
    throughput: Vec<(f64, f64)>,
}

/// Runs the load.
///
/// # Errors
/// The target rejects the setup, or a watch cannot be opened.
pub(super) async fn run(args: ChurnArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    let load = &args.load;
    check(load)?;
    let tasks = Tasks::new();
    let from = client::with_connection(target, &tasks, async |connection| {
        objects::make_namespace(connection, NAMESPACE).await?;
        clean(connection).await?;
        Ok(list_of(connection, &all()).await?.version)
    });
    let plan = Arc::new(Plan {
        target: Arc::clone(target),
        run: fastrand::u32(..),
        accept: args.responses.accept,
        from: from.await?,
        resume: (load.resume > 0).then_some(load.resume),
        log: Arc::new(WriteLog::new(load.objects.get())),
        opening: Semaphore::new(CONNECTING_MAX),
        stop: tasks.token().child_token(),
    });
    let seed = load.seed.unwrap_or_else(|| fastrand::u64(..));
    let meter = Meter::new(&args.report, 0);
    let outcome = measure(load, &plan, seed, &tasks, &meter).await;
    let cleaned = client::with_connection(target, &tasks, clean).await;
    tasks.cancel();
    let mut report = build_report(load, &plan, seed, &outcome?);
    if let Err(error) = cleaned {
        let fault = format!("the objects could not be deleted: {error}");
        report.faults.push(fault);
    }
    Ok(report)
}

fn check(load: &ChurnLoadArgs) -> Result<(), BenchError> {
    let usage = |problem: String| Err(BenchError::Usage(problem));
    if load.objects < load.workers {
        return usage("--objects: must be at least the number of workers".to_owned());
    }
    if !(load.rate.is_finite() && load.rate >= 0.0) {
        return usage(
            "--rate: must be a number of requests per second, or 0 for no limit".to_owned(),
        );
    }
    for (flag, seconds) in [("--seconds", load.seconds), ("--timeout", load.timeout)] {
        if let Err(error) = Duration::try_from_secs_f64(seconds) {
            return usage(format!("{flag}: {error}"));
        }
    }
    Ok(())
}

async fn clean(connection: &mut Connection) -> Result<(), ClientError> {
    connection
        .send(Method::DELETE, &all(), Bytes::new())
        .await?;
    Ok(())
}

async fn measure(
    load: &ChurnLoadArgs,
    plan: &Arc<Plan>,
    seed: u64,
    tasks: &Tasks,
    meter: &Meter,
) -> Result<Outcome, BenchError> {
    let workers = load.workers.get();
    let connections = (0..workers).map(|_| client::connect(&plan.target, tasks));
    let connections = try_join_all(connections).await?;
    let watch = |number| tasks.spawn("watcher", Arc::clone(plan).watch(number, tasks.clone()));
    let mut watching: Vec<_> = (0..load.watchers).map(watch).collect();
    wait_until_open(&mut watching, plan).await?;

    let before = meter.read()?;
    let begin = Instant::now();
    let work = Arc::new(Work {
        run: plan.run,
        size: load.size,
        accept: plan.accept,
        mix: load.mix.clone(),
        pace: Pace::start(load.operations.map_or(u32::MAX, u32::from), load.rate),
        begin,
        deadline: load
            .operations
            .is_none()
            .then(|| begin + Duration::from_secs_f64(load.seconds)),
        log: Arc::clone(&plan.log),
    });
    let mut working = Vec::new();
    for (number, (connection, driver)) in (0..).zip(connections) {
        let worker = Worker::new(number, workers, &work, seed);
        let worker = driver.run(worker.run(connection));
        working.push(tasks.spawn("worker", worker));
    }
    let (worked, elapsed, throughput) = arrive(load, plan, begin, working).await?;
    // A server that has exited has no usage; its exit is already a fault.
    let after = meter.read();
    sleep(SETTLE_TIME).await;

    let ended = plan.log.ended.load(Ordering::Relaxed);
    let has_failed = ended > 0 || worked.failed > 0;
    let faults = compare(plan, tasks, watching, has_failed).await?;
    let after = match has_failed {
        false => Some(after?),
        true => after.ok(),
    };
    Ok(Outcome {
        worked,
        faults,
        ended,
        elapsed,
        consumption: after.map(|after| meter.between(&before, &after)),
        throughput,
    })
}

type Watching = Vec<JoinHandle<Result<Tally, ClientError>>>;

/// Waits until the first watch of every watcher is open.
async fn wait_until_open(watching: &mut Watching, plan: &Plan) -> Result<(), BenchError> {
    let log = &plan.log;
    while (log.opened.load(Ordering::Relaxed) as usize) < watching.len() {
        if log.ended.load(Ordering::Relaxed) > 0 {
            plan.stop.cancel();
            for watching in watching {
                watching.await??;
            }
            let problem = "a watch ended right after it was opened";
            return Err(BenchError::Ended(problem));
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Waits for the workers, and then until every watcher has received every change, the time limit is
/// over, or no watch is left.
async fn arrive(
    load: &ChurnLoadArgs,
    plan: &Plan,
    begin: Instant,
    working: Vec<JoinHandle<WorkerResult>>,
) -> Result<(WorkerResult, Duration, Vec<(f64, f64)>), BenchError> {
    let log = &plan.log;
    let total = load.operations.map(|operations| operations.get().into());
    let mut progress = Progress::begin_open("requests", total);
    while !working.iter().all(JoinHandle::is_finished) {
        progress.set(log.operations.load(Ordering::Relaxed));
        sleep(POLL_INTERVAL).await;
    }
    let elapsed = begin.elapsed();
    let throughput = progress.end();
    let mut worked = WorkerResult::default();
    for worker in working {
        worked.add(worker.await?);
    }
    let expected = log.changes.load(Ordering::Relaxed) * u64::from(load.watchers);
    let deadline = Instant::now() + Duration::from_secs_f64(load.timeout);
    while log.delivered.load(Ordering::Relaxed) < expected
        && Instant::now() < deadline
        && log.ended.load(Ordering::Relaxed) < load.watchers
    {
        sleep(POLL_INTERVAL).await;
    }
    Ok((worked, elapsed, throughput))
}

/// Ends the watches and compares the received events with the log and a list.
async fn compare(
    plan: &Plan,
    tasks: &Tasks,
    watching: Watching,
    has_failed: bool,
) -> Result<Faults, BenchError> {
    let listed = client::with_connection(&plan.target, tasks, async |connection| {
        list_of(connection, &all()).await
    });
    let listed = listed.await;
    plan.stop.cancel();
    let mut total = Faults::default();
    let listed = match listed {
        Ok(list) => Some(tally::state(&plan.log, plan.run, &list)),
        // The run has already failed.
        Err(_) if has_failed => None,
        Err(error) => return Err(error.into()),
    };
    for watcher in watching {
        match watcher.await? {
            Ok(tally) => total.add(tally.close(&plan.log, listed.as_ref())),
            Err(error) => drop(total.error.get_or_insert(error.to_string())),
        }
    }
    Ok(total)
}

fn build_report(load: &ChurnLoadArgs, plan: &Plan, seed: u64, outcome: &Outcome) -> Report {
    let log = &plan.log;
    let (faults, worked) = (&outcome.faults, &outcome.worked);
    let operations = log.operations.load(Ordering::Relaxed);
    let delivered = log.delivered.load(Ordering::Relaxed);
    let seconds = outcome.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let mut report = Report::default();
    report.text("load", "churn");
    report.text("target", &plan.target.url);
    report.text("accept", plan.accept.name());
    report.text("mix", load.mix.to_string());
    report.count("seed", seed);
    report.count("workers", load.workers.get());
    report.count("watchers", load.watchers);
    report.count("objects", load.objects.get());
    report.count("size_bytes", load.size as u64);
    report.number("rate_per_s", load.rate);
    report.number("elapsed_ms", seconds * 1e3);
    report.count("operations", operations);
    report.count("operations_failed", worked.failed);
    report.number("operations_per_s", operations as f64 / seconds);
    report.count("reads_stale", worked.stale);
    report.count("changes", log.changes.load(Ordering::Relaxed));
    report.count("events_delivered", delivered);
    report.count("events_lost", faults.lost);
    report.count("events_duplicate", faults.duplicate);
    report.count("events_out_of_order", faults.out_of_order);
    report.count("events_foreign", faults.foreign);
    report.count("events_mistyped", faults.mistyped);
    report.count("objects_differing", faults.differing);
    report.count("watches_resumed", log.resumed.load(Ordering::Relaxed));
    report.count("watches_ended", outcome.ended);
    for verb in Verb::ALL {
        report.latency(verb.latency_row(), &log.latencies(verb).total());
    }
    report.latency("latency_us_watch", &log.to_each.total());
    report.timeline("latency_us", &worked.timeline);
    report.throughput = outcome.throughput.clone();
    if let Some(consumption) = &outcome.consumption {
        report.consumption(consumption);
    }
    if let Some(server) = outcome
        .consumption
        .and_then(|consumption| consumption.server)
    {
        let cpu_ms = server.cpu.as_secs_f64() * 1e3;
        report.number("cpu_ms_per_operation", cpu_ms / operations.max(1) as f64);
    }
    report_faults(&mut report, load, outcome, operations);
    report
}

fn report_faults(report: &mut Report, load: &ChurnLoadArgs, outcome: &Outcome, operations: u64) {
    let (faults, worked) = (&outcome.faults, &outcome.worked);
    report.fault(faults.lost, "events were lost");
    report.fault(faults.duplicate, "events were received twice");
    report.fault(faults.out_of_order, "events came out of order");
    report.fault(faults.foreign, "events do not match any write of a worker");
    report.fault(faults.mistyped, "events have the wrong type");
    report.fault(
        faults.differing,
        "objects differ between a watcher's final state and a list",
    );
    report.fault(worked.stale, "reads did not return the client's last write");
    report.fault(outcome.ended.into(), "watches ended early");
    let first = worked.first_failure.as_ref().map(ToString::to_string);
    report.fault(
        worked.failed,
        format_args!("requests failed, the first: {}", first.unwrap_or_default()),
    );
    if let Some(operations_max) = load.operations {
        let unsent = u64::from(operations_max.get()).saturating_sub(operations + worked.failed);
        report.fault(unsent, "requests were not sent: no connection was left");
    }
    if let Some(error) = &faults.error {
        report.faults.push(format!("a watch received {error}"));
    }
}
