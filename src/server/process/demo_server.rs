//! `watchet demo`: a server in a temporary directory, and a simulation that writes to it and watches it.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::demo::{DemoError, DemoOptions, Guide, Simulation};
use crate::server::process::announce::shell_word;
use crate::server::process::embedded_server::{EmbeddedServer, EmbeddedServerError};
use crate::server::process::signals::{EndSignal, Signals};
use crate::tasks::{DrainTimeout, TaskFailed};

/// The first part of the name of the temporary directory.
const DIRECTORY_PREFIX: &str = "watchet-demo-";

/// The settings of the server, other than its directory and port. The retention limits the disk space of the history: the
/// simulation writes about 400 KB of objects per second.
const SETTINGS: [(&str, &str); 3] = [
    ("bind-address", "127.0.0.1"),
    ("durability", "none"),
    ("history-retention", RETENTION),
];

/// How long past states are retained.
const RETENTION: &str = "5m";

/// The time limit for the tasks of the simulation, and for requests in progress.
const GRACE: Duration = Duration::from_secs(2);

/// Why the demonstration failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "documented by their sources")]
pub(super) enum DemoFailure {
    #[error("cannot start: {0}")]
    Start(io::Error),
    #[error("{0:?} is not UTF-8: set TMPDIR to another directory")]
    NotUtf8(PathBuf),
    #[error("{0}")]
    Server(String),
    #[error(transparent)]
    Demo(#[from] DemoError),
    #[error("{0}: this is a bug")]
    Task(#[from] TaskFailed),
    #[error("the shutdown did not complete in time: {0}")]
    Drain(#[from] DrainTimeout),
    #[error("cannot remove {path:?}: {source}")]
    Remove { path: PathBuf, source: io::Error },
    #[error("a second {0}: exiting without waiting")]
    SecondSignal(EndSignal),
}

impl From<EmbeddedServerError> for DemoFailure {
    fn from(error: EmbeddedServerError) -> Self {
        match error {
            EmbeddedServerError::Task(failed) => Self::Task(failed),
            // The errors name the flag of `serve`.
            EmbeddedServerError::Config(text) | EmbeddedServerError::Build(text) => {
                Self::Server(text.replace("--secure-port", "--port"))
            }
        }
    }
}

/// Runs the demonstration until a signal. `program` is the command with which the user runs this program.
///
/// # Errors
/// The server or the simulation cannot start, or has a bug; the directory cannot be removed.
pub(super) async fn run(options: &DemoOptions, program: &str) -> Result<(), DemoFailure> {
    let signals = Signals::listen(None).and_then(Signals::with_hangup);
    let mut signals = signals.map_err(DemoFailure::Start)?;
    // The commands that are printed may be executed in another working directory.
    let parent = std::path::absolute(std::env::temp_dir()).map_err(DemoFailure::Start)?;
    let directory = TempDir::with_prefix_in(DIRECTORY_PREFIX, parent);
    let directory = directory.map_err(DemoFailure::Start)?;
    let mut settings: Vec<(String, String)> = SETTINGS
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .to_vec();
    let Some(data_dir) = directory.path().to_str() else {
        return Err(DemoFailure::NotUtf8(directory.path().to_owned()));
    };
    settings.push(("data-dir".to_owned(), data_dir.to_owned()));
    settings.push(("secure-port".to_owned(), options.port.to_string()));
    // A signal comes first, so that it aborts the start.
    let ended = tokio::select! {
        biased;
        _ = signals.next() => Ok(()),
        server = EmbeddedServer::start(&settings) => {
            serve(server?, options, program, &mut signals).await
        }
    };
    let path = directory.path().to_owned();
    let removed = match directory.close() {
        Ok(()) => {
            print(&format!("Removed {}\n", path.display()));
            Ok(())
        }
        Err(source) => Err(DemoFailure::Remove { path, source }),
    };
    ended.and(removed)
}

/// Runs the simulation on the server until a signal, and stops both.
async fn serve(
    server: EmbeddedServer,
    options: &DemoOptions,
    program: &str,
    signals: &mut Signals,
) -> Result<(), DemoFailure> {
    print(&format!("Creating {} pods ...\n", options.pods));
    // A signal comes first, so that it aborts the start.
    let started = tokio::select! {
        biased;
        _ = signals.next() => None,
        started = Simulation::start(server.kubeconfig(), options) => Some(started),
    };
    let simulation = started.transpose();
    let ended = match &simulation {
        Ok(Some(simulation)) => {
            print_guide(&server, options, program);
            // A signal comes first, so that the exit code is that of success.
            tokio::select! {
                biased;
                _ = signals.next() => Ok(()),
                failed = server.failed() => Err(failed.into()),
                failed = simulation.show_progress() => Err(failed.into()),
            }
        }
        Ok(None) | Err(_) => Ok(()),
    };
    print("Stopping ...\n");
    let stop = async {
        let stopped = match simulation {
            Ok(Some(simulation)) => simulation.stop(GRACE).await.map_err(DemoFailure::from),
            Ok(None) => Ok(()),
            Err(error) => Err(error.into()),
        };
        let drained = server.drain(Some(GRACE)).await;
        stopped.and(drained.map_err(DemoFailure::from))
    };
    // A second signal comes first: it aborts the drain.
    let stopped = tokio::select! {
        biased;
        signal = signals.next() => Err(DemoFailure::SecondSignal(signal)),
        stopped = stop => stopped,
    };
    ended.and(stopped)
}

fn print_guide(server: &EmbeddedServer, options: &DemoOptions, program: &str) {
    let console = server.console_link();
    let guide = Guide {
        options,
        program: &shell_word(program),
        kubeconfig: &shell_word(&server.kubeconfig().to_string_lossy()),
        console: console.as_deref(),
        retention: RETENTION,
    };
    print(&guide.to_string());
}

/// Prints a text. A closed stdout does not stop the demonstration.
fn print(text: &str) {
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = printed {
        tracing::debug!(%error, "cannot print");
    }
}
