//! Runs a test's server: in a thread with its own runtime and, unless one is given, its own
//! temporary directory.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::server::{EmbeddedServer, EmbeddedServerError};
use crate::tasks::{DrainTimeout, TaskFailed};
use crate::testing::manifests::{self, ManifestError};

/// The number of worker threads: one works while another waits for the disk.
const WORKERS: usize = 2;

/// How long blocked threads (e.g. on a disk that hangs) may delay the stop.
const BLOCKED_THREADS_MAX: Duration = Duration::from_secs(1);

/// Why a server for tests could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An option is invalid.
    #[error("{0}")]
    Config(String),
    /// The directory, the certificates, the storage or the port cannot be used.
    #[error("{0}")]
    Build(String),
    /// A thread, a runtime or the temporary directory cannot be created.
    #[error("cannot start a server: {0}")]
    Host(#[from] io::Error),
    /// A manifest cannot be applied.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The server failed before it was ready, which is a bug.
    #[error("the server has failed: {0}")]
    Failed(#[from] TaskFailed),
    /// The server ended without an error, which is a bug.
    #[error("the server ended before it was ready")]
    Vanished,
}

/// Why a server for tests did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// Some tasks were still running after the grace period and were aborted.
    #[error("the server did not stop in time: {0}")]
    Drain(#[from] DrainTimeout),
    /// The server had failed before, which is a bug.
    #[error("the server has failed: {0}")]
    Failed(#[from] TaskFailed),
    /// The directory cannot be removed.
    #[error("cannot remove {path:?}: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The thread panicked, which is a bug.
    #[error("the server's thread has panicked")]
    Panicked,
}

impl From<EmbeddedServerError> for StartError {
    fn from(error: EmbeddedServerError) -> Self {
        match error {
            EmbeddedServerError::Config(message) => Self::Config(message),
            EmbeddedServerError::Build(message) => Self::Build(message),
            EmbeddedServerError::Task(failed) => Self::Failed(failed),
        }
    }
}

/// The server to run.
#[derive(Debug)]
pub(super) struct ServerPlan {
    /// Settings by name; the last value of a name counts.
    pub(super) settings: Vec<(String, String)>,
    /// The text of the token file.
    pub(super) tokens: String,
    /// The initial objects.
    pub(super) manifests: Vec<Value>,
    /// The data directory; `None` for a temporary one.
    pub(super) data_dir: Option<PathBuf>,
}

/// A started server.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) url: String,
    pub(super) kubeconfig: String,
    pub(super) kubeconfig_path: PathBuf,
}

/// The thread of a server. Dropping this stops it without a grace period, and waits.
#[derive(Debug)]
pub(super) struct Host {
    /// Sending drains the server; dropping stops it without a grace period.
    stop: Option<oneshot::Sender<()>>,
    /// Closed when the thread is about to end.
    ended: oneshot::Receiver<()>,
    thread: Option<JoinHandle<Result<(), StopError>>>,
}

impl Host {
    /// Starts the thread and waits until the server is ready.
    pub(super) async fn start(plan: ServerPlan) -> Result<(Self, Started), StartError> {
        let (stop, stopped) = oneshot::channel();
        let (ended_guard, ended) = oneshot::channel();
        let (ready, started) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("watchet-testing".to_owned())
            .spawn(move || {
                let result = run(plan, ready, stopped);
                drop(ended_guard);
                result
            })?;
        let host = Self {
            stop: Some(stop),
            ended,
            thread: Some(thread),
        };
        let started = started.await.unwrap_or(Err(StartError::Vanished))?;
        Ok((host, started))
    }

    /// Drains the server and waits for the end of the thread.
    pub(super) async fn stop(mut self) -> Result<(), StopError> {
        if let Some(stop) = self.stop.take() {
            // The receiver was dropped if the server has failed; the thread returns the error.
            let _listens = stop.send(());
        }
        // Nothing is sent: the channel is closed.
        let _closed = (&mut self.ended).await;
        self.join()
    }

    fn join(&mut self) -> Result<(), StopError> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_panic)) => Err(StopError::Panicked),
            None => Ok(()),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop = None;
        if let Err(error) = self.join() {
            tracing::error!(%error, "a server for tests did not stop cleanly");
        }
    }
}

/// Runs the thread.
fn run(
    plan: ServerPlan,
    ready: oneshot::Sender<Result<Started, StartError>>,
    stopped: oneshot::Receiver<()>,
) -> Result<(), StopError> {
    let made = Directory::create(plan.data_dir.as_deref()).and_then(|directory| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime
            .worker_threads(WORKERS)
            .enable_all()
            .thread_name("watchet");
        Ok((directory, runtime.build()?))
    });
    let (directory, runtime) = match made {
        Ok(made) => made,
        Err(error) => {
            report(ready, Err(error.into()));
            return Ok(());
        }
    };
    let ended = runtime.block_on(serve(plan, directory.path(), ready, stopped));
    runtime.shutdown_timeout(BLOCKED_THREADS_MAX);
    ended.and(directory.remove())
}

/// Runs the server from start to end.
async fn serve(
    plan: ServerPlan,
    directory: &Path,
    ready: oneshot::Sender<Result<Started, StartError>>,
    mut stopped: oneshot::Receiver<()>,
) -> Result<(), StopError> {
    // Stopping comes first, so that it aborts the start.
    let begun = tokio::select! {
        biased;
        _ = &mut stopped => return Ok(()),
        begun = begin(plan, directory) => begun,
    };
    let server = match begun {
        Ok((server, started)) => {
            report(ready, Ok(started));
            server
        }
        Err(error) => {
            report(ready, Err(error));
            return Ok(());
        }
    };
    // Stopping comes first here too.
    let end = tokio::select! {
        biased;
        orderly = stopped => Ok(orderly.is_ok()),
        failed = server.failed() => Err(failed),
    };
    let grace = match end {
        Ok(true) => None,
        Ok(false) | Err(_) => Some(Duration::ZERO),
    };
    let drained = server.drain(grace).await;
    end?;
    Ok(drained?)
}

async fn begin(
    plan: ServerPlan,
    directory: &Path,
) -> Result<(EmbeddedServer, Started), StartError> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut settings = vec![("data-dir".to_owned(), text(directory))];
    if !plan.tokens.is_empty() {
        let path = directory.join("tokens.csv");
        write_private(&path, &plan.tokens)?;
        settings.push(("token-auth-file".to_owned(), text(&path)));
    }
    settings.extend(plan.settings);
    let server = EmbeddedServer::start(&settings).await?;
    manifests::load(server.router(), plan.manifests).await?;
    let started = Started {
        url: server.url(),
        kubeconfig: std::fs::read_to_string(server.kubeconfig())?,
        kubeconfig_path: server.kubeconfig().to_owned(),
    };
    Ok((server, started))
}

/// Reports the result of the start. The receiver may be dropped; then `stop` is dropped too.
fn report(
    ready: oneshot::Sender<Result<Started, StartError>>,
    result: Result<Started, StartError>,
) {
    let _waits = ready.send(result);
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// The data directory of a server.
enum Directory {
    /// It remains when the server ends.
    Persistent(PathBuf),
    Temporary(TempDir),
}

impl Directory {
    /// Uses the given directory, which is created if necessary, or creates a temporary one.
    fn create(given: Option<&Path>) -> io::Result<Self> {
        let Some(path) = given else {
            return Ok(Self::Temporary(TempDir::with_prefix("watchet-")?));
        };
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(path)?;
        Ok(Self::Persistent(path.to_owned()))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Persistent(path) => path,
            Self::Temporary(directory) => directory.path(),
        }
    }

    /// Removes it, if it is temporary.
    fn remove(self) -> Result<(), StopError> {
        match self {
            Self::Persistent(_) => Ok(()),
            Self::Temporary(directory) => {
                let path = directory.path().to_owned();
                let removed = directory.close();
                removed.map_err(|source| StopError::Directory { path, source })
            }
        }
    }
}
