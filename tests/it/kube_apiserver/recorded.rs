//! Tests with values that a kube-apiserver has stored: `stored.txt`, which `scripts/test-kube-apiserver --record` writes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use etcd_client::Client;
use serde_json::{Value, json};
use watchet::api::StorageKey;
use watchet::encryption::{EncryptedStorage, Encryption};
use watchet::metrics::Metrics;
use watchet::protobuf::Messages;
use watchet::schema::Types;
use watchet::storage::{Expect, Put, Storage as _};

use super::{differences, without_nulls};
use crate::harness::{PATIENCE, Protocol, Server};
use crate::storage::etcd::EtcdProcess;
use crate::store::store_done;

/// The first bytes of a value in protobuf.
const MAGIC: &[u8] = b"k8s\0";

/// A value that a kube-apiserver has stored.
pub(super) struct Recorded {
    /// The path of the object.
    pub(super) path: String,
    /// The key in etcd.
    pub(super) key: String,
    pub(super) value: Vec<u8>,
    /// The response of the kube-apiserver to a GET.
    pub(super) response: Value,
}

impl Recorded {
    /// Returns the line of the file.
    pub(super) fn line(&self) -> String {
        let value = STANDARD.encode(&self.value);
        format!("{}\t{}\t{value}\t{}\n", self.path, self.key, self.response)
    }

    fn parse(line: &str) -> Self {
        let mut parts = line.splitn(4, '\t').map(str::to_owned);
        let mut part = || parts.next().expect("four parts in each line of stored.txt");
        Self {
            path: part(),
            key: part(),
            value: STANDARD.decode(part()).expect("base64"),
            response: serde_json::from_str(&part()).expect("JSON"),
        }
    }

    /// Returns the response as this server sends it; the resourceVersions of another etcd differ.
    fn expected(&self) -> Value {
        without_version(&without_nulls(&self.response))
    }
}

fn without_version(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]
        .as_object_mut()
        .expect("an object with metadata")
        .remove("resourceVersion");
    object
}

fn recorded() -> Vec<Recorded> {
    let lines = include_str!("stored.txt").lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .map(Recorded::parse)
        .collect()
}

/// Returns an etcd with the recorded values.
async fn etcd_of_kube_apiserver() -> EtcdProcess {
    let etcd = EtcdProcess::start(&[]).await;
    let mut client = Client::connect([etcd.url()], None).await.unwrap();
    for one in recorded() {
        client.put(one.key, one.value, None).await.unwrap();
    }
    etcd
}

/// Gets every recorded object from `server`, and compares it with the response of the kube-apiserver.
async fn assert_serves_recorded(server: &Server) {
    let mut wire = server.plain(Protocol::Http1).await;
    let mut wrong = Vec::new();
    for one in recorded() {
        let response = wire.get(&one.path).await;
        if response.status != 200 {
            wrong.push(format!(
                "{}: {} {}",
                one.path,
                response.status,
                response.text()
            ));
            continue;
        }
        let actual = without_version(&response.json());
        let found = differences(&one.expected(), &actual);
        wrong.extend(found.iter().map(|found| format!("{}{found}", one.path)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn at_least_forty_kinds_are_recorded_in_protobuf() {
    let recorded = recorded();
    let protobuf = recorded.iter().filter(|one| one.value.starts_with(MAGIC));
    let kinds: std::collections::BTreeSet<_> = protobuf
        .map(|one| one.response["kind"].as_str().expect("a kind"))
        .collect();
    assert!(kinds.len() >= 40, "{kinds:?}");
}

/// On etcd, and on the embedded store after `watchet store import`.
#[tokio::test]
async fn stored_objects_are_served_as_by_the_kube_apiserver() {
    let etcd = etcd_of_kube_apiserver().await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let directory = tempfile::tempdir().expect("a temporary directory");
    let printed = store_done(directory.path(), &["import", &servers]).await;
    assert!(printed.contains("Imported"), "{printed}");
    // No controller may change the objects.
    let controllers = "--controllers=legacy-token-tracking";
    let server = Server::start(&["--storage=etcd", &servers, controllers]).await;
    assert_serves_recorded(&server).await;
    let imported = Server::start_in(directory.path(), &[controllers]).await;
    assert_serves_recorded(&imported).await;
}

/// Byte by byte, so that a kube-apiserver that stores an unchanged object writes nothing.
#[test]
fn objects_are_encoded_as_by_the_kube_apiserver() {
    let messages = Messages::new(Types::builtins());
    let mut wrong = Vec::new();
    for one in recorded() {
        let json = messages.to_json(&one.value, usize::MAX);
        let Ok(json) = json else {
            assert!(!one.value.starts_with(MAGIC), "{}: {json:?}", one.key);
            continue;
        };
        let object: Value = serde_json::from_slice(&json).unwrap();
        let kind = |name: &str| object[name].as_str().unwrap();
        let encoded = messages.to_protobuf((kind("apiVersion"), kind("kind")), &json);
        let encoded = encoded.unwrap().expect("the kind is known");
        if encoded != one.value {
            let again = messages.to_json(&encoded, usize::MAX).unwrap();
            let again: Value = serde_json::from_slice(&again).unwrap();
            wrong.push(format!("{}: {:?}", one.key, differences(&object, &again)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The server says which value it cannot read, why, and what to do; it is not ready and serves no incomplete list until
/// the value is deleted.
#[tokio::test]
async fn undecodable_values_are_reported_until_they_are_deleted() {
    const BROKEN: &str = "/registry/pods/stored/broken";
    const OLD: &str = "/registry/poddisruptionbudgets/stored/old";
    let etcd = etcd_of_kube_apiserver().await;
    let mut client = Client::connect([etcd.url()], None).await.unwrap();
    let pod = recorded()
        .into_iter()
        .find(|one| one.key.contains("/pods/"));
    let pod = pod.expect("a recorded pod").value;
    client
        .put(BROKEN, &pod[..pod.len() / 2], None)
        .await
        .unwrap();
    let old =
        b"k8s\0\x0a\x25\x0a\x0epolicy/v1beta1\x12\x13PodDisruptionBudget\x12\x00\x1a\x00\x22\x00";
    client.put(OLD, &old[..], None).await.unwrap();

    let servers = format!("--etcd-servers={}", etcd.url());
    let server = Server::start(&["--storage=etcd", &servers]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    for (path, key, problem) in [
        (
            "/api/v1/pods",
            "/pods/stored/broken",
            "it is protobuf that cannot be decoded: it is truncated or not protobuf: restore the value from a backup, or delete the key from storage",
        ),
        (
            "/apis/policy/v1/poddisruptionbudgets",
            "/poddisruptionbudgets/stored/old",
            "which this server does not serve: let a kube-apiserver rewrite it",
        ),
    ] {
        let listed = wire.get(path).await;
        let text = listed.text();
        assert!(
            listed.status.as_u16() >= 429,
            "{path}: {} {text}",
            listed.status
        );
        assert!(
            text.contains(key) && text.contains(problem),
            "{path}: {text}"
        );
        // The list may fail before the health check does, and before it is logged.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let (ready, log) = (wire.get("/readyz").await, server.log());
            let is_unready = ready.status == 500 && ready.text().contains("[-]watchcache failed");
            if is_unready && log.contains(key) && log.contains(problem) {
                break;
            }
            let now = tokio::time::Instant::now();
            assert!(now < deadline, "{}\n{log}", ready.text());
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    for key in [BROKEN, OLD] {
        client.delete(key, None).await.unwrap();
    }
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while wire.get("/readyz").await.status != 200 {
        let now = tokio::time::Instant::now();
        assert!(now < deadline, "{}", wire.get("/readyz").await.text());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let pods = wire.get("/api/v1/pods").await.json();
    assert_eq!(pods["items"].as_array().map(Vec::len), Some(1), "{pods}");
}

/// Protobuf is encrypted like JSON, in the format of kube-apiserver: what is written is `k8s:enc:` around `k8s\0`.
#[tokio::test]
async fn encrypted_values_are_protobuf() {
    const CONFIGURATION: &str = "
        apiVersion: apiserver.config.k8s.io/v1
        kind: EncryptionConfiguration
        resources:
        - resources: [secrets]
          providers: [{aesgcm: {keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}}]
    ";
    let secret = recorded()
        .into_iter()
        .find(|one| one.key.contains("/secrets/"));
    let secret = secret.expect("a recorded secret");
    let etcd = EtcdProcess::start(&[]).await;
    let configuration = CONFIGURATION.parse().unwrap();
    let encryption = Encryption::new(configuration, "/registry", Metrics::new()).await;
    let storage = etcd.connect().await;
    let storage = EncryptedStorage::new(encryption.unwrap(), "", "secrets", storage);
    let key = |name: &str| StorageKey::new(&format!("/secrets/stored/{name}")).unwrap();
    let put = Put {
        key: key("password"),
        value: secret.value.clone().into(),
        expect: Expect::Absent,
        ttl: None,
    };
    storage.put(put).await.unwrap();

    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("encryption.yaml");
    std::fs::write(&file, CONFIGURATION).unwrap();
    let server = Server::start(&[
        "--storage=etcd",
        &format!("--etcd-servers={}", etcd.url()),
        &format!("--encryption-provider-config={}", file.display()),
        "--storage-media-type=application/vnd.kubernetes.protobuf",
    ])
    .await;
    let mut wire = server.plain(Protocol::Http1).await;
    let read = without_version(&wire.get(&secret.path).await.json());
    assert_eq!(differences(&secret.expected(), &read), Vec::<String>::new());

    let namespace = json!({"metadata": {"name": "stored"}});
    wire.post("/api/v1/namespaces", &namespace).await;
    let created = json!({"metadata": {"name": "new"}, "data": {"a": "Yg=="}});
    let created = wire
        .post("/api/v1/namespaces/stored/secrets", &created)
        .await;
    assert_eq!(created.status, 201, "{}", created.text());
    let raw = etcd
        .connect()
        .await
        .get(&key("new"))
        .await
        .unwrap()
        .0
        .unwrap();
    assert!(raw.value.starts_with(b"k8s:enc:aesgcm:v1:key1:"));
    let decrypted = storage.get(&key("new")).await.unwrap().0.unwrap();
    assert!(decrypted.value.starts_with(MAGIC), "{:?}", decrypted.value);
}
