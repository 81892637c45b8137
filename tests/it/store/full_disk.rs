//! A test of a full disk with the real program, on a file system of 16 MiB. The simulated disk of
//! `crates/storage/src/embedded/tests/full.rs` covers the store alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;
use tokio::time::Instant;

use super::CONFIG_MAPS;
use crate::harness::{PATIENCE, Protocol, Server};

/// A mounted file system in memory, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts it at `path`; `None` if this user may not.
    fn mount(path: &Path) -> Option<Self> {
        std::fs::create_dir_all(path).expect("a directory");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs"])
            .arg(path)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(path.to_owned())),
            failed => {
                println!(
                    "NOT TESTED on a real file system, because this user cannot mount one: {failed:?}"
                );
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            println!("{} stays mounted", self.0.display());
        }
    }
}

async fn try_create(server: &Server, name: &str) -> (StatusCode, String) {
    let mut wire = server.plain(Protocol::Http1).await;
    let body = json!({"metadata": {"name": name}, "data": {"large": "x".repeat(100_000)}});
    let response = wire.post(CONFIG_MAPS, &body).await;
    (response.status, response.text())
}

/// Creates objects until one is refused, and returns their names.
async fn fill(server: &Server, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let name = format!("{prefix}-{}", names.len());
        let (status, text) = try_create(server, &name).await;
        if status == StatusCode::CREATED {
            names.push(name);
            assert!(names.len() < 1000, "the disk is never full");
            continue;
        }
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{text}");
        assert!(text.contains("is almost full"), "{text}");
        assert!(text.contains("delete objects"), "{text}");
        return names;
    }
}

#[tokio::test]
async fn a_full_disk_can_be_left() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(_disk) = SmallDisk::mount(&directory.path().join("data")) else {
        return;
    };
    let flags = ["--etcd-compaction-interval=1s"];
    let server = Server::start_in(directory.path(), &flags).await;
    let names = fill(&server, "m").await;
    assert!(names.len() > 20, "{} objects", names.len());
    let mut wire = server.plain(Protocol::Http1).await;
    let list = wire.get(CONFIG_MAPS).await.json();
    let version = list["metadata"]["resourceVersion"].as_str().expect("one");
    assert_eq!(wire.get("/readyz").await.status, StatusCode::OK);
    let path = format!("{CONFIG_MAPS}/{}", names[0]);
    assert_eq!(
        wire.send(Method::DELETE, &path, &[], "").await.status,
        StatusCode::OK
    );
    let watch = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=5&resourceVersion={version}");
    let events = wire.get(&watch).await.text();
    assert!(events.contains("DELETED"), "{events}");
    assert!(
        server
            .log()
            .contains("the disk of the store is almost full"),
        "{}",
        server.log()
    );
    // Another program takes the rest.
    let rest = directory.path().join("data/rest");
    let full = Command::new("dd")
        .args(["if=/dev/zero", "bs=4096"])
        .arg(format!("of={}", rest.display()))
        .output();
    assert!(!full.expect("dd").status.success(), "dd filled the disk");
    server.kill().await;

    let server = Server::start_in(directory.path(), &flags).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let list = wire.get(CONFIG_MAPS).await.json();
    assert_eq!(
        list["items"].as_array().map(Vec::len),
        Some(names.len() - 1)
    );
    let (status, text) = try_create(&server, "refused").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{text}");
    std::fs::remove_file(rest).expect("a file");
    for name in &names[1..] {
        let path = format!("{CONFIG_MAPS}/{name}");
        let deleted = wire.send(Method::DELETE, &path, &[], "").await;
        assert_eq!(deleted.status, StatusCode::OK, "{}", deleted.text());
    }
    // Once history is compacted, there is space again.
    let deadline = Instant::now() + PATIENCE;
    while try_create(&server, "accepted").await.0 != StatusCode::CREATED {
        assert!(Instant::now() < deadline, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(
        server.log().contains("free space again"),
        "{}",
        server.log()
    );
    server.stop().await;
    let server = Server::start_in(directory.path(), &flags).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let found = wire.get(&format!("{CONFIG_MAPS}/accepted")).await.status;
    assert_eq!(found, StatusCode::OK);
    server.stop().await;
}
