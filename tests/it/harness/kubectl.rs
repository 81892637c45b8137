//! The real kubectl as a fixture. No case is here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::PATIENCE;

/// kubectl with a kubeconfig and a cache directory of its own.
pub(crate) struct Kubectl {
    kubeconfig: PathBuf,
    home: tempfile::TempDir,
    environment: Vec<(&'static str, OsString)>,
}

/// A kubectl that goes on, such as `get -w`. It is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Kubectl {
    pub(crate) fn new(kubeconfig: &Path) -> Self {
        Self {
            kubeconfig: kubeconfig.to_owned(),
            home: tempfile::tempdir().expect("a temporary directory"),
            environment: Vec::new(),
        }
    }

    /// With this variable in its environment, besides.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    fn command(&self, args: &[&str]) -> Command {
        let binary = std::env::var_os("WATCHET_TEST_KUBECTL").unwrap_or_else(|| "kubectl".into());
        let mut command = Command::new(binary);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .args(args)
            .kill_on_drop(true);
        command
    }

    /// Runs it; its output, when it succeeds.
    pub(crate) async fn run(&self, args: &[&str]) -> String {
        self.run_with(args, "").await
    }

    /// Runs it with this input.
    pub(crate) async fn run_with(&self, args: &[&str], input: &str) -> String {
        self.try_with(args, input)
            .await
            .unwrap_or_else(|error| panic!("kubectl {args:?}: {error}"))
    }

    /// Runs it; what it says on stderr when it fails.
    pub(crate) async fn run_failing(&self, args: &[&str]) -> String {
        match self.try_with(args, "").await {
            Ok(output) => panic!("kubectl {args:?} succeeds: {output}"),
            Err(error) => error,
        }
    }

    async fn try_with(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("these tests need a kubectl: set WATCHET_TEST_KUBECTL or run scripts/test");
        let mut stdin = child.stdin.take().expect("stdin is a pipe");
        stdin.write_all(input.as_bytes()).await.expect("it reads");
        drop(stdin);
        let output = timeout(PATIENCE, child.wait_with_output()).await;
        let output = output
            .unwrap_or_else(|_| panic!("kubectl {args:?} does not end"))
            .expect("its own child");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// Starts one whose lines are read as they come.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let mut child = self
            .command(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("these tests need a kubectl: set WATCHET_TEST_KUBECTL or run scripts/test");
        let stdout = child.stdout.take().expect("stdout is a pipe");
        Running {
            child,
            lines: BufReader::new(stdout).lines(),
        }
    }
}

impl Running {
    /// Its next line.
    pub(crate) async fn line(&mut self) -> String {
        let line = timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.expect("a line in time").expect("it can be read");
        line.expect("it goes on")
    }

    /// The next line that holds `text`, and skips those before.
    pub(crate) async fn line_with(&mut self, text: &str) -> String {
        loop {
            let line = self.line().await;
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Ends it.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it can be killed");
    }
}
