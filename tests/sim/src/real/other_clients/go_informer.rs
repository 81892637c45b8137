//! An informer of client-go: the program `tests/go/faultinformer`, which prints a line for each notification.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use watchet_tasks::Tasks;

use super::SharedLog;
use crate::check::{NotificationKind, Object};

/// How long the program may take to end.
const END_MAX: Duration = Duration::from_secs(10);

/// A running program.
pub(super) struct GoInformer {
    child: Child,
    reader: JoinHandle<io::Result<()>>,
}

/// A line, which has one of these.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Line {
    listed: bool,
    added: Option<Object>,
    updated: Option<Object>,
    deleted: Option<Object>,
    unknown: Option<Object>,
    store: Option<Vec<Object>>,
}

impl GoInformer {
    /// Starts the program for the servers at `url`.
    pub(super) fn start(
        program: &Path,
        url: &str,
        log: SharedLog,
        tasks: &Tasks,
    ) -> io::Result<Self> {
        let child = Command::new(program)
            .args([url, "default"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let failed =
            |error| io::Error::other(format!("cannot start {}: {error}", program.display()));
        let mut child = child.map_err(failed)?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let reader = tasks.spawn("go-informer", read(output, log));
        Ok(Self { child, reader })
    }

    /// Ends the program after it has printed its store.
    pub(super) async fn stop(mut self) -> io::Result<()> {
        drop(self.child.stdin.take());
        let status = timeout(END_MAX, self.child.wait()).await??;
        timeout(END_MAX, self.reader).await???;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("the informer in Go: {status}"))),
        }
    }
}

/// Records the lines of `output`.
async fn read(output: ChildStdout, log: SharedLog) -> io::Result<()> {
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await? {
        let line: Line = serde_json::from_str(&line)?;
        if line.listed {
            log.listed();
        }
        let deleted = |object, is_final_state_unknown| NotificationKind::Deleted {
            object,
            is_final_state_unknown,
        };
        let notification = line
            .added
            .map(NotificationKind::Added)
            .or(line.updated.map(NotificationKind::Updated))
            .or(line.deleted.map(|object| deleted(object, false)))
            .or(line.unknown.map(|object| deleted(object, true)));
        if let Some(notification) = notification {
            log.notify(notification);
        }
        if let Some(store) = line.store {
            log.record_store(store);
        }
    }
    Ok(())
}
