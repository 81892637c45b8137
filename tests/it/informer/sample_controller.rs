//! Tests of `examples/sample_controller` with the real server on both back ends: the server is killed repeatedly while
//! Foos are created, changed and deleted. In the end every Deployment and every status is correct.

#![allow(clippy::disallowed_names, reason = "a Foo is what there is")]

#[allow(dead_code, reason = "the program uses the rest of it")]
#[path = "../../../examples/sample_controller/foo.rs"]
mod foo;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::Resource as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};
use watchet::client::{ApiResource, Patch, ResourceClient, RestClient, RestError};

use super::outages::Host;
use super::{NAMESPACE, client};
use crate::harness::{PATIENCE, Scrape, signal};

use crate::storage::etcd::EtcdProcess;
use foo::{Foo, controller_of};

/// The number of kills.
const KILLS: usize = 5;
const FOOS: usize = 6;

#[tokio::test]
async fn converges_under_kills_embedded() {
    converges(&[]).await;
}

#[tokio::test]
async fn converges_under_kills_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    converges(&["--storage=etcd", &servers]).await;
}

/// Builds the program in the profile of this test and returns its path: `cargo test` with a filter does not build
/// examples.
async fn built() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--quiet",
        "--locked",
        "--example",
        "sample_controller",
    ]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    // `target/PROFILE/watchet`
    let server = Path::new(env!("CARGO_BIN_EXE_watchet"));
    let directory = server.parent().unwrap();
    let profile = directory.file_name().unwrap().to_str().unwrap();
    let profile = if profile == "debug" { "dev" } else { profile };
    cargo.args(["--profile", profile, "--target-dir"]);
    cargo.arg(directory.parent().unwrap());
    let built = cargo.status().await.expect("cargo");
    assert!(built.success(), "the example cannot be built");
    directory.join("examples/sample_controller")
}

struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    async fn start(kubeconfig: &Path, directory: &Path) -> Self {
        let log = directory.join("controller-log");
        let child = Command::new(built().await)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            // Longer than the outage of the server, even on a slow machine.
            .args(["--lease-duration", "60"])
            .args(["--metrics-address", "127.0.0.1:0"])
            .env("RUST_LOG", "info")
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .kill_on_drop(true)
            .spawn();
        let child = child.expect("the program starts");
        Self { child, log }
    }

    /// Scrapes its metrics.
    async fn scrape(&self) -> Scrape {
        let log = std::fs::read_to_string(&self.log).unwrap();
        let (_, address) = log
            .split_once("metrics are at http://")
            .expect("it said so");
        let (address, _) = address.split_once("/metrics").unwrap();
        let mut connection = TcpStream::connect(address).await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("version=0.0.4"), "{head}");
        Scrape::parse(text)
    }

    async fn terminate(mut self) {
        signal(self.child.id().expect("it runs"), "TERM");
        let ended = timeout(PATIENCE, self.child.wait()).await;
        let ended = ended.expect("it ends in time").unwrap();
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            println!("--- the controller's log ---\n{log}");
        }
    }
}

/// A user, and a simulated deployment controller.
struct User {
    foos: ResourceClient<Foo>,
    deployments: ResourceClient<Deployment>,
    events: ResourceClient<Event>,
    leases: ResourceClient<Lease>,
}

/// Retries until the server responds with a success.
async fn insist<T>(what: &str, mut action: impl AsyncFnMut() -> Result<T, RestError>) -> T {
    let started = Instant::now();
    loop {
        match action().await {
            Ok(done) => return done,
            Err(error) => assert!(started.elapsed() < PATIENCE, "{what}: {error}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

impl User {
    fn new(client: &RestClient) -> Self {
        fn all<K>(client: &RestClient) -> ResourceClient<K>
        where
            K: k8s_openapi::Resource,
            K::Scope: watchet::client::ObjectScope,
        {
            client
                .resource::<K>(ApiResource::of::<K>())
                .namespace(NAMESPACE)
        }
        Self {
            foos: all(client),
            deployments: all(client),
            events: all(client),
            leases: all(client),
        }
    }

    async fn make_foo(&self, name: &str, deployment: &str, replicas: i32) {
        let mut foo = Foo::default();
        foo.metadata.name = Some(name.to_owned());
        foo.spec.deployment_name = deployment.to_owned();
        foo.spec.replicas = replicas;
        insist("a new foo", async || match self.foos.create(&foo).await {
            // The object was created, and the response was lost.
            Err(error) if error.is_already_exists() => Ok(()),
            other => other.map(drop),
        })
        .await;
    }

    async fn change_foo(&self, name: &str, replicas: i32) {
        let change = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        insist("a changed foo", async || {
            self.foos.patch(name, &change).await
        })
        .await;
    }

    async fn delete_foo(&self, name: &str) {
        insist("a deleted foo", async || {
            match self.foos.delete(name, &Default::default()).await {
                Err(error) if error.is_not_found() => Ok(()),
                other => other,
            }
        })
        .await;
    }

    /// Scales or deletes a deployment as another client that ignores its owner; it may not exist.
    async fn write_concurrently(&self, deployment: &str, delete: bool) {
        let scaled = Patch::Merge(json!({"spec": {"replicas": 9}}));
        insist("a concurrent writer", async || {
            let done = match delete {
                true => {
                    self.deployments
                        .delete(deployment, &Default::default())
                        .await
                }
                false => self.deployments.patch(deployment, &scaled).await.map(drop),
            };
            match done {
                Err(error) if error.is_not_found() => Ok(()),
                other => other,
            }
        })
        .await;
    }

    /// Sets the status of every deployment to available, until dropped.
    async fn roll_out(&self) {
        loop {
            sleep(Duration::from_millis(100)).await;
            // The server is unreachable now and then.
            let Ok(list) = self.deployments.list(&Default::default()).await else {
                continue;
            };
            for deployment in list.items {
                let expected = deployment.spec.and_then(|spec| spec.replicas);
                let status = deployment
                    .status
                    .and_then(|status| status.available_replicas);
                if expected == status {
                    continue;
                }
                let status = Patch::Merge(json!({"status": {
                    "replicas": expected, "readyReplicas": expected, "availableReplicas": expected,
                }}));
                let name = deployment.metadata.name.unwrap_or_default();
                if let Err(error) = self.deployments.patch_status(&name, &status).await {
                    println!("rollout: {name}: {error}");
                }
            }
        }
    }

    /// Returns what differs from the desired state; `expected` are the Foos with their numbers of replicas.
    async fn missing(&self, expected: &BTreeMap<String, i32>) -> Result<Vec<String>, RestError> {
        let mut missing = Vec::new();
        let foos = self.foos.list(&Default::default()).await?.items;
        let mut deployments: BTreeMap<String, Deployment> = BTreeMap::new();
        for deployment in self.deployments.list(&Default::default()).await?.items {
            deployments.insert(
                deployment.metadata.name.clone().unwrap_or_default(),
                deployment,
            );
        }
        deployments.remove("taken");
        let mut seen = 0;
        for foo in &foos {
            let name = foo.metadata.name.clone().unwrap_or_default();
            let Some(replicas) = expected.get(&name) else {
                continue;
            };
            seen += 1;
            let Some(deployment) = deployments.remove(&foo.spec.deployment_name) else {
                missing.push(format!("{name} has no deployment"));
                continue;
            };
            let size = deployment.spec.as_ref().and_then(|spec| spec.replicas);
            let owner = controller_of(&deployment).map(|owner| owner.uid.clone());
            if (size, owner) != (Some(*replicas), foo.metadata.uid.clone()) {
                missing.push(format!(
                    "{name}'s deployment is of {size:?}, not {replicas}"
                ));
            } else if foo.status.available_replicas != *replicas {
                missing.push(format!("{name}'s status is {:?}", foo.status));
            }
        }
        if seen != expected.len() {
            missing.push(format!("{seen} foos of {expected:?}"));
        }
        let left = deployments.keys().map(|name| format!("{name} has no foo"));
        missing.extend(left);
        Ok(missing)
    }

    async fn until_converged(&self, expected: &BTreeMap<String, i32>) {
        let started = Instant::now();
        loop {
            let missing = self.missing(expected).await;
            if matches!(&missing, Ok(missing) if missing.is_empty()) {
                return;
            }
            assert!(started.elapsed() < PATIENCE * 2, "{missing:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn until_event(&self, foo: &str, reason: &str) {
        let started = Instant::now();
        loop {
            let events = self.events.list(&Default::default()).await.unwrap().items;
            let received = events.iter().any(|event| {
                event.involved_object.kind.as_deref() == Some(Foo::KIND)
                    && event.involved_object.name.as_deref() == Some(foo)
                    && event.reason.as_deref() == Some(reason)
            });
            if received {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "no event {reason} of {foo}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn converges(args: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::new(directory.path(), args);
    let mut server = host.start().await;
    let user = User::new(&client(&server.kubeconfig()));
    let program = Program::start(&server.kubeconfig(), directory.path()).await;
    let mut expected = BTreeMap::new();
    let play = async {
        // A deployment of another owner, which has the name that a later Foo requests.
        let mut taken = Foo::default();
        (taken.metadata.name, taken.metadata.uid) = (Some(String::new()), Some(String::new()));
        taken.spec.deployment_name = "taken".to_owned();
        let mut taken = taken.deployment().unwrap();
        taken.metadata.owner_references = None;
        insist("a deployment", async || created(&user, &taken).await).await;
        for at in 0..FOOS {
            user.make_foo(&format!("foo-{at}"), &format!("d{at}"), 1)
                .await;
            expected.insert(format!("foo-{at}"), 1);
        }
        for kill in 0..KILLS {
            server.kill().await;
            server = host.start().await;
            let (changed, gone) = (
                format!("foo-{}", kill % FOOS),
                format!("foo-{}", FOOS + kill),
            );
            let replicas = 2 + kill as i32;
            user.change_foo(&changed, replicas).await;
            expected.insert(changed, replicas);
            user.write_concurrently(&format!("d{}", (kill + 2) % FOOS), kill % 2 == 0)
                .await;
            user.make_foo(&gone, &format!("d{}", FOOS + kill), 1).await;
            // One is deleted right after its creation, the next one after the kill.
            if kill % 2 == 0 {
                user.delete_foo(&gone).await;
            } else {
                expected.insert(gone, 1);
            }
            if let Some(old) = kill.checked_sub(1).filter(|old| old % 2 == 1) {
                let name = format!("foo-{}", FOOS + old);
                user.delete_foo(&name).await;
                expected.remove(&name);
            }
        }
        user.until_converged(&expected).await;
        user.until_event("foo-0", "Synced").await;
        user.make_foo("greedy", "taken", 3).await;
        user.until_event("greedy", "ErrResourceExists").await;
        let taken = user.deployments.get("taken").await.unwrap();
        assert_eq!(controller_of(&taken), None);
        // The garbage collector deletes the Deployment of a deleted Foo.
        user.delete_foo("foo-0").await;
        expected.remove("foo-0");
        user.until_converged(&expected).await;
        let metrics = program.scrape().await;
        for name in ["foos.samplecontroller.k8s.io", "deployments.apps"] {
            let of = |metric: &str| metrics.get(&format!("{metric}{{name=\"{name}\"}}"));
            assert_eq!(of("informer_synced"), Some(1.0));
            assert!(of("reflector_lists_total") >= Some(1.0), "{metrics:?}");
            assert!(of("reflector_watches_total") >= Some(1.0), "{metrics:?}");
        }
        let foos = r#"informer_objects{name="foos.samplecontroller.k8s.io"}"#;
        assert!(
            metrics
                .get(foos)
                .is_some_and(|foos| foos >= expected.len() as f64)
        );
        assert!(metrics.get(r#"workqueue_work_duration_seconds_count{name="foos"}"#) > Some(0.0));
        server
    };
    let server = tokio::select! {
        () = user.roll_out() => unreachable!("it goes on for ever"),
        server = play => server,
    };
    program.terminate().await;
    // The lease is released, so the next leader need not wait until it expires.
    let lease = user.leases.get("sample-controller").await.unwrap();
    let holder = lease.spec.unwrap().holder_identity.unwrap_or_default();
    assert_eq!(holder, "");
    server.stop().await;
}

async fn created(user: &User, deployment: &Deployment) -> Result<(), RestError> {
    match user.deployments.create(deployment).await {
        Err(error) if error.is_already_exists() => Ok(()),
        other => other.map(drop),
    }
}
