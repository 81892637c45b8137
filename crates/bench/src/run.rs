//! Runs `watchet bench`: from the arguments to the printed report and the exit code.
//!
//! Exit codes: 0, success; 1, the measurement failed or the report has faults (printed to stderr;
//! the report still goes to stdout); 2, invalid arguments.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, Command, FromArgMatches as _, Subcommand as _};

use super::args::{
    FloorLoad, FloorReportArgs, ListArgs, Load, ReportArgs, ResponseArgs, TargetArgs, WatchArgs,
};
use super::error::BenchError;
use super::floor::{self, Floor};
use super::report::Report;
use super::target::{Target, TargetError};
use super::{churn, fill, page, read, storm, watch};

/// Returns the command line of `bench`.
pub fn command() -> Command {
    // Set after the subcommands: clap would use the doc comment of the type instead.
    Load::augment_subcommands(Command::new("bench"))
        .about("Generate load on a Kubernetes API server and measure it")
        .after_help(
            "A report goes to stdout; the exit code is 1 if an event was lost or a request failed.\n\n\
             With $KUBECONFIG naming the server, and PID being its process on this machine:\n  \
             watchet bench fill pods --count 50000 --size 3000\n  \
             watchet bench list pods --resource-version 0 --pid PID\n  \
             watchet bench watch --watchers 1000 --events 500 --pid PID\n  \
             watchet bench storm pods --clients 20 --accept protobuf --pid PID\n  \
             watchet bench churn --seconds 30 --pid PID\n  \
             watchet bench floor watch --watchers 1000 --events 500",
        )
        .subcommand_required(true)
}

/// Runs the subcommand with the parsed arguments.
pub fn main(matches: &ArgMatches) -> ExitCode {
    match run(matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If stderr is closed, the exit code still reports the failure.
            let _written = writeln!(io::stderr(), "watchet bench: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(matches: &ArgMatches) -> Result<(), BenchError> {
    let load = Load::from_arg_matches(matches)?;
    let (report, how) = match load {
        Load::Fill(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            (in_runtime(fill::run(args, &target))?, how)
        }
        Load::Get(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            (in_runtime(read::get(args, &target))?, how)
        }
        Load::List(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            (in_runtime(read::list(args, &target))?, how)
        }
        Load::Watch(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            (in_runtime(watch::run(args, &target))?, how)
        }
        Load::Storm(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            (in_runtime(storm::run(args, &target))?, how)
        }
        Load::Churn(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            (in_runtime(churn::run(args, &target))?, how)
        }
        Load::Floor(FloorLoad::Serve(args)) => return Ok(floor::serve(&args)?),
        Load::Floor(FloorLoad::Watch(args)) => {
            let floor = Floor::start(0, 0)?;
            let (target, report) = on(&floor, args.report)?;
            let args = WatchArgs {
                target: floor.target_args(),
                report: report.clone(),
                load: args.load,
                responses: ResponseArgs::default(),
            };
            (in_runtime(watch::run(args, &target))?, report)
        }
        Load::Floor(FloorLoad::List(args)) => {
            let floor = Floor::start(args.serve.count, args.serve.size)?;
            let (target, report) = on(&floor, args.report)?;
            let args = ListArgs {
                target: floor.target_args(),
                report: report.clone(),
                query: floor::list_query(args.requests, args.connections),
                responses: ResponseArgs::default(),
            };
            (in_runtime(read::list(args, &target))?, report)
        }
    };
    print(&report, &how)
}

fn open(args: &TargetArgs) -> Result<Arc<Target>, TargetError> {
    Ok(Arc::new(Target::open(args)?))
}

/// Returns the floor's process as the target and as the measured process.
fn on(floor: &Floor, report: FloorReportArgs) -> Result<(Arc<Target>, ReportArgs), TargetError> {
    let report = ReportArgs {
        pid: Some(floor.pid()),
        json: report.json,
        print: report.print,
        html: report.html,
    };
    Ok((open(&floor.target_args())?, report))
}

fn in_runtime(
    load: impl Future<Output = Result<Report, BenchError>>,
) -> Result<Report, BenchError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("watchet-bench")
        .build()
        .map_err(BenchError::Start)?;
    runtime.block_on(load)
}

fn print(report: &Report, how: &ReportArgs) -> Result<(), BenchError> {
    let text = if how.json {
        serde_json::to_string_pretty(report).expect("all keys are strings") + "\n"
    } else if how.print.is_empty() {
        report.table()
    } else {
        let values = how.print.iter().map(|key| report.value(key));
        values.collect::<Result<Vec<_>, _>>()?.join(" ") + "\n"
    };
    if let Some(path) = &how.html {
        let written = std::fs::write(path, page::render(report));
        written.map_err(|source| BenchError::Page {
            path: path.clone(),
            source,
        })?;
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(BenchError::Print)?;
    match report.faults.is_empty() {
        true => Ok(()),
        false => Err(BenchError::Faults(report.faults.clone())),
    }
}
