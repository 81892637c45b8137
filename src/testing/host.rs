//! Where a test's server runs: a thread with a runtime and, unless one was given, a directory of its
//! own. They end together, in that order. What is asked of the server is not known here.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;

use super::manifests::{self, ManifestError};
use crate::server::{Within, WithinError};
use crate::tasks::{DrainTimeout, TaskFailed};

/// Threads of a server: one that works while another waits for the disk.
const WORKERS: usize = 2;

/// How long a disk that does not answer may hold up the end.
const BLOCKED_THREADS_MAX: Duration = Duration::from_secs(1);

/// A server for tests could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An option is wrong.
    #[error("{0}")]
    Config(String),
    /// The directory, the certificates, the storage or the port cannot be used.
    #[error("{0}")]
    Build(String),
    /// No thread, no runtime or no directory of its own.
    #[error("cannot start a server: {0}")]
    Host(#[from] io::Error),
    /// The objects that it was to begin with.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// It failed before it was ready, which is a bug.
    #[error("the server has failed: {0}")]
    Failed(#[from] TaskFailed),
    /// It ended without a word, which is a bug.
    #[error("the server ended before it was ready")]
    Vanished,
}

/// A server for tests did not end as it should.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// Something still ran after the grace period; it was cut off.
    #[error("not everything ended in time: {0}")]
    Drain(#[from] DrainTimeout),
    /// It had failed long before, which is a bug.
    #[error("the server has failed: {0}")]
    Failed(#[from] TaskFailed),
    /// Its directory cannot be removed.
    #[error("cannot remove {path:?}: {source}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its thread panicked, which is a bug.
    #[error("the server's thread has panicked")]
    Panicked,
}

impl From<WithinError> for StartError {
    fn from(error: WithinError) -> Self {
        match error {
            WithinError::Config(message) => Self::Config(message),
            WithinError::Build(message) => Self::Build(message),
            WithinError::Task(failed) => Self::Failed(failed),
        }
    }
}

/// What is to run.
#[derive(Debug)]
pub(super) struct Plan {
    /// Settings by name; of two the later counts.
    pub(super) settings: Vec<(String, String)>,
    /// A token file's text.
    pub(super) tokens: String,
    /// What to begin with.
    pub(super) manifests: Vec<Value>,
    /// Instead of a directory of its own.
    pub(super) data_dir: Option<PathBuf>,
}

/// What runs.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) url: String,
    pub(super) kubeconfig: String,
    pub(super) kubeconfig_path: PathBuf,
}

/// The thread. Dropping this ends it without grace, and waits for that.
#[derive(Debug)]
pub(super) struct Host {
    /// Sent to: end in order. Dropped: end at once.
    stop: Option<oneshot::Sender<()>>,
    /// Dropped by the thread when nothing is left to do.
    ended: oneshot::Receiver<()>,
    thread: Option<JoinHandle<Result<(), StopError>>>,
}

impl Host {
    /// Starts the thread and waits until its server is ready.
    pub(super) async fn start(plan: Plan) -> Result<(Self, Started), StartError> {
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

    /// Ends the server in order and waits for that.
    pub(super) async fn stop(mut self) -> Result<(), StopError> {
        if let Some(stop) = self.stop.take() {
            // A server that has failed does not listen any more; its thread says so.
            let _listens = stop.send(());
        }
        // Nothing is ever sent: the other end goes.
        let _gone = (&mut self.ended).await;
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
            tracing::error!(%error, "a server for tests did not end well");
        }
    }
}

/// The thread: everything that a server needs, from the first to the last.
fn run(
    plan: Plan,
    ready: oneshot::Sender<Result<Started, StartError>>,
    stopped: oneshot::Receiver<()>,
) -> Result<(), StopError> {
    let made = Directory::make(plan.data_dir.as_deref()).and_then(|directory| {
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
            tell(ready, Err(error.into()));
            return Ok(());
        }
    };
    let ended = runtime.block_on(serve(plan, &directory.path, ready, stopped));
    runtime.shutdown_timeout(BLOCKED_THREADS_MAX);
    ended.and(directory.remove())
}

/// From the start of the server to its end.
async fn serve(
    plan: Plan,
    directory: &Path,
    ready: oneshot::Sender<Result<Started, StartError>>,
    mut stopped: oneshot::Receiver<()>,
) -> Result<(), StopError> {
    // Stopping comes first: whoever no longer waits for the server does not want it started.
    let begun = tokio::select! {
        biased;
        _ = &mut stopped => return Ok(()),
        begun = begin(plan, directory) => begun,
    };
    let server = match begun {
        Ok((server, started)) => {
            tell(ready, Ok(started));
            server
        }
        Err(error) => {
            tell(ready, Err(error));
            return Ok(());
        }
    };
    // Stopping comes first here too: that is the end that was asked for.
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

async fn begin(plan: Plan, directory: &Path) -> Result<(Within, Started), StartError> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut settings = vec![("data-dir".to_owned(), text(directory))];
    if !plan.tokens.is_empty() {
        let path = directory.join("tokens.csv");
        write_private(&path, &plan.tokens)?;
        settings.push(("token-auth-file".to_owned(), text(&path)));
    }
    settings.extend(plan.settings);
    let server = Within::start(&settings).await?;
    manifests::load(server.router(), plan.manifests).await?;
    let started = Started {
        url: server.url(),
        kubeconfig: std::fs::read_to_string(server.kubeconfig())?,
        kubeconfig_path: server.kubeconfig().to_owned(),
    };
    Ok((server, started))
}

/// Nobody may wait any more; then the other end has been dropped, which is a reason to stop.
fn tell(ready: oneshot::Sender<Result<Started, StartError>>, result: Result<Started, StartError>) {
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

/// A server's directory; its own one goes with this.
struct Directory {
    path: PathBuf,
    own: bool,
}

impl Directory {
    /// The given one, made if need be, or one of its own among the temporary files.
    fn make(given: Option<&Path>) -> io::Result<Self> {
        let path = match given {
            Some(path) => path.to_owned(),
            None => std::env::temp_dir().join(format!("watchet-{}", uuid::Uuid::new_v4())),
        };
        let mut builder = std::fs::DirBuilder::new();
        // One of its own must be new: what is already there is somebody else's.
        builder
            .recursive(given.is_some())
            .mode(0o700)
            .create(&path)?;
        let own = given.is_none();
        Ok(Self { path, own })
    }

    fn remove(mut self) -> Result<(), StopError> {
        match std::mem::take(&mut self.own) {
            true => std::fs::remove_dir_all(&self.path).map_err(|source| StopError::Directory {
                path: self.path.clone(),
                source,
            }),
            false => Ok(()),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Only after a panic: otherwise it was removed, or is not ours.
        if self.own
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            tracing::error!(path = %self.path.display(), %error, "cannot remove a directory");
        }
    }
}
