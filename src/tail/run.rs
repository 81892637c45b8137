//! The subcommand: from its arguments to an informer that is followed until a signal, or until nobody
//! reads its lines.
//!
//! Exit codes: 0, it was ended; 1, it could not be followed; 2, wrong arguments.

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
use super::connection::Telling;
use super::line::Lines;
use super::output::{self, Teller};
use crate::informer::{
    ApiResource, Deleted, DynamicObject, HttpListerWatcher, InvalidRestConfig, Kubeconfig,
    KubeconfigError, ListParams, ListWatchOptions, Notification, ResourceClient,
    ResourceEventHandler, RestClient, RestConfig, RestConfigError, RestError, SharedInformer,
    UnknownResource,
};
use crate::tasks::{TaskFailed, Tasks};

/// How long the end may take.
const GRACE: Duration = Duration::from_secs(2);

/// How often the progress of the first list is looked at.
const PROGRESS: Duration = Duration::from_millis(250);

/// Why a resource cannot be followed.
#[derive(Debug, thiserror::Error)]
enum TailError {
    #[error(transparent)]
    Arguments(#[from] clap::Error),
    #[error(transparent)]
    Config(#[from] RestConfigError),
    #[error(transparent)]
    Client(#[from] InvalidRestConfig),
    #[error(transparent)]
    Unknown(#[from] UnknownResource),
    #[error("a resource cannot be retrieved by name across all namespaces")]
    NamedEverywhere,
    #[error("{0} cannot be followed: the server does not watch it")]
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

/// The grammar of `tail`.
pub fn command() -> Command {
    // The words come after the arguments: clap would take theirs from the type's own comment.
    TailArgs::augment_args(Command::new("tail"))
        .about(
            "Follow a resource of a Kubernetes server: a line for each change, with what changed",
        )
        .after_help(
            "  + it is new   ~ it changed   - it is gone\n\n\
             What was there before is not printed. The connection may be lost: what happened \
             meanwhile is told when it is back.\n\n  \
             watchet tail pods -A -l app=web\n  \
             watchet tail deployments.apps -n shop -o json | jq .changes",
        )
}

/// Runs what the matched arguments say.
pub fn main(matches: &ArgMatches) -> ExitCode {
    match run(matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell when stderr is gone; the exit code still says it.
            let _told = writeln!(
                io::stderr(),
                "watchet tail: {}",
                output::escaped(&error.to_string())
            );
            ExitCode::from(match error {
                TailError::Arguments(_) | TailError::Config(_) | TailError::Client(_) => 2,
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
    // The thread that writes may be blocked by a terminal that was stopped.
    runtime.shutdown_timeout(Duration::ZERO);
    result
}

async fn follow(args: TailArgs) -> Result<(), TailError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(TailError::Start)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(TailError::Start)?;
    let tasks = Tasks::new();
    // A signal comes first: whoever wants to end does not wait for what is being done.
    let ended = tokio::select! {
        biased;
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        ended = followed(args, &tasks) => ended,
    };
    if let Err(late) = tasks.drain(GRACE).await {
        tracing::debug!(%late, "not everything ended in time");
    }
    ended
}

/// Follows until nobody reads what is printed.
async fn followed(args: TailArgs, tasks: &Tasks) -> Result<(), TailError> {
    let client = connect(&args)?;
    let objects = find(&client, &args).await?;
    let teller = Teller::new();
    teller.tell(&headline(&objects));
    let options = ListWatchOptions {
        fields: args.fields(),
        labels: args.selector,
        ..ListWatchOptions::default()
    };
    let source = HttpListerWatcher::new(objects.clone(), options);
    let metrics = source.metrics();
    let source = Telling::new(source, teller.clone());
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
        .expect("it has not stopped");
    informer.start(tasks).expect("it is started once");
    let mut writing = tasks.spawn_blocking("stdout", || output::write(written, io::stdout()));
    let synced = async {
        let mut ticks = interval(PROGRESS);
        let progress = async {
            loop {
                ticks.tick().await;
                teller.progress(metrics.receiving());
            }
        };
        // The end comes first: then there is nothing to be drawn.
        tokio::select! {
            biased;
            synced = informer.wait_for_cache_sync() => {
                if synced.is_ok() {
                    teller.synced(informer.indexer().len());
                }
            }
            never = progress => never,
        }
        std::future::pending::<()>().await;
    };
    // The end of the pipe comes first; a failed task, which is a bug, before waiting on.
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
        (Some(path), _) => RestConfig::from_kubeconfig(&Kubeconfig::load(&[path])?, context)?,
        (None, Some(_)) => RestConfig::from_kubeconfig(&Kubeconfig::load_default()?, context)?,
        (None, None) => RestConfig::infer()?,
    };
    config.user_agent = concat!("watchet-tail/", env!("CARGO_PKG_VERSION")).to_owned();
    Ok(RestClient::new(&config)?)
}

/// The objects that are meant, once the server has shown that it has them and takes the selectors.
async fn find(
    client: &RestClient,
    args: &TailArgs,
) -> Result<ResourceClient<DynamicObject>, TailError> {
    let (resource, name) = args.named();
    // kubectl's words.
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

/// Makes lines of what it is told.
struct Printer {
    lines: mpsc::Sender<String>,
    form: Lines,
}

impl Printer {
    async fn print(&self, told: Notification<DynamicObject>) {
        match self.form.line(&told, Timestamp::now()) {
            Ok(Some(line)) => {
                // When nobody takes lines any more, this is about to end.
                let _taken = self.lines.send(line).await;
            }
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "an object cannot be printed"),
        }
    }
}

impl ResourceEventHandler<DynamicObject> for Printer {
    async fn on_add(&mut self, object: Arc<DynamicObject>, is_in_initial_list: bool) {
        let told = Notification::Added {
            object,
            is_in_initial_list,
        };
        self.print(told).await;
    }

    async fn on_update(&mut self, old: Arc<DynamicObject>, new: Arc<DynamicObject>) {
        self.print(Notification::Updated { old, new }).await;
    }

    async fn on_delete(&mut self, deleted: Deleted<DynamicObject>) {
        self.print(Notification::Deleted(deleted)).await;
    }
}
