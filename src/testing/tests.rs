//! Tests of the server for tests without a client; see also `tests/it/testing.rs`.

use super::*;

#[tokio::test]
async fn a_server_leaves_no_files() {
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
async fn a_server_is_independent_of_paused_time_and_other_servers() {
    let servers = futures::future::join_all((0..4).map(|_| Server::start())).await;
    let servers: Vec<Server> = servers.into_iter().map(Result::unwrap).collect();
    let mut urls: Vec<&str> = servers.iter().map(Server::url).collect();
    urls.sort_unstable();
    urls.dedup();
    assert_eq!(urls.len(), 4);
}

#[tokio::test]
async fn a_given_directory_is_locked_and_reusable() {
    let directory = tempfile::tempdir().unwrap();
    let manifest = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}";
    let builder = Server::builder()
        .data_dir(directory.path())
        .manifests(manifest);
    let first = builder.clone().start().await.unwrap();
    let error = builder.clone().start().await.unwrap_err();
    assert!(
        matches!(&error, StartError::Build(message) if message.contains("in use")),
        "{error}"
    );
    first.stop().await.unwrap();
    // Another server finds the object, and applies the manifest again without an error.
    builder.start().await.unwrap().stop().await.unwrap();
    assert!(directory.path().join("kubeconfig").exists());
}

#[tokio::test]
async fn start_errors_have_a_reason() {
    let start_error = |builder: Builder| async {
        let error = builder.start().await.unwrap_err();
        let config = matches!(error, StartError::Config(_));
        (config, error.to_string())
    };
    let (config, error) = start_error(Server::builder().set("storage", "paper")).await;
    assert!(config && error.contains("--storage \"paper\""), "{error}");
    let (config, error) = start_error(Server::builder().set("colour", "red")).await;
    assert!(
        config && error.contains("unknown setting: \"colour\""),
        "{error}"
    );
    let (config, error) = start_error(Server::builder().token("", "jane", &[])).await;
    assert!(config && error.contains("the token is empty"), "{error}");
}

#[tokio::test]
async fn manifest_errors_name_the_object() {
    for (yaml, expected) in [
        ("a: [", "not valid YAML"),
        ("kind: Pod", "has no apiVersion"),
        ("{apiVersion: v1, kind: Pod}", "has no metadata.name"),
        (
            "{apiVersion: v1, kind: Pot, metadata: {name: a}}",
            "v1 Pot \"a\": the server does not serve this kind",
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
