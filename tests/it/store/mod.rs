//! `watchet store` and restored data directories, with the real program.

mod backups;
mod damaged;
mod etcd;
mod full_disk;
mod kills;
mod restored;
mod upgrades;

use std::fs;
use std::path::Path;
use std::process::Output;

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{PATIENCE, Protocol, Server, command};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Runs `watchet store` with the data directory below `directory`.
async fn store(directory: &Path, args: &[&str]) -> Output {
    let mut command = command();
    let data_dir = directory.join("data");
    command
        .arg("store")
        .args(args)
        .arg("--data-dir")
        .arg(data_dir);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    output.expect("it ends").expect("it starts")
}

/// As [`store`], which must succeed; returns its output.
pub(crate) async fn store_done(directory: &Path, args: &[&str]) -> String {
    let output = store(directory, args).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// As [`store`], which must fail with this exit code; returns its error.
async fn store_refused(directory: &Path, args: &[&str], code: i32) -> String {
    let output = store(directory, args).await;
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
    errors
}

/// Creates a config map and returns its version.
async fn create(server: &Server, name: &str) -> u64 {
    let mut wire = server.plain(Protocol::Http1).await;
    let body = json!({"metadata": {"name": name}, "data": {"of": name}});
    let created = wire.post(CONFIG_MAPS, &body).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    version(&created.json())
}

fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.expect("a version").parse().expect("a number")
}

/// Returns all config maps with their versions, and the version of the list.
async fn list(server: &Server) -> (Vec<(String, u64)>, u64) {
    let mut wire = server.plain(Protocol::Http1).await;
    let list = wire.get(CONFIG_MAPS).await.json();
    let items = list["items"].as_array().expect("items").iter().map(|item| {
        let name = item["metadata"]["name"].as_str().expect("a name");
        assert_eq!(item["data"]["of"], name, "{item}");
        (name.to_owned(), version(item))
    });
    (items.collect(), version(&list))
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for file in fs::read_dir(from).expect("a directory") {
        let file = file.expect("an entry");
        fs::copy(file.path(), to.join(file.file_name())).expect("a readable file");
    }
}
