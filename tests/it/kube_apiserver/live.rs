//! Tests with a kube-apiserver and this server on the same etcd, in both media types of storage: each sees the other's
//! writes. `scripts/test-kube-apiserver` starts the kube-apiserver and runs them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use etcd_client::Client;
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::client::JsonClient;
use super::recorded::Recorded;
use super::{Manifest, differences, manifests, verdicts, without_nulls, without_zeros};
use crate::harness::{PATIENCE, Server};

/// The media types of storage.
const MEDIA_TYPES: [&str; 2] = ["application/json", "application/vnd.kubernetes.protobuf"];

/// Returns a variable that `scripts/test-kube-apiserver` sets.
fn variable(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set: run scripts/test-kube-apiserver"))
}

async fn kube_apiserver() -> JsonClient {
    let kubeconfig = variable("KUBE_APISERVER_KUBECONFIG");
    JsonClient::new(&PathBuf::from(kubeconfig)).await
}

/// Starts this server on the etcd of the kube-apiserver.
async fn start(media_type: &str) -> Server {
    let servers = format!("--etcd-servers={}", variable("KUBE_APISERVER_ETCD"));
    let media_type = format!("--storage-media-type={media_type}");
    Server::start(&[
        "--storage=etcd",
        &servers,
        &media_type,
        "--service-cluster-ip-range=10.0.0.0/16",
    ])
    .await
}

/// Both servers, this one with a media type of storage, and a new namespace.
struct Pair {
    server: Server,
    /// The kube-apiserver, and this server.
    clients: [JsonClient; 2],
    namespace: String,
}

impl Pair {
    async fn start(media_type: &str) -> Self {
        let theirs = kube_apiserver().await;
        let server = start(media_type).await;
        let ours = JsonClient::new(&server.kubeconfig()).await;
        let namespace = json!({"metadata": {"generateName": "beside-"}});
        let created = ours.post("/api/v1/namespaces", &namespace).await.ok();
        let namespace = created["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        let pair = Self {
            server,
            clients: [theirs, ours],
            namespace,
        };
        // Its admission reads the namespace from a cache.
        pair.assert_same(&format!("/api/v1/namespaces/{}", pair.namespace))
            .await;
        pair
    }

    fn path(&self, plural: &str) -> String {
        let prefix = match plural {
            "deployments" => "/apis/apps/v1",
            "leases" => "/apis/coordination.k8s.io/v1",
            _ => "/api/v1",
        };
        format!("{prefix}/namespaces/{}/{plural}", self.namespace)
    }

    /// Waits until both servers return the same object, in the same version.
    async fn assert_same(&self, path: &str) {
        self.assert_same_in_form(path, without_nulls).await;
    }

    /// As [`Self::assert_same`], for both objects in a normal form.
    async fn assert_same_in_form(&self, path: &str, form: fn(&Value) -> Value) {
        let deadline = Instant::now() + PATIENCE;
        let [theirs, ours] = &self.clients;
        loop {
            let (expected, actual) = (theirs.get(path).await, ours.get(path).await);
            let found = differences(&form(&expected.body), &form(&actual.body));
            if expected.code == 200 && actual.code == 200 && found.is_empty() {
                return;
            }
            // Controllers of both servers change some objects meanwhile.
            assert!(
                Instant::now() < deadline,
                "{path}: {} {}: {}",
                expected.code,
                actual.code,
                found.join("\n")
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn stop(self) {
        let namespace = format!("/api/v1/namespaces/{}", self.namespace);
        self.clients[1].delete(&namespace).await.ok();
        self.server.stop().await;
    }
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": value}})
}

/// Creates the objects of `objects.yaml`, unless an earlier test has.
async fn create_manifests(client: &JsonClient) -> Vec<Manifest> {
    let manifests = manifests();
    for one in &manifests {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let created = client.post(&one.path, &one.object).await;
            // A custom resource is served some time after its definition was created.
            if created.code == 404 && Instant::now() < deadline {
                sleep(Duration::from_millis(100)).await;
                continue;
            }
            let exists = client.get(&one.object_path()).await.code == 200;
            assert!(exists, "{}: {}", one.path, created.body);
            break;
        }
    }
    manifests
}

#[tokio::test]
#[ignore = "needs a kube-apiserver: scripts/test-kube-apiserver"]
async fn objects_of_the_kube_apiserver_are_served_identically() {
    for media_type in MEDIA_TYPES {
        let pair = Pair::start(media_type).await;
        for one in create_manifests(&pair.clients[0]).await {
            pair.assert_same(&one.object_path()).await;
        }
        pair.stop().await;
    }
}

#[tokio::test]
#[ignore = "needs a kube-apiserver: scripts/test-kube-apiserver"]
async fn objects_of_this_server_are_served_by_the_kube_apiserver() {
    for media_type in MEDIA_TYPES {
        let pair = Pair::start(media_type).await;
        let mut created = BTreeSet::new();
        for one in manifests() {
            let kind = one.object["kind"].as_str().expect("a kind").to_owned();
            // The node ports are those of the service in the other namespace.
            if !one.path.contains("/namespaces/stored/") || kind == "Service" {
                continue;
            }
            let path = one
                .path
                .replace("/stored/", &format!("/{}/", pair.namespace));
            let mut object = one.object.clone();
            object["metadata"]
                .as_object_mut()
                .expect("metadata")
                .remove("namespace");
            for of_event in ["involvedObject", "regarding"] {
                if let Some(involved) = object.get_mut(of_event) {
                    involved["namespace"] = pair.namespace.clone().into();
                }
            }
            let response = pair.clients[1].post(&path, &object).await;
            let exists = response.code == 409 && kind == "ServiceAccount";
            assert!(response.code == 201 || exists, "{path}: {}", response.body);
            let name = one.object["metadata"]["name"].as_str().expect("a name");
            let path = format!("{path}/{name}");
            pair.assert_same_in_form(&path, as_written).await;
            created.insert(kind);
        }
        assert!(created.len() >= 25, "{created:?}");
        pair.stop().await;
    }
}

/// Returns an object without what kube-apiserver adds when it reads one of this server: zero values, the labels of jobs, and
/// an annotation of daemon sets with the generation in `extensions/v1beta1`.
fn as_written(object: &Value) -> Value {
    let mut object = object.clone();
    if object["kind"] == "Job"
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("labels");
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove("deprecated.daemonset.template.generation");
    }
    without_zeros(&object)
}

/// What an event says: its type, the name, the version and the value.
fn event(event: &Value) -> (String, String, String, String) {
    let object = &event["object"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (
        text(&event["type"]),
        text(&object["metadata"]["name"]),
        text(&object["metadata"]["resourceVersion"]),
        text(&object["data"]["v"]),
    )
}

/// Both servers send the same events, in the same order and versions, for writes through either.
#[tokio::test]
#[ignore = "needs a kube-apiserver: scripts/test-kube-apiserver"]
async fn watches_of_both_servers_have_the_events_of_both() {
    const ROUNDS: usize = 20;
    for media_type in MEDIA_TYPES {
        let pair = Pair::start(media_type).await;
        let path = pair.path("configmaps");
        let list = pair.clients[0].get(&path).await.ok();
        let version = list["metadata"]["resourceVersion"]
            .as_str()
            .expect("a version");
        let mut watches = Vec::new();
        for client in &pair.clients {
            watches.push(client.watch(&path, version).await);
        }
        let mut expected = 0;
        for round in 0..ROUNDS {
            let [first, second] = [round % 2, (round + 1) % 2].map(|at| &pair.clients[at]);
            let name = format!("m{round}");
            first.post(&path, &config_map(&name, "1")).await.ok();
            let object = format!("{path}/{name}");
            second.put(&object, &config_map(&name, "2")).await.ok();
            first
                .call(Method::PATCH, &object, Some(&json!({"data": {"v": "3"}})))
                .await
                .ok();
            second.delete(&object).await.ok();
            expected += 4;
        }
        let mut received = Vec::new();
        for mut watch in watches {
            let events = watch.take(expected).await;
            received.push(events.iter().map(event).collect::<Vec<_>>());
        }
        assert_eq!(received[0], received[1], "{media_type}");
        let types: Vec<&str> = received[0].iter().map(|event| &*event.0).collect();
        let round = ["ADDED", "MODIFIED", "MODIFIED", "DELETED"];
        assert_eq!(types, round.repeat(ROUNDS), "{media_type}");
        pair.stop().await;
    }
}

/// Adds one to the counter of a config map `count` times, by compare-and-swap.
async fn count(client: &JsonClient, path: &str, count: usize) -> usize {
    let mut conflicts = 0;
    for _ in 0..count {
        loop {
            let mut object = client.get(path).await.ok();
            let value = object["data"]["v"].as_str().expect("a value");
            let value: usize = value.parse().expect("a number");
            object["data"]["v"] = (value + 1).to_string().into();
            let response = client.put(path, &object).await;
            if response.code != 409 {
                response.ok();
                break;
            }
            conflicts += 1;
        }
    }
    conflicts
}

/// No update through either server is lost, and an update of an earlier version is a conflict.
#[tokio::test]
#[ignore = "needs a kube-apiserver: scripts/test-kube-apiserver"]
async fn updates_through_both_servers_conflict() {
    const EACH: usize = 50;
    for media_type in MEDIA_TYPES {
        let pair = Pair::start(media_type).await;
        let path = pair.path("configmaps");
        let [theirs, ours] = &pair.clients;
        let old = theirs.post(&path, &config_map("counter", "0")).await.ok();
        let object = format!("{path}/counter");
        let counting = [theirs, ours, theirs, ours].map(|client| count(client, &object, EACH));
        let conflicts: usize = join_all(counting).await.into_iter().sum();
        let counted = ours.get(&object).await.ok();
        assert_eq!(counted["data"]["v"], (4 * EACH).to_string(), "{media_type}");
        assert!(
            conflicts > 0,
            "{media_type}: the updates were not concurrent"
        );
        for client in [theirs, ours] {
            assert_eq!(client.put(&object, &old).await.code, 409, "{media_type}");
        }
        println!("{media_type}: {} updates, {conflicts} conflicts", 4 * EACH);
        pair.stop().await;
    }
}

/// Addresses are allocated by `IPAddress` objects, which both servers create, and ports in one bitmap.
#[tokio::test]
#[ignore = "needs a kube-apiserver: scripts/test-kube-apiserver"]
async fn services_of_both_servers_have_distinct_addresses_and_ports() {
    for media_type in MEDIA_TYPES {
        let pair = Pair::start(media_type).await;
        let path = pair.path("services");
        let create = |number: usize| {
            let client = &pair.clients[number % 2];
            let name = format!("s{number}");
            let ports = json!({"type": "NodePort", "ports": [{"port": 80}]});
            let service = json!({"metadata": {"name": name}, "spec": ports});
            let path = &path;
            async move {
                let created = client.post(path, &service).await.ok();
                let spec = &created["spec"];
                let address = spec["clusterIP"].as_str().expect("an address").to_owned();
                (
                    address,
                    spec["ports"][0]["nodePort"].as_u64().expect("a port"),
                )
            }
        };
        let values = join_all((0..60).map(create)).await;
        let (addresses, ports): (Vec<String>, Vec<u64>) = values.into_iter().unzip();
        let distinct: BTreeSet<&String> = addresses.iter().collect();
        assert_eq!(distinct.len(), 60, "{media_type}: {addresses:?}");
        let distinct: BTreeSet<&u64> = ports.iter().collect();
        assert_eq!(distinct.len(), 60, "{media_type}: {ports:?}");
        // A taken address or port is refused by the other server.
        for (client, taken) in [(0, 1), (1, 0)] {
            let (address, port) = (&addresses[taken], ports[taken]);
            for spec in [
                json!({"clusterIP": address, "ports": [{"port": 80}]}),
                json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}),
            ] {
                let service = json!({"metadata": {"name": "again"}, "spec": spec});
                let refused = pair.clients[client].post(&path, &service).await;
                assert_eq!(refused.code, 422, "{media_type}: {}", refused.body);
            }
        }
        // Deleted by the other server, an address is free again.
        for (number, address) in addresses.iter().enumerate() {
            let other = &pair.clients[(number + 1) % 2];
            other.delete(&format!("{path}/s{number}")).await.ok();
            let deadline = Instant::now() + PATIENCE;
            while pair.clients[0].get(&ip_path(address)).await.code != 404 {
                assert!(Instant::now() < deadline, "{address} is not released");
                sleep(Duration::from_millis(50)).await;
            }
        }
        pair.stop().await;
    }
}

fn ip_path(address: &str) -> String {
    format!("/apis/networking.k8s.io/v1/ipaddresses/{address}")
}

/// Writes `verdicts.txt` again.
#[tokio::test]
#[ignore = "needs a kube-apiserver: scripts/test-kube-apiserver --record"]
async fn record_verdicts() {
    let Some(directory) = std::env::var_os("WATCHET_TEST_RECORD") else {
        return;
    };
    let recorded = verdicts::recorded(&kube_apiserver().await).await;
    std::fs::write(PathBuf::from(directory).join("verdicts.txt"), recorded).unwrap();
}

/// Writes `stored.txt`, from the objects as the kube-apiserver has stored them.
#[tokio::test]
#[ignore = "needs a kube-apiserver: scripts/test-kube-apiserver --record"]
async fn record_stored() {
    let Some(directory) = std::env::var_os("WATCHET_TEST_RECORD") else {
        return;
    };
    let theirs = kube_apiserver().await;
    let mut etcd = Client::connect([variable("KUBE_APISERVER_ETCD")], None)
        .await
        .unwrap();
    let mut text = String::from(
        "# What a kube-apiserver has stored for objects.yaml, written by scripts/test-kube-apiserver --record: the path, the \
         key in etcd, the value in base64, and the response to a GET.\n",
    );
    for one in create_manifests(&theirs).await {
        let path = one.object_path();
        let response = theirs.get(&path).await.ok();
        let key = key_of(&path);
        let found = etcd.get(key.as_str(), None).await.unwrap();
        let value = found
            .kvs()
            .first()
            .unwrap_or_else(|| panic!("no key {key}"));
        let recorded = Recorded {
            path,
            key,
            value: value.value().to_vec(),
            response,
        };
        text += &recorded.line();
    }
    std::fs::write(PathBuf::from(directory).join("stored.txt"), text).unwrap();
}

/// Returns the key in etcd of the object with this path.
fn key_of(path: &str) -> String {
    const IN_GROUP: [&str; 3] = [
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "example.com",
    ];
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, rest) = match parts[..] {
        ["api", _, ref rest @ ..] => ("", rest),
        ["apis", group, _, ref rest @ ..] => (group, rest),
        _ => panic!("{path} is no path of an object"),
    };
    let (namespace, plural, name) = match rest {
        ["namespaces", namespace, plural, name] => (Some(namespace), *plural, *name),
        [plural, name] => (None, *plural, *name),
        _ => panic!("{path} is no path of an object"),
    };
    let prefix = match (group, plural) {
        ("", "nodes") => "minions".to_owned(),
        ("", "services" | "endpoints") => {
            format!("services/{}", plural.replace("services", "specs"))
        }
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        (group, plural) if IN_GROUP.contains(&group) => format!("{group}/{plural}"),
        (_, plural) => plural.to_owned(),
    };
    let namespace = namespace
        .map(|namespace| format!("{namespace}/"))
        .unwrap_or_default();
    format!("/registry/{prefix}/{namespace}{name}")
}
