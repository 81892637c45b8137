//! Tests of Services and the allocation of their addresses, with the real program on the embedded store and on etcd:
//! the service `kubernetes`, ranges of one and of two families, and that no two services get the same address.

use std::collections::HashMap;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Kubectl, PATIENCE, Protocol, Server};
use crate::storage::etcd::EtcdProcess;

const DUAL: &str = "--service-cluster-ip-range=10.20.0.0/16,fd00:20::/108";

#[tokio::test]
async fn a_cluster_of_two_families_on_the_embedded_store() {
    let server = Server::start(&[DUAL]).await;
    a_service_has_addresses_of_both_families(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn a_cluster_of_two_families_on_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let server = Server::start(&["--storage=etcd", &servers, DUAL]).await;
    a_service_has_addresses_of_both_families(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn kubernetes_service_exists_on_the_embedded_store() {
    let server = Server::start(&["--bind-address=0.0.0.0", "--insecure-port=0"]).await;
    kubernetes_service_exists(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn kubernetes_service_exists_on_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let args = [
        "--storage=etcd",
        &servers,
        "--bind-address=0.0.0.0",
        "--insecure-port=0",
    ];
    let server = Server::start(&args).await;
    kubernetes_service_exists(&server).await;
    server.stop().await;
}

async fn get(kubectl: &Kubectl, what: &[&str]) -> Value {
    let output = kubectl.run(&[&["get", "-o", "json"], what].concat()).await;
    serde_json::from_str(&output).expect("JSON")
}

/// Waits for an object that the server creates after it is ready.
async fn found(kubectl: &Kubectl, what: &[&str]) -> Value {
    let begun = Instant::now();
    loop {
        let list = get(kubectl, &[what[0]]).await;
        let mut items = list["items"]
            .as_array()
            .cloned()
            .unwrap_or_default()
            .into_iter();
        if let Some(item) = items.find(|item| item["metadata"]["name"] == what[1]) {
            return item;
        }
        assert!(begun.elapsed() < PATIENCE, "{what:?} is never made");
    }
}

async fn kubernetes_service_exists(server: &Server) {
    let kubectl = Kubectl::new(&server.kubeconfig());
    let service = found(&kubectl, &["services", "kubernetes"]).await;
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    assert_eq!(service["metadata"]["labels"], labels);
    let port = &service["spec"]["ports"][0];
    assert_eq!(
        (&port["name"], &port["port"]),
        (&json!("https"), &json!(443))
    );
    let endpoints = found(&kubectl, &["endpoints", "kubernetes"]).await;
    let subset = &endpoints["subsets"][0];
    assert_eq!(subset["ports"][0]["port"], port["targetPort"]);
    let slice = found(&kubectl, &["endpointslices", "kubernetes"]).await;
    assert_eq!(
        slice["endpoints"][0]["addresses"][0],
        subset["addresses"][0]["ip"]
    );
    let output = kubectl.run(&["describe", "service", "kubernetes"]).await;
    assert!(output.contains("Endpoints:"), "{output}");
    // Another service cannot have its address.
    let other = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "other"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}});
    let output = kubectl
        .run_failing_with(&["create", "-f", "-"], &other.to_string())
        .await;
    assert!(
        output.contains("provided IP is already allocated"),
        "{output}"
    );
}

async fn a_service_has_addresses_of_both_families(server: &Server) {
    let kubectl = Kubectl::new(&server.kubeconfig());
    let api = found(&kubectl, &["services", "kubernetes"]).await;
    assert_eq!(api["spec"]["clusterIPs"], json!(["10.20.0.1"]));
    let create = async |name: &str, spec: Value| {
        let mut service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        for (member, value) in spec.as_object().expect("members") {
            service["spec"][member] = value.clone();
        }
        kubectl
            .run_with(&["create", "-f", "-"], &service.to_string())
            .await;
        get(&kubectl, &["service", name]).await["spec"].clone()
    };
    let single = create("single", json!({})).await;
    assert_eq!(single["ipFamilies"], json!(["IPv4"]));
    assert_eq!(single["ipFamilyPolicy"], "SingleStack");
    let begins = |spec: &Value, at: usize, with: &str| {
        let ip = spec["clusterIPs"][at].as_str().unwrap_or_default();
        assert!(ip.starts_with(with), "{spec}");
    };
    begins(&single, 0, "10.20.");
    let both = create("both", json!({"ipFamilyPolicy": "RequireDualStack"})).await;
    assert_eq!(both["ipFamilies"], json!(["IPv4", "IPv6"]));
    begins(&both, 0, "10.20.");
    begins(&both, 1, "fd00:20::");
    assert_eq!(both["clusterIP"], both["clusterIPs"][0]);
    let sixth = create("six", json!({"ipFamilies": ["IPv6"]})).await;
    begins(&sixth, 0, "fd00:20::");

    // Adds a family, and removes one, which releases the address.
    let wider = r#"{"spec":{"ipFamilyPolicy":"PreferDualStack"}}"#;
    kubectl
        .run(&["patch", "service", "single", "-p", wider])
        .await;
    let wide = get(&kubectl, &["service", "single"]).await["spec"].clone();
    assert_eq!(wide["clusterIPs"][0], single["clusterIP"]);
    begins(&wide, 1, "fd00:20::");
    let second = wide["clusterIPs"][1]
        .as_str()
        .expect("an address")
        .to_owned();
    kubectl.run(&["get", "ipaddress", &second]).await;
    let narrower = r#"{"spec":{"ipFamilyPolicy":"SingleStack"}}"#;
    kubectl
        .run(&["patch", "service", "single", "-p", narrower])
        .await;
    let narrow = get(&kubectl, &["service", "single"]).await["spec"].clone();
    assert_eq!(narrow["clusterIPs"], json!([single["clusterIP"]]));
    assert_eq!(narrow["ipFamilies"], json!(["IPv4"]));
    let output = kubectl.run_failing(&["get", "ipaddress", &second]).await;
    assert!(output.contains("not found"), "{output}");
    let clash = r#"{"spec":{"ipFamilies":["IPv6"]}}"#;
    let output = kubectl
        .run_failing(&["patch", "service", "single", "-p", clash])
        .await;
    assert!(
        output.contains("spec.ipFamilies[0]: Invalid value"),
        "{output}"
    );
}

#[tokio::test]
async fn concurrent_writes_of_services_on_the_embedded_store() {
    let server = Server::start(&[FEW]).await;
    addresses_and_ports_are_unique(&[&server]).await;
    server.stop().await;
}

/// Two servers that share only etcd.
#[tokio::test]
async fn concurrent_writes_of_services_on_two_servers_of_one_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let args = ["--storage=etcd", &servers, FEW];
    let (first, second) = tokio::join!(Server::start(&args), Server::start(&args));
    addresses_and_ports_are_unique(&[&first, &second]).await;
    first.stop().await;
    second.stop().await;
}

const FEW: &str = "--service-cluster-ip-range=10.20.0.0/28";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Several writers create, update and delete five services with a dozen addresses and some ports. At the end the
/// existing services have distinct addresses and ports; after their deletion none is allocated.
async fn addresses_and_ports_are_unique(servers: &[&Server]) {
    let seed = watchet_test_util::seeds::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let writers = (0..6).map(|n| write_services(servers[n % servers.len()], random.fork()));
    let done: usize = futures::future::join_all(writers).await.iter().sum();
    assert!(done > 6, "hardly a write was made");
    let mut wire = servers[0].plain(Protocol::Http1).await;
    let mut owners = HashMap::new();
    let services = wire.get(SERVICES).await.json();
    for service in services["items"].as_array().expect("items") {
        let (name, spec) = (&service["metadata"]["name"], &service["spec"]);
        let ports = spec["ports"].as_array().expect("ports").iter();
        let ports = ports.map(|port| &port["nodePort"]);
        let ports = ports.chain([&spec["healthCheckNodePort"]]);
        for good in ports.chain([&spec["clusterIP"]]) {
            let other = (!good.is_null()).then(|| owners.insert(good.to_string(), name));
            assert_eq!(other.flatten(), None, "{name} too has {good}");
        }
    }
    for service in services["items"].as_array().expect("items") {
        let name = service["metadata"]["name"].as_str().expect("a name");
        if name != "kubernetes" {
            let path = format!("{SERVICES}/{name}");
            let answer = wire.send(Method::DELETE, &path, &[], "").await;
            assert!(answer.status.is_success(), "{name}: {}", answer.status);
        }
    }
    let path = "/apis/networking.k8s.io/v1/ipaddresses";
    let begun = Instant::now();
    loop {
        let left = wire.get(path).await.json();
        let left = left["items"].as_array().expect("items").iter();
        let left: Vec<_> = left
            .map(|ip| ip["spec"]["parentRef"]["name"].clone())
            .collect();
        if left.iter().all(|name| name == "kubernetes") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "left behind: {left:?}");
    }
    // Each port that the writers could request is free again.
    for port in 30_001..30_004 {
        let body = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": format!("p{port}")},
            "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
        let answer = wire.post(SERVICES, &body).await;
        assert_eq!(answer.status, 201, "{}", answer.json());
    }
}

/// Makes random writes and returns the number of successful ones.
async fn write_services(server: &Server, mut random: fastrand::Rng) -> usize {
    let mut wire = server.plain(Protocol::Http1).await;
    let mut done = 0;
    for _ in 0..20 {
        let name = format!("s{}", random.u8(..5));
        let path = format!("{SERVICES}/{name}");
        let node_port = [0, 30_001, 30_002, 30_003][random.usize(..4)];
        let mut spec = json!({"type": "ClusterIP", "ports": [{"port": 80}]});
        if random.bool() {
            spec["type"] = "NodePort".into();
            spec["ports"][0]["nodePort"] = node_port.into();
        }
        let answer = match random.u8(..6) {
            0 | 1 => {
                if random.bool() {
                    spec["clusterIP"] = format!("10.20.0.{}", random.u8(2..5)).into();
                }
                let body = json!({"apiVersion": "v1", "kind": "Service",
                    "metadata": {"name": name}, "spec": spec});
                wire.post(SERVICES, &body).await
            }
            2..=4 => {
                let headers = [("content-type", "application/merge-patch+json")];
                let patch = json!({ "spec": spec }).to_string();
                wire.send(Method::PATCH, &path, &headers, &patch).await
            }
            _ => wire.send(Method::DELETE, &path, &[], "").await,
        };
        let (code, response) = (answer.status.as_u16(), answer.json());
        match code {
            200 | 201 => done += 1,
            404 | 409 | 422 => {}
            500 if response["message"].to_string().contains("range is full") => {}
            _ => panic!("{code}: {response}"),
        }
    }
    done
}
