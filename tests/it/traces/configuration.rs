//! Invalid configurations, which the program rejects, and the example `config/tracing.yaml`.

use std::path::Path;

use tokio::time::timeout;

use crate::harness::{PATIENCE, Server, command};

#[tokio::test]
async fn invalid_files_are_start_errors() {
    let directory = tempfile::tempdir().unwrap();
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";
    let path = directory.path().join("tracing.yaml");
    for (text, expect) in [
        (
            format!("{head}samplingRatePerMillion: 1000001\n"),
            "is not a valid TracingConfiguration: samplingRatePerMillion 1000001: must be 0 to 1000000",
        ),
        (
            format!("{head}endpoint: https://collector:4317\n"),
            "endpoint \"https://collector:4317\": the scheme \"https\" is not supported",
        ),
        (format!("{head}samplingRate: 1\n"), "samplingRate"),
        (
            "apiVersion: v1\nkind: Pod\n".to_owned(),
            "apiVersion is \"v1\" and kind is \"Pod\"",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        check(directory.path(), &path, expect).await;
    }
    let missing = directory.path().join("missing.yaml");
    check(directory.path(), &missing, "cannot be read").await;
}

/// Checks that the program exits with code 2 and an error that names the file.
async fn check(directory: &Path, file: &Path, expect: &str) {
    let data = format!("--data-dir={}", directory.join("data").display());
    let flag = format!("--tracing-config-file={}", file.display());
    let run = command().args([&data, &flag]).output();
    let output = timeout(PATIENCE, run).await.expect("it ends").unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(expect), "{error}");
    let named = format!("--tracing-config-file {:?}", file.display().to_string());
    assert!(error.contains(&named), "{error}");
    assert!(
        !directory.join("data").exists(),
        "the server created its data directory"
    );
}

#[tokio::test]
async fn the_example_is_valid() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/tracing.yaml");
    let flag = format!("--tracing-config-file={}", example.display());
    Server::start(&[&flag]).await.stop().await;
}
