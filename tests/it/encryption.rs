//! Tests of encryption at rest with the real program: what is on disk and in etcd, rotation of keys, reload of the
//! configuration, and a KMS plugin.

use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::Client;
use serde_json::{Value, json};
use tokio::time::timeout;
use watchet_test_util::kms_plugin::KmsPlugin;

use crate::harness::{Kubectl, PATIENCE, Protocol, Scrape, Server, command, write_file};
use crate::storage::etcd::EtcdProcess;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const KEY_1: &str = "{name: key1, secret: MDEyMzQ1Njc4OWFiY2RlZg==}";
const KEY_2: &str = "{name: key2, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}";
const RELOADS: &str = "apiserver_encryption_config_controller_automatic_reloads_total";
/// The time limit of what happens with the next check of a changed file or of a plugin, which is every 10 s.
const NEXT_CHECK: Duration = Duration::from_secs(60);

/// A configuration file and the flags that name it.
struct Configuration {
    path: PathBuf,
    flag: String,
}

impl Configuration {
    fn new(directory: &Path, resources: &str, providers: &str) -> Self {
        let path = directory.join("encryption.yaml");
        let flag = format!("--encryption-provider-config={}", path.display());
        let configuration = Self { path, flag };
        configuration.write(resources, providers);
        configuration
    }

    fn write(&self, resources: &str, providers: &str) {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n\
             resources: [{{resources: [{resources}], providers: [{providers}]}}]\n"
        );
        write_file(&self.path, &text);
    }
}

/// Waits until `check` returns true.
async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let within = timeout(NEXT_CHECK, holds).await;
    within.unwrap_or_else(|_| panic!("not within {NEXT_CHECK:?}: {what}"));
}

/// Waits until a configuration was reloaded `count` times with this status.
async fn reloaded(server: &Server, status: &str, count: f64) {
    let mut wire = server.plain(Protocol::Http1).await;
    let series = format!("{RELOADS}{{status=\"{status}\"}}");
    eventually(&format!("{series} {count}"), async || {
        let metrics = wire.get("/metrics").await;
        Scrape::parse(&metrics.text()).get(&series) == Some(count)
    })
    .await;
}

/// Reads all files below a directory.
fn contents(directory: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => all.extend(contents(&path)),
            false => all.extend(std::fs::read(&path).expect("a file")),
        }
    }
    all
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn an_encrypted_value_is_not_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let providers = format!("{{aesgcm: {{keys: [{KEY_1}]}}}}, {{identity: {{}}}}");
    let configuration = Configuration::new(directory.path(), "secrets", &providers);
    let server = Server::start_in(directory.path(), &[&configuration.flag]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    let literal = "--from-literal=password=correct-horse";
    kubectl
        .run(&["create", "secret", "generic", "s", literal])
        .await;
    kubectl.run(&["create", "configmap", "c", literal]).await;
    let read = ["get", "secret", "s", "-o=jsonpath={.data.password}"];
    let encoded = kubectl.run(&read).await;
    server.stop().await;

    let stored = contents(&directory.path().join("data/store"));
    assert!(
        contains(&stored, "correct-horse"),
        "the config map is stored as it is"
    );
    assert!(
        !contains(&stored, &encoded),
        "the Secret is stored as it is"
    );
    assert!(contains(&stored, "k8s:enc:aesgcm:v1:key1:"));

    let server = Server::start_in(directory.path(), &[&configuration.flag]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    assert_eq!(kubectl.run(&read).await, encoded);
    server.stop().await;
}

#[tokio::test]
async fn everything_can_be_encrypted() {
    let directory = tempfile::tempdir().unwrap();
    let providers = format!("{{secretbox: {{keys: [{KEY_2}]}}}}");
    let configuration = Configuration::new(directory.path(), "'*.*'", &providers);
    let server = Server::start_in(directory.path(), &[&configuration.flag]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version],
        },
    });
    kubectl
        .run_with(&["apply", "-f", "-"], &definition.to_string())
        .await;
    kubectl
        .run(&[
            "wait",
            "--for=condition=Established",
            "crd/widgets.example.com",
        ])
        .await;
    let widget = json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {"text": "not-on-disk"},
    });
    kubectl
        .run_with(&["apply", "-f", "-"], &widget.to_string())
        .await;
    kubectl
        .run(&["create", "deployment", "not-on-disk", "--image=i"])
        .await;
    server.stop().await;
    assert!(!contains(
        &contents(&directory.path().join("data/store")),
        "\"not-on-disk\""
    ));

    let server = Server::start_in(directory.path(), &[&configuration.flag]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    let names = kubectl
        .run(&["get", "widgets,deployments", "-o=name"])
        .await;
    assert_eq!(names, "widget.example.com/w\ndeployment.apps/not-on-disk\n");
    server.stop().await;
}

/// A server over etcd whose Secrets are encrypted, and a client of this etcd.
struct OverEtcd {
    server: Server,
    kubectl: Kubectl,
    raw: Client,
    _etcd: EtcdProcess,
}

impl OverEtcd {
    async fn start(directory: &Path, configuration: &Configuration) -> Self {
        let etcd = EtcdProcess::start(&[]).await;
        let servers = format!("--etcd-servers={}", etcd.url());
        let reload = "--encryption-provider-config-automatic-reload";
        let flags = ["--storage=etcd", &servers, &configuration.flag, reload];
        let server = Server::start_in(directory, &flags).await;
        let raw = Client::connect([etcd.url()], None).await;
        Self {
            kubectl: Kubectl::new(&server.kubeconfig()),
            server,
            raw: raw.expect("etcd serves"),
            _etcd: etcd,
        }
    }

    /// Returns the stored value of the Secret `s`.
    async fn stored(&mut self) -> String {
        let found = self.raw.get("/registry/secrets/default/s", None).await;
        let found = found.expect("etcd serves");
        let value = found.kvs()[0].value();
        String::from_utf8_lossy(value).into_owned()
    }

    /// Writes all Secrets as they are read, as administrators do after a change of keys.
    async fn rewrite(&self) {
        let all = self.kubectl.run(&["get", "secrets", "-A", "-o=json"]).await;
        self.kubectl.run_with(&["replace", "-f", "-"], &all).await;
    }

    async fn version(&self) -> String {
        let read = [
            "get",
            "secret",
            "s",
            "-o=jsonpath={.metadata.resourceVersion}",
        ];
        self.kubectl.run(&read).await
    }
}

#[tokio::test]
async fn keys_are_rotated_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let configuration = Configuration::new(directory.path(), "secrets", "{identity: {}}");
    let mut over = OverEtcd::start(directory.path(), &configuration).await;
    let create = ["create", "secret", "generic", "s", "--from-literal=k=v"];
    over.kubectl.run(&create).await;
    assert!(over.stored().await.starts_with('{'));
    over.rewrite().await;
    let first = over.version().await;

    let identity = "{identity: {}}";
    let old = format!("{{aescbc: {{keys: [{KEY_1}]}}}}");
    configuration.write("secrets", &format!("{old}, {identity}"));
    reloaded(&over.server, "success", 1.0).await;
    over.rewrite().await;
    assert!(over.stored().await.starts_with("k8s:enc:aescbc:v1:key1:"));
    let second = over.version().await;
    assert_ne!(
        first, second,
        "the value was written, although the object is the same"
    );
    over.rewrite().await;
    assert_eq!(
        over.version().await,
        second,
        "the value is encrypted as it would be now"
    );

    let new = format!("{{secretbox: {{keys: [{KEY_2}]}}}}");
    configuration.write("secrets", &format!("{new}, {old}"));
    reloaded(&over.server, "success", 2.0).await;
    over.rewrite().await;
    assert!(
        over.stored()
            .await
            .starts_with("k8s:enc:secretbox:v1:key2:")
    );
    configuration.write("secrets", &new);
    reloaded(&over.server, "success", 3.0).await;

    // An invalid file is reported without its keys and changes nothing.
    configuration.write(
        "secrets",
        "{secretbox: {keys: [{name: a, secret: bm90IGxvbmc=}]}}",
    );
    reloaded(&over.server, "failure", 1.0).await;
    let log = over.server.log();
    assert!(
        log.contains("secret is not of the expected length, got 8, expected one of [32]"),
        "{log}"
    );
    assert!(!log.contains("bm90IGxvbmc"), "{log}");
    let read = ["get", "secret", "s", "-o=jsonpath={.data.k}"];
    assert_eq!(over.kubectl.run(&read).await, "dg==");
    over.kubectl.run(&["delete", "secret", "s"]).await;
    over.kubectl.run(&create).await;
    assert!(
        over.stored()
            .await
            .starts_with("k8s:enc:secretbox:v1:key2:")
    );
}

#[tokio::test]
async fn without_its_key_a_server_reports_the_values_and_serves_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let with_key = format!("{{aesgcm: {{keys: [{KEY_1}]}}}}");
    let configuration = Configuration::new(directory.path(), "secrets", &with_key);
    let server = Server::start_in(directory.path(), &[&configuration.flag]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    kubectl
        .run(&["create", "secret", "generic", "s", "--from-literal=k=v"])
        .await;
    kubectl
        .run(&["create", "configmap", "c", "--from-literal=k=v"])
        .await;
    server.stop().await;

    configuration.write("secrets", &format!("{{aesgcm: {{keys: [{KEY_2}]}}}}"));
    for flags in [vec![configuration.flag.as_str()], vec![]] {
        let server = Server::start_in(directory.path(), &flags).await;
        let mut wire = server.plain(Protocol::Http1).await;
        let response = wire.get(&format!("{SECRETS}/s?resourceVersion=")).await;
        assert_eq!(response.status, 500, "{}", response.text());
        let message = response.json()["message"].clone();
        let text =
            "/secrets/default/s: it is encrypted (k8s:enc:aesgcm:v1:key1:) and cannot be decrypted";
        assert!(
            message
                .as_str()
                .is_some_and(|message| message.contains(text)),
            "{message}"
        );
        let maps = wire.get("/api/v1/namespaces/default/configmaps/c").await;
        assert_eq!(maps.status, 200);
        server.stop().await;
    }

    configuration.write("secrets", &with_key);
    let server = Server::start_in(directory.path(), &[&configuration.flag]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    let read = ["get", "secret", "s", "-o=jsonpath={.data.k}"];
    assert_eq!(kubectl.run(&read).await, "dg==");
    server.stop().await;
}

#[tokio::test]
async fn a_kms_plugin_encrypts() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let provider = format!(
        "{{kms: {{apiVersion: v2, name: test, endpoint: 'unix://{}'}}}}",
        socket.display()
    );
    let configuration = Configuration::new(directory.path(), "secrets", &provider);

    // The server starts without the plugin, and is not ready.
    let server = Server::start_in(directory.path(), &[&configuration.flag]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let health = wire.get("/readyz?verbose").await;
    assert_eq!(health.status, 500);
    assert!(
        health.text().contains("[-]kms-providers failed"),
        "{}",
        health.text()
    );
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}});
    let refused: Value = wire.post(SECRETS, &secret).await.json();
    assert_eq!(refused["reason"], "ServerTimeout", "{refused}");
    let log = server.log();
    assert!(
        log.contains("KMS provider test: there is no data encryption key yet"),
        "{log}"
    );

    let plugin = KmsPlugin::start(&socket).unwrap();
    eventually("the server is ready", async || {
        wire.get("/readyz").await.status == 200
    })
    .await;
    assert_eq!(wire.post(SECRETS, &secret).await.status, 201);
    server.stop().await;
    let stored = contents(&directory.path().join("data/store"));
    assert!(contains(&stored, "k8s:enc:kms:v2:test:"));

    // Another process has the plugin decrypt the seed of the first.
    let decrypted = plugin.keys().calls("Decrypt");
    let server = Server::start_in(directory.path(), &[&configuration.flag]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let read = wire.get(&format!("{SECRETS}/s")).await;
    assert_eq!(read.json()["data"]["k"], "dg==");
    assert_eq!(plugin.keys().calls("Decrypt"), decrypted + 1);
    let scrape = Scrape::parse(&wire.get("/metrics").await.text());
    for method in ["Status", "Encrypt", "Decrypt"] {
        let labels = format!(
            "grpc_status_code=\"OK\",method_name=\"/v2.KeyManagementService/{method}\",provider_name=\"test\""
        );
        let series = format!(
            "apiserver_envelope_encryption_kms_operations_latency_seconds_count{{{labels}}}"
        );
        assert_eq!(scrape.get(&series), Some(1.0), "{series}");
    }
    let series = "apiserver_envelope_encryption_dek_source_cache_size{provider_name=\"test\"}";
    assert_eq!(scrape.get(series), Some(2.0));
    server.stop().await;
}

#[tokio::test]
async fn an_invalid_configuration_is_a_start_error_without_keys() {
    let directory = tempfile::tempdir().unwrap();
    let provider = "{aescbc: {keys: [{name: a, secret: bm90IGxvbmc=}]}}";
    let configuration = Configuration::new(directory.path(), "secrets", provider);
    let data = format!("--data-dir={}", directory.path().join("data").display());
    let run = command().args([&data, &configuration.flag]).output();
    let output = timeout(PATIENCE, run)
        .await
        .expect("it ends")
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    let expected = "resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the \
                    expected length, got 8, expected one of [16 24 32]";
    assert!(
        text.contains(expected) && text.contains("--encryption-provider-config"),
        "{text}"
    );
    assert!(!text.contains("bm90IGxvbmc"), "{text}");
}
