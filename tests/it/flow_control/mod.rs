//! Tests of API Priority and Fairness with the real program: who waits, who is rejected, and the objects that decide it.

mod dumps;
mod floods;
mod validation;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::admission::cluster::{Cluster, MAPS, allow, hook, map, rule};
use crate::harness::{
    Kubectl, PATIENCE, Protocol, Response, Scrape, Server, Webhook, full, request,
};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const SCHEMA_UID: &str = "x-kubernetes-pf-flowschema-uid";
const LEVEL_UID: &str = "x-kubernetes-pf-prioritylevel-uid";
const TOO_MANY: &str = "Too many requests, please try again later.";

/// Sends a request as `user`.
async fn send(server: &Server, user: &str, method: Method, path: &str, body: &Value) -> Response {
    let mut wire = server.plain(Protocol::Http1).await;
    let headers = [
        ("impersonate-user", user),
        ("content-type", "application/json"),
    ];
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    wire.send(method, path, &headers, &body).await
}

async fn get(server: &Server, user: &str, path: &str) -> Response {
    send(server, user, Method::GET, path, &Value::Null).await
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    let value = response.headers.get(name);
    value.map_or("", |value| value.to_str().expect("text"))
}

/// A level with exactly one seat, if the server has four.
fn level(name: &str, response: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": response,
    }}})
}

/// So many queues that two users do not have the same one.
fn queues(length: usize) -> Value {
    let queuing = json!({"queues": 1_000_000, "handSize": 1, "queueLengthLimit": length});
    json!({"type": "Queue", "queuing": queuing})
}

/// A schema for all requests of `users`, a flow each.
fn schema(name: &str, level: &str, users: &[&str]) -> Value {
    let user = |user: &&str| json!({"kind": "User", "user": {"name": user}});
    let subjects: Vec<Value> = users.iter().map(user).collect();
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true});
    let paths = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
    json!({"metadata": {"name": name}, "spec": {
        "matchingPrecedence": 50, "priorityLevelConfiguration": {"name": level},
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": subjects, "resourceRules": [all], "nonResourceRules": [paths]}],
    }})
}

/// Waits until requests of `user` have the flow of the schema and the level with these uids.
async fn until_flow(server: &Server, user: &str, schema: &Value, level: &Value) {
    let uids = [schema, level].map(|object| object["metadata"]["uid"].as_str().unwrap().to_owned());
    let reached = async {
        loop {
            let response = get(server, user, "/version").await;
            let actual = [SCHEMA_UID, LEVEL_UID].map(|name| header(&response, name).to_owned());
            if actual == uids {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, reached).await.expect("the flow");
}

async fn scrape(server: &Server) -> Scrape {
    let response = server.plain(Protocol::Http1).await.get("/metrics").await;
    Scrape::parse(&response.text())
}

/// Waits until the metric of a schema has at least the value.
async fn until_metric(server: &Server, name: &str, schema: &str, value: f64) {
    let label = format!("flow_schema=\"{schema}\"");
    let reached = async {
        while scrape(server).await.sum(name, &[&label]) < value {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, reached).await.expect(name);
}

/// A server with four seats, and a webhook that lets creations of config maps, and of tokens of service
/// accounts, named `slow-…` pass one by one.
struct Slow {
    server: Server,
    _webhook: Webhook,
    passes: Arc<Semaphore>,
}

impl Slow {
    async fn start(flags: &[&str]) -> Self {
        let seats = [
            "--max-requests-inflight=2",
            "--max-mutating-requests-inflight=2",
        ];
        let flags = [
            &seats,
            &["--storage=memory", "--authorization-mode=AlwaysAllow"],
            flags,
        ]
        .concat();
        let server = Server::start(&flags).await;
        let passes = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&passes);
        let webhook = Webhook::start(move |call| {
            let gate = Arc::clone(&gate);
            Box::pin(async move {
                let name = call.body["request"]["name"].as_str().unwrap_or_default();
                if name.starts_with("slow-") {
                    gate.acquire().await.expect("it is never closed").forget();
                }
                allow(&call)
            })
        })
        .await;
        let rules = ["configmaps", "serviceaccounts/token"];
        let rules = rules.map(|resource| rule(&["CREATE"], "", resource));
        let hook = hook(
            &webhook,
            "/slow",
            json!({"timeoutSeconds": 30, "rules": rules}),
        );
        Cluster(&server).configure("Validating", "w", &[hook]).await;
        Self {
            server,
            _webhook: webhook,
            passes,
        }
    }

    /// Creates a level and its schema for `users`, and waits until they are in effect.
    async fn configure(&self, name: &str, response: &Value, users: &[&str]) -> (Value, Value) {
        let cluster = Cluster(&self.server);
        let level = cluster.post(LEVELS, &level(name, response)).await.ok(201);
        let schema = cluster
            .post(SCHEMAS, &schema(name, name, users))
            .await
            .ok(201);
        until_flow(&self.server, users[0], &schema, &level).await;
        (schema, level)
    }

    async fn create_slowly(&self, user: &str, number: usize) -> StatusCode {
        let map = map(&format!("slow-{user}-{number}"));
        send(&self.server, user, Method::POST, MAPS, &map)
            .await
            .status
    }
}

const WAITING: &str = "apiserver_flowcontrol_current_inqueue_requests";
const EXECUTING: &str = "apiserver_flowcontrol_current_executing_requests";

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_user_delays_no_other() {
    let slow = Slow::start(&[]).await;
    let (server, flood) = (&slow.server, 6);
    slow.configure("team", &queues(50), &["ann", "bob"]).await;
    let ann = join_all((0..flood).map(|number| slow.create_slowly("ann", number)));
    let others = async {
        until_metric(server, WAITING, "team", flood as f64 - 1.0).await;
        // Another level, and a user who never waits.
        assert_eq!(get(server, "carol", MAPS).await.status, StatusCode::OK);
        let mut root = server.plain(Protocol::Http1).await;
        assert_eq!(root.get(MAPS).await.status, StatusCode::OK);
        // The same level: bob waits for its only seat, but not for ann's other requests.
        let bob = async {
            let status = get(server, "bob", MAPS).await.status;
            (status, scrape(server).await)
        };
        let release = async {
            until_metric(server, WAITING, "team", flood as f64).await;
            slow.passes.add_permits(1);
        };
        let ((status, metrics), ()) = tokio::join!(bob, release);
        assert_eq!(status, StatusCode::OK);
        let waiting = metrics.sum(WAITING, &["flow_schema=\"team\""]);
        assert!(
            waiting >= flood as f64 - 2.0,
            "{waiting} of ann's requests still wait"
        );
        slow.passes.add_permits(flood);
    };
    let (created, ()) = tokio::join!(ann, others);
    assert!(
        created.iter().all(|status| *status == StatusCode::CREATED),
        "{created:?}"
    );
    slow.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_rejected_and_changed_objects_take_effect() {
    let slow = Slow::start(&[]).await;
    let (server, cluster) = (&slow.server, Cluster(&slow.server));
    let reject = json!({"type": "Reject"});
    let (schema, level) = slow.configure("few", &reject, &["ann", "bob"]).await;
    let first = slow.create_slowly("ann", 1);
    let meanwhile = async {
        until_metric(server, EXECUTING, "few", 1.0).await;
        let rejected = get(server, "bob", MAPS).await;
        assert_eq!(rejected.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(rejected.json()["message"], TOO_MANY);
        assert_eq!(header(&rejected, "retry-after"), "1");
        assert_eq!(header(&rejected, SCHEMA_UID), schema["metadata"]["uid"]);
        assert_eq!(header(&rejected, LEVEL_UID), level["metadata"]["uid"]);
        let labels = ["flow_schema=\"few\"", "reason=\"concurrency-limit\""];
        let metrics = scrape(server).await;
        let rejections = metrics.sum("apiserver_flowcontrol_rejected_requests_total", &labels);
        assert_eq!(rejections, 1.0);
        // With queues, the next request waits.
        let path = format!("{LEVELS}/few");
        let change = json!({"spec": {"limited": {"limitResponse": queues(50)}}});
        cluster.patch(&path, &change).await.ok(200);
        let waiting = async {
            // The change is in effect a moment later.
            loop {
                match slow.create_slowly("bob", 2).await {
                    StatusCode::TOO_MANY_REQUESTS => {}
                    status => return status,
                }
            }
        };
        let release = async {
            until_metric(server, WAITING, "few", 1.0).await;
            slow.passes.add_permits(2);
        };
        let (status, ()) = tokio::join!(waiting, release);
        assert_eq!(status, StatusCode::CREATED);
    };
    let (first, ()) = tokio::join!(first, meanwhile);
    assert_eq!(first, StatusCode::CREATED);
    // Without the level, the schema dangles, and the requests have another flow.
    cluster.delete(&format!("{LEVELS}/few")).await.ok(200);
    let dangling = async {
        loop {
            let schema = cluster.get(&format!("{SCHEMAS}/few")).await.ok(200);
            let condition = &schema["status"]["conditions"][0];
            assert_eq!(condition["type"], "Dangling");
            if condition["status"] == "True" {
                assert_eq!(condition["reason"], "NotFound");
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, dangling).await.expect("the condition");
    let default = cluster
        .get(&format!("{SCHEMAS}/global-default"))
        .await
        .ok(200);
    let level = cluster
        .get(&format!("{LEVELS}/global-default"))
        .await
        .ok(200);
    until_flow(server, "ann", &default, &level).await;
    slow.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn default_objects_exist_at_the_first_start() {
    let server = Server::start(&["--authorization-mode=AlwaysAllow"]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    let output = kubectl
        .run(&["get", "prioritylevelconfigurations", "--no-headers"])
        .await;
    let mut names: Vec<_> = output
        .lines()
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    names.sort_unstable();
    let expected = [
        "catch-all",
        "exempt",
        "global-default",
        "leader-election",
        "node-high",
        "system",
        "workload-high",
        "workload-low",
    ];
    assert_eq!(names, expected);
    let output = kubectl.run(&["get", "flowschemas", "--no-headers"]).await;
    let precedences = output.lines().map(|line| {
        let cells: Vec<_> = line.split_whitespace().collect();
        format!("{} {} {} {}", cells[0], cells[1], cells[2], cells[3])
    });
    let precedences: Vec<_> = precedences.collect();
    for expected in [
        "exempt exempt 1 <none>",
        "probes exempt 2 <none>",
        "system-nodes system 500 ByUser",
        "kube-scheduler workload-high 800 ByNamespace",
        "catch-all catch-all 10000 ByUser",
    ] {
        assert!(
            precedences.iter().any(|line| line == expected),
            "{precedences:?}"
        );
    }
    assert_eq!(precedences.len(), 11);
    let cluster = Cluster(&server);
    let exempt = cluster.get(&format!("{SCHEMAS}/exempt")).await.ok(200);
    let annotations = &exempt["metadata"]["annotations"];
    assert_eq!(annotations["apf.kubernetes.io/autoupdate-spec"], "true");
    // The requests of these connections are in the group system:masters.
    let response = server.plain(Protocol::Http1).await.get(MAPS).await;
    assert_eq!(header(&response, SCHEMA_UID), exempt["metadata"]["uid"]);
    let probe = server
        .plain(Protocol::Http1)
        .await
        .get("/readyz?verbose")
        .await;
    let check = "[+]poststarthook/priority-and-fairness-config-producer ok";
    assert!(probe.text().contains(check), "{}", probe.text());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_per_user_are_limited_by_a_flag() {
    let flags = [
        "--storage=memory",
        "--authorization-mode=AlwaysAllow",
        "--max-watches-per-user=2",
    ];
    let server = Server::start(&flags).await;
    let path = format!("{MAPS}?watch=1&resourceVersion=0");
    let mut watches = Vec::new();
    let mut open = async |user: &str| {
        let mut wire = server.plain(Protocol::Http1).await;
        let watch = request(Method::GET, &path, &[("impersonate-user", user)], full(""));
        let response = wire.open(watch).await.expect("a response");
        let status = response.status();
        watches.push((wire, response));
        status
    };
    for _ in 0..2 {
        assert_eq!(open("ann").await, StatusCode::OK);
    }
    assert_eq!(open("bob").await, StatusCode::OK);
    let refused = get(&server, "ann", &path).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        refused.json()["message"],
        "user \"ann\" has 2 open watches, the maximum of --max-watches-per-user: end one of them, or raise the limit"
    );
    assert_eq!(get(&server, "ann", MAPS).await.status, StatusCode::OK);
    // After a watch has ended, another one can begin.
    drop(watches.remove(0));
    let mut wire = server.plain(Protocol::Http1).await;
    let reopened = async {
        loop {
            let watch = request(Method::GET, &path, &[("impersonate-user", "ann")], full(""));
            let response = wire.open(watch).await.expect("a response");
            if response.status() == StatusCode::OK {
                return;
            }
            wire = server.plain(Protocol::Http1).await;
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, reopened).await.expect("another watch");
    server.stop().await;
}
