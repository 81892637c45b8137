//! Tests of the limit of open files, which limits the number of connections.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::harness::PATIENCE;

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
