//! The real kubectl.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::PATIENCE;

/// kubectl with its own kubeconfig and cache directory.
pub(crate) struct Kubectl {
    binary: OsString,
    kubeconfig: PathBuf,
    home: tempfile::TempDir,
    editor: Option<String>,
}

/// A running kubectl, such as `get -w`, killed when dropped.
pub(crate) struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Kubectl {
    pub(crate) fn new(kubeconfig: &Path) -> Self {
        let binary = std::env::var_os("WATCHET_TEST_KUBECTL").unwrap_or_else(|| "kubectl".into());
        Self::of(binary, kubeconfig)
    }

    /// Returns a kubectl of the newest minor version that a distribution has.
    pub(crate) fn newest(kubeconfig: &Path) -> Self {
        let binary = std::env::var_os("WATCHET_TEST_KUBECTL_NEWEST");
        let binary = binary.expect(
            "set WATCHET_TEST_KUBECTL_NEWEST to the output of `scripts/kubectl --newest`, or run scripts/test",
        );
        Self::of(binary, kubeconfig)
    }

    fn of(binary: OsString, kubeconfig: &Path) -> Self {
        Self {
            binary,
            kubeconfig: kubeconfig.to_owned(),
            home: tempfile::tempdir().expect("a temporary directory"),
            editor: None,
        }
    }

    /// Returns the same kubectl with an editor for `kubectl edit` that replaces the first `from` of each line.
    pub(crate) fn editing(&self, from: &str, to: &str) -> Self {
        let mut kubectl = Self::of(self.binary.clone(), &self.kubeconfig);
        let script = kubectl.home.path().join("edit.sed");
        std::fs::write(&script, format!("s/{from}/{to}/\n")).expect("it can be written");
        kubectl.editor = Some(format!("sed -i -f {}", script.display()));
        kubectl
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .envs(self.editor.iter().map(|command| ("KUBE_EDITOR", command)))
            .args(args)
            .kill_on_drop(true);
        command
    }

    /// Runs a command that must succeed; returns its output.
    pub(crate) async fn run(&self, args: &[&str]) -> String {
        self.run_with(args, "").await
    }

    /// As [`Self::run`], with this input.
    pub(crate) async fn run_with(&self, args: &[&str], input: &str) -> String {
        self.try_with(args, input)
            .await
            .unwrap_or_else(|error| panic!("kubectl {args:?}: {error}"))
    }

    /// Runs a command; returns its output, or its stderr if it fails.
    pub(crate) async fn try_run(&self, args: &[&str]) -> Result<String, String> {
        self.try_with(args, "").await
    }

    /// Runs a command that must fail; returns its stderr.
    pub(crate) async fn run_failing(&self, args: &[&str]) -> String {
        self.run_failing_with(args, "").await
    }

    /// As [`Self::run_failing`], with this input.
    pub(crate) async fn run_failing_with(&self, args: &[&str], input: &str) -> String {
        match self.try_with(args, input).await {
            Ok(output) => panic!("kubectl {args:?} succeeds: {output}"),
            Err(error) => error,
        }
    }

    /// As [`Self::try_run`], with this input.
    pub(crate) async fn try_with(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("these tests need a kubectl: set WATCHET_TEST_KUBECTL or run scripts/test");
        let mut stdin = child.stdin.take().expect("stdin is a pipe");
        if let Err(error) = stdin.write_all(input.as_bytes()).await {
            // kubectl may end, with an error, before it reads all.
            assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe, "{error}");
        }
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

    /// Starts a command whose lines are read as they arrive.
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
    /// Returns the next line.
    pub(crate) async fn line(&mut self) -> String {
        let line = timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.expect("a line in time").expect("it can be read");
        line.expect("it goes on")
    }

    /// Returns the next line that contains `text`, and skips those before.
    pub(crate) async fn line_with(&mut self, text: &str) -> String {
        loop {
            let line = self.line().await;
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits until the command has ended by itself.
    pub(crate) async fn ended(mut self) {
        let ended = timeout(PATIENCE, self.child.wait()).await;
        ended.expect("it ends").expect("it can be awaited");
    }

    /// Kills the command.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it can be killed");
    }
}
