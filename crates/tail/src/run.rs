//! Runs `watchet tail`: from the arguments to an informer that runs until a signal, or until the
//! reader of its output closes the pipe.
//!
//! Exit codes: 0, ended by a signal or by the reader; 1, failure; 2, invalid arguments.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::interval;

use super::args::TailArgs;
use super::connection::ReportingSource;
use super::line::Lines;
use super::output::{self, StatusReporter};
use watchet_client::{
    ApiResource, Deleted, DynamicObject, HttpListerWatcher, InvalidRestConfig, Kubeconfig,
    KubeconfigError, ListParams, ListWatchOptions, Notification, ResourceClient,
    ResourceEventHandler, RestClient, RestConfig, RestConfigError, RestError, SharedInformer,
    UnknownResource,
};
use watchet_tasks::{TaskFailed, Tasks};

/// The time limit of the shutdown.
const GRACE: Duration = Duration::from_secs(2);

/// How often the progress of the first list is polled.
const PROGRESS: Duration = Duration::from_millis(250);

/// Why a resource cannot be followed.
#[derive(Debug, thiserror::Error)]
enum TailError {
    #[error(transparent)]
    Arguments(#[from] clap::Error),
    #[error(transparent)]
    Config(#[from] RestConfigError),
    #[error(
        "--kubeconfig {error}; name the kubeconfig of the server, or omit the flag to use $KUBECONFIG or ~/.kube/config"
    )]
    Kubeconfig { error: KubeconfigError },
    #[error(transparent)]
    Client(#[from] InvalidRestConfig),
    #[error(transparent)]
    Unknown(#[from] UnknownResource),
    #[error("a resource cannot be retrieved by name across all namespaces")]
    NamedEverywhere,
    #[error("{0} cannot be followed: the server does not support watches of it")]
    Unwatched(ApiResource),
    #[error(transparent)]
    Refused(#[from] RestError),
    #[error("cannot start: {0}")]
    Start(io::Error),
    #[error("cannot print: {0}")]
    Print(io::Error),
    #[error("{0}: this is a bug")]
    Task(#[from] TaskFailed),
}

impl From<KubeconfigError> for TailError {
    fn from(error: KubeconfigError) -> Self {
        Self::Config(error.into())
    }
}

/// Returns the command line of `tail`.
pub fn command() -> Command {
    // Set after the arguments: clap would use the doc comment of the type instead.
    TailArgs::augment_args(Command::new("tail"))
        .about(
            "Follow a resource of a Kubernetes server: one line per change, with the changed fields",
        )
        .after_help(
            "  + created   ~ updated   - deleted\n\n\
                          Objects that already exist are not printed. After a lost connection, changes that \
                          happened meanwhile are printed when it is restored.\n\n  \
             watchet tail pods -A -l app=web\n  \
             watchet tail deployments.apps -n shop -o json | jq .changes",
        )
}

/// Runs the subcommand with the parsed arguments.
pub fn main(matches: &ArgMatches) -> ExitCode {
    match run(matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If stderr is closed, the exit code still reports the failure.
            let _written = writeln!(
                io::stderr(),
                "watchet tail: {}",
                output::escaped(&error.to_string())
            );
            ExitCode::from(match error {
                TailError::Arguments(_)
                | TailError::Config(_)
                | TailError::Kubeconfig { .. }
                | TailError::Client(_) => 2,
                _ => 1,
            })
        }
    }
}

fn run(matches: &ArgMatches) -> Result<(), TailError> {
    let args = TailArgs::from_arg_matches(matches)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("watchet")
        .build()
        .map_err(TailError::Start)?;
    let result = runtime.block_on(follow(args));
    // The writing thread may be blocked by a stopped terminal.
    runtime.shutdown_timeout(Duration::ZERO);
    result
}

async fn follow(args: TailArgs) -> Result<(), TailError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(TailError::Start)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(TailError::Start)?;
    let tasks = Tasks::new();
    // A signal comes first: the shutdown does not wait for work in progress.
    let ended = tokio::select! {
        biased;
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        ended = followed(args, &tasks) => ended,
    };
    if let Err(late) = tasks.drain(GRACE).await {
        tracing::debug!(%late, "tasks did not end in time");
    }
    ended
}

/// Follows until the reader of the output closes the pipe.
async fn followed(args: TailArgs, tasks: &Tasks) -> Result<(), TailError> {
    let client = connect(&args)?;
    let objects = find(&client, &args).await?;
    let reporter = StatusReporter::new();
    reporter.print(&headline(&objects));
    let options = ListWatchOptions {
        fields: args.fields(),
        labels: args.selector,
        ..ListWatchOptions::default()
    };
    let source = HttpListerWatcher::new(objects.clone(), options);
    let metrics = source.metrics();
    let source = ReportingSource::new(source, reporter.clone());
    let resource = objects.resource().to_string();
    let informer = SharedInformer::<DynamicObject>::new(&resource, source, Duration::ZERO);
    let (lines, written) = output::queue();
    let printer = Printer {
        lines,
        form: Lines {
            form: args.output.unwrap_or_default(),
            colours: output::colours(),
            zone: TimeZone::system(),
        },
    };
    informer
        .add_event_handler(printer)
        .expect("the informer has not stopped");
    informer.start(tasks).expect("the informer is started once");
    let mut writing = tasks.spawn_blocking("stdout", || output::write(written, io::stdout()));
    let synced = async {
        let mut ticks = interval(PROGRESS);
        let progress = async {
            loop {
                ticks.tick().await;
                reporter.progress(metrics.receiving());
            }
        };
        // The sync comes first: after it the progress is not needed.
        tokio::select! {
            biased;
            synced = informer.wait_for_cache_sync() => {
                if synced.is_ok() {
                    reporter.synced(informer.indexer().len());
                }
            }
            never = progress => never,
        }
        std::future::pending::<()>().await;
    };
    // The closed pipe comes first, then a failed task, which is a bug.
    tokio::select! {
        biased;
        ended = &mut writing => match ended {
            Ok(ended) => ended.map_err(TailError::Print),
            Err(_panic) => Err(tasks.failed().await.into()),
        },
        failed = tasks.failed() => Err(failed.into()),
        () = synced => Ok(()),
    }
}

fn connect(args: &TailArgs) -> Result<RestClient, TailError> {
    let context = args.context.as_deref();
    let mut config = match (&args.kubeconfig, context) {
        (Some(path), _) => {
            let kubeconfig = Kubeconfig::load(&[path]);
            let kubeconfig = kubeconfig.map_err(|error| TailError::Kubeconfig { error })?;
            RestConfig::from_kubeconfig(&kubeconfig, context)?
        }
        (None, Some(_)) => RestConfig::from_kubeconfig(&Kubeconfig::load_default()?, context)?,
        (None, None) => RestConfig::infer()?,
    };
    config.user_agent = concat!("watchet-tail/", env!("CARGO_PKG_VERSION")).to_owned();
    Ok(RestClient::new(&config)?)
}

/// Returns a client of the objects to follow. Lists one object first, to check that the server
/// serves the resource and accepts the selectors.
async fn find(
    client: &RestClient,
    args: &TailArgs,
) -> Result<ResourceClient<DynamicObject>, TailError> {
    let (resource, name) = args.named();
    // kubectl's message.
    if name.is_some() && args.all_namespaces {
        return Err(TailError::NamedEverywhere);
    }
    let discovery = client.discover().await?;
    let resource = discovery.resolve(resource)?;
    if !discovery.resources().any(|followed| *followed == resource) {
        return Err(TailError::Unwatched(resource));
    }
    let objects = client.resource::<DynamicObject>(resource);
    let objects = match (args.all_namespaces, &args.namespace) {
        (true, _) => objects,
        (false, Some(namespace)) => objects.namespace(namespace),
        (false, None) => objects.namespace(client.default_namespace()),
    };
    let few = ListParams {
        labels: args.selector.clone(),
        fields: args.fields(),
        limit: Some(1),
        ..ListParams::default()
    };
    objects.list(&few).await?;
    Ok(objects)
}

fn headline(objects: &ResourceClient<DynamicObject>) -> String {
    let place = match objects.only_namespace() {
        Some(namespace) => format!(" in namespace {namespace}"),
        None if objects.resource().namespaced => " in all namespaces".to_owned(),
        None => String::new(),
    };
    format!(
        "following {}{place} of {}",
        objects.resource(),
        objects.client().server()
    )
}

/// Prints a line per notification.
struct Printer {
    lines: mpsc::Sender<String>,
    form: Lines,
}

impl Printer {
    async fn print(&self, notification: Notification<DynamicObject>) {
        match self.form.line(&notification, Timestamp::now()) {
            Ok(Some(line)) => {
                // If the receiver is closed, the program is about to end.
                let _sent = self.lines.send(line).await;
            }
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "cannot format an object"),
        }
    }
}

impl ResourceEventHandler<DynamicObject> for Printer {
    async fn on_add(&mut self, object: Arc<DynamicObject>, is_in_initial_list: bool) {
        let notification = Notification::Added {
            object,
            is_in_initial_list,
        };
        self.print(notification).await;
    }

    async fn on_update(&mut self, old: Arc<DynamicObject>, new: Arc<DynamicObject>) {
        self.print(Notification::Updated { old, new }).await;
    }

    async fn on_delete(&mut self, deleted: Deleted<DynamicObject>) {
        self.print(Notification::Deleted(deleted)).await;
    }
}
