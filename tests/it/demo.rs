//! `watchet demo`: the real program, its printed commands, and kubectl.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::harness::{Kubectl, PATIENCE, command, signal};

/// The pause between two checks of a state that is not reached yet.
const PAUSE: Duration = Duration::from_millis(200);

/// The last line of the text that is printed when the demonstration runs.
const LAST_LINE: &str = "Ctrl-C ends";

/// A running demonstration.
struct Demo {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    guide: String,
    /// The directory for temporary files of the process.
    directory: tempfile::TempDir,
}

impl Demo {
    /// Starts the program and waits until it has printed its text.
    async fn start(args: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut child = command()
            .arg("demo")
            .args(args)
            .env("TMPDIR", directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let mut lines = BufReader::new(stdout).lines();
        let mut guide = String::new();
        let printed = timeout(2 * PATIENCE, async {
            while let Some(line) = lines.next_line().await.unwrap() {
                guide += &line;
                guide.push('\n');
                if line.starts_with(LAST_LINE) {
                    return true;
                }
            }
            false
        });
        assert_eq!(printed.await, Ok(true), "{guide}");
        Self {
            child,
            lines,
            guide,
            directory,
        }
    }

    /// Returns the printed line that contains `text`.
    fn line(&self, text: &str) -> &str {
        let line = self.guide.lines().find(|line| line.contains(text));
        line.unwrap_or_else(|| panic!("no {text:?} in {}", self.guide))
            .trim()
    }

    fn kubeconfig(&self) -> PathBuf {
        let line = self.line("Kubeconfig ");
        line.split_whitespace().nth(1).unwrap().into()
    }

    /// Runs the printed command that contains `text`, after the printed `export`, in a shell.
    async fn run(&self, text: &str) -> Output {
        let script = format!("{}\n{}", self.line("export KUBECONFIG="), self.line(text));
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).kill_on_drop(true);
        let ended = timeout(PATIENCE, shell.output()).await;
        ended.unwrap_or_else(|_| panic!("{script}")).unwrap()
    }

    /// Sends a signal, and returns the output after the text.
    async fn stop(mut self, name: &str) -> String {
        signal(self.child.id().unwrap(), name);
        let ended = timeout(PATIENCE, self.child.wait()).await;
        let status = ended.expect("it ends").unwrap();
        let mut rest = String::new();
        let mut stdout = self.lines.into_inner();
        stdout.read_to_string(&mut rest).await.unwrap();
        assert_eq!(status.code(), Some(0), "{rest}");
        let files = files_in(self.directory.path());
        assert_eq!(files, [] as [PathBuf; 0], "{rest}");
        rest
    }
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Calls `check` until it returns true, and panics with the text that it has last returned.
async fn until(what: &str, mut check: impl AsyncFnMut() -> (bool, String)) {
    let deadline = Instant::now() + 2 * PATIENCE;
    loop {
        let (is_reached, seen) = check().await;
        if is_reached {
            return;
        }
        assert!(Instant::now() < deadline, "not {what}: {seen}");
        sleep(PAUSE).await;
    }
}

#[tokio::test]
async fn the_demonstration_shows_pods_watchers_and_past_states() {
    let demo = Demo::start(&["--pods", "50", "--port", "0", "--seed", "1"]).await;
    let link = demo.line("Console ");
    assert!(link.contains("/console/#login="), "{link}");
    let kubectl = Kubectl::new(&demo.kubeconfig());
    let nodes = kubectl.run(&["get", "nodes", "--no-headers"]).await;
    assert_eq!(nodes.matches(" Ready ").count(), 10, "{nodes}");

    until("in several states", async || {
        let pods = kubectl.run(&["get", "pods", "--no-headers"]).await;
        let states = pods
            .lines()
            .filter_map(|line| line.split_whitespace().nth(2));
        let states: BTreeSet<&str> = states.collect();
        let is_reached = states.len() > 3
            && ["Running", "Completed", "CrashLoopBackOff"]
                .iter()
                .all(|state| states.contains(state));
        (is_reached, pods)
    })
    .await;
    let reports = kubectl.run(&["get", "configmaps", "-o", "name"]).await;
    assert!(reports.contains("configmap/report-9\n"), "{reports}");

    for phase in ["Parked", "Live"] {
        until(phase, async || {
            let list = kubectl.run(&["get", "watchers", "-o", "json"]).await;
            let list: Value = serde_json::from_str(&list).unwrap();
            let watchers = list["items"].as_array().unwrap();
            // A client that connects again is listed twice until its first connection has ended.
            let has = |user_agent: &str, phase: &str| {
                watchers.iter().any(|watcher| {
                    watcher["spec"]["userAgent"] == user_agent
                        && watcher["status"]["phase"] == phase
                })
            };
            let others = ["demo-informer", "demo-dashboard"];
            let is_reached =
                others.iter().all(|other| has(other, "Live")) && has("demo-slow-reader", phase);
            (is_reached, list.to_string())
        })
        .await;
    }

    let past = demo.run(" at 10s get pods").await;
    let table = String::from_utf8(past.stdout).unwrap();
    assert!(past.status.success(), "{table}");
    assert!(
        table.starts_with("NAME ") && table.contains(" Running "),
        "{table}"
    );
    let history = demo.run(" history pods/database-0").await;
    let text = String::from_utf8(history.stdout).unwrap();
    assert!(history.status.success(), "{text}");
    for part in ["+ created by demo-controller", "by demo-kubelet"] {
        assert!(text.contains(part), "{part}: {text}");
    }

    let deleted = kubectl.run(&["delete", "pod", "database-0"]).await;
    assert!(deleted.contains("deleted"), "{deleted}");

    let rest = demo.stop("TERM").await;
    assert!(rest.contains("Removed "), "{rest}");
}

#[tokio::test]
async fn a_signal_during_the_start_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = command()
        .args(["demo", "--pods=5000"])
        .env("TMPDIR", directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = timeout(PATIENCE, lines.next_line()).await;
    let first = first.expect("a line").unwrap().unwrap();
    assert!(first.starts_with("Creating 5000 pods"), "{first}");
    signal(child.id().unwrap(), "INT");
    let ended = timeout(PATIENCE, child.wait()).await;
    assert_eq!(ended.expect("it ends").unwrap().code(), Some(0));
    assert_eq!(files_in(directory.path()), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn errors_name_the_flag_and_leave_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let run = async |args: &[&str]| {
        let mut demo = command();
        demo.arg("demo").args(args).env("TMPDIR", directory.path());
        let output = timeout(PATIENCE, demo.output()).await;
        let output = output.expect("it ends").unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), error)
    };
    for (flag, value) in [("--pods", "0"), ("--rate", "x"), ("--port", "70000")] {
        let (code, error) = run(&[flag, value]).await;
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(flag) && error.contains(value), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let (code, error) = run(&["--port", &port]).await;
    assert_eq!(code, Some(1), "{error}");
    assert!(
        error.contains(&format!("--port {port}: 127.0.0.1:{port} is in use")),
        "{error}"
    );
    assert_eq!(files_in(directory.path()), [] as [PathBuf; 0]);
}
