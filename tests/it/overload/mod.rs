//! Tests of overload with the real program. Here: a server with too little memory for its clients refuses lists and watches,
//! aborts responses that are not read, and loses nothing.

mod cgroup;
mod crowds;
mod frame_floods;
mod frames;
mod slow_clients;
mod stuck;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use watchet::tasks::Tasks;

use crate::harness::{OpenWatch, PATIENCE, Protocol, Response, Scrape, Server, Wire, usage};
use cgroup::MemoryCgroup;
use slow_clients::{SlowClients, list_until_end};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf, application/json";

/// The memory limit of the server in MiB, and that of its control group, if it has one.
const LIMIT_MIB: u64 = 90;
const CGROUP_MIB: u64 = 96;

/// 200 objects of 64 KiB: 12.5 MiB, which no socket buffer takes.
const OBJECTS: usize = 200;
const OBJECT_BYTES: usize = 64 << 10;

/// The lists, watches and WebSockets whose clients do not read. Without a limit they take several times the limit.
const SLOW: [usize; 3] = [200, 1500, 500];

const WRITERS: usize = 3;

/// Far longer than the server needs, on a machine that also runs other tests.
const RECOVERY_MAX: Duration = Duration::from_secs(90);

fn map(name: &str, counter: u64, bytes: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"counter": counter.to_string(), "text": "x".repeat(bytes)}})
}

async fn fill(server: &Server) {
    let mut wire = server.plain(Protocol::Http1).await;
    for number in 0..OBJECTS {
        let object = map(&format!("object-{number}"), 0, OBJECT_BYTES);
        assert_eq!(wire.post(MAPS, &object).await.status, StatusCode::CREATED);
    }
    for number in 0..WRITERS {
        let object = map(&format!("writer-{number}"), 0, 0);
        assert_eq!(wire.post(MAPS, &object).await.status, StatusCode::CREATED);
    }
}

async fn scrape(server: &Server) -> Scrape {
    let mut wire = server.plain(Protocol::Http1).await;
    Scrape::parse(&wire.get("/metrics").await.text())
}

/// Updates one object again and again until `stop`; `acknowledged` is the counter of the last successful update.
async fn write(mut wire: Wire, name: String, stop: Arc<AtomicBool>, acknowledged: Arc<AtomicU64>) {
    let path = format!("{MAPS}/{name}");
    let headers = [
        ("content-type", "application/json"),
        ("impersonate-user", "writer"),
    ];
    while !stop.load(Ordering::Relaxed) {
        let next = acknowledged.load(Ordering::Relaxed) + 1;
        let body = map(&name, next, 1_000).to_string();
        let response = wire.send(Method::PUT, &path, &headers, &body).await;
        assert!(response.status.is_success(), "{}", response.text());
        acknowledged.store(next, Ordering::Relaxed);
        sleep(Duration::from_millis(5)).await;
    }
}

/// Reads events until those of all writers have reached `last`, and checks that none is missing.
async fn follow(mut watch: OpenWatch, last: tokio::sync::watch::Receiver<Option<Vec<u64>>>) -> u64 {
    let (mut seen, mut events) = (vec![0_u64; WRITERS], 0);
    loop {
        if last.borrow().as_ref().is_some_and(|last| *last == seen) {
            return events;
        }
        let event = watch.next().await.expect("a watch that does not end");
        let object = &event["object"];
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        assert_ne!(event["type"], "ERROR", "{event}");
        let Some(writer) = name.strip_prefix("writer-") else {
            continue;
        };
        let writer: usize = writer.parse().expect("a number");
        let counter = object["data"]["counter"].as_str().expect("a counter");
        assert_eq!(counter, (seen[writer] + 1).to_string(), "{name}");
        seen[writer] += 1;
        events += 1;
    }
}

/// Lists as a user without privileges until the server has refused a list in each format. Returns the refusal in JSON.
async fn until_list_refused(server: &Server) -> Response {
    let started = Instant::now();
    while list_until_end(server, PROTOBUF).await.status != StatusCode::TOO_MANY_REQUESTS {
        assert!(started.elapsed() < RECOVERY_MAX, "no list is refused");
        sleep(Duration::from_millis(50)).await;
    }
    // Repeats the list, because the memory pressure falls briefly whenever the server aborts responses.
    loop {
        let response = list_until_end(server, "application/json").await;
        if response.status == StatusCode::TOO_MANY_REQUESTS {
            return response;
        }
        assert!(started.elapsed() < RECOVERY_MAX, "no list is refused");
        sleep(Duration::from_millis(50)).await;
    }
}

/// The same with watches.
async fn until_watch_refused(server: &Server) -> Response {
    let started = Instant::now();
    let path = format!("{MAPS}?watch=true&timeoutSeconds=1");
    let headers = [("impersonate-user", "bob")];
    loop {
        let mut wire = server.plain(Protocol::Http1).await;
        let response = wire.send(Method::GET, &path, &headers, "").await;
        if response.status == StatusCode::TOO_MANY_REQUESTS {
            return response;
        }
        assert!(started.elapsed() < RECOVERY_MAX, "no watch is refused");
    }
}

fn check_refusal(response: &Response) {
    assert_eq!(response.headers["retry-after"], "5");
    let status = response.json();
    assert_eq!(status["reason"], "TooManyRequests");
    assert_eq!(status["details"]["retryAfterSeconds"], 5);
    let message = status["message"].as_str().expect("a message");
    let text = "KiB more: retry later, list in smaller pages (limit=), or raise --memory-limit";
    assert!(message.ends_with(text), "{message}");
}

/// Waits until the server aborts responses that are not read, which it does after they were not read for 5 s. Returns the metrics.
async fn until_responses_are_aborted(server: &Server) -> Scrape {
    let started = Instant::now();
    loop {
        let scraped = scrape(server).await;
        if scraped.sum("watchet_memory_aborted_responses_total", &[]) > 0.0 {
            return scraped;
        }
        let used = usage::kib(server, "RssAnon") >> 10;
        assert!(
            started.elapsed() < RECOVERY_MAX,
            "no response is aborted at {used} MiB"
        );
        sleep(Duration::from_millis(200)).await;
    }
}

/// Records the largest private memory of a process in KiB, until it ends.
async fn record_peak(pid: u32, peak: Arc<AtomicU64>) {
    while let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        peak.fetch_max(kib.unwrap_or_default(), Ordering::Relaxed);
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until the pressure is low. Returns the time that this takes.
async fn until_low(server: &Server) -> Duration {
    let started = Instant::now();
    let low = async {
        while scrape(server).await.sum("watchet_memory_pressure", &[]) > 0.0 {
            sleep(Duration::from_millis(200)).await;
        }
    };
    if timeout(RECOVERY_MAX, low).await.is_err() {
        let mib = usage::kib(server, "RssAnon") >> 10;
        panic!("the memory does not fall: {mib} MiB");
    }
    started.elapsed()
}

struct Writers {
    stop: Arc<AtomicBool>,
    acknowledged: Vec<Arc<AtomicU64>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Writers {
    async fn start(server: &Server, tasks: &Tasks) -> Self {
        let mut writers = Self {
            stop: Arc::default(),
            acknowledged: Vec::new(),
            tasks: Vec::new(),
        };
        for number in 0..WRITERS {
            let (acknowledged, stop) = (Arc::<AtomicU64>::default(), Arc::clone(&writers.stop));
            let wire = server.plain(Protocol::Http1).await;
            let name = format!("writer-{number}");
            let write = write(wire, name, stop, Arc::clone(&acknowledged));
            writers.tasks.push(tasks.spawn("writer", write));
            writers.acknowledged.push(acknowledged);
        }
        writers
    }

    fn acknowledged(&self) -> Vec<u64> {
        let counts = self.acknowledged.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    async fn stop(&mut self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks.drain(..) {
            task.await.expect("no write fails");
        }
        self.acknowledged()
    }
}

/// Starts a server with the memory limit, in a control group if the tests may create one.
async fn start(group: Option<&MemoryCgroup>) -> Server {
    // In the embedded store: the one in memory also has all former versions in memory.
    let flags = ["--authorization-mode=AlwaysAllow"];
    let explicit = format!("--memory-limit={LIMIT_MIB}Mi");
    match group {
        Some(group) => Server::start_in_cgroup(group.directory(), &flags).await,
        None => Server::start(&[&flags[..], &[&explicit]].concat()).await,
    }
}

/// Checks that the server reported each level of the pressure.
fn check_levels(server: &Server) {
    let log = server.log();
    let changes = log
        .lines()
        .filter(|line| line.contains("memory pressure changed"));
    let changes: Vec<&str> = changes.collect();
    for level in ["moderate", "high", "critical", "low"] {
        let named = format!("level=\"{level}\"");
        assert!(
            changes.iter().any(|line| line.contains(&named)),
            "{level}: {changes:?}"
        );
    }
}

/// Without a limit the clients take several times the limit, and in a control group the server is killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_too_little_memory_refuses_and_recovers() {
    let group = MemoryCgroup::create(CGROUP_MIB << 20);
    let server = start(group.as_ref()).await;
    fill(&server).await;
    let filled = usage::kib(&server, "RssAnon") >> 10;
    let ann = [("impersonate-user", "ann")];
    let watch = OpenWatch::start(server.plain(Protocol::Http1).await, &ann).await;
    let (end, last) = tokio::sync::watch::channel(None);
    let tasks = Tasks::new();
    let follower = tasks.spawn("follower", follow(watch, last));
    let mut writers = Writers::start(&server, &tasks).await;

    let peak = Arc::<AtomicU64>::default();
    tasks.spawn("peak", record_peak(server.pid(), Arc::clone(&peak)));
    let slow = SlowClients::open(&server, SLOW).await;
    check_refusal(&until_list_refused(&server).await);
    check_refusal(&until_watch_refused(&server).await);
    let mut admin = server.plain(Protocol::Http1).await;
    let small = admin.get(&format!("{MAPS}?limit=1")).await;
    assert_eq!(small.status, StatusCode::OK, "an administrator");
    let before = writers.acknowledged();
    let scraped = until_responses_are_aborted(&server).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        sleep(Duration::from_secs(2)).await;
        let during = writers.acknowledged();
        if before.iter().zip(&during).all(|(a, b)| b > a) {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "writes go on: {before:?} {during:?}"
        );
    }
    drop(slow);
    let recovery = until_low(&server).await;
    let peak = peak.load(Ordering::Relaxed) >> 10;
    let after = usage::kib(&server, "RssAnon") >> 10;
    let listed = list_until_end(&server, PROTOBUF).await;
    assert_eq!(listed.status, StatusCode::OK, "lists are served again");

    let acknowledged = writers.stop().await;
    check_stored(&server, &acknowledged).await;
    end.send_replace(Some(acknowledged));
    let events = timeout(RECOVERY_MAX, follower).await;
    let events = events.expect("all events").expect("no event is missing");
    let count = |name: &str| scraped.sum(&format!("watchet_memory_{name}"), &[]);
    println!(
        "limit {LIMIT_MIB} MiB (cgroup: {}): filled {filled} MiB, peak {peak} MiB, {after} MiB {:.1} s after the storm; \
         {} requests rejected, {} responses aborted, {events} events received",
        group.is_some(),
        recovery.as_secs_f64(),
        count("rejected_requests_total"),
        count("aborted_responses_total"),
    );
    check_levels(&server);
    assert!(peak <= LIMIT_MIB, "{peak} MiB");
    assert!(after <= LIMIT_MIB * 7 / 10, "{after} MiB");
    server.stop().await;
}

/// Checks that each object has the counter of the last acknowledged write.
async fn check_stored(server: &Server, acknowledged: &[u64]) {
    let mut wire = server.plain(Protocol::Http1).await;
    for (number, expected) in acknowledged.iter().enumerate() {
        let object = wire.get(&format!("{MAPS}/writer-{number}")).await.json();
        assert_eq!(object["data"]["counter"], expected.to_string(), "{number}");
    }
}

/// Watches over WebSocket were not among the responses that are aborted.
#[tokio::test(flavor = "multi_thread")]
async fn websockets_that_are_not_read_are_aborted() {
    let server = start(None).await;
    fill(&server).await;
    let peak = Arc::<AtomicU64>::default();
    let tasks = Tasks::new();
    tasks.spawn("peak", record_peak(server.pid(), Arc::clone(&peak)));
    let _slow = SlowClients::open(&server, [0, 0, 1500]).await;
    let scraped = until_responses_are_aborted(&server).await;
    let peak = peak.load(Ordering::Relaxed) >> 10;
    let count = scraped.sum("watchet_memory_aborted_responses_total", &[]);
    println!("peak {peak} of {LIMIT_MIB} MiB, {count} WebSockets aborted");
    assert!(peak <= LIMIT_MIB, "{peak} MiB");
    server.stop().await;
}
