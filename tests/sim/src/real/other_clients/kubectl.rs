//! kubectl: creates, replaces, reads and deletes a config map, again and again.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::sleep;

use crate::check::{Content, Failure, Outcome, ReadVersion, Request};
use crate::client::{Client, Document, config_map, key};

/// The name of the object, which no other client writes.
const NAME: &str = "kubectl";

/// The time before a command that failed is repeated.
const RETRY: Duration = Duration::from_millis(500);

/// How often a command that failed is repeated. An outage of 10 s and its end are shorter than these.
const RETRIES: usize = 3;

/// The index of the server in the history: the balancer decides it.
const SERVER: u32 = 0;

/// Counts commands. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct KubectlCount(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    commands: AtomicUsize,
    failed: AtomicUsize,
    failed_again: AtomicUsize,
}

impl KubectlCount {
    /// Returns the number of commands.
    pub(in super::super) fn commands(&self) -> usize {
        self.0.commands.load(Ordering::Relaxed)
    }

    /// Returns the number of commands that failed at first.
    pub(in super::super) fn failed(&self) -> usize {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// Returns the number of commands that failed as often as they were repeated.
    pub(in super::super) fn failed_again(&self) -> usize {
        self.0.failed_again.load(Ordering::Relaxed)
    }
}

/// Runs commands until the task ends.
pub(super) async fn run(program: PathBuf, url: String, client: Client, count: KubectlCount) {
    let kubectl = Kubectl {
        program,
        url,
        client,
        count,
    };
    loop {
        let content = |value| Content {
            value,
            labels: [("app".to_owned(), "web".to_owned())].into(),
        };
        let value = kubectl.client.recorder.value();
        let create = Request::Create {
            key: key(NAME),
            content: content(value),
        };
        kubectl.repeat(&create).await;
        let value = kubectl.client.recorder.value();
        let update = Request::Update {
            key: key(NAME),
            content: content(value),
            precondition: None,
        };
        kubectl.repeat(&update).await;
        let get = Request::Get {
            key: key(NAME),
            version: ReadVersion::Consistent,
        };
        kubectl.repeat(&get).await;
        let delete = Request::Delete {
            key: key(NAME),
            precondition: None,
        };
        kubectl.repeat(&delete).await;
    }
}

struct Kubectl {
    program: PathBuf,
    url: String,
    client: Client,
    count: KubectlCount,
}

impl Kubectl {
    /// Runs the command of `request` until it succeeds, at most [`RETRIES`] times more.
    async fn repeat(&self, request: &Request) {
        self.count.0.commands.fetch_add(1, Ordering::Relaxed);
        for attempt in 0..=RETRIES {
            if self.run(request, attempt > 0).await {
                return;
            }
            if attempt == 0 {
                self.count.0.failed.fetch_add(1, Ordering::Relaxed);
            }
            sleep(RETRY).await;
        }
        self.count.0.failed_again.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs the command of `request`. Returns true if it has succeeded, or if an earlier attempt had, although it failed.
    async fn run(&self, request: &Request, is_repeated: bool) -> bool {
        let recorder = &self.client.recorder;
        let id = recorder.call(&self.client, SERVER, request.clone());
        let (arguments, input): (&[&str], _) = match request {
            Request::Create { content, .. } => (
                &["create", "-f", "-", "-o", "json"],
                config_map(NAME, content),
            ),
            Request::Update { content, .. } => (
                &["replace", "-f", "-", "-o", "json"],
                config_map(NAME, content),
            ),
            Request::Delete { .. } => (
                &["delete", "configmap", NAME, "--wait=false"],
                String::new(),
            ),
            _ => (&["get", "configmap", NAME, "-o", "json"], String::new()),
        };
        let (output, error) = match execute(&self.program, &self.url, arguments, input).await {
            Ok(output) => output,
            Err(error) => (None, error.to_string()),
        };
        let read = || {
            output
                .as_deref()
                .and_then(|text| serde_json::from_str(text).ok())
        };
        let outcome = match (request, &output) {
            (Request::Delete { .. }, Some(_)) => Outcome::Deleted { revision: None },
            (Request::Get { .. }, Some(_)) => read().map_or(Outcome::Unknown, |read: Document| {
                Outcome::Found(read.object())
            }),
            (_, Some(_)) => read().map_or(Outcome::Unknown, |read: Document| Outcome::Written {
                revision: read.revision(),
            }),
            (Request::Get { .. }, None) if error.contains("(NotFound)") => {
                Outcome::Failed(Failure::NotFound)
            }
            // kubectl repeats requests itself, so that even a definite error can be that of a repetition.
            (_, None) => Outcome::Unknown,
        };
        recorder.returned(id, outcome);
        if output.is_some() {
            return true;
        }
        tracing::info!(?request, error, "kubectl failed");
        // What an earlier attempt has done.
        is_repeated
            && match request {
                Request::Create { .. } => error.contains("AlreadyExists"),
                Request::Delete { .. } => error.contains("NotFound"),
                _ => false,
            }
    }
}

/// Returns the output of kubectl if it succeeds, and its errors.
async fn execute(
    program: &Path,
    url: &str,
    arguments: &[&str],
    input: String,
) -> std::io::Result<(Option<String>, String)> {
    let mut child = Command::new(program)
        .args(["--server", url, "--namespace", "default"])
        .args(["--request-timeout", "15s"])
        .args(arguments)
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).await?;
    }
    let output = child.wait_with_output().await?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status.success().then_some(text), error))
}
