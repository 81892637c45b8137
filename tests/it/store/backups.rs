//! Tests of `watchet store check|backup|restore|compact`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{copy_directory, create, list, store, store_done, store_refused};
use crate::harness::{Protocol, Server};

/// A backup of a server that writes meanwhile is the state of one revision, and needs no pause.
#[tokio::test]
async fn a_running_server_is_backed_up_and_restored() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_in(directory.path(), &[]).await;
    for number in 0..20 {
        create(&server, &format!("before-{number:02}")).await;
    }
    let file = directory.path().join("backup");
    let path = file.to_str().expect("UTF-8");
    let is_done = AtomicBool::new(false);
    let writes = async {
        let mut names = Vec::new();
        while !is_done.load(Ordering::Relaxed) {
            let name = format!("during-{:04}", names.len());
            let at = create(&server, &name).await;
            names.push((name, at));
        }
        names
    };
    let backup = async {
        let printed = store_done(directory.path(), &["backup", path]).await;
        is_done.store(true, Ordering::Relaxed);
        printed
    };
    let (written, printed) = tokio::join!(writes, backup);
    let revision: u64 = {
        let rest = printed.split("revision ").nth(1).expect("a revision");
        rest.split(' ')
            .next()
            .expect("a word")
            .parse()
            .expect("a number")
    };
    assert_eq!(
        fs::metadata(&file).expect("a file").permissions().mode() & 0o777,
        0o600
    );
    assert!(!directory.path().join("backup.partial").exists());
    let (all, _) = list(&server).await;
    server.stop().await;

    // In a data directory of its own.
    let other = tempfile::tempdir().expect("a temporary directory");
    let printed = store_done(other.path(), &["restore", path]).await;
    assert!(
        printed.contains(&format!("revision {revision} ")),
        "{printed}"
    );
    store_done(other.path(), &["check"]).await;
    let server = Server::start_in(other.path(), &[]).await;
    let (restored, _) = list(&server).await;
    server.stop().await;
    let expected: Vec<_> = all.into_iter().filter(|(_, at)| *at <= revision).collect();
    assert_eq!(restored, expected, "the state at {revision}");
    assert!(written.iter().all(|(name, at)| {
        restored.iter().any(|(found, _)| found == name) == (*at <= revision)
    }));

    // In the old data directory, whose store is replaced only if that is requested.
    let refused = store_refused(directory.path(), &["restore", path], 1).await;
    assert!(refused.contains("--force"), "{refused}");
    let printed = store_done(directory.path(), &["restore", path, "--force"]).await;
    assert!(printed.contains("store.replaced."), "{printed}");
    let server = Server::start_in(directory.path(), &[]).await;
    assert_eq!(list(&server).await.0, restored);
    server.stop().await;
}

/// Other users than administrators cannot read a backup, which has all secrets.
#[tokio::test]
async fn a_backup_needs_authorization() {
    let server = Server::start(&[]).await;
    let path = "/debug/storage/backup";
    let mut admin = server.admin(Protocol::Http2).await;
    assert_eq!(admin.get(path).await.status, 200);
    let mut stranger = server.stranger(Protocol::Http1).await;
    let refused = stranger.get(path).await.status;
    assert!([401, 403].contains(&refused.as_u16()), "{refused}");
    let mut plain = server.plain(Protocol::Http1).await;
    let posted = plain.send(http::Method::POST, path, &[], "{}").await.status;
    assert_eq!(posted, 405);
    server.stop().await;
    let memory = Server::start(&["--storage=memory"]).await;
    let mut admin = memory.admin(Protocol::Http1).await;
    assert_eq!(admin.get(path).await.status, 404);
    memory.stop().await;
}

#[tokio::test]
async fn a_stopped_directory_is_backed_up() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_in(directory.path(), &[]).await;
    create(&server, "a").await;
    let (listed, _) = list(&server).await;
    // With changes that only the log has.
    server.kill().await;
    let file = directory.path().join("backup");
    let path = file.to_str().expect("UTF-8");
    store_done(directory.path(), &["backup", path]).await;
    let other = tempfile::tempdir().expect("a temporary directory");
    store_done(other.path(), &["restore", path, "--bump-revision"]).await;
    let server = Server::start_in(other.path(), &[]).await;
    let (restored, now) = list(&server).await;
    assert_eq!(restored, listed);
    assert!(now > 1_000_000_000, "{now}");
    server.stop().await;

    // A damaged backup replaces nothing.
    let mut bytes = fs::read(&file).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).expect("a file");
    let refused = store_refused(other.path(), &["restore", path, "--force"], 1).await;
    assert!(refused.contains("not a complete backup"), "{refused}");
    let report = store_done(other.path(), &["check"]).await;
    assert!(report.contains("is sound"), "{report}");
}

/// `restore --force` moved the store away first. If it failed or was killed then, the next start served an empty cluster.
#[tokio::test]
async fn a_failed_or_killed_restore_leaves_a_store() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_in(directory.path(), &[]).await;
    create(&server, "old").await;
    server.stop().await;
    let file = directory.path().join("backup");
    let path = file.to_str().expect("UTF-8");
    store_done(directory.path(), &["backup", path]).await;
    let server = Server::start_in(directory.path(), &[]).await;
    create(&server, "newer").await;
    let (listed, _) = list(&server).await;
    server.stop().await;
    let data = directory.path().join("data");
    let (store_directory, restoring) = (data.join("store"), data.join("store.restoring"));

    fs::write(&restoring, "").expect("a file");
    let failed = store_refused(directory.path(), &["restore", path, "--force"], 1).await;
    assert!(failed.contains("store.restoring"), "{failed}");
    let server = Server::start_in(directory.path(), &[]).await;
    assert_eq!(list(&server).await.0, listed);
    server.stop().await;

    // As a kill between the last two renames leaves it.
    fs::remove_file(&restoring).expect("a file");
    let other = tempfile::tempdir().expect("a temporary directory");
    store_done(other.path(), &["restore", path]).await;
    let complete = data.join("store.restoring.complete");
    copy_directory(&other.path().join("data/store"), &complete);
    fs::rename(&store_directory, data.join("store.replaced.1")).expect("a directory");
    store_done(directory.path(), &["check"]).await;
    fs::rename(&store_directory, &complete).expect("a directory");
    let server = Server::start_in(directory.path(), &[]).await;
    let (restored, _) = list(&server).await;
    assert!(
        restored.iter().any(|(name, _)| name == "old"),
        "{restored:?}"
    );
    assert_eq!(restored.len() + 1, listed.len());
    server.stop().await;
}

fn flip_bits_of_every_page(file: &Path) {
    let mut bytes = fs::read(file).expect("a file");
    for page in bytes.chunks_mut(4096).skip(1) {
        page[100] ^= 1;
    }
    fs::write(file, bytes).expect("a file");
}

#[tokio::test]
async fn a_check_reports_the_state_and_damage() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let refused = store_refused(directory.path(), &["check"], 1).await;
    assert!(refused.contains("there is no store"), "{refused}");
    assert!(
        !directory.path().join("data").exists(),
        "nothing is created"
    );

    let server = Server::start_in(directory.path(), &[]).await;
    create(&server, "a").await;
    for args in [
        &["check"][..],
        &["compact"],
        &["restore", "--bump-revision"],
    ] {
        let refused = store_refused(directory.path(), args, 1).await;
        assert!(
            refused.contains("is in use by another watchet"),
            "{refused}"
        );
    }
    server.kill().await;
    let report = store_done(directory.path(), &["check"]).await;
    for line in ["revision ", "objects ", "records ", "is sound"] {
        assert!(report.contains(line), "{report}");
    }
    // A clean shutdown, so that damage is not found by the start alone.
    Server::start_in(directory.path(), &[]).await.stop().await;
    let intact = directory.path().join("intact");
    let store_directory = directory.path().join("data/store");
    copy_directory(&store_directory, &intact);
    flip_bits_of_every_page(&store_directory.join("store.redb"));
    let damaged = store_refused(directory.path(), &["check"], 1).await;
    assert!(
        damaged.contains("store.redb") && damaged.contains("corrupt"),
        "{damaged}"
    );
    assert!(damaged.contains("restore"), "{damaged}");
    fs::remove_dir_all(&store_directory).expect("a directory");
    copy_directory(&intact, &store_directory);
    store_done(directory.path(), &["check"]).await;
}

#[tokio::test]
async fn compaction_keeps_everything() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_in(directory.path(), &[]).await;
    for number in 0..50 {
        create(&server, &format!("m-{number:02}")).await;
    }
    let (listed, now) = list(&server).await;
    server.stop().await;
    let file = directory.path().join("data/store/store.redb");
    let before = fs::metadata(&file).expect("a file").len();
    let printed = store_done(directory.path(), &["compact"]).await;
    let after = fs::metadata(&file).expect("a file").len();
    assert!(after <= before, "{printed}");
    assert!(
        printed.contains(&format!("{after} bytes; before, {before} bytes")),
        "{printed}"
    );
    store_done(directory.path(), &["check"]).await;
    let server = Server::start_in(directory.path(), &[]).await;
    let (again, after) = list(&server).await;
    assert_eq!(again, listed);
    assert!(after >= now);
    server.stop().await;
}

#[tokio::test]
async fn each_command_has_a_help_text() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for name in ["check", "backup", "restore", "compact", "export", "import"] {
        let output = store(directory.path(), &[name, "--help"]).await;
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let usage = format!("Usage: watchet store {name}");
        assert!(
            text.contains(&usage) && text.contains("--data-dir"),
            "{text}"
        );
    }
    let refused = store_refused(directory.path(), &["restore"], 2).await;
    assert!(refused.contains("<FILE>"), "{refused}");
}
