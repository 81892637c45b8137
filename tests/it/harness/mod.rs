//! The real program: started on free ports with its own data directory, killed when dropped.

mod both;
mod kubectl;
mod open_watch;
mod proxy;
pub(crate) mod usage;
mod webhook;
mod wire;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

pub(crate) use both::{on_both, on_embedded, on_etcd};
pub(crate) use kubectl::Kubectl;
pub(crate) use open_watch::OpenWatch;
pub(crate) use proxy::{Mode, Proxy};
pub(crate) use watchet_test_util::ports::free_port;
pub(crate) use watchet_test_util::scrape::Scrape;
pub(crate) use webhook::{Reply, Replying, Webhook, WebhookRequest};
pub(crate) use wire::{Identity, PROTOCOLS, Protocol, Response, Wire, full, request, tls};

/// The time limit of operations that take milliseconds on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running server. It is killed, and its own data directory deleted, when dropped.
pub(crate) struct Server {
    child: Child,
    data_dir: PathBuf,
    log: PathBuf,
    /// The output until it was ready.
    pub(crate) announcement: String,
    _own_directory: Option<tempfile::TempDir>,
}

impl Server {
    /// Starts a server with its own data directory and waits until it is ready. `args` are appended to the flags that
    /// choose free ports and check the caches.
    pub(crate) async fn start(args: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut server = Self::start_in(directory.path(), args).await;
        server._own_directory = Some(directory);
        server
    }

    /// Starts a server whose data directory is below `directory` and outlives the server.
    pub(crate) async fn start_in(directory: &Path, args: &[&str]) -> Self {
        let ours = [
            "--secure-port=0",
            "--insecure-port=auto",
            "--watch-cache-consistency-check-interval=2s",
            // Many tests count config maps, so the controllers that create them are off.
            "--controllers=*,-root-ca-cert-publisher,-legacy-token-tracking,-cluster-authentication-trust",
        ];
        Self::start_exactly(directory, &[&ours[..], args].concat()).await
    }

    /// As [`Self::start_in`], with only `args` and the data directory as arguments.
    pub(crate) async fn start_exactly(directory: &Path, args: &[&str]) -> Self {
        Self::start_command(command(), directory, args).await
    }

    /// As [`Self::start`], with a hard limit of `files` open files.
    pub(crate) async fn start_with_open_files(files: u32, args: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let limited = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        let mut shell = without_settings(Command::new("sh"));
        shell.args(["-c", &limited, env!("CARGO_BIN_EXE_watchet")]);
        let mut server = Self::start_command(shell, directory.path(), args).await;
        server._own_directory = Some(directory);
        server
    }

    /// As [`Self::start`], by `command`, which receives the arguments of the program.
    pub(crate) async fn start_by(command: Command, args: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut server = Self::start_command(command, directory.path(), args).await;
        server._own_directory = Some(directory);
        server
    }

    /// As [`Self::start`], in the control group of `directory`.
    pub(crate) async fn start_in_cgroup(directory: &Path, args: &[&str]) -> Self {
        let own = tempfile::tempdir().expect("a temporary directory");
        let joins = format!(
            "echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"",
            directory.display()
        );
        let mut shell = without_settings(Command::new("sh"));
        shell.args(["-c", &joins, env!("CARGO_BIN_EXE_watchet")]);
        let ports = ["--secure-port=0", "--insecure-port=auto"];
        let args = [&ports[..], args].concat();
        let mut server = Self::start_command(shell, own.path(), &args).await;
        server._own_directory = Some(own);
        server
    }

    async fn start_command(mut command: Command, directory: &Path, args: &[&str]) -> Self {
        let data_dir = directory.join("data");
        let log = directory.join("log");
        let log_file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&log)
            .expect("a log file");
        let mut child = command
            .arg("--data-dir")
            .arg(&data_dir)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(log_file)
            .spawn()
            .expect("the binary starts");
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let mut lines = BufReader::new(stdout).lines();
        let mut announcement = String::new();
        let ready = timeout(PATIENCE, async {
            while let Ok(Some(line)) = lines.next_line().await {
                announcement += &line;
                announcement.push('\n');
                if line.trim_start().starts_with("kubectl ") {
                    return true;
                }
            }
            false
        });
        if ready.await != Ok(true) {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            panic!("the server is not ready: {announcement}\n{log}");
        }
        Self {
            child,
            data_dir,
            log,
            announcement,
            _own_directory: None,
        }
    }

    /// Returns the data directory.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Returns the path of the kubeconfig that the server wrote.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data_dir.join("kubeconfig")
    }

    /// Returns the parsed kubeconfig.
    pub(crate) fn kubeconfig_value(&self) -> Value {
        let text = std::fs::read_to_string(self.kubeconfig()).expect("a kubeconfig");
        serde_json::from_str(&text).expect("the kubeconfig is JSON")
    }

    /// Returns the address of the secure port.
    pub(crate) fn secure(&self) -> SocketAddr {
        self.announced("Serving https://")
    }

    /// Returns the address of the insecure port.
    pub(crate) fn insecure(&self) -> SocketAddr {
        self.announced("Serving http://")
    }

    fn announced(&self, beginning: &str) -> SocketAddr {
        let line = self
            .announcement
            .lines()
            .find_map(|line| line.strip_prefix(beginning))
            .expect("the address is announced");
        let address = line.split(' ').next().unwrap_or_default();
        address.parse().expect("an address")
    }

    /// Returns the log, including that of earlier servers in the same directory.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Sends a signal, e.g. `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits for the end of the process.
    pub(crate) async fn wait(&mut self) -> ExitStatus {
        let ended = timeout(PATIENCE, self.child.wait()).await;
        let Ok(ended) = ended else {
            panic!("the server does not end:\n{}", self.log());
        };
        ended.expect("its own child")
    }

    /// Sends SIGTERM and waits for a successful end.
    pub(crate) async fn stop(mut self) {
        self.signal("TERM");
        let ended = self.wait().await;
        assert!(ended.success(), "{ended}:\n{}", self.log());
    }

    /// Kills the process.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it can be killed");
    }

    /// Opens a connection with the administrator's certificate.
    pub(crate) async fn admin(&self, protocol: Protocol) -> Wire {
        let config = self.kubeconfig_value();
        let identity = Identity::from_kubeconfig(&config);
        Wire::secure(self.secure(), &config, Some(&identity), protocol).await
    }

    /// Opens a connection without a certificate.
    pub(crate) async fn stranger(&self, protocol: Protocol) -> Wire {
        Wire::secure(self.secure(), &self.kubeconfig_value(), None, protocol).await
    }

    /// Allows `user` everything, and returns when the authorizer has the change.
    pub(crate) async fn allow_everything(&self, user: &str) {
        let mut wire = self.plain(Protocol::Http1).await;
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "metadata": {"generateName": "allow-"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        });
        let path = format!("/apis/{group}/v1/clusterrolebindings");
        let created = wire.post(&path, &binding).await;
        assert_eq!(created.status, 201, "{}", created.json());
        let everything = json!({"verb": "*", "group": "*", "resource": "*"});
        let review = json!({"spec": {"user": user, "resourceAttributes": everything}});
        let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let allowed = async {
            while wire.post(reviews, &review).await.json()["status"]["allowed"] != true {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let within = timeout(PATIENCE, allowed).await;
        within.expect("the binding takes effect");
    }

    /// Opens a connection to the insecure port.
    pub(crate) async fn plain(&self, protocol: Protocol) -> Wire {
        Wire::plain(self.insecure(), protocol).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let log = self.log();
        if std::thread::panicking() {
            println!("--- the server's log ---\n{log}");
        } else {
            // Every test checks the results of the consistency checks.
            assert!(!log.contains("cache differs from storage"), "{log}");
        }
    }
}

/// Returns a shell that runs `script` with the program as `$0` and its arguments as `$@`.
pub(crate) fn shell(script: &str) -> Command {
    let mut shell = without_settings(Command::new("sh"));
    shell.args(["-c", script, env!("CARGO_BIN_EXE_watchet")]);
    shell
}

/// Returns the command of the program, without the WATCHET_ variables of the test's environment.
pub(crate) fn command() -> Command {
    without_settings(Command::new(env!("CARGO_BIN_EXE_watchet")))
}

fn without_settings(mut command: Command) -> Command {
    let ours = std::env::vars_os().filter(|(name, _)| {
        name.to_str()
            .is_some_and(|name| name.starts_with("WATCHET_"))
    });
    for (name, _) in ours {
        command.env_remove(name);
    }
    command.kill_on_drop(true).stdin(Stdio::null());
    command
}

/// Waits until `check` returns true.
pub(crate) async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, holds).await.expect(what);
}

/// Replaces a file atomically: a server that reads it again meanwhile finds the old or the new text.
pub(crate) fn write_file(path: &Path, text: &str) {
    let new = path.with_added_extension("new");
    std::fs::write(&new, text).expect("it can be written");
    std::fs::rename(&new, path).expect("it can be replaced");
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, name: &str) {
    let sent = std::process::Command::new("sh")
        .args(["-c", &format!("kill -{name} {pid}")])
        .status()
        .expect("a shell");
    assert!(sent.success(), "kill -{name} {pid}");
}
