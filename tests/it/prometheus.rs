//! The configuration in `config/prometheus` and the dashboard in `config/grafana`, with a real Prometheus that scrapes the
//! server and finds pods through it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::time::{Duration, Instant, sleep};

use crate::harness::{Kubectl, PATIENCE, Protocol, Server, Wire, free_port};

/// Returns the path of Prometheus; promtool is beside it.
fn prometheus() -> PathBuf {
    let path = std::env::var_os("WATCHET_TEST_PROMETHEUS");
    path.expect("this test needs a Prometheus: WATCHET_TEST_PROMETHEUS=$(scripts/prometheus)")
        .into()
}

fn config(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("config")
        .join(file)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Replaces `from`, which must be in the text.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from} in {text}");
    text.replace(from, to)
}

async fn promtool(args: &[&str]) -> Output {
    let mut command = Command::new(prometheus().with_file_name("promtool"));
    let command = command.args(args).current_dir(config("prometheus"));
    command.output().await.expect("promtool runs")
}

#[tokio::test]
async fn the_alerts_pass_their_unit_tests() {
    for args in [
        ["check", "config", "--syntax-only", "prometheus.yml"],
        ["check", "rules", "--lint=all", "watchet.rules.yml"],
    ] {
        let output = promtool(&args).await;
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
    let output = promtool(&["test", "rules", "watchet.rules.test.yml"]).await;
    assert!(output.status.success(), "{output:?}");
    let tests = read(&config("prometheus/watchet.rules.test.yml"));
    let rules = read(&config("prometheus/watchet.rules.yml"));
    let alerts = rules
        .lines()
        .filter_map(|line| line.split_once("- alert: "));
    for (_, alert) in alerts {
        let mentioned = tests.contains(&format!("alertname: {alert}"));
        assert!(mentioned, "{alert} has no test");
    }
}

/// A Prometheus with the published configuration, adapted to a server.
struct Prometheus {
    address: SocketAddr,
    _directory: tempfile::TempDir,
    _child: Child,
}

impl Prometheus {
    async fn start(server: &Server, token: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let text = read(&config("prometheus/prometheus.yml"));
        let text = replaced(&text, "127.0.0.1:6443", &server.secure().to_string());
        let ca = server.data_dir().join("pki/ca.crt");
        let text = replaced(
            &text,
            "/etc/prometheus/watchet/ca.crt",
            ca.to_str().unwrap(),
        );
        let token_file = at("token");
        let text = replaced(
            &text,
            "/etc/prometheus/watchet/token",
            token_file.to_str().unwrap(),
        );
        let text = replaced(&text, "interval: 15s", "interval: 1s");
        std::fs::write(at("prometheus.yml"), text).unwrap();
        std::fs::write(&token_file, token).unwrap();
        let rules = "prometheus/watchet.rules.yml";
        std::fs::copy(config(rules), at("watchet.rules.yml")).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let child = Command::new(prometheus())
            .arg(format!("--config.file={}", at("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", at("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let deadline = Instant::now() + PATIENCE;
        while tokio::net::TcpStream::connect(address).await.is_err() {
            assert!(Instant::now() < deadline, "Prometheus does not listen");
            sleep(Duration::from_millis(50)).await;
        }
        let prometheus = Self {
            address,
            _directory: directory,
            _child: child,
        };
        // It listens before it can answer.
        let mut wire = Wire::plain(address, Protocol::Http1).await;
        while wire.get("/-/ready").await.status != 200 {
            assert!(Instant::now() < deadline, "Prometheus is not ready");
            sleep(Duration::from_millis(50)).await;
        }
        prometheus
    }

    async fn get(&self, path: &str) -> Value {
        let mut wire = Wire::plain(self.address, Protocol::Http1).await;
        let response = wire.get(path).await;
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.json()["data"].clone()
    }

    /// Waits until all of `jobs` have a target that was scraped, and returns the targets.
    async fn until_scraped(&self, jobs: &[&str]) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let targets = self.get("/api/v1/targets?state=active").await;
            let targets = targets["activeTargets"].as_array().unwrap().clone();
            let is_up = |job: &&str| {
                let mut targets = targets.iter();
                targets.any(|target| target["labels"]["job"] == **job && target["health"] == "up")
            };
            if jobs.iter().all(is_up) {
                return targets;
            }
            assert!(Instant::now() < deadline, "{targets:?}");
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn query(&self, expression: &str) -> Vec<Value> {
        let encoded = expression.bytes().map(|byte| format!("%{byte:02x}"));
        let path = format!("/api/v1/query?query={}", encoded.collect::<String>());
        let found = self.get(&path).await;
        found["result"].as_array().unwrap().clone()
    }
}

/// Creates what `docs/operations.md` says, and a pod at the port of `server` without TLS. Returns the token.
async fn prepare(server: &Server) -> String {
    let kubectl = Kubectl::newest(&server.kubeconfig());
    kubectl
        .run(&["create", "serviceaccount", "prometheus"])
        .await;
    let role = ["create", "clusterrole", "prometheus"];
    let pods = ["--verb=get,list,watch", "--resource=pods"];
    kubectl.run(&[&role[..], &pods].concat()).await;
    let rule = r#"[{"op":"add","path":"/rules/-","value":{"verbs":["get"],"nonResourceURLs":["/metrics"]}}]"#;
    kubectl
        .run(&[
            "patch",
            "clusterrole",
            "prometheus",
            "--type=json",
            "-p",
            rule,
        ])
        .await;
    let account = "--serviceaccount=default:prometheus";
    let binding = ["create", "clusterrolebinding", "prometheus"];
    kubectl
        .run(&[&binding[..], &["--clusterrole=prometheus", account]].concat())
        .await;
    let port = server.insecure().port();
    let pod = format!(
        r#"{{"apiVersion": "v1", "kind": "Pod",
            "metadata": {{"name": "app", "annotations": {{"prometheus.io/scrape": "true"}}}},
            "spec": {{"containers": [
                {{"name": "app", "image": "app:1", "ports": [{{"containerPort": {port}}}]}}]}}}}"#
    );
    kubectl.run_with(&["create", "-f", "-"], &pod).await;
    let status = r#"{"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}"#;
    kubectl
        .run(&[
            "patch",
            "pod",
            "app",
            "--subresource=status",
            "--type=merge",
            "-p",
            status,
        ])
        .await;
    let token = kubectl.run(&["create", "token", "prometheus"]).await;
    token.trim().to_owned()
}

/// Returns the expressions of the dashboard, with values for its variables.
fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read(&config("grafana/watchet.json"))).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array());
    let expressions = targets.flatten().map(|target| {
        let expression = target["expr"].as_str().unwrap();
        let expression = replaced(expression, "$instance", ".*");
        expression.replace("$__rate_interval", "10s")
    });
    expressions.collect()
}

/// Returns the words of an expression that begin as the name of a metric does.
fn metrics_in(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !c.is_alphanumeric() && c != '_');
    let prefixes = ["apiserver_", "etcd_", "watchet_", "process_"];
    words
        .filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)))
        .collect()
}

#[tokio::test]
async fn prometheus_scrapes_the_server_and_the_pods_that_it_finds_there() {
    let server = Server::start(&[]).await;
    let token = prepare(&server).await;
    let prometheus = Prometheus::start(&server, &token).await;
    let targets = prometheus.until_scraped(&["watchet", "pods"]).await;
    let pods: Vec<_> = targets
        .iter()
        .filter(|target| target["labels"]["job"] == "pods")
        .collect();
    assert_eq!(pods.len(), 1, "{pods:?}");
    assert_eq!(pods[0]["labels"]["pod"], "app");
    assert_eq!(pods[0]["labels"]["namespace"], "default");

    let rules = prometheus.get("/api/v1/rules").await;
    let rules = rules["groups"][0]["rules"].as_array().unwrap().clone();
    assert_eq!(rules.len(), 9, "{rules:?}");
    let documented =
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/metrics/src/METRICS.md"));
    let mut expressions = dashboard();
    assert!(expressions.len() > 20, "{expressions:?}");
    expressions.extend(
        rules
            .iter()
            .map(|rule| rule["query"].as_str().unwrap().to_owned()),
    );
    for expression in &expressions {
        for metric in metrics_in(expression) {
            let parts = ["_bucket", "_sum", "_count"].map(|part| metric.strip_suffix(part));
            let names = parts.into_iter().flatten().chain([metric]);
            let is_documented = |name: &str| documented.contains(&format!("`{name}`"));
            assert!(names.into_iter().any(is_documented), "{metric}");
        }
        prometheus.query(expression).await;
    }
    // These have values in any server that is scraped for a few seconds.
    let deadline = Instant::now() + PATIENCE;
    for expression in [
        r#"sum by (verb) (rate(apiserver_request_total{verb!="WATCH"}[10s])) > 0"#,
        r#"apiserver_longrunning_requests{verb="WATCH",resource="pods"} > 0"#,
        r#"histogram_quantile(0.99, sum by (le) (rate(etcd_request_duration_seconds_bucket[1m]))) >= 0"#,
        "process_resident_memory_bytes > 1e6",
        r#"watchet_parked_watchers{resource="pods"} == 0"#,
    ] {
        while prometheus.query(expression).await.is_empty() {
            assert!(Instant::now() < deadline, "no result: {expression}");
            sleep(Duration::from_millis(500)).await;
        }
    }
    let firing = prometheus.query(r#"ALERTS{alertstate="firing"}"#).await;
    assert!(firing.is_empty(), "{firing:?}");
}
