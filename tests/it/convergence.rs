//! Tests of watches under load with the real program on both back ends: a burst of changes, a client that stops
//! reading, a server that is killed. Each test compares the events of the watches with the acknowledged writes, or with
//! a list at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::harness::{Kubectl, PATIENCE, Protocol, Server, full, request};
use crate::storage::etcd::EtcdProcess;

/// The number of changes in a burst: more than an inbox and all socket buffers on the path hold.
const BURST: usize = 5000;
/// How long the watches that stop reading do not read.
const STANDSTILL: Duration = Duration::from_secs(30);
/// The maximum delay of a watch that reads. It allows for a busy machine, but not for waiting for the watches that do
/// not read.
const DELAY_MAX: Duration = Duration::from_secs(10);
/// The number of connections that write.
const WRITERS: usize = 16;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server's storage, which outlives the server.
enum Store {
    Embedded(tempfile::TempDir),
    Etcd(tempfile::TempDir, EtcdProcess),
}

impl Store {
    fn embedded() -> Self {
        Self::Embedded(tempfile::tempdir().unwrap())
    }

    async fn etcd() -> Self {
        Self::Etcd(tempfile::tempdir().unwrap(), EtcdProcess::start(&[]).await)
    }

    async fn serve(&self) -> Server {
        match self {
            Self::Embedded(directory) => {
                Server::start_in(directory.path(), &[PLAIN_PODS, LONG_HISTORY]).await
            }
            Self::Etcd(directory, etcd) => {
                let servers = format!("--etcd-servers={}", etcd.url());
                let flags = ["--storage=etcd", &servers, PLAIN_PODS, LONG_HISTORY];
                Server::start_in(directory.path(), &flags).await
            }
        }
    }
}

fn pod(name: &str, n: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"n": n.to_string(), "pad": "x".repeat(1000)}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    })
}

/// The writers replace pods without the token volume that this plugin adds.
const PLAIN_PODS: &str = "--disable-admission-plugins=ServiceAccount";

/// On a busy machine the burst takes longer than the default window, and watches that do not read are then ended.
const LONG_HISTORY: &str = "--watch-history-window=10m";

/// The acknowledged writes of one writer: the last version of each of its pods, `None` if it was deleted.
type Acknowledged = BTreeMap<String, Option<u64>>;

/// Creates, changes and deletes its own pods, `changes` times or until the server has ended. Counts each acknowledged
/// write in `total`.
async fn write(
    server: &Server,
    writer: usize,
    changes: usize,
    total: &AtomicUsize,
) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    let mut wire = server.plain(Protocol::Http2).await;
    for n in 0..changes {
        let name = format!("w{writer}-{}", n % 10);
        let (method, path, body) = match acknowledged.get(&name).copied().flatten() {
            None => (Method::POST, PODS.to_owned(), pod(&name, n)),
            Some(_) if n % 7 == 0 => (Method::DELETE, format!("{PODS}/{name}"), json!({})),
            Some(_) => (Method::PUT, format!("{PODS}/{name}"), pod(&name, n)),
        };
        let headers = [("content-type", "application/json")];
        let request = request(method.clone(), &path, &headers, full(&body.to_string()));
        // After a broken connection the outcome of the write is unknown.
        let Ok(response) = wire.open(request).await else {
            acknowledged.remove(&name);
            break;
        };
        let status = response.status();
        let Ok(body) = response.into_body().collect().await else {
            acknowledged.remove(&name);
            break;
        };
        assert!(
            status.is_success(),
            "{method} {path}: {:?}",
            body.to_bytes()
        );
        let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        let version = (method != Method::DELETE).then(|| version_of(&body));
        acknowledged.insert(name, version);
        total.fetch_add(1, Ordering::Relaxed);
    }
    acknowledged
}

fn version_of(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version
        .unwrap_or_else(|| panic!("{object}"))
        .parse()
        .unwrap()
}

async fn write_all(server: &Server, changes: usize) -> Acknowledged {
    let total = AtomicUsize::new(0);
    let writers = (0..WRITERS).map(|writer| write(server, writer, changes / WRITERS, &total));
    join_all(writers).await.into_iter().flatten().collect()
}

/// Creates another pod. A watch that has received its event has received all events before it.
async fn write_last(server: &Server, name: &str) -> u64 {
    let mut wire = server.plain(Protocol::Http2).await;
    let answer = wire.post(PODS, &pod(name, 0)).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    version_of(&answer.json())
}

/// Returns the versions of the pods by name, and the version of the list.
async fn list(server: &Server) -> (BTreeMap<String, u64>, u64) {
    let mut wire = server.plain(Protocol::Http2).await;
    let answer = wire.get(PODS).await;
    assert_eq!(answer.status, StatusCode::OK);
    let list = answer.json();
    let items = list["items"].as_array().unwrap().iter();
    let named = |pod: &Value| {
        (
            pod["metadata"]["name"].as_str().unwrap().to_owned(),
            version_of(pod),
        )
    };
    (items.map(named).collect(), version_of(&list))
}

/// A watch over its own connection, which applies the events to a state.
struct Watch {
    body: Incoming,
    _connection: crate::harness::Wire,
    unparsed: Vec<u8>,
    state: BTreeMap<String, u64>,
    last: u64,
    /// The version and the time of reading of each event.
    received: Vec<(u64, Instant)>,
    gone: bool,
}

impl Watch {
    async fn start(server: &Server, state: BTreeMap<String, u64>, from: u64) -> Self {
        Self::over(Protocol::Http1, server, state, from).await
    }

    async fn over(
        protocol: Protocol,
        server: &Server,
        state: BTreeMap<String, u64>,
        from: u64,
    ) -> Self {
        let mut connection = server.plain(protocol).await;
        let path = format!("{PODS}?watch=true&resourceVersion={from}");
        let request = request(Method::GET, &path, &[], full(""));
        let response = connection.open(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let (unparsed, received) = Default::default();
        let body = response.into_body();
        Self {
            body,
            _connection: connection,
            unparsed,
            state,
            last: from,
            received,
            gone: false,
        }
    }

    /// Reads until the event of the pod `last`, or the end of the stream.
    async fn read_to(&mut self, last: &str) {
        while !self.state.contains_key(last) && self.read_frame().await {}
    }

    /// Reads until the stream ends.
    async fn read_all(&mut self) {
        while self.read_frame().await {}
    }

    /// Reads the next frame; returns false at the end of the stream.
    async fn read_frame(&mut self) -> bool {
        let frame = timeout(PATIENCE, self.body.frame()).await;
        let Some(Ok(frame)) = frame.expect("an event or the end of the watch in time") else {
            return false;
        };
        if let Ok(data) = frame.into_data() {
            self.unparsed.extend_from_slice(&data);
            let unparsed = std::mem::take(&mut self.unparsed);
            let mut rest = &unparsed[..];
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                self.take(&serde_json::from_slice(&rest[..end]).unwrap());
                rest = &rest[end + 1..];
            }
            self.unparsed = rest.to_vec();
        }
        true
    }

    fn take(&mut self, event: &Value) {
        assert!(!self.gone, "nothing follows the 410: {event}");
        let object = &event["object"];
        if event["type"] == "ERROR" {
            assert_eq!(object["code"], 410, "{event}");
            self.gone = true;
            return;
        }
        let version = version_of(object);
        assert!(version > self.last, "{version} after {}", self.last);
        self.last = version;
        self.received.push((version, Instant::now()));
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let known = match event["type"].as_str() {
            Some("DELETED") => self.state.remove(&name).is_some(),
            Some("ADDED") => self.state.insert(name, version).is_none(),
            Some("MODIFIED") => self.state.insert(name, version).is_some(),
            other => panic!("{other:?}"),
        };
        assert!(known, "{}: no such step", event["type"]);
    }
}

macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                super::$name(super::Store::embedded()).await;
            })*
        }
        mod etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                super::$name(super::Store::etcd().await).await;
            })*
        }
    };
}

on_both!(
    kubectl_watches_a_burst_to_the_state_of_a_list,
    a_watcher_that_stops_reading_delays_no_other_and_misses_nothing,
    a_killed_server_has_every_acknowledged_write_and_watches_resume,
);

async fn kubectl_watches_a_burst_to_the_state_of_a_list(store: Store) {
    let server = store.serve().await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    let marker = pod("marker", 0);
    let mut wire = server.plain(Protocol::Http2).await;
    assert_eq!(wire.post(PODS, &marker).await.status, StatusCode::CREATED);
    let columns =
        "custom-columns=TYPE:.type,NAME:.object.metadata.name,RV:.object.metadata.resourceVersion";
    let mut watch = kubectl.start(&["get", "pods", "-w", "--output-watch-events", "-o", columns]);
    watch.line_with("marker").await;

    let acknowledged = write_all(&server, BURST).await;
    assert_eq!(
        wire.send(Method::DELETE, &format!("{PODS}/marker"), &[], "")
            .await
            .status,
        200
    );

    let mut state = BTreeMap::new();
    loop {
        let line = watch.line().await;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [event, name, version] = words[..] else {
            panic!("{line}")
        };
        if (event, name) == ("DELETED", "marker") {
            break;
        }
        match event {
            "DELETED" => drop(state.remove(name)),
            _ => drop(state.insert(name.to_owned(), version.parse::<u64>().unwrap())),
        }
    }
    watch.kill().await;
    let (listed, _) = list(&server).await;
    assert_eq!(state, listed);
    let alive = acknowledged
        .into_iter()
        .filter_map(|(name, version)| Some((name, version?)));
    assert_eq!(alive.collect::<BTreeMap<_, _>>(), listed);
    server.stop().await;
}

async fn a_watcher_that_stops_reading_delays_no_other_and_misses_nothing(store: Store) {
    let server = store.serve().await;
    let (state, from) = list(&server).await;
    let mut stuck = Watch::start(&server, state.clone(), from).await;
    let mut stuck_h2 = Watch::over(Protocol::Http2, &server, state.clone(), from).await;
    let mut reading = Watch::start(&server, state, from).await;
    let stopped = Instant::now();

    let written = async {
        let mut acknowledged = write_all(&server, BURST).await;
        let version = write_last(&server, "last").await;
        acknowledged.insert("last".to_owned(), Some(version));
        (acknowledged, Instant::now())
    };
    let ((acknowledged, done), ()) = tokio::join!(written, reading.read_to("last"));
    let (_, last_read) = *reading.received.last().expect("events");
    let late = last_read.saturating_duration_since(done);
    assert!(
        late < DELAY_MAX,
        "the reading watch is {late:?} behind the last write"
    );

    sleep(STANDSTILL.saturating_sub(stopped.elapsed())).await;
    let (listed, _) = list(&server).await;
    assert_eq!(reading.state, listed);
    let alive = acknowledged
        .into_iter()
        .filter_map(|(name, version)| Some((name, version?)));
    assert_eq!(alive.collect::<BTreeMap<_, _>>(), listed);
    for stuck in [&mut stuck, &mut stuck_h2] {
        stuck.read_to("last").await;
        // History has enough space and time for the writes of the pause.
        assert!(!stuck.gone, "a parked watch was ended");
        assert_eq!(stuck.state, listed);
        let versions = |watch: &Watch| watch.received.iter().map(|(v, _)| *v).collect::<Vec<_>>();
        assert_eq!(
            versions(stuck),
            versions(&reading),
            "each event, once, in order"
        );
    }
    server.stop().await;
}

async fn a_killed_server_has_every_acknowledged_write_and_watches_resume(store: Store) {
    let mut random = fastrand::Rng::with_seed(watchet_test_util::seeds::seed());
    for round in 0..3 {
        let server = store.serve().await;
        let (state, from) = list(&server).await;
        let before: BTreeSet<String> = state.keys().cloned().collect();
        let mut watch = Watch::start(&server, state, from).await;
        let total = AtomicUsize::new(0);
        let before_the_kill = random.usize(100..1000);
        let kill = async {
            let burst = async {
                while total.load(Ordering::Relaxed) < before_the_kill {
                    sleep(Duration::from_micros(random.u64(100..3000))).await;
                }
            };
            timeout(PATIENCE, burst).await.expect("they write");
            server.signal("KILL");
        };
        let first = round * WRITERS;
        let names = (first..first + WRITERS).map(|writer| write(&server, writer, BURST, &total));
        let (writers, (), ()) = tokio::join!(join_all(names), kill, watch.read_all());
        let acknowledged: Acknowledged = writers.into_iter().flatten().collect();
        assert!(!acknowledged.is_empty(), "the burst was under way");
        server.kill().await;

        let server = store.serve().await;
        let last = format!("last-{round}");
        write_last(&server, &last).await;
        let (listed, _) = list(&server).await;
        for (name, version) in &acknowledged {
            match version {
                // Not equal: a write in flight may have been stored when the server was killed.
                Some(version) => assert!(
                    listed.get(name).is_some_and(|now| now >= version),
                    "round {round}: {name} was acknowledged at {version}, is {:?}",
                    listed.get(name)
                ),
                None => assert_eq!(listed.get(name), None, "round {round}: {name} was deleted"),
            }
        }
        assert!(
            before.iter().all(|name| listed.contains_key(name)),
            "what was there is there"
        );
        let mut resumed = Watch::start(&server, watch.state, watch.last).await;
        resumed.read_to(&last).await;
        assert!(
            !resumed.gone,
            "round {round}: the watch resumes at {}",
            watch.last
        );
        assert_eq!(resumed.state, listed, "round {round}");
        server.stop().await;
    }
}
