//! A comparison with a real etcd: the same random operations, sent to both through etcd-client, have equal answers, field
//! by field, and equal watches. Each side runs alone, so that the simulated one has virtual time.

use std::collections::BTreeSet;
use std::future::Future;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use etcd_client::{Channel, Client, Error, LeaseGrantOptions, WatchOptions};
use tonic::transport::Endpoint;
use watchet_simulation::etcd::{Config, PlantedBug};
use watchet_test_util::ports::free_port;
use watchet_test_util::seeds::seed_or;

use crate::harness::Simulated;
use crate::random_client::RandomClient;

/// A real etcd, killed when dropped.
struct EtcdProcess {
    child: Child,
    url: String,
    _directory: tempfile::TempDir,
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn binary() -> std::path::PathBuf {
    let path = std::env::var_os("WATCHET_TEST_ETCD");
    path.map_or_else(|| "etcd".into(), Into::into)
}

/// Returns the version of the program.
fn version() -> String {
    let output = Command::new(binary()).arg("--version").output();
    let output = output.expect("these tests need an etcd: WATCHET_TEST_ETCD=$(scripts/etcd)");
    let text = String::from_utf8(output.stdout).expect("text");
    let version = text.lines().next().and_then(|line| line.split(": ").nth(1));
    version.expect("a version").to_owned()
}

impl EtcdProcess {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [client, peer] = [free_port(), free_port()];
        let (url, peer) = (
            format!("http://127.0.0.1:{client}"),
            format!("http://127.0.0.1:{peer}"),
        );
        let child = Command::new(binary())
            .arg(format!(
                "--data-dir={}",
                directory.path().join("data").display()
            ))
            .arg(format!("--listen-client-urls={url}"))
            .arg(format!("--advertise-client-urls={url}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"))
            .args(["--log-level=error", "--unsafe-no-fsync"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self {
            child: child.expect("etcd runs"),
            url,
            _directory: directory,
        }
    }

    async fn client(&self) -> Client {
        let address = self.url.trim_start_matches("http://");
        let deadline = SystemTime::now() + Duration::from_secs(30);
        while tokio::net::TcpStream::connect(address).await.is_err() {
            assert!(SystemTime::now() < deadline, "etcd does not serve");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let channel = Endpoint::from_shared(self.url.clone())
            .unwrap()
            .connect_lazy();
        Client::from_channel(Channel::Tonic(channel), None)
            .await
            .unwrap()
    }
}

/// Returns the bugs of the real etcd's version that this test can meet.
fn bugs() -> BTreeSet<PlantedBug> {
    let version = version();
    let numbers = version.split(['.', '-']);
    let version: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
    let before_start = version < vec![3, 5, 22] || (version[..2] == [3, 6] && version[2] < 2);
    before_start
        .then_some(PlantedBug::ProgressBeforeStart)
        .into_iter()
        .collect()
}

/// Returns what `record` returns for a real etcd.
fn real<F: Future<Output = Vec<String>>>(record: impl FnOnce(Client) -> F) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let etcd = EtcdProcess::start();
        record(etcd.client().await).await
    })
}

/// Returns what `record` returns for a simulated cluster.
fn simulated<F: Future<Output = Vec<String>>>(record: impl FnOnce(Client) -> F) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(async {
        let config = Config {
            members: 1,
            version: version(),
            bugs: bugs(),
            ..Config::default()
        };
        let simulated = Simulated::start(config, 1);
        record(simulated.client(0).await).await
    })
}

fn assert_same(expected: &[String], found: &[String], what: &str) {
    for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
        assert_eq!(expected, found, "line {index} of {what}: etcd's is left");
    }
    assert_eq!(expected.len(), found.len(), "{what}");
}

#[test]
fn random_operations_have_the_answers_of_etcd() {
    let first = seed_or(1);
    for seed in first..first + 4 {
        let record = |client| RandomClient::run(client, seed, 400);
        assert_same(&real(record), &simulated(record), &format!("seed {seed}"));
    }
}

fn error<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::GRpcStatus(status)) => format!("{:?} {}", status.code(), status.message()),
        other => panic!("{other:?}"),
    }
}

/// Returns the errors of large requests and the fragments of large responses.
async fn sizes(mut client: Client) -> Vec<String> {
    let mut lines = Vec::new();
    for bytes in [1_600_000, 2_097_140, 2_097_152, 3_000_000] {
        lines.push(error(client.put("a", vec![b'v'; bytes], None).await));
    }
    for bytes in [900, 900, 300, 1100, 1100, 5, 5, 1500, 900] {
        let value = vec![b'v'; bytes << 10];
        client.put("a", value, None).await.expect("it fits");
    }
    let options = WatchOptions::new().with_start_revision(1).with_fragment();
    let mut watch = client.watch("a", Some(options)).await.expect("a watch");
    let mut events = 0;
    while events < 9 {
        let response = watch.message().await.expect("open").expect("a response").0;
        events += response.events.len();
        lines.push(format!("{} {}", response.events.len(), response.fragment));
    }
    lines
}

#[test]
fn sizes_are_limited_as_in_etcd() {
    assert_same(&real(sizes), &simulated(sizes), "sizes");
}

/// Returns the answers about short and absent leases.
async fn leases(mut client: Client) -> Vec<String> {
    let mut lines = Vec::new();
    for ttl in [-1, 0, 1, 3] {
        let options = LeaseGrantOptions::new().with_id(77);
        let granted = client
            .lease_grant(ttl, Some(options))
            .await
            .expect("a lease");
        lines.push(format!("{} {}", granted.id(), granted.ttl()));
        let (mut keeper, mut answers) = client.lease_keep_alive(77).await.expect("a stream");
        keeper.keep_alive().await.expect("open");
        let answer = answers.message().await.expect("open").expect("an answer");
        lines.push(format!("{} {}", answer.id(), answer.ttl()));
        client.lease_revoke(77).await.expect("a lease");
    }
    let found = client
        .lease_time_to_live(78, None)
        .await
        .expect("an answer");
    lines.push(format!(
        "{} {} {}",
        found.id(),
        found.ttl(),
        found.granted_ttl()
    ));
    lines.push(error(client.lease_revoke(78).await));
    lines
}

#[test]
fn leases_are_as_in_etcd() {
    assert_same(&real(leases), &simulated(leases), "leases");
}
