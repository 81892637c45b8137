//! Starts real etcd members and the real program with the settings of `docker-compose.yml`, in directories and on ports
//! of the test.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use watchet::storage::etcd3::{ConnectError, Etcd3, Etcd3Config};

use super::{Compose, environment, texts};
use crate::harness::{PATIENCE, Protocol, Server, free_port};
use crate::storage::etcd;

/// The members of the file, as processes.
struct Cluster {
    directory: tempfile::TempDir,
    /// The `HOST:PORT` of the file, and the address here.
    addresses: Vec<(String, String)>,
    members: Vec<(String, Child)>,
}

impl Cluster {
    fn start(compose: &Compose) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        make_certificates(compose, &directory.path().join("certificates"));
        let mut cluster = Self {
            addresses: addresses(compose),
            directory,
            members: Vec::new(),
        };
        for (name, service) in compose.members() {
            let member = cluster.spawn(name, service);
            cluster.members.push((name.to_owned(), member));
        }
        cluster
    }

    /// Returns a value of the file with the paths and addresses of the test.
    fn local(&self, value: &str) -> String {
        let certificates = self.directory.path().join("certificates");
        let certificates = certificates.to_str().expect("it is UTF-8");
        let value = value.replace("/certificates", certificates);
        let replace =
            |value: String, (host, address): &(String, String)| value.replace(host, address);
        self.addresses.iter().fold(value, replace)
    }

    fn spawn(&self, name: &str, service: &serde_json::Value) -> Child {
        let data = self.directory.path().join(name);
        let log = std::fs::File::create(data.with_extension("log")).expect("a log file");
        let mut command = Command::new(etcd::newest_binary());
        let variables = service["environment"].as_object().expect("an environment");
        for variable in variables.keys() {
            let value = environment(service, variable);
            // Each container has all ports to itself.
            let value = match variable.as_str() {
                "ETCD_LISTEN_CLIENT_URLS" => environment(service, "ETCD_ADVERTISE_CLIENT_URLS"),
                "ETCD_LISTEN_PEER_URLS" => environment(service, "ETCD_INITIAL_ADVERTISE_PEER_URLS"),
                "ETCD_DATA_DIR" => data.to_str().expect("it is UTF-8"),
                _ => value,
            };
            command.env(variable, self.local(value));
        }
        // On a busy machine a member may not run for a second, after which the others would elect a leader.
        command
            .args(["--heartbeat-interval=500", "--election-timeout=5000"])
            .args(["--unsafe-no-fsync", "--log-level=warn"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd runs")
    }

    fn logs(&self) -> String {
        let log = |(name, _): &(String, Child)| {
            let path = self.directory.path().join(name).with_extension("log");
            std::fs::read_to_string(path).unwrap_or_default()
        };
        self.members.iter().map(log).collect()
    }

    /// Returns false if a member has ended, e.g. because another process took its port.
    async fn serves(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        for (host, address) in self.addresses.clone() {
            if !host.ends_with(":2379") {
                continue;
            }
            // A member listens for clients when it has joined the cluster.
            while tokio::net::TcpStream::connect(&address).await.is_err() {
                let mut members = self.members.iter_mut();
                if members.any(|(_, member)| member.try_wait().expect("a child").is_some()) {
                    return false;
                }
                assert!(Instant::now() < deadline, "{}", self.logs());
                sleep(Duration::from_millis(20)).await;
            }
        }
        true
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, member) in &mut self.members {
            // It may have ended already.
            drop(member.kill());
            drop(member.wait());
        }
    }
}

/// Runs the command of the service `certificates` with another directory, as the user of the test.
fn make_certificates(compose: &Compose, directory: &Path) {
    let arguments = texts(&compose.services()["certificates"]["command"]);
    assert!(arguments[0].starts_with("--client-owner="), "{arguments:?}");
    assert_eq!(arguments[1], "/certificates");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/etcd-certificates");
    let made = Command::new(script)
        .arg(directory)
        .args(&arguments[2..])
        .output()
        .expect("the script runs");
    assert!(made.status.success(), "{made:?}");
}

/// Returns an address of this machine for each port of the members.
fn addresses(compose: &Compose) -> Vec<(String, String)> {
    let mut addresses = Vec::new();
    for name in compose.members().keys() {
        for port in [2379, 2380] {
            let here = format!("127.0.0.1:{}", free_port());
            addresses.push((format!("{name}:{port}"), here));
        }
    }
    addresses
}

async fn start() -> (Compose, Cluster) {
    let compose = Compose::read();
    // Another process can take a port before its member listens.
    for _ in 0..5 {
        let mut cluster = Cluster::start(&compose);
        if cluster.serves().await {
            return (compose, cluster);
        }
        println!("a member ended while starting:\n{}", cluster.logs());
    }
    panic!("the cluster does not start");
}

#[tokio::test]
async fn the_server_stores_its_objects_in_the_cluster_over_tls() {
    let (compose, cluster) = start().await;
    let flags = compose.flags();
    let etcd = flags
        .iter()
        .filter(|(flag, _)| flag.as_str() == "--storage" || flag.starts_with("--etcd-"));
    let mut arguments: Vec<String> = etcd
        .map(|(flag, value)| format!("{flag}={}", cluster.local(value)))
        .collect();
    arguments.push("--secure-port=0".to_owned());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();

    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_exactly(directory.path(), &arguments).await;
    let map = serde_json::json!({"metadata": {"name": "a"}, "data": {"key": "value"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    let created = server.admin(Protocol::Http2).await.post(maps, &map).await;
    assert_eq!(created.status, 201, "{}", created.json());
    server.stop().await;

    // Another server finds it, so it is in the cluster.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_exactly(directory.path(), &arguments).await;
    let mut admin = server.admin(Protocol::Http2).await;
    let found = admin.get(&format!("{maps}/a")).await.json();
    assert_eq!(found["data"]["key"], "value", "{found}");
    server.stop().await;

    // A client without the certificate has no access.
    let endpoints = cluster.local(&flags["--etcd-servers"]);
    let stranger = Etcd3Config {
        endpoints: endpoints.split(',').map(str::to_owned).collect(),
        ca_file: Some(cluster.local(&flags["--etcd-cafile"]).into()),
        ..Etcd3Config::default()
    };
    let error = Etcd3::connect(stranger).await.expect_err("no access");
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
}
