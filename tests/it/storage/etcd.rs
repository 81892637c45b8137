//! A real etcd process, and the `etcd` back end over it. `scripts/etcd` provides the program; the tests fail without
//! one.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use watchet::storage::Storage;
use watchet::storage::etcd3::{Etcd3, Etcd3Config};

use super::Backend;
use super::support::PATIENCE;
use super::tls::TlsFiles;
use crate::harness::free_port;

/// Returns the program: `WATCHET_TEST_ETCD`, else the one on `PATH`.
fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("WATCHET_TEST_ETCD") {
        return path.into();
    }
    let on_path = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path)
            .map(|directory| directory.join("etcd"))
            .find(|file| file.is_file())
    });
    on_path.expect(
        "these tests need an etcd: run scripts/test, or WATCHET_TEST_ETCD=$(scripts/etcd) cargo test",
    )
}

/// Returns the program of the newest minor version.
pub(crate) fn newest_binary() -> PathBuf {
    let path = std::env::var_os("WATCHET_TEST_ETCD_NEWEST");
    let path = path.expect(
        "set WATCHET_TEST_ETCD_NEWEST to the output of `scripts/etcd --newest`, or run scripts/test",
    );
    path.into()
}

/// An etcd with one member on its own ports and data directory, killed when dropped.
pub(crate) struct EtcdProcess {
    child: Child,
    binary: PathBuf,
    arguments: Vec<String>,
    client_url: String,
    directory: tempfile::TempDir,
}

impl EtcdProcess {
    /// Starts an etcd with the further flags `extra` and waits until it serves.
    pub(crate) async fn start(extra: &[&str]) -> Self {
        Self::launch(binary(), None, extra).await
    }

    /// Starts an etcd of the newest minor version.
    async fn start_newest() -> Self {
        Self::launch(newest_binary(), None, &[]).await
    }

    /// Starts a cluster of three members, and waits until they have a leader.
    pub(crate) async fn start_cluster() -> Vec<Self> {
        for _ in 0..5 {
            let mut members = Self::spawn_cluster();
            let mut serve = true;
            for member in &mut members {
                serve &= member.wait_until_it_serves().await;
            }
            if serve {
                return members;
            }
            println!("a member ended while starting");
        }
        panic!("the cluster does not start");
    }

    fn spawn_cluster() -> Vec<Self> {
        let ports = [(); 3].map(|()| [free_port(), free_port()]);
        let peers = ports.iter().enumerate();
        let peers: Vec<String> = peers
            .map(|(number, [_, peer])| format!("m{number}=http://127.0.0.1:{peer}"))
            .collect();
        let peers = peers.join(",");
        let member = |(number, [client, peer]): (usize, &[u16; 2])| {
            let extra = [
                format!("--name=m{number}"),
                format!("--initial-cluster={peers}"),
            ];
            Self::spawn_on(binary(), None, [*client, *peer], &extra)
        };
        ports.iter().enumerate().map(member).collect()
    }

    /// Starts an etcd that requires TLS and client certificates of the same CA.
    pub(crate) async fn start_tls(files: &TlsFiles) -> Self {
        Self::launch(binary(), Some(files), &[]).await
    }

    async fn launch(binary: PathBuf, tls: Option<&TlsFiles>, extra: &[&str]) -> Self {
        // Another process can take the port before etcd listens on it.
        for _ in 0..5 {
            let mut process = Self::spawn(binary.clone(), tls, extra);
            if process.wait_until_it_serves().await {
                return process;
            }
            println!("etcd ended while starting:\n{}", process.log());
        }
        panic!("etcd does not start");
    }

    fn spawn(binary: PathBuf, tls: Option<&TlsFiles>, extra: &[&str]) -> Self {
        let extra: Vec<String> = extra.iter().map(ToString::to_string).collect();
        Self::spawn_on(binary, tls, [free_port(), free_port()], &extra)
    }

    fn spawn_on(
        binary: PathBuf,
        tls: Option<&TlsFiles>,
        [client, peer]: [u16; 2],
        extra: &[String],
    ) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let client_url = format!("{scheme}://127.0.0.1:{client}");
        let peer_url = format!("http://127.0.0.1:{peer}");
        let data = directory.path().join("data").display().to_string();
        let mut arguments = vec![
            format!("--data-dir={data}"),
            format!("--listen-client-urls={client_url}"),
            format!("--advertise-client-urls={client_url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=default={peer_url}"),
            "--log-level=warn".into(),
            // Tests kill the process, not the machine.
            "--unsafe-no-fsync".into(),
        ];
        if let Some(files) = tls {
            arguments.extend([
                format!("--trusted-ca-file={}", files.ca.display()),
                format!("--cert-file={}", files.server_cert.display()),
                format!("--key-file={}", files.server_key.display()),
                "--client-cert-auth".into(),
            ]);
        }
        // A later flag overrides an earlier one.
        arguments.extend_from_slice(extra);
        Self {
            child: run(&binary, &arguments, &directory),
            binary,
            arguments,
            client_url,
            directory,
        }
    }

    /// Waits until the port accepts connections; returns false if the process ends first.
    async fn wait_until_it_serves(&mut self) -> bool {
        let address = self
            .client_url
            .split_once("://")
            .expect("a URL")
            .1
            .to_owned();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.child.try_wait().expect("its own child").is_some() {
                return false;
            }
            // etcd listens only after it has joined its cluster.
            if tokio::net::TcpStream::connect(&address).await.is_ok() {
                return true;
            }
            assert!(
                Instant::now() < deadline,
                "etcd does not serve:\n{}",
                self.log()
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Returns the URL for clients.
    pub(crate) fn url(&self) -> &str {
        &self.client_url
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("etcd can be killed");
        self.child.wait().expect("its own child");
    }

    /// Starts it again with the same data on the same ports, without waiting.
    pub(crate) fn launch_again(&mut self) {
        self.child = run(&self.binary, &self.arguments, &self.directory);
    }

    /// Restarts it with the same data on the same ports.
    pub(crate) async fn restart(&mut self) {
        self.launch_again();
        assert!(self.wait_until_it_serves().await, "{}", self.log());
    }

    /// Copies its data to a backup; etcd must not be running.
    pub(crate) fn back_up(&self) {
        self.copy("data", "backup");
    }

    /// Restores the backup; etcd must not be running.
    pub(crate) fn restore(&self) {
        std::fs::remove_dir_all(self.directory.path().join("data")).expect("its own data");
        self.copy("backup", "data");
    }

    fn copy(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.directory.path().join(name));
        let status = Command::new("cp").arg("-r").args([from, to]).status();
        assert!(status.expect("cp runs").success());
    }

    /// Stops the process with SIGSTOP, without closing its connections.
    pub(crate) fn pause(&self) {
        self.signal("-STOP");
        // Signals are asynchronous: a thread on another core may continue for a moment.
        while !self.has_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns true if all threads of the process are stopped.
    fn has_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        tasks.expect("a process").all(|task| {
            let stat = task.expect("a thread").path().join("stat");
            // A thread that has ended counts as stopped.
            let stat = std::fs::read_to_string(stat).unwrap_or_default();
            stat.is_empty() || stat.contains(") T ")
        })
    }

    /// Continues the process.
    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args([signal, &id]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Connects a back end to it.
    pub(crate) async fn connect(&self) -> Arc<Etcd3> {
        Etcd3::connect(self.config()).await.expect("etcd answers")
    }

    /// Returns the configuration of a back end without automatic compaction.
    pub(crate) fn config(&self) -> Etcd3Config {
        Etcd3Config {
            endpoints: vec![self.client_url.clone()],
            compaction_interval: Duration::ZERO,
            ..Etcd3Config::default()
        }
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn run(binary: &Path, arguments: &[String], directory: &tempfile::TempDir) -> Child {
    let log = std::fs::File::create(directory.path().join("log")).expect("a log file");
    Command::new(binary)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run etcd at {binary:?}: {error}"))
}

/// The back end over its own etcd.
pub(crate) struct EtcdStore {
    store: Arc<Etcd3>,
    _process: EtcdProcess,
}

impl EtcdStore {
    async fn over(process: EtcdProcess) -> Self {
        Self {
            store: process.connect().await,
            _process: process,
        }
    }
}

impl Backend for EtcdStore {
    async fn start() -> Self {
        Self::over(EtcdProcess::start(&[]).await).await
    }

    fn storage(&self) -> Arc<dyn Storage> {
        self.store.clone()
    }
}

/// The back end over an etcd of the newest minor version.
pub(crate) struct NewestEtcdStore(EtcdStore);

impl Backend for NewestEtcdStore {
    async fn start() -> Self {
        Self(EtcdStore::over(EtcdProcess::start_newest().await).await)
    }

    fn storage(&self) -> Arc<dyn Storage> {
        self.0.storage()
    }
}
