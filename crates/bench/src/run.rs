//! Runs `watchet bench`: from the arguments to the printed report and the exit code.
//!
//! Exit codes: 0, success; 1, the measurement failed or the report has faults (printed to stderr;
//! the report still goes to stdout); 2, invalid arguments.

use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, Command, FromArgMatches as _, Subcommand as _};
use tokio::runtime::Runtime;

use super::args::{
    CompareArgs, FloorLoad, FloorReportArgs, ListArgs, Load, ReportArgs, Resource, ResponseArgs,
    SweepArgs, TargetArgs, WatchArgs,
};
use super::error::BenchError;
use super::floor::{self, Floor};
use super::metadata::Metadata;
use super::metric;
use super::objects::conversion::Webhook;
use super::objects::definitions;
use super::report::Report;
use super::server_info::ServerInfo;
use super::target::{Target, TargetError};
use super::{churn, compare, fill, page, read, storm, sweep, watch, write};

/// Returns the command line of `bench`.
pub fn command() -> Command {
    // Set after the subcommands: clap would use the doc comment of the type instead.
    Load::augment_subcommands(Command::new("bench"))
        .about("Generate load on a Kubernetes API server and measure it")
        .after_help(
            "A report goes to stdout; the exit code is 1 if an event was lost, a request failed or had an \
             unexpected result, or the load generator was the bottleneck.\n\n\
             With $KUBECONFIG naming the server, and PID being its process on this machine:\n  \
             watchet bench fill pods --count 50000 --size 3000\n  \
             watchet bench list pods --resource-version 0 --pid PID\n  \
             watchet bench write widgets --verb apply --pid PID\n  \
             watchet bench watch --watchers 1000 --events 500 --pid PID\n  \
             watchet bench storm pods --clients 20 --accept protobuf --pid PID\n  \
             watchet bench churn --seconds 30 --pid PID\n  \
             watchet bench watch --pid PID --json --html page.html > new.json\n  \
             watchet bench compare old.json new.json --html comparison.html\n  \
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
    let metadata = Metadata::now(&command(), matches);
    let (mut report, how) = match load {
        Load::Fill(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            let resource = args.objects.resource;
            (
                on_resource(resource, &target, &how, fill::run(args, &target))?,
                how,
            )
        }
        Load::Clear(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            let resource = args.objects.resource;
            (
                on_resource(resource, &target, &how, fill::clear(args, &target))?,
                how,
            )
        }
        Load::Get(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            let resource = encodable(args.objects.resource, args.responses)?;
            (
                on_resource(resource, &target, &how, read::get(args, &target))?,
                how,
            )
        }
        Load::List(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            read::check(&args.query)?;
            let resource = encodable(args.query.selection.resource, args.responses)?;
            (
                on_resource(resource, &target, &how, read::list(args, &target))?,
                how,
            )
        }
        Load::Write(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            write::check(&args)?;
            let resource = encodable(args.load.resource, args.responses)?;
            (
                on_resource(resource, &target, &how, write::run(args, &target))?,
                how,
            )
        }
        Load::Watch(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            let resource = encodable(args.load.resource(), args.responses)?;
            (
                on_resource(resource, &target, &how, watch::run(args, &target))?,
                how,
            )
        }
        Load::Storm(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            let resource = encodable(args.selection.resource, args.responses)?;
            (
                on_resource(resource, &target, &how, storm::run(args, &target))?,
                how,
            )
        }
        Load::Churn(args) => {
            let (how, target) = (args.report.clone(), open(&args.target)?);
            let load = churn::run(args, &target);
            (in_runtime(&how, Some(&target), load)?, how)
        }
        Load::Sweep(args) => return sweep(args),
        Load::Compare(args) => return compare_reports(&args),
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
            let load = watch::run(args, &target);
            (in_runtime(&report, None, load)?, report)
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
            let load = read::list(args, &target);
            (in_runtime(&report, None, load)?, report)
        }
    };
    report.metadata = Some(metadata);
    print(&report, &how)
}

fn open(args: &TargetArgs) -> Result<Arc<Target>, TargetError> {
    Ok(Arc::new(Target::open(args)?))
}

/// Returns the floor's process as the target and as the measured process.
fn on(floor: &Floor, report: FloorReportArgs) -> Result<(Arc<Target>, ReportArgs), TargetError> {
    let report = ReportArgs {
        pid: Some(floor.pid()),
        generator: report.generator,
        json: report.json,
        print: report.print,
        html: report.html,
    };
    Ok((open(&floor.target_args())?, report))
}

/// Returns the resource, unless servers cannot encode it as requested.
fn encodable(resource: Resource, responses: ResponseArgs) -> Result<Resource, BenchError> {
    let encoding = responses.accept;
    match resource.has_encoding(encoding) {
        true => Ok(resource),
        false => Err(BenchError::Usage(format!(
            "--accept {}: servers do not encode custom resources such as {} in it",
            encoding.name(),
            resource.plural()
        ))),
    }
}

/// Runs a load after the definition of its resource is created, and its conversion webhook runs.
fn on_resource(
    resource: Resource,
    target: &Arc<Target>,
    how: &ReportArgs,
    load: impl Future<Output = Result<Report, BenchError>>,
) -> Result<Report, BenchError> {
    if !resource.is_custom() {
        return in_runtime(how, Some(target), load);
    }
    in_runtime(how, Some(target), async {
        let webhook = Webhook::start().await?;
        definitions::install(resource, &webhook, target).await?;
        let before = webhook.converted();
        let mut report = load.await?;
        if resource == Resource::Gadgets {
            report.count("webhook_converted", webhook.converted() - before);
        }
        Ok(report)
    })
}

/// Runs a load. If the report shows the server, requests its version and storage after the load, so
/// that these requests do not affect the measurement. `target` is `None` for the floor, which has
/// neither.
fn in_runtime(
    how: &ReportArgs,
    target: Option<&Arc<Target>>,
    load: impl Future<Output = Result<Report, BenchError>>,
) -> Result<Report, BenchError> {
    let is_shown = how.json || how.html.is_some();
    runtime(how.generator.threads)?.block_on(async {
        let mut report = load.await?;
        if let Some(target) = target.filter(|_| is_shown) {
            report.server = Some(ServerInfo::request(target).await);
        }
        Ok(report)
    })
}

fn runtime(threads: Option<NonZeroUsize>) -> Result<Runtime, BenchError> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        runtime.worker_threads(threads.get());
    }
    runtime
        .enable_all()
        .thread_name("watchet-bench")
        .build()
        .map_err(BenchError::Start)
}

fn sweep(args: SweepArgs) -> Result<(), BenchError> {
    let result = runtime(None)?.block_on(sweep::run(args))?;
    print_text(&result.table)?;
    match result.faults.is_empty() {
        true => Ok(()),
        false => Err(BenchError::Faults(result.faults)),
    }
}

fn compare_reports(args: &CompareArgs) -> Result<(), BenchError> {
    if let Some(path) = &args.html
        && [&args.a, &args.b].contains(&path)
    {
        return Err(BenchError::Usage(format!(
            "--html {path:?} is one of the reports, which it would replace: name another file"
        )));
    }
    let comparison = compare::read(args)?;
    for warning in comparison.warnings() {
        // If stderr is closed, the comparison is still printed.
        let _written = writeln!(
            io::stderr(),
            "watchet bench: warning: {}",
            printable(&warning)
        );
    }
    if let Some(path) = &args.html {
        write_page(path, &page::render_comparison(&comparison))?;
    }
    print_text(&printable(&comparison.table()))
}

/// Returns a text without the characters that control a terminal: a report can be of another user.
fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}")
}

fn write_page(path: &Path, page: &str) -> Result<(), BenchError> {
    std::fs::write(path, page).map_err(|source| BenchError::Page {
        path: path.to_owned(),
        source,
    })
}

fn print(report: &Report, how: &ReportArgs) -> Result<(), BenchError> {
    debug_assert!(
        report.rows().all(|(key, _)| metric::find(key).is_some()),
        "metric.rs does not describe a row of {:?}",
        report.load()
    );
    let text = if how.json {
        report.json()
    } else if how.print.is_empty() {
        report.table()
    } else {
        let values = how.print.iter().map(|key| report.value(key));
        values.collect::<Result<Vec<_>, _>>()?.join(" ") + "\n"
    };
    // First, so that a page that cannot be written does not cost the values of a long run.
    print_text(&text)?;
    if let Some(path) = &how.html {
        write_page(path, &page::render(report))?;
    }
    match report.faults.is_empty() {
        true => Ok(()),
        false => Err(BenchError::Faults(report.faults.clone())),
    }
}

fn print_text(text: &str) -> Result<(), BenchError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(BenchError::Print)
}
