//! `watchet top`: the open watches and the watch caches of a server, as a live terminal view or as text.
//!
//! ```text
//! SharedInformer of watchers or watchcaches ─▶ Model ─▶ lines ─▶ Terminal
//!                               keys (a thread) ─▶ │
//!                                                  └─▶ DELETE of a watcher
//! ```

mod columns;
mod model;
mod screen;
mod terminal;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::args::ServerArgs;
use super::error::CliError;
use super::output;
use columns::View;
use model::{Action, Model};
use screen::Size;
use terminal::{Input, Terminal};
use watchet_api::ResourceVersion;
use watchet_client::{
    DynamicObject, HttpListerWatcher, ListParams, ListWatchOptions, ResourceClient, RestClient,
    SharedInformer,
};
use watchet_reflector::SourceError;
use watchet_tasks::Tasks;

/// How often the screen is drawn: the server updates the objects about once per second.
const REFRESH: Duration = Duration::from_secs(1);

/// The time limit for the first objects.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit of the tasks of the informers at the end.
const GRACE: Duration = Duration::from_secs(1);

/// The arguments.
#[derive(Debug, Clone, Args)]
pub(crate) struct TopArgs {
    /// Show the watch caches instead of the watchers; Tab changes the view
    #[arg(long)]
    caches: bool,
    /// Column to sort by, e.g. lag [default: events, or objects of caches]
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Print the table once, without a terminal
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command.
pub(crate) async fn run(args: TopArgs) -> Result<(), CliError> {
    let view = match args.caches {
        true => View::Caches,
        false => View::Watchers,
    };
    let sort = args.sort.as_deref().map(|title| {
        view.column(title).ok_or_else(|| {
            let titles = view
                .columns()
                .iter()
                .map(|column| column.title.to_lowercase());
            CliError::Value {
                argument: "--sort",
                problem: format!(
                    "{title:?} is not one of {}",
                    titles.collect::<Vec<_>>().join(", ")
                ),
            }
        })
    });
    let sort = sort.transpose()?;
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !args.once && !is_terminal {
        return Err(CliError::Value {
            argument: "--once",
            problem: "is needed, because stdin or stdout is not a terminal".to_owned(),
        });
    }
    let client = args.server.connect()?;
    let mut model = Model::new(view, sort);
    let resources = Resources::discover(&client).await?;
    if args.once {
        let list = resources.of(view).list(&ListParams::default()).await?;
        let items = list.items.iter();
        model.set_objects(
            items
                .filter_map(|item| serde_json::to_value(item).ok())
                .collect(),
        );
        return output::print(&screen::text(&model, Timestamp::now()));
    }
    let tasks = Tasks::new();
    let ended = show(&resources, &mut model, client.server(), &tasks).await;
    if tasks.drain(GRACE).await.is_err() {
        output::note("top", "the connections did not end in time");
    }
    ended
}

/// Clients of the two resources.
struct Resources {
    watchers: ResourceClient<DynamicObject>,
    caches: ResourceClient<DynamicObject>,
}

impl Resources {
    async fn discover(client: &RestClient) -> Result<Self, CliError> {
        let discovery = client.discover().await?;
        let find = |view: View| {
            let name = format!("{}.watchet.dev", view.resource());
            let resource = discovery.resolve(&name).map_err(|_| {
                CliError::Missing(format!(
                    "{} does not serve {name}: it is not watchet, or an older version",
                    client.server()
                ))
            });
            Ok::<_, CliError>(client.resource(resource?))
        };
        Ok(Self {
            watchers: find(View::Watchers)?,
            caches: find(View::Caches)?,
        })
    }

    fn of(&self, view: View) -> &ResourceClient<DynamicObject> {
        match view {
            View::Watchers => &self.watchers,
            View::Caches => &self.caches,
        }
    }
}

/// Shows the view until the user quits or a signal arrives.
async fn show(
    resources: &Resources,
    model: &mut Model,
    server: &str,
    tasks: &Tasks,
) -> Result<(), CliError> {
    let sources =
        [View::Watchers, View::Caches].map(|view| Source::start(resources.of(view), tasks));
    // The view shows a server that does not respond, so this is no error.
    let _synced = timeout(
        SYNC_TIMEOUT,
        sources[model.view as usize].informer.wait_for_cache_sync(),
    )
    .await;
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::Start)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(CliError::Start)?;
    // Of another process: Ctrl-C is a key.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::Start)?;
    let mut terminal = Terminal::enter().map_err(CliError::Start)?;
    let (sender, mut inputs) = terminal::inputs();
    let mut reading = tasks.spawn_blocking("keys", move || terminal::read(&sender));
    let mut refresh = interval(REFRESH);
    refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let source = &sources[model.view as usize];
        model.set_objects(source.objects());
        model.disconnected = source.failure();
        let size = terminal.size();
        draw(&mut terminal, model, server, size)?;
        // A signal comes first, then a terminal that cannot be read, then keys, so that the view reacts while objects change.
        let action = tokio::select! {
            biased;
            _ = terminate.recv() => Action::Quit,
            _ = hang_up.recv() => Action::Quit,
            _ = interrupt.recv() => Action::Quit,
            ended = &mut reading => return match ended {
                Ok(Err(error)) => Err(CliError::Print(error)),
                _ => Ok(()),
            },
            Some(input) = inputs.recv() => match input {
                Input::Key(key) => model.key(key, Timestamp::now(), size.page()),
                Input::Resized => Action::Draw,
            },
            _ = refresh.tick() => Action::Draw,
        };
        match action {
            Action::Draw => {}
            Action::Quit => return Ok(()),
            Action::End(watcher) => {
                let ended = resources
                    .watchers
                    .delete(&watcher, &Default::default())
                    .await;
                model.message = match ended {
                    Ok(()) => format!("{watcher} was ended"),
                    Err(error) => format!("{watcher} was not ended: {error}"),
                };
            }
        }
    }
}

fn draw(terminal: &mut Terminal, model: &Model, server: &str, size: Size) -> Result<(), CliError> {
    let lines = screen::lines(model, server, size, Timestamp::now());
    terminal.draw(&lines).map_err(CliError::Print)
}

/// The objects of a view.
struct Source {
    informer: SharedInformer<DynamicObject>,
    failure: Arc<Mutex<Option<Failure>>>,
}

/// A list or watch that failed.
struct Failure {
    /// The version of the objects at the time.
    at: ResourceVersion,
    error: String,
}

impl Source {
    /// Starts to follow the objects in tasks of `tasks`.
    fn start(objects: &ResourceClient<DynamicObject>, tasks: &Tasks) -> Self {
        let source = HttpListerWatcher::new(objects.clone(), ListWatchOptions::default());
        let name = objects.resource().to_string();
        let metrics = source.metrics();
        let informer = SharedInformer::<DynamicObject>::new(&name, source, Duration::ZERO);
        let failure = Arc::new(Mutex::new(None));
        let record = {
            let failure = failure.clone();
            move |error: &SourceError| {
                *failure.lock() = Some(Failure {
                    at: metrics.last_sync_resource_version(),
                    error: error.to_string(),
                });
            }
        };
        let set = informer.set_watch_error_handler(record);
        set.expect("the informer has not started");
        informer.start(tasks).expect("the informer is started once");
        Self { informer, failure }
    }

    fn objects(&self) -> Vec<Value> {
        let objects = self.informer.indexer().list();
        let value = |object: &Arc<DynamicObject>| serde_json::to_value(&**object).ok();
        objects.iter().filter_map(value).collect()
    }

    /// Returns the error of the last list or watch, if nothing was received since.
    fn failure(&self) -> Option<String> {
        let failure = self.failure.lock();
        let failure = failure.as_ref()?;
        let at = self.informer.last_sync_resource_version();
        let is_current = at.is_none_or(|at| at == failure.at);
        is_current.then(|| failure.error.clone())
    }
}
