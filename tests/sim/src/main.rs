//! `simulate`: runs simulations, each in a process of its own, and prints what they did and what they found.

mod bug_table;

use std::collections::BTreeMap;
use std::io::{BufWriter, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use tokio::time::Instant;

use bug_table::BugChoice;
use clap::Parser;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use watchet_simulation::bugs::{KnownBug, plant};
use watchet_simulation::check::{check, render, shrink_violation};
use watchet_simulation::{Fault, Report, run, run_traced};

/// Runs simulations of servers, storage, network and clients with faults, and checks what the clients observed.
///
/// Each seed determines one simulation, which is the same on every machine with the same build.
#[derive(Debug, Parser)]
#[command(name = "simulate")]
struct Arguments {
    /// The number of seeds [default: 100; with --bug, the maximum number of seeds per bug: 1000].
    count: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// How many run concurrently; 0 for one per processor.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Runs this seed only, and prints its faults and the violation with its timeline.
    #[arg(long, conflicts_with_all = ["count", "first", "jobs"])]
    seed: Option<u64>,
    /// Plants a bug, and runs seeds until one finds it; `all` runs every bug and prints a table. With --seed: plants
    /// it for this seed.
    #[arg(long)]
    bug: Option<BugChoice>,
    /// With --seed: writes everything that the network delivers to this file.
    #[arg(long, requires = "seed")]
    trace: Option<PathBuf>,
    /// With --seed: prints one line of JSON.
    #[arg(long, requires = "seed", hide = true)]
    json: bool,
}

/// What one simulation did.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Summary {
    seed: u64,
    digest: u32,
    bytes: u64,
    operations: u64,
    events: u64,
    notifications: u64,
    virtual_seconds: f64,
    /// The number of faults by kind.
    faults: BTreeMap<String, u64>,
    /// The violation, if any.
    violation: Option<String>,
}

impl Summary {
    fn new(report: &Report) -> Self {
        let history = &report.history;
        let mut faults = BTreeMap::new();
        for fault in &report.faults {
            *faults.entry(fault.kind.to_owned()).or_default() += 1;
        }
        let events = history
            .watches
            .iter()
            .map(|watch| watch.events.len() as u64);
        let notifications = history.informers.iter();
        let notifications = notifications.map(|log| log.notifications.len() as u64);
        Self {
            seed: report.seed,
            digest: report.digest.0,
            bytes: report.digest.1,
            operations: history.operations.len() as u64,
            events: events.sum(),
            notifications: notifications.sum(),
            virtual_seconds: report.elapsed.as_secs_f64(),
            faults,
            violation: check(history).err().map(|violation| {
                let shrunk = shrink_violation(history, &violation);
                format!("{violation}\n{}", render(&shrunk, &violation))
            }),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match (arguments.seed, arguments.bug) {
        (Some(seed), _) => run_one(seed, &arguments),
        (None, Some(choice)) => {
            let seeds = Seeds::new(&arguments, 1_000);
            bug_table::print(choice, &seeds)
        }
        (None, None) => run_all(&arguments),
    }
}

/// The exit code after a panic.
const PANICKED: i32 = 3;

/// Makes each panic end the process, also that of a task which is not awaited: the clients of a server whose task ended would
/// try again for ever, because virtual time passes as long as they do.
fn exit_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(PANICKED);
    }));
}

/// Runs one seed in this process.
fn run_one(seed: u64, arguments: &Arguments) -> ExitCode {
    exit_on_panic();
    match arguments.bug {
        None => {}
        Some(BugChoice::One(known)) => plant(known.bug),
        Some(BugChoice::All) => {
            eprintln!("--bug all runs many seeds: name one bug for --seed {seed}");
            return ExitCode::from(2);
        }
    }
    let report = match &arguments.trace {
        None => run(seed),
        Some(path) => match std::fs::File::create(path) {
            Ok(file) => run_traced(seed, Box::new(BufWriter::new(file))),
            Err(error) => {
                eprintln!("cannot write the trace to {}: {error}", path.display());
                return ExitCode::from(2);
            }
        },
    };
    let summary = Summary::new(&report);
    let has_failed = summary.violation.is_some();
    if arguments.json {
        println!(
            "{}",
            serde_json::to_string(&summary).expect("a summary is JSON")
        );
        return ExitCode::SUCCESS;
    }
    for Fault { time, kind, detail } in &report.faults {
        println!("{:>10.3} s  {kind} {detail}", *time as f64 / 1e6);
    }
    println!(
        "seed {seed}: {} operations, {} events, {} notifications, {:.1} s of virtual time, digest {:08x}",
        summary.operations,
        summary.events,
        summary.notifications,
        summary.virtual_seconds,
        summary.digest
    );
    if let Some(violation) = &summary.violation {
        println!("{violation}");
    }
    ExitCode::from(u8::from(has_failed))
}

/// The result of a process: the summary, or its output if it failed.
type Outcome = Result<Summary, String>;

/// Runs a seed in a new process, with a bug if there is one.
fn run_process(seed: u64, bug: Option<&KnownBug>) -> Outcome {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args(["--seed", &seed.to_string(), "--json"])
        .args(bug.iter().flat_map(|bug| ["--bug", bug.name]))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    let complaint = || String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(complaint());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {}", complaint()))
}

/// Which seeds run, and how many concurrently.
#[derive(Debug, Clone, Copy)]
struct Seeds {
    first: u64,
    count: u64,
    jobs: usize,
}

impl Seeds {
    fn new(arguments: &Arguments, count: u64) -> Self {
        let jobs = match arguments.jobs {
            0 => thread::available_parallelism().map_or(1, std::num::NonZero::get),
            jobs => jobs,
        };
        Self {
            first: arguments.first,
            count: arguments.count.unwrap_or(count),
            jobs,
        }
    }

    /// Runs the seeds and returns their outcomes. With a bug, no seed begins after the first that fails with it, and a seed that
    /// also fails without it does not count.
    fn run(&self, bug: Option<&KnownBug>) -> BTreeMap<u64, Outcome> {
        let next = AtomicU64::new(0);
        let outcomes = Mutex::new(BTreeMap::new());
        let has_found = AtomicBool::new(false);
        let shows_progress = std::io::stderr().is_terminal();
        thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= self.count || has_found.load(Ordering::Relaxed) {
                            return;
                        }
                        let seed = self.first.wrapping_add(number);
                        let mut outcome = run_process(seed, bug);
                        if bug.is_some() && has_failed(&outcome) {
                            let clean = run_process(seed, None);
                            match has_failed(&clean) {
                                true => outcome = Ok(Summary::default()),
                                false => has_found.store(true, Ordering::Relaxed),
                            }
                        }
                        let mut outcomes = outcomes.lock();
                        outcomes.insert(seed, outcome);
                        if shows_progress {
                            let failed = outcomes.values().filter(|outcome| has_failed(outcome));
                            let (done, failed) = (outcomes.len(), failed.count());
                            eprint!("\r{done} of {} seeds, {failed} failed ", self.count);
                            // The progress is only for people.
                            drop(std::io::stderr().flush());
                        }
                    }
                });
            }
        });
        if shows_progress {
            eprintln!();
        }
        outcomes.into_inner()
    }
}

/// Runs all seeds, several at a time.
fn run_all(arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    print_results(&Seeds::new(arguments, 100).run(None), began)
}

fn has_failed(outcome: &Outcome) -> bool {
    outcome
        .as_ref()
        .map_or(true, |summary| summary.violation.is_some())
}

/// Returns the first line of the violation or of the output.
fn first_line(outcome: &Outcome) -> String {
    let reason = match outcome {
        Ok(summary) => summary.violation.as_deref().unwrap_or_default(),
        Err(output) => output,
    };
    let mut lines = reason.lines().filter(|line| !line.trim().is_empty());
    lines.next().unwrap_or("failed without output").to_owned()
}

fn print_results(outcomes: &BTreeMap<u64, Outcome>, began: Instant) -> ExitCode {
    let summaries: Vec<&Summary> = outcomes.values().flatten().collect();
    let sum =
        |count: fn(&Summary) -> u64| summaries.iter().map(|summary| count(summary)).sum::<u64>();
    let hours: f64 = summaries
        .iter()
        .map(|summary| summary.virtual_seconds)
        .sum::<f64>()
        / 3600.0;
    let mut faults = BTreeMap::<&str, u64>::new();
    for (kind, count) in summaries.iter().flat_map(|summary| &summary.faults) {
        *faults.entry(kind).or_default() += count;
    }
    for (kind, count) in &faults {
        println!("{count:>9}  {kind}");
    }
    println!("{:>9}  operations", sum(|summary| summary.operations));
    println!("{:>9}  watch events", sum(|summary| summary.events));
    println!(
        "{:>9}  notifications of informers",
        sum(|summary| summary.notifications)
    );
    let failed: Vec<_> = outcomes
        .iter()
        .filter(|(_, outcome)| has_failed(outcome))
        .collect();
    for (seed, outcome) in failed.iter().take(20) {
        println!("seed {seed}: {}", first_line(outcome));
    }
    println!(
        "{} seeds, {hours:.1} hours of virtual time, {:.0} s: {} failed",
        outcomes.len(),
        began.elapsed().as_secs_f64(),
        failed.len()
    );
    if let Some((seed, _)) = failed.first() {
        println!("repeat one with: scripts/sim --seed {seed}");
    }
    ExitCode::from(u8::from(!failed.is_empty()))
}
