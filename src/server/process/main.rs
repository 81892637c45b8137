//! The program: from arguments to the exit code.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::Instant;

use crate::server::config::cli::{self, Invocation};
use crate::server::config::file as config_file;
use crate::server::config::help_files::{self, ManualPagesError};
use crate::server::config::server_config::{Config, LogConfig, LogFormat};
use crate::server::config::setting_value::ConfigError;
use crate::server::config::settings::{CONFIG_ENV, Settings};
use crate::server::envtest::{Program, assets, etcd, kube_apiserver};
use crate::server::process::announce;
use crate::server::process::build::{BuildError, Server};
use crate::server::process::console_link::{self, ConsoleLinkError};
use crate::server::process::demo_server::{self, DemoFailure};
use crate::server::process::file_limit;
use crate::server::process::files::FileError;
use crate::server::process::git_commit::GIT_COMMIT;
use crate::server::process::logging;
use crate::server::process::ready_file::ReadyFile;
use crate::server::process::run::Running;
use crate::server::process::service_manager::{ServiceManager, SocketActivationError};
use crate::server::process::signals::{EndReason, EndSignal, Signals};
use crate::server::store_commands::{self, StoreError};
use crate::storage::StorageError;
use crate::tasks::{DrainTimeout, TaskFailed};
use crate::{bench, cli as commands, demo, http, tail};

/// The log level of commands whose output describes what they do: `watchet store` and `watchet demo`.
const COMMAND_LOG_LEVEL: &str = "warn";

/// The optional features, and whether this build has them.
const FEATURES: [(&str, bool); 3] = [
    ("etcd", cfg!(feature = "etcd")),
    ("jemalloc", cfg!(feature = "jemalloc")),
    ("kms", cfg!(feature = "kms")),
];

/// How long blocked threads (e.g. on a disk that hangs) may delay the exit.
const BLOCKED_THREADS_MAX: Duration = Duration::from_secs(1);

/// Why the process exits with a code other than 0.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Console(#[from] ConsoleLinkError),
    #[error(transparent)]
    Demo(#[from] DemoFailure),
    #[error("the server cannot start: {0}")]
    Damaged(StorageError),
    #[error(transparent)]
    ReadyFile(#[from] FileError),
    #[error(transparent)]
    ManualPages(#[from] ManualPagesError),
    #[error(transparent)]
    SocketActivation(#[from] SocketActivationError),
    #[error("cannot start: {0}")]
    Start(io::Error),
    #[error("cannot print: {0}")]
    Print(io::Error),
    #[error("the shutdown did not complete in time: {0}")]
    Drain(#[from] DrainTimeout),
    #[error("{0}: this is a bug; the process exits because it cannot safely continue")]
    Task(#[from] TaskFailed),
    #[error("a second {0}: exiting without waiting")]
    SecondSignal(EndSignal),
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => 2,
            Self::Build(error) if error.is_config() => 2,
            Self::Store(error) if error.is_config() => 2,
            Self::Console(error) if error.is_config() => 2,
            Self::SecondSignal(signal) | Self::Demo(DemoFailure::SecondSignal(signal)) => {
                signal.exit_code()
            }
            _ => 1,
        }
    }
}

/// Runs the program with these arguments (its name first) and the environment of the process.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let program = Program::called(args.first().map_or(OsStr::new(""), OsString::as_os_str));
    let args = args.into_iter();
    let result = match program {
        Program::Watchet => run(args),
        Program::KubeApiserver => run_kube_apiserver(args),
        Program::Etcd => run_etcd(args),
    };
    result.unwrap_or_else(|failure| {
        // If stderr is closed, the exit code still reports the failure.
        let _written = writeln!(io::stderr(), "{}: {failure}", program.name());
        ExitCode::from(failure.exit_code())
    })
}

/// Returns what `watchet version` prints.
fn build_description() -> commands::Build {
    let version = http::git_version();
    let (kubernetes, _) = version.split_once('+').unwrap_or((&version, ""));
    let features = FEATURES.iter().filter(|(_, is_enabled)| *is_enabled);
    commands::Build {
        version: env!("CARGO_PKG_VERSION"),
        commit: GIT_COMMIT,
        kubernetes: kubernetes.to_owned(),
        features: features.map(|(name, _)| *name).collect(),
    }
}

fn print(text: impl AsRef<[u8]>) -> Result<ExitCode, Failure> {
    match io::stdout().write_all(text.as_ref()) {
        // The reader, such as `head`, has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Print(error)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Requests a link to the console and prints it.
fn print_console_link(kubeconfig: Option<&Path>) -> Result<ExitCode, Failure> {
    block_on(async {
        let link = console_link::request(kubeconfig).await?;
        print(format!("{link}\n")).map(drop)
    })
}

/// Runs the demonstration. `program` is the name of the program in the command line.
fn run_demo(matches: &clap::ArgMatches, program: &OsStr) -> Result<ExitCode, Failure> {
    init_command_log();
    let options = demo::DemoOptions::from_matches(matches).map_err(DemoFailure::from)?;
    // The user runs the printed commands in another directory, where a relative path is invalid.
    let name = Path::new(program);
    let path = match name.components().count() {
        0 | 1 => name.to_owned(),
        _ => std::path::absolute(name).unwrap_or_else(|_| name.to_owned()),
    };
    let path = path.to_string_lossy();
    block_on(async { Ok(demo_server::run(&options, &path).await?) })
}

fn init_command_log() {
    logging::init(&LogConfig {
        level: COMMAND_LOG_LEVEL.to_owned(),
        format: LogFormat::Text,
    });
}

/// Runs the program as `kube-apiserver`, without settings from the environment or an announcement.
fn run_kube_apiserver(args: impl Iterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let started = Instant::now();
    let mut server = match kube_apiserver::parse(args)? {
        kube_apiserver::Invocation::Print(text) => return print(&text),
        kube_apiserver::Invocation::Serve(server) => server,
    };
    logging::init(&server.config.log);
    server.log_ignored();
    server.locate_store()?;
    let service_manager = ServiceManager::default();
    block_on(serve(&server.config, service_manager, |running| {
        log_ready(running, started);
    }))
}

/// Runs the program as `etcd`.
fn run_etcd(args: impl Iterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let etcd = match etcd::parse(args)? {
        etcd::Invocation::Print(text) => return print(&text),
        etcd::Invocation::Serve(etcd) => etcd,
    };
    logging::init(&etcd.log);
    block_on(async {
        let mut signals = Signals::listen(None).map_err(Failure::Start)?;
        let running = etcd.start()?;
        let signal = signals.next().await;
        tracing::info!(%signal, "draining");
        Ok(running.drain().await?)
    })
}

/// Runs `future` to completion on a new runtime.
fn block_on(future: impl Future<Output = Result<(), Failure>>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("watchet")
        .build()
        .map_err(Failure::Start)?;
    let result = runtime.block_on(future);
    runtime.shutdown_timeout(BLOCKED_THREADS_MAX);
    result.map(|()| ExitCode::SUCCESS)
}

fn run(args: impl Iterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let started = Instant::now();
    let mut args = args.peekable();
    let program = args.peek().cloned().unwrap_or_default();
    let (mut settings, flag) = match cli::parse(args)? {
        Invocation::Print(text) => return print(&text),
        Invocation::Console(kubeconfig) => return print_console_link(kubeconfig.as_deref()),
        Invocation::Completion(shell) => return print(help_files::completions(shell)),
        Invocation::ManualPages(directory) => {
            help_files::write_manual_pages(&directory)?;
            return Ok(ExitCode::SUCCESS);
        }
        Invocation::EnvtestAssets(directory) => {
            assets::make(directory)?;
            return Ok(ExitCode::SUCCESS);
        }
        Invocation::Demo(matches) => return run_demo(&matches, &program),
        Invocation::Bench(matches) => return Ok(bench::main(&matches)),
        Invocation::Tail(matches) => return Ok(tail::main(&matches)),
        Invocation::Command(name, matches) => {
            return Ok(commands::main(name, &matches, &build_description()));
        }
        Invocation::Store(matches) => {
            init_command_log();
            return block_on(async { Ok(store_commands::run(&matches).await?) });
        }
        Invocation::Serve {
            settings,
            config_file,
        } => (settings, config_file),
    };
    let unknown = complete(&mut settings, flag)?;
    let config = Config::check(&settings)?;
    logging::init(&config.log);
    for variable in unknown {
        tracing::warn!(
            variable,
            "unknown setting in an environment variable, ignored"
        );
    }
    let service_manager = ServiceManager::from_environment()?;
    block_on(serve(&config, service_manager, |running| {
        announce(running, started);
    }))
}

/// Adds the layers below the flags. Returns environment variables that look like settings but are
/// not.
fn complete(
    settings: &mut Settings,
    flag: Option<std::path::PathBuf>,
) -> Result<Vec<String>, ConfigError> {
    // A variable that is not UTF-8 is an error only if it is a setting.
    let text = |(name, value): (OsString, OsString)| {
        let name = name.into_string().ok()?;
        Some(match value.into_string() {
            Ok(value) => Ok((name, value)),
            Err(_) if name.starts_with("WATCHET_") && name != CONFIG_ENV => Err(ConfigError::new(
                format_args!("{name}: is not UTF-8: spell values in UTF-8"),
            )),
            Err(_) => return None,
        })
    };
    let variables = std::env::vars_os()
        .filter_map(text)
        .collect::<Result<Vec<_>, _>>()?;
    let unknown = settings.give_environment(variables.into_iter());
    if let Some((path, named_by)) = cli::config_file(flag, std::env::var_os(CONFIG_ENV)) {
        config_file::give(settings, &path, named_by)?;
    }
    Ok(unknown)
}

/// Builds a server, serves until a reason to end or a failure, and drains. Calls `when_ready` once
/// requests are served, then writes the ready file and notifies the service manager.
async fn serve(
    config: &Config,
    mut service_manager: ServiceManager,
    when_ready: impl FnOnce(&Running),
) -> Result<(), Failure> {
    file_limit::raise();
    for (plugin, why) in config.registry.plugins.without_effect() {
        tracing::warn!(plugin, why, "an enabled admission plugin has no effect");
    }
    let lifetime = &config.lifetime;
    let mut signals = Signals::listen(lifetime.exit_with).map_err(Failure::Start)?;
    // A reason to end comes first, so that it aborts the build.
    let server = tokio::select! {
        biased;
        reason = signals.end_reason() => {
            tracing::info!(%reason, "exiting before the server was ready");
            return Ok(());
        }
        built = Server::build(config, service_manager.listener.take()) => built?,
    };
    // After the data directory is locked: until then the file can be that of a running server.
    let ready_file = lifetime.ready_file.clone().map(ReadyFile::prepare);
    let ready_file = ready_file.transpose()?;
    let running = server.spawn();
    // A reason to end comes first here too, then damage, after which the server does not become ready.
    let early = tokio::select! {
        biased;
        end = reason_to_end(&mut signals, &running) => Some(end),
        damage = running.damaged() => {
            // What the drain cannot flush was not acknowledged.
            let _drained = running.drain().await;
            return Err(Failure::Damaged(damage));
        }
        () = running.ready() => None,
    };
    let end = match early {
        Some(end) => end,
        None => {
            when_ready(&running);
            let written = ready_file.as_ref().map(|file| file.write(&running.done));
            match written.transpose() {
                Ok(_) => {
                    service_manager.notify_ready(running.done.secure);
                    reason_to_end(&mut signals, &running).await
                }
                // The program that waits for the file would wait forever.
                Err(error) => Err(error.into()),
            }
        }
    };
    let grace = lifetime.shutdown_grace;
    match &end {
        Ok(reason) => tracing::info!(%reason, ?grace, "draining"),
        Err(failed) => tracing::error!(%failed, ?grace, "draining"),
    }
    service_manager.notify_stopping();
    drop(ready_file);
    // A second signal comes first: it aborts the drain.
    tokio::select! {
        biased;
        signal = signals.next() => Err(Failure::SecondSignal(signal)),
        drained = running.drain() => {
            end?;
            Ok(drained?)
        }
    }
}

/// Waits for a reason to end, or for the failure of a vital task.
async fn reason_to_end(signals: &mut Signals, running: &Running) -> Result<EndReason, Failure> {
    // A reason to end comes first, so that the exit code is the signal's.
    tokio::select! {
        biased;
        reason = signals.end_reason() => Ok(reason),
        failed = running.failed() => Err(failed.into()),
    }
}

/// Prints the announcement. A closed stdout does not stop the server.
fn announce(running: &Running, started: Instant) {
    let console = running.console_link();
    if let Err(error) =
        announce::announce(&mut io::stdout().lock(), &running.done, console.as_deref())
    {
        tracing::warn!(%error, "cannot print the announcement");
    }
    log_ready(running, started);
}

fn log_ready(running: &Running, started: Instant) {
    let elapsed_ms = started.elapsed().as_millis();
    tracing::info!(elapsed_ms, address = %running.done.secure, "ready");
}
