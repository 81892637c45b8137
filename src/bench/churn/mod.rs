//! `bench churn`: creates, updates, patches, deletes, gets and lists while others watch, and everyone is
//! held to what was done: each watcher is told of each change once and in order, ends in the state that a
//! list shows, and whoever reads what it wrote sees it.

mod board;
pub(super) mod mix;
mod tally;
mod watcher;
mod worker;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use http::Method;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::args::{ChurnArgs, ChurnLoadArgs, Resource};
use super::client::{self, ClientError, Connection, OPENING_MAX};
use super::objects::{self, collection};
use super::pace::Pace;
use super::process::{Process, Usage};
use super::progress::Progress;
use super::read::list_of;
use super::report::Report;
use super::run::BenchError;
use super::target::Target;
use crate::tasks::Tasks;
use board::Board;
use mix::Verb;
use tally::{Faults, Tally};
use watcher::Plan;
use worker::{Work, Worked, Worker};

/// The namespace of the objects. What `bench` left in it is deleted at first.
const NAMESPACE: &str = "bench-churn";
/// How often the run looks at its counters.
const LOOK: Duration = Duration::from_millis(5);
/// How long the watches rest after the last event, for one that is told twice.
const REST: Duration = Duration::from_millis(500);

/// The name of an object.
fn name(object: u32) -> String {
    format!("bench-churn-{object}")
}

/// The path of all objects of the run.
fn all() -> String {
    let collection = collection(Resource::Configmaps, Some(NAMESPACE));
    format!("{collection}?{}", objects::ours())
}

/// A finished run.
struct Outcome {
    worked: Worked,
    faults: Faults,
    ended: u32,
    elapsed: Duration,
    usage: Option<(Usage, Usage)>,
    /// Requests a second, by the second.
    throughput: Vec<(f64, f64)>,
}

/// Runs the load.
///
/// # Errors
/// The target does not let it begin, or a watch cannot be opened.
pub(super) async fn run(args: ChurnArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    let load = &args.load;
    check(load)?;
    let tasks = Tasks::new();
    let from = client::alone(target, &tasks, async |connection| {
        objects::make_namespace(connection, NAMESPACE).await?;
        clean(connection).await?;
        Ok(list_of(connection, &all()).await?.version)
    });
    let plan = Arc::new(Plan {
        target: Arc::clone(target),
        run: fastrand::u32(..),
        accept: args.answers.accept,
        from: from.await?,
        resume: (load.resume > 0).then_some(load.resume),
        board: Arc::new(Board::new(load.objects.get())),
        opening: Semaphore::new(OPENING_MAX),
        stop: tasks.token().child_token(),
    });
    let seed = load.seed.unwrap_or_else(|| fastrand::u64(..));
    let process = args.report.pid.map(Process::new);
    let outcome = measure(load, &plan, seed, &tasks, process).await;
    let cleaned = client::alone(target, &tasks, clean).await;
    tasks.cancel();
    let mut report = tell(load, &plan, seed, &outcome?);
    if let Err(error) = cleaned {
        let fault = format!("the objects could not be deleted: {error}");
        report.faults.push(fault);
    }
    Ok(report)
}

fn check(load: &ChurnLoadArgs) -> Result<(), BenchError> {
    let usage = |problem: String| Err(BenchError::Usage(problem));
    if load.objects < load.workers {
        return usage("--objects: each of the workers needs one of its own".to_owned());
    }
    if !(load.rate.is_finite() && load.rate >= 0.0) {
        return usage(
            "--rate: must be a number of requests a second, or 0 for no limit".to_owned(),
        );
    }
    for (flag, seconds) in [("--seconds", load.seconds), ("--patience", load.patience)] {
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
    process: Option<Process>,
) -> Result<Outcome, BenchError> {
    let workers = load.workers.get();
    let connections = (0..workers).map(|_| client::connect(&plan.target, tasks));
    let connections = try_join_all(connections).await?;
    let watch = |number| tasks.spawn("watcher", Arc::clone(plan).watch(number, tasks.clone()));
    let mut watching: Vec<_> = (0..load.watchers).map(watch).collect();
    opened(&mut watching, plan).await?;

    let before = process.map(Process::usage).transpose()?;
    let begin = Instant::now();
    let work = Arc::new(Work {
        run: plan.run,
        size: load.size,
        accept: plan.accept,
        mix: load.mix.clone(),
        pace: Pace::start(load.operations.map_or(u32::MAX, u32::from), load.rate),
        deadline: load
            .operations
            .is_none()
            .then(|| begin + Duration::from_secs_f64(load.seconds)),
        board: Arc::clone(&plan.board),
    });
    let mut working = Vec::new();
    for (number, (connection, driver)) in (0..).zip(connections) {
        let worker = Worker::new(number, workers, &work, seed);
        let worker = driver.run(worker.run(connection));
        working.push(tasks.spawn("worker", worker));
    }
    let (worked, elapsed, throughput) = arrive(load, plan, begin, working).await?;
    // A server that is gone has no usage; that it is gone is a fault already.
    let after = process.map(Process::usage);
    sleep(REST).await;

    let ended = plan.board.ended.load(Ordering::Relaxed);
    let gone = ended > 0 || worked.failed > 0;
    let faults = compare(plan, tasks, watching, gone).await?;
    let after = match gone {
        false => after.transpose()?,
        true => after.and_then(Result::ok),
    };
    Ok(Outcome {
        worked,
        faults,
        ended,
        elapsed,
        usage: before.zip(after),
        throughput,
    })
}

type Watching = Vec<JoinHandle<Result<Tally, ClientError>>>;

/// Waits until every watcher's first watch is open.
async fn opened(watching: &mut Watching, plan: &Plan) -> Result<(), BenchError> {
    let board = &plan.board;
    while (board.opened.load(Ordering::Relaxed) as usize) < watching.len() {
        if board.ended.load(Ordering::Relaxed) > 0 {
            plan.stop.cancel();
            for watching in watching {
                watching.await??;
            }
            let problem = "a watch ended as soon as it was open";
            return Err(BenchError::Ended(problem));
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// Waits for the workers, and then until every change has arrived everywhere, patience ends, or no watch
/// is left.
async fn arrive(
    load: &ChurnLoadArgs,
    plan: &Plan,
    begin: Instant,
    working: Vec<JoinHandle<Worked>>,
) -> Result<(Worked, Duration, Vec<(f64, f64)>), BenchError> {
    let board = &plan.board;
    let total = load.operations.map(|operations| operations.get().into());
    let mut progress = Progress::begin_open("requests", total);
    while !working.iter().all(JoinHandle::is_finished) {
        progress.set(board.operations.load(Ordering::Relaxed));
        sleep(LOOK).await;
    }
    let elapsed = begin.elapsed();
    let throughput = progress.end();
    let mut worked = Worked::default();
    for worker in working {
        worked.add(worker.await?);
    }
    let expected = board.changes.load(Ordering::Relaxed) * u64::from(load.watchers);
    let patience = Instant::now() + Duration::from_secs_f64(load.patience);
    while board.delivered.load(Ordering::Relaxed) < expected
        && Instant::now() < patience
        && board.ended.load(Ordering::Relaxed) < load.watchers
    {
        sleep(LOOK).await;
    }
    Ok((worked, elapsed, throughput))
}

/// Ends the watches and holds what they were told against the board and a list.
async fn compare(
    plan: &Plan,
    tasks: &Tasks,
    watching: Watching,
    gone: bool,
) -> Result<Faults, BenchError> {
    let listed = client::alone(&plan.target, tasks, async |connection| {
        list_of(connection, &all()).await
    });
    let listed = listed.await;
    plan.stop.cancel();
    let mut total = Faults::default();
    let listed = match listed {
        Ok(list) => Some(tally::state(&plan.board, plan.run, &list)),
        // The run has failed already.
        Err(_) if gone => None,
        Err(error) => return Err(error.into()),
    };
    for watcher in watching {
        match watcher.await? {
            Ok(tally) => total.add(tally.close(&plan.board, listed.as_ref())),
            Err(error) => drop(total.error.get_or_insert(error.to_string())),
        }
    }
    Ok(total)
}

fn tell(load: &ChurnLoadArgs, plan: &Plan, seed: u64, outcome: &Outcome) -> Report {
    let board = &plan.board;
    let (faults, worked) = (&outcome.faults, &outcome.worked);
    let operations = board.operations.load(Ordering::Relaxed);
    let delivered = board.delivered.load(Ordering::Relaxed);
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
    report.count("changes", board.changes.load(Ordering::Relaxed));
    report.count("events_delivered", delivered);
    report.count("events_lost", faults.lost);
    report.count("events_duplicate", faults.duplicate);
    report.count("events_out_of_order", faults.out_of_order);
    report.count("events_foreign", faults.foreign);
    report.count("events_mistyped", faults.mistyped);
    report.count("objects_differing", faults.differing);
    report.count("watches_resumed", board.resumed.load(Ordering::Relaxed));
    report.count("watches_ended", outcome.ended);
    for verb in Verb::ALL {
        report.latency(verb.latency_row(), &board.latencies(verb).total());
    }
    report.latency("latency_us_watch", &board.to_each.total());
    report.throughput = outcome.throughput.clone();
    if let Some((before, after)) = outcome.usage {
        report.usage(before, after);
        let cpu_ms = after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e3;
        report.number("cpu_ms_per_operation", cpu_ms / operations.max(1) as f64);
    }
    tell_faults(&mut report, load, outcome, operations);
    report
}

fn tell_faults(report: &mut Report, load: &ChurnLoadArgs, outcome: &Outcome, operations: u64) {
    let (faults, worked) = (&outcome.faults, &outcome.worked);
    report.fault(faults.lost, "events were lost");
    report.fault(faults.duplicate, "events were told twice");
    report.fault(faults.out_of_order, "events came out of order");
    report.fault(faults.foreign, "events tell of what no worker did");
    report.fault(faults.mistyped, "events have the wrong type");
    report.fault(
        faults.differing,
        "objects are not in the end what their watchers were told",
    );
    report.fault(worked.stale, "reads did not show what was written before");
    report.fault(outcome.ended.into(), "watches ended early");
    let first = worked.first_failure.as_ref().map(ToString::to_string);
    report.fault(
        worked.failed,
        format_args!("requests failed, the first: {}", first.unwrap_or_default()),
    );
    if let Some(wanted) = load.operations {
        let unsent = u64::from(wanted.get()).saturating_sub(operations + worked.failed);
        report.fault(unsent, "requests were not sent: no connection was left");
    }
    if let Some(error) = &faults.error {
        report.faults.push(format!("a watch was told {error}"));
    }
}
