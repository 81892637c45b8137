//! A test of damage that a start finds after the store was opened.

use std::fs;

use super::create;
use crate::harness::{PATIENCE, Server, command};

/// The server stayed half-started: not ready, with one error and endless retries.
#[tokio::test]
async fn a_server_that_finds_damage_before_it_is_ready_exits() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_in(directory.path(), &[]).await;
    create(&server, "a").await;
    server.stop().await;
    let file = directory.path().join("data/store/store.redb");
    let mut bytes = fs::read(&file).expect("a data file");
    let mut damaged = 0;
    // What the start needs, but not the pages from which the store is opened.
    for page in bytes.chunks_mut(4096).skip(1) {
        let name = b"kube-system";
        if let Some(at) = page.windows(name.len()).position(|bytes| bytes == name) {
            page[at] ^= 1;
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    fs::write(&file, bytes).expect("a data file");
    let mut serve = command();
    serve.args(["--secure-port=0", "--data-dir"]);
    serve.arg(directory.path().join("data"));
    let output = tokio::time::timeout(PATIENCE, serve.output()).await;
    let output = output.expect("it exits").expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let last = errors.lines().last().unwrap_or_default();
    assert!(last.starts_with("watchet: "), "{errors}");
    for word in [
        "corrupt",
        "store.redb",
        "run `watchet store restore FILE --force`",
    ] {
        assert!(last.contains(word), "{errors}");
    }
    assert!(!String::from_utf8_lossy(&output.stdout).contains("is ready"));
}
