//! Tests of the config map `extension-apiserver-authentication`, with the real program on both back ends.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::time::Instant;

use crate::harness::{Kubectl, PATIENCE, Server};
use crate::storage::etcd::EtcdProcess;

const ONLY: &str = "--controllers=cluster-authentication-trust";

/// Returns the published CAs, once they end with `last`.
async fn published(kubectl: &Kubectl, last: &str) -> String {
    let args = [
        "get",
        "configmap",
        "extension-apiserver-authentication",
        "-n",
        "kube-system",
        "--ignore-not-found",
        "-o",
        "jsonpath={.data.client-ca-file}",
    ];
    let started = Instant::now();
    loop {
        let found = kubectl.run(&args).await;
        if found.trim_end().ends_with(last.trim_end()) {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{found}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Returns the CA of the server's kubeconfig, which has signed the administrator's certificate.
fn own_ca(server: &Server) -> String {
    let kubeconfig = server.kubeconfig_value();
    let encoded = &kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"];
    let ca = STANDARD.decode(encoded.as_str().expect("a CA"));
    let ca = String::from_utf8(ca.expect("base64")).expect("PEM");
    ca.replace('\r', "")
}

async fn check(storage: &[&str]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let given = rcgen::generate_simple_self_signed(vec!["given".to_owned()]).expect("a CA");
    let given = given.cert.pem().replace('\r', "");
    let file = directory.path().join("client-ca.crt");
    std::fs::write(&file, &given).expect("it can be written");
    let with_file = format!("--client-ca-file={}", file.display());
    let data = directory.path().join("data");
    std::fs::create_dir(&data).expect("a directory");

    let server = Server::start_in(&data, &[storage, &[ONLY]].concat()).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    let own = own_ca(&server);
    let first = published(&kubectl, &own).await;
    assert_eq!(first.matches("BEGIN CERTIFICATE").count(), 1, "{first}");
    let map = "configmap/extension-apiserver-authentication";
    kubectl.run(&["delete", map, "-n", "kube-system"]).await;
    published(&kubectl, &own).await;
    server.stop().await;

    // After a restart with another CA both are published.
    let server = Server::start_in(&data, &[storage, &[ONLY, &with_file]].concat()).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    let both = published(&kubectl, &given).await;
    assert!(both.starts_with(own.trim_end()), "{both}");
    server.stop().await;
}

#[tokio::test]
async fn the_cas_of_client_certificates_are_published_on_the_embedded_store() {
    check(&[]).await;
}

#[tokio::test]
async fn the_cas_of_client_certificates_are_published_on_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    check(&["--storage=etcd", &servers]).await;
}
