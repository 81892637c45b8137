//! The resources `watchers` and `watchcaches`, which show the open watches and the watch caches of the server.

use http::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::harness::{Kubectl, OpenWatch, PATIENCE, PROTOCOLS, Protocol, Server, Wire};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCHERS: &str = "/apis/watchet.dev/v1alpha1/watchers";
const CACHES: &str = "/apis/watchet.dev/v1alpha1/watchcaches";

/// Returns the watchers that a client with this header User-Agent has opened.
async fn watchers_of(wire: &mut Wire, user_agent: &str) -> Vec<Value> {
    let listed = wire.get(WATCHERS).await;
    assert_eq!(listed.status, 200, "{}", listed.text());
    let items = listed.json()["items"].as_array().unwrap().clone();
    let is_own = |watcher: &Value| watcher["spec"]["userAgent"] == user_agent;
    items.into_iter().filter(is_own).collect()
}

/// Waits until the only watcher of `user_agent` is as `is_expected` says.
async fn until(wire: &mut Wire, user_agent: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = watchers_of(wire, user_agent).await;
        if let [watcher] = found.as_slice()
            && is_expected(watcher)
        {
            return watcher.clone();
        }
        assert!(Instant::now() < deadline, "{found:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until `user_agent` has no watcher.
async fn until_gone(wire: &mut Wire, user_agent: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !watchers_of(wire, user_agent).await.is_empty() {
        assert!(
            Instant::now() < deadline,
            "the watcher of a closed watch remains"
        );
        sleep(Duration::from_millis(20)).await;
    }
}

async fn create(wire: &mut Wire, name: &str, bytes: usize) {
    let map = json!({"metadata": {"name": name}, "data": {"d": "x".repeat(bytes)}});
    assert_eq!(wire.post(MAPS, &map).await.status, 201);
}

/// A new watch is in the very next list, with what its request said.
#[tokio::test]
async fn an_open_watch_is_listed_until_it_ends() {
    let server = Server::start(&[]).await;
    for protocol in PROTOCOLS {
        let mut wire = server.admin(Protocol::Http1).await;
        let headers = [("user-agent", "probe/1"), ("impersonate-user", "jane")];
        server.allow_everything("jane").await;
        let watch = OpenWatch::start(server.admin(protocol).await, &headers).await;
        let found = watchers_of(&mut wire, "probe/1").await;
        let [watcher] = found.as_slice() else {
            panic!("{found:?}")
        };
        let spec = &watcher["spec"];
        let address = spec["address"].as_str().unwrap();
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        let expected = json!({
            "user": "jane", "userAgent": "probe/1", "address": address,
            "group": "", "version": "v1", "resource": "configmaps", "namespace": "default",
            "labelSelector": "", "fieldSelector": "", "encoding": "json", "form": "Object",
        });
        assert_eq!(spec, &expected);
        let sent = watcher["status"]["sentEvents"].as_u64().unwrap();
        create(&mut wire, &format!("seen-{protocol:?}").to_lowercase(), 10).await;
        let grown = |watcher: &Value| watcher["status"]["sentEvents"].as_u64() == Some(sent + 1);
        let watcher = until(&mut wire, "probe/1", grown).await;
        assert_eq!(watcher["status"]["phase"], "Live");
        assert_eq!(watcher["status"]["lag"], json!({"events": 0, "bytes": 0}));
        drop(watch);
        until_gone(&mut wire, "probe/1").await;
    }
}

/// The client sees the end of the response, and can resume.
#[tokio::test]
async fn deleting_a_watcher_ends_its_watch_only() {
    let server = Server::start(&[]).await;
    let kubectl = Kubectl::newest(&server.kubeconfig());
    let mut wire = server.admin(Protocol::Http1).await;
    let open = async |user_agent| {
        let headers = [("user-agent", user_agent)];
        OpenWatch::start(server.admin(Protocol::Http2).await, &headers).await
    };
    let (mut ended, mut other) = (open("ended").await, open("other").await);
    let watcher = until(&mut wire, "ended", |_| true).await;
    let name = watcher["metadata"]["name"].as_str().unwrap();
    let table = kubectl.run(&["get", "watchers", name]).await;
    assert!(table.contains("configmaps"), "{table}");
    assert!(table.contains("Live"), "{table}");
    let said = kubectl.run(&["delete", "watcher", name]).await;
    assert!(said.contains("deleted"), "{said}");
    assert_eq!(ended.next().await, None);
    until_gone(&mut wire, "ended").await;
    create(&mut wire, "later", 10).await;
    let event = other.next().await.expect("it is open");
    assert_eq!(event["object"]["metadata"]["name"], "later");
    let again = kubectl.run_failing(&["delete", "watcher", name]).await;
    assert!(again.contains("not found"), "{again}");
    // The client may see the end before it is logged and counted.
    let counted = r#"watchet_watch_ends_total{group="",version="v1",resource="configmaps",reason="deleted"} 1"#;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let metrics = wire.get("/metrics").await.text();
        if metrics.contains(counted) && server.log().contains("watch ended") {
            break;
        }
        assert!(Instant::now() < deadline, "{metrics}");
        sleep(Duration::from_millis(20)).await;
    }
    let log = server.log();
    let mut lines = log.lines();
    let ends = lines.find(|line| line.contains("watch ended"));
    let ends = ends.expect("the end is logged");
    for part in [
        "reason=\"deleted\"",
        "resource=\"configmaps\"",
        "position=",
        "sent=",
    ] {
        assert!(ends.contains(part), "{ends}");
    }
}

/// A client that does not read is shown as parked, with what it has yet to read, while it does not read.
#[tokio::test]
async fn a_stalled_client_is_parked_until_it_reads() {
    let server = Server::start(&[]).await;
    let mut wire = server.admin(Protocol::Http1).await;
    let headers = [("user-agent", "stalled")];
    let mut watch = OpenWatch::start(server.admin(Protocol::Http1).await, &headers).await;
    // More than the buffers of both sockets and the inbox of the watch hold.
    let mut written = 0;
    let deadline = Instant::now() + PATIENCE;
    let parked = loop {
        create(&mut wire, &format!("m{written}"), 500_000).await;
        written += 1;
        let listed = wire
            .get(&format!("{WATCHERS}?fieldSelector=status.phase%3DParked"))
            .await
            .json();
        if let Some(watcher) = listed["items"].as_array().unwrap().first() {
            break watcher.clone();
        }
        assert!(
            Instant::now() < deadline,
            "not parked after {written} events"
        );
    };
    assert_eq!(parked["spec"]["userAgent"], "stalled");
    let lag = &parked["status"]["lag"];
    assert!(lag["events"].as_u64().unwrap() > 0, "{lag}");
    assert!(lag["bytes"].as_u64().unwrap() > 500_000, "{lag}");
    let since: jiff::Timestamp = lag["since"].as_str().unwrap().parse().unwrap();
    assert!(since <= jiff::Timestamp::now(), "{since}");
    let cache = wire.get(&format!("{CACHES}/configmaps")).await.json();
    assert_eq!(cache["status"]["parkedWatchers"], 1, "{cache}");
    let metrics = wire.get("/metrics").await.text();
    let gauge = r#"watchet_parked_watchers{group="",resource="configmaps"}"#;
    assert!(metrics.contains(&format!("{gauge} 1\n")), "{metrics}");
    for number in 0..written {
        let event = watch.next().await.expect("nothing is lost");
        assert_eq!(event["object"]["metadata"]["name"], format!("m{number}"));
    }
    // The watch is live once its client waits for the next event.
    let next = watch.next();
    let live = async {
        until(&mut wire, "stalled", |watcher| {
            watcher["status"]["phase"] == "Live"
        })
        .await;
        create(&mut wire, "last", 10).await;
    };
    let (event, ()) = tokio::join!(next, live);
    assert_eq!(event.unwrap()["object"]["metadata"]["name"], "last");
    let metrics = wire.get("/metrics").await.text();
    assert!(metrics.contains(&format!("{gauge} 0\n")), "{metrics}");
}

/// A watch of the watchers receives each watch that begins and ends.
#[tokio::test]
async fn watchers_can_be_watched() {
    let server = Server::start(&[]).await;
    let kubectl = Kubectl::newest(&server.kubeconfig());
    let mut seen = kubectl.start(&[
        "get",
        "watchers",
        "-w",
        "--output-watch-events",
        "-o",
        "wide",
    ]);
    seen.line_with("EVENT").await;
    let headers = [("user-agent", "short-lived")];
    let watch = OpenWatch::start(server.admin(Protocol::Http2).await, &headers).await;
    let added = seen.line_with("short-lived").await;
    assert!(added.starts_with("ADDED"), "{added}");
    drop(watch);
    let deleted = seen.line_with("DELETED").await;
    assert!(deleted.contains("short-lived"), "{deleted}");
    seen.kill().await;
}

/// Each write is in the very next read of the cache's object.
#[tokio::test]
async fn a_cache_shows_its_objects_and_history() {
    let server = Server::start(&["--storage=memory", "--controllers=-namespace"]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let empty = wire.get(&format!("{MAPS}?limit=1")).await;
    assert_eq!(empty.status, 200);
    for count in 1..=3 {
        create(&mut wire, &format!("m{count}"), 1000).await;
        assert_eq!(wire.get(MAPS).await.status, 200);
        let status = wire.get(&format!("{CACHES}/configmaps")).await.json()["status"].clone();
        assert_eq!(status["ready"], true, "{status}");
        assert_eq!(status["objects"], count, "{status}");
        assert_eq!(status["history"]["events"], count, "{status}");
        assert!(
            status["objectBytes"].as_u64().unwrap() > 1000 * count,
            "{status}"
        );
        // Others write too.
        let version = |member: &str| -> u64 { status[member].as_str().unwrap().parse().unwrap() };
        let (cache, storage) = (
            version("resourceVersion"),
            version("storageResourceVersion"),
        );
        assert!(0 < cache && cache <= storage, "{status}");
        assert_eq!(status["relists"], 0, "{status}");
        assert!(status["history"]["since"].is_string(), "{status}");
    }
}

/// A cache shows the protobuf encodings of its own objects, as many as the server has memory for.
#[tokio::test]
async fn a_cache_shows_the_encodings_of_its_objects() {
    for (limit, retained) in [("1Mi", 3), ("0", 0)] {
        let limit = format!("--encoding-cache-bytes-max={limit}");
        let server = Server::start(&["--storage=memory", "--controllers=-namespace", &limit]).await;
        let mut wire = server.plain(Protocol::Http1).await;
        for count in 1..=3 {
            create(&mut wire, &format!("m{count}"), 1000).await;
        }
        let protobuf = [("accept", "application/vnd.kubernetes.protobuf")];
        let listed = wire.send(Method::GET, MAPS, &protobuf, "").await;
        assert_eq!(listed.status, 200);
        for (resource, expected) in [("configmaps", retained), ("namespaces", 0)] {
            let cache = wire.get(&format!("{CACHES}/{resource}")).await.json();
            let encodings = &cache["status"]["encodings"];
            assert_eq!(encodings["objects"], expected, "{limit}: {cache}");
            let bytes = encodings["bytes"].as_u64().unwrap();
            let expected = 1000 * expected..2000 * expected + 1;
            assert!(expected.contains(&bytes), "{limit}: {cache}");
        }
    }
}

/// Clients cannot write the objects, and read them only with permission.
#[tokio::test]
async fn the_objects_are_read_only_and_protected() {
    let server = Server::start(&[]).await;
    let mut admin = server.admin(Protocol::Http1).await;
    let watcher = json!({
        "apiVersion": "watchet.dev/v1alpha1", "kind": "Watcher", "metadata": {"name": "w-1"},
    });
    assert_eq!(admin.post(WATCHERS, &watcher).await.status, 405);
    let path = format!("{WATCHERS}/w-1");
    let body = watcher.to_string();
    let json = [("content-type", "application/json")];
    assert_eq!(
        admin.send(Method::PUT, &path, &json, &body).await.status,
        405
    );
    assert_eq!(
        admin.send(Method::DELETE, WATCHERS, &[], "").await.status,
        405
    );
    let cache = format!("{CACHES}/configmaps");
    assert_eq!(
        admin.send(Method::DELETE, &cache, &[], "").await.status,
        405
    );
    let missing = admin.get(&format!("{WATCHERS}/w-0")).await;
    assert_eq!(missing.status, 404);
    assert_eq!(
        missing.json()["message"],
        "watchers.watchet.dev \"w-0\" not found"
    );
    for path in [WATCHERS, CACHES] {
        let jane = [("impersonate-user", "jane")];
        assert_eq!(admin.send(Method::GET, path, &jane, "").await.status, 403);
    }
    // See `Strategy::is_advertised`.
    let kubectl = Kubectl::newest(&server.kubeconfig());
    let group = ["--api-group=watchet.dev", "-o=name"];
    let resources = async |verbs: &str| {
        let verbs = format!("--verbs={verbs}");
        kubectl
            .run(&["api-resources", group[0], group[1], &verbs])
            .await
    };
    let both = "watchcaches.watchet.dev\nwatchers.watchet.dev\n";
    assert_eq!(resources("get,list,watch").await, both);
    assert_eq!(resources("delete").await, "");
    let explained = kubectl
        .run(&["explain", "watchers.status.lag.events"])
        .await;
    assert!(explained.contains("<integer>"), "{explained}");
}

/// A client that disconnects in the middle of a read does not interrupt the comparison of the objects with the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_reads_leave_correct_objects() {
    let server = Server::start(&[]).await;
    let mut watches = Vec::new();
    for _ in 0..50 {
        let headers = [("user-agent", "one-of-many")];
        let wire = server.admin(Protocol::Http2).await;
        watches.push(OpenWatch::start(wire, &headers).await);
    }
    // The first lists read storage, because there is no cache yet.
    for delay in [0, 1, 2, 4, 8] {
        let mut wire = server.admin(Protocol::Http1).await;
        let list = wire.get("/apis/watchet.dev/v1alpha1/watchers?limit=500");
        let aborted = tokio::time::timeout(Duration::from_millis(delay), list).await;
        drop((aborted, wire));
        let mut writer = server.admin(Protocol::Http1).await;
        create(&mut writer, &format!("m{delay}"), 10).await;
    }
    let mut wire = server.admin(Protocol::Http1).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = watchers_of(&mut wire, "one-of-many").await;
        assert_eq!(found.len(), 50);
        let is_current = |watcher: &Value| watcher["status"]["sentEvents"].as_u64() >= Some(5);
        if found.iter().all(is_current) {
            break;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        sleep(Duration::from_millis(50)).await;
    }
    drop(watches);
    while !watchers_of(&mut wire, "one-of-many").await.is_empty() {
        assert!(Instant::now() < deadline, "closed watches remain");
        sleep(Duration::from_millis(50)).await;
    }
    assert!(!server.log().contains("another version than was recorded"));
}

/// The objects of a restarted server are other ones: a watch that resumes gets a 410, and its client lists again.
#[tokio::test]
async fn a_watch_cannot_resume_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &[]).await;
    let mut wire = server.admin(Protocol::Http1).await;
    let listed = wire.get(WATCHERS).await.json();
    let version = listed["metadata"]["resourceVersion"].as_str().unwrap();
    server.stop().await;
    let server = Server::start_in(directory.path(), &[]).await;
    let mut wire = server.admin(Protocol::Http1).await;
    let path = format!("{WATCHERS}?watch=true&resourceVersion={version}&timeoutSeconds=5");
    let resumed = wire.get(&path).await;
    let text = resumed.text();
    assert!(
        resumed.status == 410 || text.contains(r#""code":410"#),
        "{text}"
    );
}
