//! Tests of the limit of open files, which limits the number of connections.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{Duration, sleep, timeout};

use crate::harness::{PATIENCE, Protocol, Server};

/// With a soft limit of 256 files, 239 idle connections prevented all other connections.
#[tokio::test(flavor = "multi_thread")]
async fn the_soft_limit_of_open_files_is_raised_to_the_hard_limit() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let limited = "ulimit -S -n 256 && exec \"$0\" \"$@\"";
    let mut server = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_watchet")])
        .args(["--secure-port=0", "--data-dir"])
        .arg(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("a shell");
    let stdout = server.stdout.take().expect("stdout is a pipe");
    let mut lines = BufReader::new(stdout).lines();
    timeout(PATIENCE, lines.next_line())
        .await
        .expect("in time")
        .expect("stdout is readable")
        .expect("the server announces itself");
    let pid = server.id().expect("it runs");
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
    let files = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .expect("the limit is listed");
    let [soft, hard, _unit] = files.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("soft and hard limit: {files}");
    };
    assert_eq!(soft, hard);
    assert_ne!(soft, "256");
}

/// Sets the soft limit of open files of a running server.
async fn set_soft_limit(server: &Server, files: &str) {
    let (pid, limit) = (server.pid().to_string(), format!("--nofile={files}:"));
    let set = Command::new("prlimit")
        .args(["--pid", &pid, &limit])
        .status();
    assert!(set.await.expect("prlimit of util-linux").success());
}

/// There was a line for each attempt to accept a connection: 391 lines.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_free_files_says_so_once_and_recovers() {
    let server = Server::start(&[]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    // Fewer than are open.
    set_soft_limit(&server, "8").await;
    let mut waiting = Vec::new();
    for _ in 0..20 {
        // The kernel accepts it.
        let connected = TcpStream::connect(server.insecure()).await;
        waiting.push(connected.expect("the port is open"));
    }
    sleep(Duration::from_secs(3)).await;
    let log = server.log();
    // A second one if the machine is busy: the time between lines is limited, not their number.
    let count = log.matches("cannot accept connections").count();
    assert!((1..=2).contains(&count), "{log}");
    // Open connections go on.
    assert_eq!(wire.get("/livez").await.status, 200);
    set_soft_limit(&server, "1024").await;
    let mut wire = server.plain(Protocol::Http1).await;
    assert_eq!(wire.get("/livez").await.status, 200);
    drop(waiting);
    server.stop().await;
}
