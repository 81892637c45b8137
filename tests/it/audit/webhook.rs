//! Tests of the audit webhook, an HTTPS server in the process of the test.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{CONFIG_MAPS, errors, logged, metrics, start};
use crate::harness::{
    Mode, PATIENCE, Protocol, Proxy, Reply, Server, Webhook, WebhookRequest, Wire, command,
    eventually,
};

/// Records requests of the tests' writes, without their arrival.
const WRITES: &str = "omitStages: [RequestReceived]\nrules: [{level: Metadata, verbs: [create], \
                      resources: [{group: '', resources: [configmaps]}]}]";

/// Writes a kubeconfig for a webhook into `directory`, with this CA and user, and returns the flag.
fn kubeconfig(directory: &Path, server: &str, ca_bundle: &str, user: &Value) -> String {
    let config = json!({
        "current-context": "audit",
        "contexts": [{"name": "audit", "context": {"cluster": "audit", "user": "audit"}}],
        "clusters": [{"name": "audit", "cluster": {
            "server": server, "certificate-authority-data": ca_bundle,
        }}],
        "users": [{"name": "audit", "user": user}],
    });
    let path = directory.join("webhook.kubeconfig");
    std::fs::write(&path, config.to_string()).expect("the kubeconfig can be written");
    format!("--audit-webhook-config-file={}", path.display())
}

fn accepted() -> Reply {
    Reply::json(&json!({}))
}

/// Returns the events of all lists that were posted.
fn posted(webhook: &Webhook) -> Vec<Value> {
    let lists = webhook.calls().into_iter().map(|call| call.body);
    lists
        .flat_map(|list| list["items"].as_array().expect("items").clone())
        .collect()
}

/// Creates a config map with this user agent.
async fn create(wire: &mut Wire, name: &str) -> StatusCode {
    let body = json!({"metadata": {"name": name}}).to_string();
    let headers = [("content-type", "application/json"), ("user-agent", "test")];
    let created = wire.send(Method::POST, CONFIG_MAPS, &headers, &body).await;
    created.status
}

/// Waits until `log` contains `text`.
async fn until_logged(server: &Server, text: &str) {
    until(server, |server| server.log().contains(text)).await;
}

async fn until(server: &Server, holds: impl Fn(&Server) -> bool) {
    let waits = async {
        while !holds(server) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if timeout(PATIENCE, waits).await.is_err() {
        panic!("it does not happen:\n{}", server.log());
    }
}

#[tokio::test]
async fn every_write_has_one_event_in_the_batches_and_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let pair = rcgen::generate_simple_self_signed(vec!["client".to_owned()]).unwrap();
    std::fs::write(directory.path().join("client.crt"), pair.cert.pem()).unwrap();
    let key = pair.signing_key.serialize_pem();
    std::fs::write(directory.path().join("client.key"), key).unwrap();
    let webhook =
        Webhook::start_with_client(pair.cert.der().clone(), |_| Box::pin(async { accepted() }))
            .await;
    let user =
        json!({"client-certificate": "client.crt", "client-key": "client.key", "token": "t"});
    let url = webhook.url("/audit/");
    let flags = [
        kubeconfig(directory.path(), &url, &webhook.ca_bundle(), &user),
        "--audit-webhook-batch-max-size=7".to_owned(),
        "--audit-webhook-batch-max-wait=1h".to_owned(),
        "--audit-webhook-batch-throttle-enable=false".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = start(directory.path(), WRITES, &flags).await;
    let mut wire = server.admin(Protocol::Http2).await;
    for index in 0..100 {
        let created = create(&mut wire, &format!("m{index}")).await;
        assert_eq!(created, StatusCode::CREATED);
    }
    let lost = errors(&server, "webhook").await + errors(&server, "buffered").await;
    assert!(lost == 0.0, "{lost}");
    // The last two events are sent at the shutdown.
    let log = logged(server, directory.path()).await;
    let events = posted(&webhook);
    let by_id = |events: &[Value]| -> BTreeMap<String, Value> {
        let with_id = events
            .iter()
            .map(|event| (event["auditID"].to_string(), event.clone()));
        with_id.collect()
    };
    assert_eq!((events.len(), log.len()), (100, 100));
    let mut logged = by_id(&log);
    assert_eq!(logged.len(), 100);
    for event in logged.values_mut().filter_map(Value::as_object_mut) {
        assert_eq!(event.remove("kind"), Some(json!("Event")));
        assert_eq!(event.remove("apiVersion"), Some(json!("audit.k8s.io/v1")));
    }
    assert_eq!(by_id(&events), logged, "as in the log, without their type");
    for request in webhook.calls() {
        assert_eq!(request.path, "/audit?timeout=30s");
        assert_eq!(request.authorization, "Bearer t");
        assert!(request.has_certificate);
        assert_eq!(request.body["kind"], "EventList");
        assert_eq!(request.body["apiVersion"], "audit.k8s.io/v1");
        let size = request.body["items"].as_array().unwrap().len();
        assert!((1..=7).contains(&size), "{size}");
    }
}

#[tokio::test]
async fn events_arrive_when_the_webhook_comes_up() {
    let directory = tempfile::tempdir().unwrap();
    let webhook = Webhook::answering(|_| accepted()).await;
    let address = format!("127.0.0.1:{}", webhook.port()).parse().unwrap();
    let proxy = Proxy::start(address, 1).await;
    proxy.set(Mode::Down);
    let url = format!("https://{}", proxy.address);
    let flags = [
        kubeconfig(directory.path(), &url, &webhook.ca_bundle(), &json!({})),
        "--audit-webhook-batch-max-wait=1ms".to_owned(),
        // The second attempt comes after the webhook is up.
        "--audit-webhook-initial-backoff=2s".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = start(directory.path(), WRITES, &flags).await;
    let mut wire = server.admin(Protocol::Http1).await;
    assert_eq!(create(&mut wire, "early").await, StatusCode::CREATED);
    until_logged(&server, "audit webhook failed, retrying").await;
    assert_eq!(posted(&webhook).len(), 0);
    proxy.set(Mode::Open);
    until(&server, |_| posted(&webhook).len() == 1).await;
    assert_eq!(posted(&webhook)[0]["objectRef"]["name"], "early");
    assert_eq!(webhook.calls()[0].path, "/?timeout=30s");
    server.stop().await;
    assert_eq!(posted(&webhook).len(), 1);
}

#[tokio::test]
async fn events_are_dropped_after_five_failures() {
    let directory = tempfile::tempdir().unwrap();
    let webhook = Webhook::answering(|_| Reply::other(500, "broken")).await;
    let url = webhook.url("");
    let flags = [
        kubeconfig(directory.path(), &url, &webhook.ca_bundle(), &json!({})),
        "--audit-webhook-batch-max-wait=1ms".to_owned(),
        "--audit-webhook-initial-backoff=1ms".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = start(directory.path(), WRITES, &flags).await;
    let mut wire = server.admin(Protocol::Http1).await;
    assert_eq!(create(&mut wire, "m").await, StatusCode::CREATED);
    until_logged(&server, "audit events dropped: the webhook failed").await;
    assert_eq!(webhook.calls().len(), 5);
    assert!(errors(&server, "webhook").await == 1.0);
    assert!(errors(&server, "buffered").await == 0.0);
    server.stop().await;
}

/// The webhook accepts connections and never responds, and the writes are recorded with their bodies.
#[tokio::test]
async fn memory_is_bounded_while_the_webhook_hangs() {
    let directory = tempfile::tempdir().unwrap();
    let webhook = Webhook::start(|_| Box::pin(std::future::pending())).await;
    let url = webhook.url("/");
    let flags = [
        kubeconfig(directory.path(), &url, &webhook.ca_bundle(), &json!({})),
        "--audit-webhook-batch-max-wait=1ms".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let rules = "omitStages: [RequestReceived]\nrules: [{level: Request, verbs: [update]}]";
    let server = start(directory.path(), rules, &flags).await;
    let mut wire = server.admin(Protocol::Http1).await;
    assert_eq!(create(&mut wire, "m").await, StatusCode::CREATED);
    let data = json!({"metadata": {"name": "m"}, "data": {"k": "x".repeat(1_000_000)}}).to_string();
    let headers = [("content-type", "application/json")];
    let path = format!("{CONFIG_MAPS}/m");
    for _ in 0..100 {
        let updated = wire.send(Method::PUT, &path, &headers, &data).await;
        assert_eq!(updated.status, StatusCode::OK, "a write does not wait");
    }
    // Events of large requests are encoded after the response.
    let events = async {
        while metrics(&server).await.get("apiserver_audit_event_total") != Some(100.0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, events).await.expect("all events");
    // 64 MiB have space for 67 events of 1 MB. An event is counted before it is dropped.
    eventually("33 events are dropped", async || {
        errors(&server, "buffered").await >= 33.0
    })
    .await;
    let dropped = errors(&server, "buffered").await;
    assert!(dropped <= 40.0, "{dropped}");
    drop(webhook);
    server.stop().await;
}

/// At most 16 posts are in flight, of one event each, and three events wait.
#[tokio::test]
async fn events_beyond_the_buffer_are_dropped_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let webhook = Webhook::start(|_| Box::pin(std::future::pending())).await;
    let url = webhook.url("/");
    let flags = [
        kubeconfig(directory.path(), &url, &webhook.ca_bundle(), &json!({})),
        "--audit-webhook-batch-max-wait=0s".to_owned(),
        "--audit-webhook-batch-max-size=1".to_owned(),
        "--audit-webhook-batch-buffer-size=3".to_owned(),
        "--audit-webhook-batch-throttle-enable=false".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = start(directory.path(), WRITES, &flags).await;
    let mut wire = server.admin(Protocol::Http1).await;
    for index in 0..16 {
        let status = create(&mut wire, &format!("m{index}")).await;
        assert_eq!(status, StatusCode::CREATED);
        until(&server, |_| webhook.calls().len() > index).await;
    }
    for index in 16..24 {
        let status = create(&mut wire, &format!("m{index}")).await;
        assert_eq!(status, StatusCode::CREATED);
    }
    assert!(errors(&server, "buffered").await == 5.0);
    assert_eq!(webhook.calls().len(), 16);
    // The other 19 are dropped at the shutdown, which has a time limit.
    let log = logged(server, directory.path()).await;
    assert_eq!(log.len(), 24, "the log has all of them");
}

#[tokio::test]
async fn the_certificate_of_the_webhook_is_verified() {
    let directory = tempfile::tempdir().unwrap();
    let webhook = Webhook::answering(|_| accepted()).await;
    let other = Webhook::answering(|_| accepted()).await;
    let url = webhook.url("/");
    let flags = [
        kubeconfig(directory.path(), &url, &other.ca_bundle(), &json!({})),
        "--audit-webhook-batch-max-wait=1ms".to_owned(),
        "--audit-webhook-initial-backoff=1ms".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = start(directory.path(), WRITES, &flags).await;
    let mut wire = server.admin(Protocol::Http1).await;
    assert_eq!(create(&mut wire, "m").await, StatusCode::CREATED);
    until_logged(&server, "audit events dropped: the webhook failed").await;
    assert!(server.log().contains("certificate"), "{}", server.log());
    assert!(errors(&server, "webhook").await == 1.0);
    server.stop().await;
    assert!(webhook.calls().is_empty());
}

/// Starts a webhook that responds after `permits` has one for it, with success if `is_up`.
async fn gated(permits: &Arc<Semaphore>, is_up: bool) -> Webhook {
    let permits = Arc::clone(permits);
    Webhook::start(move |_: WebhookRequest| {
        let permits = Arc::clone(&permits);
        Box::pin(async move {
            permits.acquire_owned().await.expect("it is open").forget();
            match is_up {
                true => accepted(),
                false => Reply::other(503, "down"),
            }
        })
    })
    .await
}

#[tokio::test]
async fn a_blocking_webhook_delays_the_end_of_the_response() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let directory = tempfile::tempdir().unwrap();
        let permits = Arc::new(Semaphore::new(0));
        let webhook = gated(&permits, true).await;
        let flag = kubeconfig(
            directory.path(),
            &webhook.url("/"),
            &webhook.ca_bundle(),
            &json!({}),
        );
        let flags = [flag.as_str(), "--audit-webhook-mode=blocking"];
        let server = start(directory.path(), WRITES, &flags).await;
        let mut wire = server.admin(protocol).await;
        let write = create(&mut wire, "m");
        let called = until(&server, |_| !webhook.calls().is_empty());
        tokio::pin!(write);
        tokio::select! {
            biased;
            status = &mut write => panic!("{status} before the webhook has responded"),
            () = called => {}
        }
        permits.add_permits(1);
        let status = timeout(PATIENCE, write).await.expect("the response");
        assert_eq!(status, StatusCode::CREATED);
        let events = posted(&webhook);
        assert_eq!(events.len(), 1);
        assert_eq!(events[0]["stage"], "ResponseComplete");
        server.stop().await;
    }
}

#[tokio::test]
async fn only_the_strict_mode_rejects_requests_without_an_event() {
    let rules = WRITES.replace("omitStages: [RequestReceived]\n", "");
    for (mode, expect, rejected) in [
        ("blocking", StatusCode::CREATED, 0.0),
        ("blocking-strict", StatusCode::INTERNAL_SERVER_ERROR, 1.0),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let webhook = Webhook::answering(|_| Reply::other(503, "down")).await;
        let url = webhook.url("/");
        let flags = [
            kubeconfig(directory.path(), &url, &webhook.ca_bundle(), &json!({})),
            format!("--audit-webhook-mode={mode}"),
            "--audit-webhook-initial-backoff=1ms".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let server = start(directory.path(), &rules, &flags).await;
        let mut wire = server.admin(Protocol::Http1).await;
        assert_eq!(create(&mut wire, "m").await, expect, "{mode}");
        let exists = wire.get(&format!("{CONFIG_MAPS}/m")).await.status == StatusCode::OK;
        assert_eq!(exists, mode == "blocking");
        let scrape = metrics(&server).await;
        let counted = scrape.get("apiserver_audit_requests_rejected_total");
        assert_eq!(counted, Some(rejected), "{mode}");
        let stages: Vec<Value> = posted(&webhook)
            .into_iter()
            .map(|event| event["stage"].clone())
            .collect();
        let has_end = stages.contains(&json!("ResponseComplete"));
        assert_eq!(has_end, mode == "blocking", "{stages:?}");
        server.stop().await;
    }
}

#[tokio::test]
async fn events_that_are_too_large_lose_their_objects() {
    let directory = tempfile::tempdir().unwrap();
    let webhook = Webhook::answering(|_| accepted()).await;
    let url = webhook.url("/");
    let flags = [
        kubeconfig(directory.path(), &url, &webhook.ca_bundle(), &json!({})),
        "--audit-webhook-mode=blocking".to_owned(),
        "--audit-webhook-truncate-enabled".to_owned(),
        "--audit-webhook-truncate-max-event-size=4000".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let rules = "omitStages: [RequestReceived]\nrules: [{level: Request, verbs: [create], \
                 resources: [{group: '', resources: [configmaps]}]}]";
    let server = start(directory.path(), rules, &flags).await;
    let mut wire = server.admin(Protocol::Http1).await;
    let large = "x".repeat(4000);
    for (name, data, query) in [
        ("small", "x", ""),
        ("large", &large, ""),
        ("lost", "x", &large),
    ] {
        let body = json!({"metadata": {"name": name}, "data": {"k": data}}).to_string();
        let path = format!("{CONFIG_MAPS}?note={query}");
        let headers = [("content-type", "application/json")];
        let created = wire.send(Method::POST, &path, &headers, &body).await;
        assert_eq!(created.status, StatusCode::CREATED);
    }
    assert!(errors(&server, "truncate").await == 1.0);
    // The log has no limit.
    let log = logged(server, directory.path()).await;
    assert_eq!(log.len(), 3);
    assert_eq!(log[1]["requestObject"]["data"]["k"], large);
    let events = posted(&webhook);
    let names: Vec<&Value> = events
        .iter()
        .map(|event| &event["objectRef"]["name"])
        .collect();
    assert_eq!(names, ["small", "large"]);
    assert_eq!(events[0]["requestObject"]["data"]["k"], "x");
    assert!(
        events[0]["annotations"]
            .get("audit.k8s.io/truncated")
            .is_none()
    );
    assert!(events[1].get("requestObject").is_none());
    assert_eq!(events[1]["annotations"]["audit.k8s.io/truncated"], "true");
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("policy.yaml");
    std::fs::write(
        &policy,
        format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{WRITES}\n"),
    )
    .unwrap();
    for (user, expect) in [
        (json!({"username": "a", "password": "b"}), "has a password"),
        (
            json!({"auth-provider": {"name": "gcp"}}),
            "auth provider \"gcp\"",
        ),
        (
            json!({"client-certificate-data": "eA=="}),
            "has no client-key",
        ),
    ] {
        let flag = kubeconfig(directory.path(), "https://127.0.0.1:1", "", &user);
        let output = command()
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .args(["--secure-port=0", "--storage=memory", &flag])
            .arg(format!("--audit-policy-file={}", policy.display()))
            .output();
        let output = timeout(PATIENCE, output).await.unwrap().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("--audit-webhook-config-file"), "{error}");
        assert!(error.contains(expect), "{error}");
    }
}
