//! `watchet status`, `watchet kubeconfig` and `watchet version`.

use serde_json::{Value, json};

use super::watchet;
use crate::harness::{Kubectl, Server};

#[tokio::test]
async fn the_status_is_that_of_the_server() {
    let server = Server::start(&[]).await;
    let kubeconfig = server.kubeconfig();
    let text = watchet(Some(&kubeconfig), &["status"]).await.text();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {text}"))
            .trim()
            .to_owned()
    };
    assert_eq!(value("ready"), "yes");
    assert!(value("storage").starts_with("embedded, "), "{text}");
    assert!(value("history").starts_with("since 20"), "{text}");
    assert!(value("memory").ends_with(" MiB"), "{text}");
    assert!(value("objects").parse::<u64>().unwrap() > 0, "{text}");
    let ran = watchet(Some(&kubeconfig), &["status", "-o", "json"]).await;
    let status: Value = serde_json::from_str(&ran.text()).unwrap();
    assert_eq!(status["ready"], true);
    assert!(
        status["version"].as_str().unwrap().starts_with("v1."),
        "{status}"
    );

    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("kubeconfig");
    std::fs::copy(&kubeconfig, &copy).unwrap();
    server.stop().await;
    let ran = watchet(Some(&copy), &["status"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.out
            .contains("ready    no: cannot connect to https://127.0.0.1:"),
        "{ran:?}"
    );
    assert!(ran.out.contains("start a server with `watchet`"), "{ran:?}");
}

#[tokio::test]
async fn the_kubeconfig_is_merged_for_kubectl() {
    let server = Server::start(&[]).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    let other = "apiVersion: v1\nkind: Config\ncurrent-context: prod\n\
        clusters: [{name: prod, cluster: {server: 'https://prod.example'}}]\n\
        users: [{name: prod, user: {token: '0123'}}]\n\
        contexts: [{name: prod, context: {cluster: prod, user: prod}}]\n";
    std::fs::write(&file, other).unwrap();
    let data_dir = server.data_dir().to_str().unwrap();
    let printed = watchet(None, &["kubeconfig", "--data-dir", data_dir])
        .await
        .text();
    assert_eq!(
        printed,
        std::fs::read_to_string(server.kubeconfig()).unwrap()
    );
    let merge = format!("--merge={}", file.display());
    let text = watchet(
        None,
        &["kubeconfig", "--data-dir", data_dir, &merge, "--name=local"],
    )
    .await
    .text();
    assert!(
        text.contains(r#"Merged the context "local""#) && text.contains("config.backup"),
        "{text}"
    );
    let kubectl = Kubectl::newest(&file);
    assert_eq!(
        kubectl
            .run(&["config", "get-contexts", "-o", "name"])
            .await
            .trim(),
        "local\nprod"
    );
    assert_eq!(
        kubectl
            .run(&["get", "ns", "default", "-o", "name"])
            .await
            .trim(),
        "namespace/default"
    );
    let token = [
        "config",
        "view",
        "--raw",
        "-o",
        "jsonpath={.users[?(@.name=='prod')].user.token}",
    ];
    assert_eq!(kubectl.run(&token).await, "0123");
    let missing = watchet(None, &["kubeconfig", "--data-dir", "/nonexistent"]).await;
    assert_eq!(missing.code, 1);
    assert!(
        missing.err.contains("start the server first"),
        "{missing:?}"
    );
    server.stop().await;
}

#[tokio::test]
async fn the_version_names_the_api() {
    let ran = watchet(None, &["version", "-o", "json"]).await;
    let version: Value = serde_json::from_str(&ran.text()).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["kubernetes"], json!("v1.36.0"));
    assert!(
        version["features"]
            .as_array()
            .unwrap()
            .contains(&json!("etcd")),
        "{version}"
    );
}
