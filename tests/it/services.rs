//! Services and their addresses as a cluster gives them: the service of the API itself, ranges of one family
//! and of both. On the real binary, on the embedded store and on etcd.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Kubectl, PATIENCE, Server};
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
async fn the_api_is_a_service_on_the_embedded_store() {
    let server = Server::start(&["--bind-address=0.0.0.0", "--insecure-port=0"]).await;
    the_api_is_a_service(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn the_api_is_a_service_on_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let args = [
        "--storage=etcd",
        &servers,
        "--bind-address=0.0.0.0",
        "--insecure-port=0",
    ];
    let server = Server::start(&args).await;
    the_api_is_a_service(&server).await;
    server.stop().await;
}

async fn get(kubectl: &Kubectl, what: &[&str]) -> Value {
    let said = kubectl.run(&[&["get", "-o", "json"], what].concat()).await;
    serde_json::from_str(&said).expect("JSON")
}

/// It is made when the server serves already.
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

async fn the_api_is_a_service(server: &Server) {
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
    let told = kubectl.run(&["describe", "service", "kubernetes"]).await;
    assert!(told.contains("Endpoints:"), "{told}");
    // Its address is nobody else's.
    let other = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "other"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}});
    let told = kubectl
        .run_failing_with(&["create", "-f", "-"], &other.to_string())
        .await;
    assert!(told.contains("provided IP is already allocated"), "{told}");
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

    // One more family, and one less, which frees the address.
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
    let told = kubectl.run_failing(&["get", "ipaddress", &second]).await;
    assert!(told.contains("not found"), "{told}");
    let clash = r#"{"spec":{"ipFamilies":["IPv6"]}}"#;
    let told = kubectl
        .run_failing(&["patch", "service", "single", "-p", clash])
        .await;
    assert!(told.contains("spec.ipFamilies[0]: Invalid value"), "{told}");
}
