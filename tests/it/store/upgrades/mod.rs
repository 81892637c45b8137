//! Stores and backups of released versions, read by the present program. `make` beside this file makes those of a program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use http::{Method, StatusCode};
use serde_json::Value;

use super::{store_done, version};
use crate::harness::{Protocol, Server};

/// The store of a released version, in the state after `kill -9`: its last changes are only in the log.
struct Release {
    /// Has `data/store`, and the file `backup` of the state before the last two changes.
    directory: tempfile::TempDir,
    /// The objects that the program returned last.
    objects: Vec<Value>,
}

impl Release {
    /// Unpacks those of all released versions.
    fn all() -> Vec<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/store/upgrades");
        let files = fs::read_dir(&here).expect("a directory");
        let paths = files.map(|file| file.expect("an entry").path());
        let archives = paths.filter(|path| path.to_string_lossy().ends_with(".tar.gz"));
        let releases: Vec<Self> = archives.map(|archive| Self::unpack(&archive)).collect();
        assert!(!releases.is_empty(), "no archives in {here:?}");
        releases
    }

    fn unpack(archive: &Path) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(archive).arg("-C").arg(directory.path());
        assert!(tar.status().expect("tar").success(), "{archive:?}");
        let json = archive.to_string_lossy().replace(".tar.gz", ".json");
        let list = fs::read(json).expect("a readable file");
        let mut list: Value = serde_json::from_slice(&list).expect("JSON");
        let Value::Array(mut objects) = list["items"].take() else {
            panic!("{archive:?}: not a list");
        };
        // It has the certificate of the server's CA, which is not part of the store.
        objects.retain(|object| object["metadata"]["name"] != "kube-root-ca.crt");
        assert!(objects.len() >= 7, "{archive:?}: {objects:?}");
        Self { directory, objects }
    }

    fn backup(&self) -> PathBuf {
        self.directory.path().join("backup")
    }
}

/// Returns the path of an object.
fn path_of(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().expect("a name");
    let kind = object["kind"].as_str().expect("a kind").to_lowercase();
    let root = match object["apiVersion"].as_str().expect("a version") {
        "v1" => "/api/v1".to_owned(),
        group => format!("/apis/{group}"),
    };
    format!("{root}/namespaces/kept/{kind}s/{name}")
}

#[tokio::test]
async fn stores_of_released_versions_are_served() {
    for release in Release::all() {
        let directory = release.directory.path();
        let server = Server::start_in(directory, &[]).await;
        let mut wire = server.plain(Protocol::Http1).await;
        for object in &release.objects {
            let found = wire.get(&path_of(object)).await;
            assert_eq!(found.status, StatusCode::OK, "{}", found.text());
            assert_eq!(&found.json(), object);
        }
        let removed = "/api/v1/namespaces/kept/configmaps/removed";
        assert_eq!(wire.get(removed).await.status, StatusCode::NOT_FOUND);

        // The history is that of the store.
        let deployment = release.objects.iter().find(|o| o["kind"] == "Deployment");
        let before = version(deployment.expect("a deployment"));
        let path = format!(
            "/api/v1/namespaces/kept/configmaps?watch=1&timeoutSeconds=5&resourceVersion={before}"
        );
        let watch = wire.send(Method::GET, &path, &[], "").await;
        let lines = watch.body.split(|byte| *byte == b'\n');
        let events = lines.filter(|line| !line.is_empty()).map(|line| {
            let event: Value = serde_json::from_slice(line).expect("an event");
            let object = &event["object"];
            let name = object["metadata"]["name"].as_str().expect("a name");
            let value = object["data"]["k"].as_str().unwrap_or_default();
            format!("{} {name} {value}", event["type"].as_str().expect("a type"))
        });
        let events: Vec<String> = events
            .filter(|event| !event.contains("kube-root-ca.crt"))
            .collect();
        assert_eq!(
            events,
            [
                "MODIFIED changed 2",
                "MODIFIED held ",
                "DELETED removed ",
                "MODIFIED changed 3"
            ]
        );

        let patch = r#"{"data":{"k":"4"}}"#;
        let merge = [("content-type", "application/merge-patch+json")];
        let changed = "/api/v1/namespaces/kept/configmaps/changed";
        let patched = wire.send(Method::PATCH, changed, &merge, patch).await;
        assert_eq!(patched.status, StatusCode::OK, "{}", patched.text());
        server.stop().await;
        let check = store_done(directory, &["check"]).await;
        assert!(check.contains("is sound"), "{check}");
    }
}

#[tokio::test]
async fn backups_of_released_versions_are_restored() {
    for release in Release::all() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let backup = release.backup();
        let backup = backup.to_str().expect("UTF-8");
        store_done(directory.path(), &["restore", backup]).await;
        let server = Server::start_in(directory.path(), &[]).await;
        let mut wire = server.plain(Protocol::Http1).await;
        for object in &release.objects {
            let found = wire.get(&path_of(object)).await.json();
            match object["metadata"]["name"].as_str() {
                Some("changed") => assert_eq!(found["data"]["k"], "2"),
                _ => assert_eq!(&found, object),
            }
        }
        let removed = "/api/v1/namespaces/kept/configmaps/removed";
        assert_eq!(wire.get(removed).await.status, StatusCode::OK);
        server.stop().await;
    }
}
