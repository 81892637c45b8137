//! Tests of a server whose etcd is away: the log stays short and has the facts, and readiness follows etcd.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use watchet::tasks::Tasks;

use crate::harness::{PATIENCE, Protocol, Scrape, Server, Wire};
use crate::storage::etcd::EtcdProcess;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Built-in resources whose caches are started by a list.
const RESOURCES: [&str; 20] = [
    "/api/v1/configmaps",
    "/api/v1/endpoints",
    "/api/v1/events",
    "/api/v1/limitranges",
    "/api/v1/nodes",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/api/v1/pods",
    "/api/v1/podtemplates",
    "/api/v1/secrets",
    "/api/v1/services",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/batch/v1/jobs",
    "/apis/batch/v1/cronjobs",
    "/apis/networking.k8s.io/v1/ingresses",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/coordination.k8s.io/v1/leases",
];

/// Returns the lines at INFO or above, without those of lists, which are logged if they take over a second.
fn lines(log: &str) -> Vec<&str> {
    let has_one = |line: &str, texts: &[&str]| texts.iter().any(|text| line.contains(text));
    let is_counted = |line: &&str| {
        has_one(line, &["INFO", "WARN", "ERROR"]) && !has_one(line, &["listing", "list ended"])
    };
    log.lines().filter(is_counted).collect()
}

/// Reads and writes until `stop`; returns the number of requests and of those that failed, and the longest time.
async fn client(
    mut wire: Wire,
    number: usize,
    stop: CancellationToken,
) -> (usize, usize, Duration) {
    let (mut requests, mut failed, mut longest) = (0, 0, Duration::ZERO);
    while !stop.is_cancelled() {
        requests += 1;
        let name = format!("m{number}-{requests}");
        let map = json!({"metadata": {"name": name}});
        let started = Instant::now();
        let code = match requests % 3 {
            0 => wire.post(CONFIG_MAPS, &map).await.status,
            1 => wire.get(RESOURCES[requests % RESOURCES.len()]).await.status,
            _ => wire.get("/readyz").await.status,
        };
        failed += usize::from(code.as_u16() >= 500);
        longest = longest.max(started.elapsed());
        sleep(Duration::from_millis(5)).await;
    }
    (requests, failed, longest)
}

async fn until_ready(wire: &mut Wire) {
    let deadline = Instant::now() + PATIENCE;
    while wire.get("/readyz").await.status != 200 {
        assert!(Instant::now() < deadline, "it is not ready");
        sleep(Duration::from_millis(10)).await;
    }
}

/// 1,300 lines in six minutes without etcd, and one for each failed request, hid the cause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_etcd_is_logged_in_proportion() {
    let mut etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let server = Server::start(&["--storage=etcd", &servers]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    for path in RESOURCES {
        let listed = wire.get(path).await;
        assert_eq!(listed.status, 200, "{path}: {}", listed.json());
    }
    until_ready(&mut wire).await;
    let tasks = Tasks::new();
    let mut clients = Vec::new();
    for number in 0..8 {
        let wire = server.plain(Protocol::Http1).await;
        clients.push(tasks.spawn("client", client(wire, number, tasks.token())));
    }
    sleep(Duration::from_secs(1)).await;
    let before = server.log().len();
    etcd.kill();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(wire.get("/readyz").await.status, 500);
    assert_eq!(
        wire.get("/livez").await.status,
        200,
        "a restart does not help"
    );
    let metrics = Scrape::parse(&wire.get("/metrics").await.text());
    let errors = metrics.sum("etcd_request_errors_total", &[]);
    assert!(errors > 0.0, "the metrics show the outage too");
    etcd.restart().await;
    let returned = Instant::now();
    until_ready(&mut wire).await;
    println!("ready {:?} after etcd's return", returned.elapsed());
    // The last messages follow readiness; the assertions below say which is missing.
    let ends = [
        "etcd is available again",
        "all caches follow storage again",
        "health check recovered",
    ];
    let deadline = Instant::now() + PATIENCE;
    let has_all = |log: &str| ends.iter().all(|end| log.contains(end));
    while !has_all(&server.log()[before..]) && Instant::now() < deadline {
        sleep(Duration::from_millis(100)).await;
    }
    tasks.cancel();
    let (mut requests, mut failed, mut longest) = (0, 0, Duration::ZERO);
    for client in clients {
        let counts = client.await.expect("no panic");
        requests += counts.0;
        failed += counts.1;
        longest = longest.max(counts.2);
    }
    println!("{requests} requests, of which {failed} failed; the longest took {longest:?}");
    let log = server.log();
    let lines = lines(&log[before..]);
    println!("{} lines:\n{}", lines.len(), lines.join("\n"));
    assert!(failed > 100, "the load met the outage: {failed}");
    assert!(lines.len() < 20, "{} lines", lines.len());
    let has = |parts: &[&str]| {
        lines
            .iter()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    };
    assert!(has(&["etcd is unavailable", "down_for", "refused"]));
    assert!(has(&["caches cannot follow storage", "caches="]));
    assert!(has(&["request failed", "suppressed="]));
    assert!(has(&[
        "health check failed",
        "watchcache",
        "caches are not ready"
    ]));
    assert!(has(&["etcd is available again", "down_for"]));
    assert!(has(&[
        "all caches follow storage again",
        "caches=",
        "down_for"
    ]));
    assert!(has(&["health check recovered", "watchcache"]));
    server.stop().await;
}

/// Waits until a consistent list of config maps has these names, and returns its version.
async fn until_listed(wire: &mut Wire, expected: &[&str]) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let listed = wire.get(CONFIG_MAPS).await.json();
        let items = listed["items"].as_array().cloned().unwrap_or_default();
        let names = items.iter().map(|item| item["metadata"]["name"].as_str());
        let names: Vec<&str> = names
            .flatten()
            .filter(|name| !name.starts_with("kube-"))
            .collect();
        if names == expected {
            return listed["metadata"]["resourceVersion"]
                .as_str()
                .expect("a version")
                .to_owned();
        }
        assert!(
            Instant::now() < deadline,
            "{names:?} and not {expected:?}: {listed}"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// An administrator restores etcd from an older copy while the server runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_restored_from_a_copy_is_noticed() {
    let mut etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let server = Server::start(&["--storage=etcd", &servers]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    until_ready(&mut wire).await;
    let map = |name: &str| json!({"metadata": {"name": name}});
    assert_eq!(wire.post(CONFIG_MAPS, &map("a")).await.status, 201);
    etcd.kill();
    etcd.back_up();
    etcd.restart().await;
    until_ready(&mut wire).await;
    for name in ["b", "c", "d"] {
        assert_eq!(wire.post(CONFIG_MAPS, &map(name)).await.status, 201);
    }
    // More than the server itself writes to the restored etcd until the watch below.
    for number in 0..50 {
        let name = format!("kube-{number}");
        assert_eq!(wire.post(CONFIG_MAPS, &map(&name)).await.status, 201);
    }
    let seen = until_listed(&mut wire, &["a", "b", "c", "d"]).await;
    let before = server.log().len();
    etcd.kill();
    etcd.restore();
    etcd.restart().await;
    let restored = until_listed(&mut wire, &["a"]).await;
    let [seen_at, restored_at] = [&seen, &restored].map(|version| version.parse::<u64>().unwrap());
    assert!(seen_at < restored_at, "{seen_at} and then {restored_at}");
    until_ready(&mut wire).await;
    let watch = format!("{CONFIG_MAPS}?watch=true&resourceVersion={seen}&timeoutSeconds=5");
    let watched = wire.get(&watch).await;
    let text = String::from_utf8_lossy(&watched.body).into_owned();
    assert!(text.contains("410"), "a version that was lost: {text}");
    assert_eq!(wire.post(CONFIG_MAPS, &map("e")).await.status, 201);
    until_listed(&mut wire, &["a", "e"]).await;
    let log = server.log();
    let lines = lines(&log[before..]);
    println!("{} lines:\n{}", lines.len(), lines.join("\n"));
    // The line about an outage of the caches, if there is one, contains the shorter error.
    let said = lines
        .iter()
        .filter(|line| line.contains("etcd was replaced by another state"));
    assert_eq!(said.count(), 1, "it is said once");
    assert!(lines.len() < 20, "{} lines", lines.len());
    server.stop().await;
}
