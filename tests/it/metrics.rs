//! Tests of `/metrics` with the real program on both back ends: the values after known traffic, those of a client that
//! does not read, and the size of a scrape.

use std::time::Duration;

use futures::future::join_all;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::harness::{PATIENCE, Protocol, Scrape, Server, Wire, full, request};
use crate::storage::etcd::EtcdProcess;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SIZE: &str = r#"apiserver_storage_size_bytes{storage_cluster_id="etcd-0"}"#;
const WATCH_LIST: &str =
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

async fn scrape(wire: &mut Wire) -> Scrape {
    let answer = wire.get("/metrics").await;
    assert_eq!(answer.status, StatusCode::OK);
    Scrape::parse(std::str::from_utf8(&answer.body).unwrap())
}

/// Asserts the sum of the series with this name and these labels; `'` stands for `"`.
fn check(received: &Scrape, name: &str, labels: &str, expect: f64) {
    let labels = labels.replace('\'', "\"");
    let each: Vec<&str> = labels.split(' ').filter(|l| !l.is_empty()).collect();
    let value = received.sum(name, &each);
    assert_eq!(value, expect, "{name} {labels}");
}

/// Scrapes until the sum of the config maps' series of this name is `value`.
async fn until(wire: &mut Wire, name: &str, value: f64) -> Scrape {
    let reached = async {
        loop {
            let metrics = scrape(wire).await;
            if metrics.sum(name, &["resource=\"configmaps\""]) == value {
                return metrics;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, reached).await.expect(name)
}

fn config_map(name: &str, app: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": app}}, "data": {"text": text},
    })
}

/// An open watch, read frame by frame.
struct Watch {
    body: Incoming,
    rest: Vec<u8>,
}

impl Watch {
    async fn open(wire: &mut Wire, query: &str) -> Self {
        let path = format!("{CONFIG_MAPS}?{query}");
        let request = request(Method::GET, &path, &[], full(""));
        let response = wire.open(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Self {
            body: response.into_body(),
            rest: Vec::new(),
        }
    }

    /// Returns the types of the next `count` events, and the bytes of their frames.
    async fn next(&mut self, count: usize) -> (Vec<String>, usize) {
        let (mut types, mut bytes) = (Vec::new(), 0);
        while types.len() < count {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                bytes += line.len();
                let event: Value = serde_json::from_slice(&line).unwrap();
                types.push(event["type"].as_str().unwrap().to_owned());
                continue;
            }
            let frame = timeout(PATIENCE, self.body.frame()).await.unwrap();
            let data = frame.expect("an open watch").unwrap().into_data().unwrap();
            self.rest.extend_from_slice(&data);
        }
        (types, bytes)
    }
}

/// Creates, changes, deletes, reads and watches objects; the values of the metrics follow from that.
async fn known_traffic(server: Server) {
    let mut wire = server.plain(Protocol::Http2).await;
    let list = async |wire: &mut Wire, query: &str| -> Value {
        let answer = wire.get(&format!("{CONFIG_MAPS}{query}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{query}");
        answer.json()
    };
    list(&mut wire, "").await;
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"), ("e", "y")] {
        let made = wire.post(CONFIG_MAPS, &config_map(name, app, "1")).await;
        assert_eq!(made.status, StatusCode::CREATED);
    }
    let again = wire.post(CONFIG_MAPS, &config_map("a", "x", "1")).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    let whole = list(&mut wire, "").await;
    let version = whole["metadata"]["resourceVersion"].as_str().unwrap();
    let put = config_map("b", "x", "2").to_string();
    let headers = [("content-type", "application/json")];
    let (b, e) = (format!("{CONFIG_MAPS}/b"), format!("{CONFIG_MAPS}/e"));
    let changed = wire.send(Method::PUT, &b, &headers, &put).await;
    assert_eq!(changed.status, StatusCode::OK);
    let deleted = wire.send(Method::DELETE, &e, &[], "").await;
    assert_eq!(deleted.status, StatusCode::OK);
    let got = wire.get(&b).await;
    assert_eq!(got.json()["data"]["text"], "2");
    let absent = wire.get(&e).await;
    assert_eq!(absent.status, StatusCode::NOT_FOUND);
    list(&mut wire, "?labelSelector=app%3Dx").await;
    list(&mut wire, "?resourceVersion=0").await;
    list(
        &mut wire,
        &format!("?resourceVersion={version}&resourceVersionMatch=Exact"),
    )
    .await;
    let page = list(&mut wire, "?limit=3").await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    list(&mut wire, &format!("?limit=3&continue={token}")).await;

    let mut watch = Watch::open(&mut wire, WATCH_LIST).await;
    let (initial, initial_bytes) = watch.next(5).await;
    assert_eq!(initial.concat(), "ADDEDADDEDADDEDADDEDBOOKMARK");
    let mut writer = server.plain(Protocol::Http1).await;
    // The watch is live, so that later events are dispatched to it and not read from history.
    until(&mut writer, "watchet_live_watchers", 1.0).await;
    let made = writer.post(CONFIG_MAPS, &config_map("f", "x", "1")).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let (_, event_bytes) = watch.next(1).await;

    let metrics = scrape(&mut wire).await;
    let check = |name: &str, labels: &str, expect: f64| {
        check(
            &metrics,
            name,
            &format!("resource='configmaps' {labels}"),
            expect,
        );
    };
    // Storage: six creates, and one that failed and read the existing key.
    check("etcd_requests_total", "operation='create' group=''", 7.0);
    check("etcd_requests_total", "operation='get'", 1.0);
    check("etcd_requests_total", "operation='update'", 1.0);
    check("etcd_requests_total", "operation='delete'", 1.0);
    check("etcd_requests_total", "operation='list'", 1.0);
    // Four lists, two gets and a watch were consistent reads.
    check("etcd_requests_total", "operation='currentRevision'", 7.0);
    check("etcd_request_errors_total", "", 0.0);
    check(
        "etcd_request_duration_seconds_count",
        "operation='create'",
        7.0,
    );
    check("apiserver_storage_events_received_total", "", 8.0);
    // The cache: lists of no objects, of 5, of 4 of which two match, of 4, of 5 at an old version, and of 4 in two
    // pages.
    check("apiserver_cache_list_total", "", 7.0);
    check("apiserver_cache_list_fetched_objects_total", "", 22.0);
    check("apiserver_cache_list_returned_objects_total", "", 20.0);
    check("apiserver_storage_list_total", "storage='watchcache'", 7.0);
    check("apiserver_storage_list_total", "storage='etcd'", 1.0);
    let consistent = "apiserver_watch_cache_consistent_read_total";
    check(consistent, "success='true' fallback='false'", 6.0);
    check(consistent, "", 6.0);
    check("apiserver_watch_cache_events_received_total", "", 8.0);
    check("apiserver_watch_cache_initializations_total", "", 1.0);
    check("apiserver_init_events_total", "", 4.0);
    check("apiserver_resource_objects", "", 5.0);
    check("watch_cache_capacity", "", 8.0);
    let stages = "apiserver_watch_events_dispatch_duration_seconds_count";
    check(stages, "stage='storage_to_cache'", 8.0);
    check(stages, "stage='total'", 1.0);
    // HTTP requests.
    check("apiserver_request_total", "verb='POST' code='201'", 6.0);
    check("apiserver_request_total", "verb='POST' code='409'", 1.0);
    check("apiserver_request_total", "verb='PUT' code='200'", 1.0);
    check("apiserver_request_total", "verb='DELETE' code='200'", 1.0);
    check("apiserver_request_total", "verb='GET' code='200'", 1.0);
    check("apiserver_request_total", "verb='GET' code='404'", 1.0);
    check(
        "apiserver_request_total",
        "verb='LIST' scope='namespace'",
        7.0,
    );
    check("apiserver_request_total", "verb='WATCH'", 0.0);
    check("apiserver_longrunning_requests", "verb='WATCH'", 1.0);
    check("apiserver_watch_events_total", "version='v1'", 6.0);
    let bytes = (initial_bytes + event_bytes) as f64;
    check("apiserver_watch_events_sizes_sum", "", bytes);
    check(
        "apiserver_watch_list_duration_seconds_count",
        "scope='namespace'",
        1.0,
    );
    check("watchet_live_watchers", "", 1.0);
    drop((watch, wire));
    let mut wire = server.plain(Protocol::Http1).await;
    // The server notices the end of the connection when it next reads from it.
    until(&mut wire, "apiserver_longrunning_requests", 0.0).await;
    // Scrapes again: the values of one scrape may be of different times.
    let metrics = scrape(&mut wire).await;
    assert!(metrics.get(SIZE).unwrap() > 10_000.0);
    check_gone(&metrics);
    server.stop().await;
}

fn check_gone(received: &Scrape) {
    check(
        received,
        "apiserver_request_total",
        "verb='WATCH' code='200'",
        1.0,
    );
    check(received, "watchet_watchers", "resource='configmaps'", 0.0);
}

/// The number of changes while a client does not read: more than its inbox and the socket buffers hold.
const CHANGES: usize = 3200;
const WRITERS: usize = 8;

/// A watch that is not read is parked. After the client has read, it is live again.
async fn a_slow_watcher(server: Server) {
    let mut wire = server.plain(Protocol::Http2).await;
    let mut watch = Watch::open(&mut wire, WATCH_LIST).await;
    let mut writer = server.plain(Protocol::Http1).await;
    let made = writer
        .post(CONFIG_MAPS, &config_map("first", "x", ""))
        .await;
    assert_eq!(made.status, StatusCode::CREATED);
    watch.next(2).await;
    // The first watch of a resource may be parked once when it starts.
    let parked = "watchet_parked_watchers_total";
    let parked_before = scrape(&mut writer).await.sum(parked, &[]);
    let text = "x".repeat(8 << 10);
    join_all((0..WRITERS).map(|writer| {
        let (server, text) = (&server, &text);
        async move {
            let mut wire = server.plain(Protocol::Http1).await;
            for n in 0..CHANGES / WRITERS {
                let object = config_map(&format!("w{writer}-{n}"), "x", text);
                let made = wire.post(CONFIG_MAPS, &object).await;
                assert_eq!(made.status, StatusCode::CREATED);
            }
        }
    }))
    .await;
    let mut wire = server.plain(Protocol::Http1).await;
    let config_maps = "resource='configmaps'";
    let metrics = scrape(&mut wire).await;
    check(&metrics, "watchet_watchers", config_maps, 1.0);
    check(&metrics, "watchet_live_watchers", config_maps, 0.0);
    let (types, bytes) = watch.next(CHANGES).await;
    assert!(types.iter().all(|kind| kind == "ADDED"));
    let metrics = scrape(&mut wire).await;
    check(&metrics, parked, "", parked_before + 1.0);
    check(
        &metrics,
        "apiserver_terminated_watchers_total",
        config_maps,
        0.0,
    );
    let frames = 2.0 + CHANGES as f64;
    check(
        &metrics,
        "apiserver_watch_events_total",
        config_maps,
        frames,
    );
    let sum = metrics.sum(
        "apiserver_watch_events_sizes_sum",
        &["resource=\"configmaps\""],
    );
    assert!(sum > bytes as f64, "the first two as well");
    let made = wire.post(CONFIG_MAPS, &config_map("last", "x", "")).await;
    assert_eq!(made.status, StatusCode::CREATED);
    watch.next(1).await;
    // The client may have the event before the watcher is counted as live.
    let metrics = until(&mut wire, "watchet_live_watchers", 1.0).await;
    check(&metrics, parked, "", parked_before + 1.0);
    server.stop().await;
}

/// Controllers watch too, so tests that count requests run without them.
const ALONE: &str = "--controllers=-namespace";

async fn on_etcd(etcd: &EtcdProcess) -> Server {
    let servers = format!("--etcd-servers={}", etcd.url());
    Server::start(&["--storage=etcd", &servers, ALONE]).await
}

#[tokio::test]
async fn known_traffic_counts_embedded() {
    known_traffic(Server::start(&[ALONE]).await).await;
}

#[tokio::test]
async fn known_traffic_counts_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    known_traffic(on_etcd(&etcd).await).await;
}

#[tokio::test]
async fn a_slow_watcher_is_counted_embedded() {
    a_slow_watcher(Server::start(&[ALONE]).await).await;
}

#[tokio::test]
async fn a_slow_watcher_is_counted_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    a_slow_watcher(on_etcd(&etcd).await).await;
}

/// A scrape has a few lines for each resource.
#[tokio::test]
async fn a_scrape_of_all_resources_is_small() {
    let server = Server::start(&["--storage=memory", ALONE]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    // The caches of namespaces, definitions and the six kinds of admission configurations, which every write needs, of the
    // two kinds of flow control, and of quotas once the server has created its own service.
    let followed = 15;
    let begun = tokio::time::Instant::now();
    let empty = loop {
        let empty = wire.get("/metrics").await;
        let text = std::str::from_utf8(&empty.body).unwrap();
        let caches = text.matches("\napiserver_watch_cache_resource_version{");
        let count = caches.count();
        if count == followed {
            break empty;
        }
        assert!(count < followed, "{text}");
        assert!(begun.elapsed() < crate::harness::PATIENCE, "{text}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let bytes = empty.body.len();
    // How many operations the server has done by then depends on the speed of the machine.
    let text = std::str::from_utf8(&empty.body).unwrap();
    let operations = text.matches("\netcd_request_duration_seconds_count{");
    let operations = operations.count();
    assert!(operations < followed * 4, "{operations}: {text}");
    assert!(
        bytes < 80_000 + followed * 8_600 + operations * 3_450,
        "{bytes} bytes with {operations} operations before anything was asked"
    );
    let groups = wire.get("/apis").await.json();
    let groups = groups["groups"].as_array().unwrap().iter();
    let mut roots = vec!["/api/v1".to_owned()];
    roots.extend(groups.map(|group| {
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap();
        format!("/apis/{version}")
    }));
    let mut listed = 0;
    for root in roots {
        let resources = wire.get(&root).await.json();
        for resource in resources["resources"].as_array().unwrap() {
            let verbs = resource["verbs"].as_array().unwrap();
            if verbs.contains(&json!("list")) {
                let name = resource["name"].as_str().unwrap();
                let answer = wire.get(&format!("{root}/{name}")).await;
                assert_eq!(answer.status, StatusCode::OK, "{root}/{name}");
                listed += 1;
            }
        }
    }
    assert!(listed > 50, "{listed}");
    let answer = wire.get("/metrics").await;
    let bytes = answer.body.len();
    assert!(
        bytes < listed * 32_000,
        "{bytes} bytes for {listed} resources"
    );
    let gzip = [("accept-encoding", "gzip")];
    let packed = wire.send(Method::GET, "/metrics", &gzip, "").await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    let bytes = packed.body.len();
    assert!(bytes < listed * 2_000, "{bytes} bytes, compressed");
    let received = Scrape::parse(std::str::from_utf8(&answer.body).unwrap());
    assert_eq!(received.families()["process_open_fds"].0, "gauge");
    assert_eq!(received.get(SIZE), None, "memory takes no disk");
    let version = format!(
        "watchet_build_info{{version=\"{}\"}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(received.get(&version), Some(1.0));
    server.stop().await;
}

/// A test run may define and delete thousands of custom resources.
#[tokio::test]
async fn a_deleted_custom_resource_leaves_no_series() {
    let server = Server::start(&["--storage=memory"]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({
        "metadata": {"name": "gadgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    assert_eq!(wire.post(definitions, &definition).await.status, 201);
    let gadgets = "/apis/example.com/v1/namespaces/default/gadgets";
    let gadget =
        json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}});
    let created = async {
        while wire.post(gadgets, &gadget).await.status != 201 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, created).await.expect("it is served");
    let watch = format!("{gadgets}?watch=1&timeoutSeconds=1");
    assert_eq!(wire.get(&watch).await.status, 200);
    let text = wire.get("/metrics").await.text();
    for name in [
        "apiserver_request_total",
        "apiserver_watch_events_sizes",
        "apiserver_resource_objects",
    ] {
        let mut lines = text.lines().filter(|line| line.starts_with(name));
        assert!(lines.any(|line| line.contains("gadgets")), "{name}: {text}");
    }
    let path = format!("{definitions}/gadgets.example.com");
    let deleted = wire.send(Method::DELETE, &path, &[], "").await;
    assert_eq!(deleted.status, 200);
    let gone = async {
        while wire.get("/metrics").await.text().contains("gadgets") {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, gone)
        .await
        .expect("its series are removed");
    server.stop().await;
}
