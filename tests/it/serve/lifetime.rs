//! Tests of `--ready-file` and `--exit-with-parent`: a test runner learns when its server is ready, and leaves no server
//! behind when it is killed.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::harness::{PATIENCE, Server, command, shell, signal};

const FLAGS: [&str; 3] = ["serve", "--storage=memory", "--secure-port=0"];

/// Waits until the file exists, and returns its content.
async fn ready(path: &Path) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            return serde_json::from_str(&text).expect("a complete JSON object");
        }
        assert!(Instant::now() < deadline, "the server is not ready");
        sleep(Duration::from_millis(5)).await;
    }
}

fn address(ready: &Value) -> String {
    let url = ready["url"].as_str().expect("a URL");
    url.strip_prefix("https://").expect("HTTPS").to_owned()
}

/// Returns true if the server at `address` ends in time.
async fn ends(address: &str) -> bool {
    let ended = async {
        while TcpStream::connect(address).await.is_ok() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, ended).await.is_ok()
}

#[tokio::test]
async fn ready_file_exists_while_the_server_is_ready() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("ready");
    std::fs::write(&path, "that of an earlier server").expect("a file");
    let flag = format!("--ready-file={}", path.display());
    let mut server = Server::start_in(directory.path(), &[&flag]).await;
    let content = ready(&path).await;
    let expected = serde_json::json!({
        "kubeconfig": server.kubeconfig(),
        "pid": server.pid(),
        "url": format!("https://{}", server.secure()),
    });
    assert_eq!(content, expected);
    server.signal("TERM");
    assert!(server.wait().await.success());
    assert!(!path.exists());
}

#[tokio::test]
async fn a_server_whose_ready_file_cannot_be_written_exits() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = command()
        .current_dir(directory.path())
        .args(FLAGS)
        .arg("--ready-file=missing/ready")
        .output();
    let output = timeout(PATIENCE, output).await.expect("in time");
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains(r#"cannot write "missing/ready""#), "{log}");
}

/// Starts a server as the child of a shell, which is killed. The server ends only if it has the flag.
#[tokio::test]
async fn server_ends_with_its_parent() {
    for (flag, is_alone) in [
        ("--exit-with-parent", false),
        ("--exit-with-parent=false", true),
    ] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("ready");
        let mut parent = shell("\"$0\" \"$@\" & wait")
            .current_dir(directory.path())
            .args(FLAGS)
            .arg("--ready-file=ready")
            .arg(flag)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("a shell");
        let content = ready(&path).await;
        parent.kill().await.expect("its own child");
        if is_alone {
            sleep(Duration::from_millis(300)).await;
            assert!(TcpStream::connect(address(&content)).await.is_ok());
            let pid = content["pid"].as_u64().expect("a process ID");
            signal(u32::try_from(pid).expect("a process ID"), "TERM");
        }
        assert!(ends(&address(&content)).await, "{flag}");
        assert!(!path.exists(), "{flag}");
    }
}

/// The parent ends while the server starts, or before.
#[tokio::test]
async fn server_ends_with_another_process() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut other = shell("exec sleep 600").spawn().expect("a shell");
    let flag = format!("--exit-with-parent={}", other.id().expect("it runs"));
    let mut server = Server::start_in(directory.path(), &[&flag]).await;
    other.kill().await.expect("its own child");
    assert!(server.wait().await.success());
    let log = server.log();
    assert!(
        log.contains("end of the process of --exit-with-parent"),
        "{log}"
    );

    let output = command()
        .current_dir(directory.path())
        .args(FLAGS)
        .arg(flag)
        .output();
    let output = timeout(PATIENCE, output).await.expect("in time");
    assert!(output.expect("it runs").status.success());
}
