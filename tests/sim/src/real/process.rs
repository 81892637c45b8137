//! Processes that are killed, stopped and started again.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use watchet_test_util::ports::free_port;

/// How long a process may take to end after SIGTERM.
const END_MAX: Duration = Duration::from_secs(30);

/// A program with its arguments, which runs or not. It is killed when this is dropped.
pub(super) struct Process {
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// Returns a process that has not been started. Its output is appended to `log`.
    pub(super) fn new(program: &Path, arguments: Vec<String>, log: PathBuf) -> Self {
        Self {
            program: program.to_owned(),
            arguments,
            log,
            child: None,
        }
    }

    /// Starts the process unless it runs.
    pub(super) fn start(&mut self) -> io::Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        let log = File::options().append(true).create(true).open(&self.log)?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .env_remove("KUBECONFIG")
            .kill_on_drop(true)
            .spawn();
        let failed = |error| {
            let program = self.program.display();
            io::Error::other(format!("cannot start {program}: {error}"))
        };
        self.child = Some(child.map_err(failed)?);
        Ok(())
    }

    /// Sends a signal to the process, if it runs.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = self.child.as_ref().and_then(Child::id);
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        pid.map_or(Ok(()), |pid| Ok(kill_process(pid, signal)?))
    }

    /// Returns an error with the name of the log if the process has ended by itself.
    pub(super) fn check_running(&mut self) -> io::Result<()> {
        let ended = self.child.as_mut().map(Child::try_wait).transpose()?;
        match ended.flatten() {
            Some(status) => Err(io::Error::other(format!(
                "{}: {status}",
                self.log.display()
            ))),
            None => Ok(()),
        }
    }

    /// Kills the process, and waits for its end.
    pub(super) async fn kill(&mut self) -> io::Result<()> {
        match self.child.take() {
            Some(mut child) => child.kill().await,
            None => Ok(()),
        }
    }

    /// Ends the process by SIGTERM, and waits for its end.
    pub(super) async fn terminate(&mut self) -> io::Result<()> {
        self.signal(Signal::TERM)?;
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let status = timeout(END_MAX, child.wait()).await??;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "{}: {status}",
                self.log.display()
            ))),
        }
    }
}

/// Returns addresses with free ports.
pub(super) fn free_addresses(count: usize) -> Vec<SocketAddr> {
    let address = |_| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    (0..count).map(address).collect()
}
