//! Servers for tests, looked at without a client; `tests/it/testing.rs` uses them.

use super::*;

#[tokio::test]
async fn a_server_leaves_nothing_behind() {
    let server = Server::start().await.unwrap();
    let path = server.kubeconfig_path().to_owned();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), server.kubeconfig());
    assert!(server.kubeconfig().contains(server.url()));
    server.stop().await.unwrap();
    assert!(!path.parent().unwrap().exists());
    let dropped = Server::start().await.unwrap();
    let path = dropped.kubeconfig_path().to_owned();
    drop(dropped);
    assert!(!path.parent().unwrap().exists());
}

#[tokio::test(start_paused = true)]
async fn paused_time_and_other_servers_do_not_matter() {
    let servers = futures::future::join_all((0..4).map(|_| Server::start())).await;
    let servers: Vec<Server> = servers.into_iter().map(Result::unwrap).collect();
    let mut urls: Vec<&str> = servers.iter().map(Server::url).collect();
    urls.sort_unstable();
    urls.dedup();
    assert_eq!(urls.len(), 4);
}

#[tokio::test]
async fn a_kept_directory_has_one_owner_and_outlives_it() {
    let directory = tempfile::tempdir().unwrap();
    let manifest = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}";
    let builder = Server::builder()
        .data_dir(directory.path())
        .manifests(manifest);
    let first = builder.clone().start().await.unwrap();
    let error = builder.clone().start().await.unwrap_err();
    assert!(
        matches!(&error, StartError::Build(told) if told.contains("in use")),
        "{error}"
    );
    first.stop().await.unwrap();
    // Another one finds what was made, and is not troubled by it.
    builder.start().await.unwrap().stop().await.unwrap();
    assert!(directory.path().join("kubeconfig").exists());
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let told = |builder: Builder| async {
        let error = builder.start().await.unwrap_err();
        let config = matches!(error, StartError::Config(_));
        (config, error.to_string())
    };
    let (config, error) = told(Server::builder().set("storage", "paper")).await;
    assert!(config && error.contains("--storage \"paper\""), "{error}");
    let (config, error) = told(Server::builder().set("colour", "red")).await;
    assert!(
        config && error.contains("no such setting: \"colour\""),
        "{error}"
    );
    let (config, error) = told(Server::builder().token("", "jane", &[])).await;
    assert!(config && error.contains("the token is empty"), "{error}");
}

#[tokio::test]
async fn wrong_manifests_are_named() {
    for (yaml, expected) in [
        ("a: [", "not valid YAML"),
        ("kind: Pod", "has no apiVersion"),
        ("{apiVersion: v1, kind: Pod}", "has no metadata.name"),
        (
            "{apiVersion: v1, kind: Pot, metadata: {name: a}}",
            "v1 Pot \"a\": the server has no such kind",
        ),
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: nowhere}}",
            "v1 ConfigMap \"a\": 404: namespaces \"nowhere\" not found",
        ),
    ] {
        let error = Server::builder().manifests(yaml).start().await.unwrap_err();
        assert!(matches!(error, StartError::Manifest(_)), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
