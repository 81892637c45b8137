//! `fuzz`: runs fuzz targets, each in a process of its own, and prints what they found.

use parking_lot::Mutex;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use clap::Parser;
use peak_alloc::PeakAlloc;
use rustix::process::{Resource, Rlimit, setrlimit};
use watchet_fuzz::corpus;
use watchet_fuzz::execute::{Failure, HANG_CODE, execute, install_panic_hook, start_watchdog};
use watchet_fuzz::minimize::minimize;
use watchet_fuzz::targets::{self, Target, target};
use watchet_fuzz::worker::{Report, Worker, remembered};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The stack of the thread that executes inputs: that of Tokio's workers, which execute them in a server.
const STACK_BYTES: usize = 2 << 20;

/// The limit of the address space of a process that executes inputs. A larger allocation aborts it.
const ADDRESS_SPACE_MAX: u64 = 16 << 30;

/// The time limit of the minimization of an input that ends the process.
const MINIMIZE_MAX: Duration = Duration::from_secs(60);

/// The maximum number of bytes of a failing input that are printed.
const INPUT_SHOWN_MAX: usize = 1000;

/// Runs fuzz targets and prints what they found. Exits with 1 if an input fails.
#[derive(Debug, Parser)]
#[command(name = "fuzz")]
struct Arguments {
    /// The seconds for each target [default: 60], and the names of targets [default: all].
    #[arg(value_name = "SECONDS|TARGET")]
    positional: Vec<String>,
    /// Decides the mutations; random if it is not set. The inputs also depend on the corpus and the time.
    #[arg(long)]
    seed: Option<u64>,
    /// How many targets run concurrently; 0 for one per processor.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Prints the targets.
    #[arg(long)]
    list: bool,
    /// Executes the target with this file, and prints how it fails.
    #[arg(long, num_args = 2, value_names = ["TARGET", "FILE"])]
    replay: Vec<String>,
    /// Runs one target in this process, and prints a report in JSON.
    #[arg(long, hide = true)]
    worker: bool,
}

/// A target with what its run reported.
struct Ended {
    target: &'static Target,
    report: Report,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let run = match () {
        () if arguments.list => list(),
        () if arguments.worker => worker(&arguments),
        () if !arguments.replay.is_empty() => replay(&arguments.replay[0], &arguments.replay[1]),
        () => all(&arguments),
    };
    match run {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::from(2)
        }
    }
}

fn list() -> io::Result<bool> {
    for target in targets::ALL {
        println!("{:<16} {}", target.name, target.about);
    }
    Ok(true)
}

/// Splits the positional arguments into the seconds and the targets.
fn selected(positional: &[String]) -> io::Result<(u64, Vec<&'static Target>)> {
    let seconds = positional.first().and_then(|first| first.parse().ok());
    let names = &positional[usize::from(seconds.is_some())..];
    let targets = match names {
        [] => targets::ALL.iter().collect(),
        names => names
            .iter()
            .map(|name| named(name))
            .collect::<io::Result<_>>()?,
    };
    Ok((seconds.unwrap_or(60), targets))
}

fn named(name: &str) -> io::Result<&'static Target> {
    target(name)
        .ok_or_else(|| io::Error::other(format!("there is no target {name:?}; --list prints all")))
}

/// Runs `execute` on a thread with the stack of a worker of the server.
fn on_small_stack<T: Send + 'static>(
    execute: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let thread = thread::Builder::new()
        .name("target".to_owned())
        .stack_size(STACK_BYTES);
    let joined = thread.spawn(execute)?.join();
    joined.map_err(|_| io::Error::other("the driver panicked, which is a bug of it"))
}

/// Prepares this process for inputs.
fn confine() -> io::Result<()> {
    let limit = Rlimit {
        current: Some(ADDRESS_SPACE_MAX),
        maximum: Some(ADDRESS_SPACE_MAX),
    };
    setrlimit(Resource::As, limit)?;
    install_panic_hook();
    start_watchdog()
}

/// Runs one target in this process.
fn worker(arguments: &Arguments) -> io::Result<bool> {
    confine()?;
    let (seconds, targets) = selected(&arguments.positional)?;
    let target = *targets
        .first()
        .ok_or_else(|| io::Error::other("--worker needs a target"))?;
    let seed = arguments.seed.unwrap_or_default();
    let report = on_small_stack(move || {
        let current = fs::File::options().write(true).open(current_file(target))?;
        Worker::new(target, &current).run(seed, Duration::from_secs(seconds))
    })??;
    println!("{}", serde_json::to_string(&report)?);
    Ok(true)
}

/// Executes a target with one file.
fn replay(name: &str, path: &str) -> io::Result<bool> {
    let target = named(name)?;
    let input = fs::read(path)?;
    confine()?;
    match on_small_stack(move || execute(target, &input))? {
        Ok(elapsed) => println!("{path}: passes after {elapsed:?}"),
        Err(failure) => {
            println!(
                "{path}: {} at {}: {}",
                failure.kind, failure.place, failure.message
            );
            return Ok(false);
        }
    }
    Ok(true)
}

fn shown(failure: &Failure) -> String {
    let mut message: String = failure.message.chars().take(500).collect();
    if message.len() < failure.message.len() {
        message.push_str("...");
    }
    format!("{} at {}: {message}", failure.kind, failure.place)
}

/// Runs the targets in processes, several concurrently.
fn all(arguments: &Arguments) -> io::Result<bool> {
    let (seconds, targets) = selected(&arguments.positional)?;
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let jobs = match arguments.jobs {
        0 => thread::available_parallelism()?.get(),
        jobs => jobs,
    };
    println!(
        "{} targets for {seconds} s each, {jobs} concurrently, --seed {seed}",
        targets.len()
    );
    let queue = Mutex::new(targets.into_iter());
    let ended = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let take = || -> io::Result<()> {
            loop {
                let next = queue.lock().next();
                let Some(target) = next else {
                    return Ok(());
                };
                let report = supervise(target, seed, seconds)?;
                let mut ended = ended.lock();
                print_end(target, &report)?;
                ended.push(Ended { target, report });
            }
        };
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(take)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .map_err(|_| io::Error::other("a thread panicked"))?
        })
    })?;
    print_results(ended.into_inner())
}

fn print_end(target: &Target, report: &Report) -> io::Result<()> {
    let (inputs, failures) = (report.inputs, report.failures.len());
    let mut out = io::stdout().lock();
    match failures {
        0 => writeln!(out, "{}: {inputs} inputs", target.name),
        _ => writeln!(out, "{}: {inputs} inputs, {failures} failures", target.name),
    }
}

/// Prints the failures of a target with their inputs, so that the end of a log is enough to repeat them.
fn print_failures(out: &mut impl Write, target: &Target, report: &Report) -> io::Result<()> {
    for (failure, path) in &report.failures {
        writeln!(out, "\n{}: {}", target.name, shown(failure))?;
        match fs::read(path) {
            Ok(input) => {
                let start = input[..input.len().min(INPUT_SHOWN_MAX)].escape_ascii();
                let is_whole = input.len() <= INPUT_SHOWN_MAX;
                let rest = if is_whole { "" } else { "..." };
                writeln!(out, "    input of {} bytes: {start}{rest}", input.len())?;
            }
            Err(error) => writeln!(out, "    the input cannot be read: {error}")?,
        }
        let path = path.display();
        writeln!(out, "    scripts/fuzz --replay {} {path}", target.name)?;
    }
    Ok(())
}

/// Prints the table of `docs/reliability.md` and the failures. Returns true if no input fails.
fn print_results(mut ended: Vec<Ended>) -> io::Result<bool> {
    ended.sort_by_key(|ended| ended.target.name);
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "\n| target | inputs | seconds | slowest ms | edges | corpus | failures |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    let (mut inputs, mut failures) = (0, 0);
    for Ended { target, report } in &ended {
        writeln!(
            out,
            "| `{}` | {} | {:.0} | {} | {} | {} + {} | {} |",
            target.name,
            report.inputs,
            report.seconds,
            report.slowest_ms,
            report.edges,
            report.corpus,
            report.new,
            report.failures.len()
        )?;
        inputs += report.inputs;
        failures += report.failures.len();
    }
    for Ended { target, report } in &ended {
        print_failures(&mut out, target, report)?;
    }
    writeln!(
        out,
        "\n{} targets, {inputs} inputs, {failures} failures",
        ended.len()
    )?;
    Ok(failures == 0)
}

/// The file with the input that the process of a target executes.
fn current_file(target: &Target) -> PathBuf {
    corpus::found(target.name, "current")
}

/// Runs one target in a process. If an input ends it, that input is a failure.
fn supervise(target: &'static Target, seed: u64, seconds: u64) -> io::Result<Report> {
    let current = current_file(target);
    if let Some(directory) = current.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(&current, [])?;
    let ended = Command::new(std::env::current_exe()?)
        .args([
            "--worker",
            &seconds.to_string(),
            target.name,
            "--seed",
            &seed.to_string(),
        ])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()?;
    if let Ok(report) = serde_json::from_slice(&ended.stdout) {
        return Ok(report);
    }
    let Some(how) = end_of(ended.status) else {
        let status = ended.status;
        return Err(io::Error::other(format!(
            "the process of {} ended with {status}",
            target.name
        )));
    };
    let bytes = fs::read(&current)?;
    let input = remembered(&bytes)
        .ok_or_else(|| io::Error::other("the process ended before the first input"))?;
    let smallest = minimize_in_processes(target, &how, input)?;
    let path = corpus::save(
        &corpus::found(target.name, "failures"),
        &format!("{how}-"),
        &smallest,
    )?;
    let failure = Failure {
        kind: how,
        place: String::new(),
        message: format!("the process ended with {}", ended.status),
    };
    Ok(Report {
        failures: vec![(failure, path)],
        ..Report::default()
    })
}

/// Returns how an input has ended a process; `None` for another reason.
fn end_of(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(HANG_CODE), _) => Some("hang".to_owned()),
        (_, Some(signal)) => Some(format!("signal-{signal}")),
        _ => None,
    }
}

/// Minimizes an input that ends a process, with a process for each attempt.
fn minimize_in_processes(target: &Target, how: &str, input: &[u8]) -> io::Result<Vec<u8>> {
    let program = std::env::current_exe()?;
    let file = corpus::found(target.name, "candidate");
    let ends = |candidate: &[u8]| -> io::Result<bool> {
        fs::write(&file, candidate)?;
        let status = run_replay(&program, target, &file)?;
        Ok(end_of(status).as_deref() == Some(how))
    };
    let mut failed = Ok(());
    let smallest = minimize(input, MINIMIZE_MAX, |candidate| {
        ends(candidate).unwrap_or_else(|error| {
            failed = Err(error);
            false
        })
    });
    failed.map(|()| smallest)
}

fn run_replay(program: &Path, target: &Target, file: &Path) -> io::Result<ExitStatus> {
    Command::new(program)
        .args(["--replay", target.name])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
}
