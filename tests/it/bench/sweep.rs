//! Tests of `bench sweep`: a table of one server, and one of two.

use std::process::{Output, Stdio};

use tokio::time::timeout;

use crate::harness::{PATIENCE, Server, command};

async fn sweep(server: &Server, flags: &[&str]) -> Output {
    let mut running = command();
    running.args([
        "bench",
        "sweep",
        "--scale=3",
        "--objects=20",
        "--kubeconfig",
    ]);
    running.arg(server.kubeconfig());
    running
        .args(["--pid", &server.pid().to_string()])
        .args(flags);
    running.stdout(Stdio::piped()).stderr(Stdio::piped());
    // Two servers and the sweep share the machine with other tests.
    let output = timeout(PATIENCE * 4, running.output()).await;
    output.expect("in time").expect("it runs")
}

/// Returns the table and asserts that no row failed.
fn table(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[tokio::test]
async fn two_servers_are_compared_row_by_row() {
    let server = Server::start(&["--storage=memory"]).await;
    let other = Server::start(&["--storage=memory"]).await;
    let kubeconfig = other.kubeconfig();
    let (against, pid) = (kubeconfig.display().to_string(), other.pid().to_string());
    let flags = [
        "--output=markdown",
        "--goal=1000000",
        "--resource=pods",
        "--resource=gadgets",
        "--verb=get",
        "--verb=watch",
        "--verb=apply",
        "--accept=json",
        "--accept=metadata",
        "--against",
        &against,
        "--against-pid",
        &pid,
    ];
    let table = table(&sweep(&server, &flags).await);
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches(['|', ' ']).split(" | ").collect())
        .collect();
    let (head, rows) = rows.split_first().expect("a head");
    assert_eq!(head[3..], ["CPU us", "other's CPU us", "ratio"], "{table}");
    assert_eq!(rows.len(), 2 * (2 + 2 + 1), "{table}");
    let numbers = |row: &[&str]| -> Vec<f64> {
        row[3..]
            .iter()
            .map(|cell| cell.parse().expect("a number"))
            .collect()
    };
    let mut last = 0.0;
    for row in rows {
        let [cpu, other, ratio] = numbers(row)[..] else {
            panic!("{row:?}");
        };
        assert!(cpu > 0.0 && other > 0.0, "{table}");
        assert!((other / cpu - ratio).abs() <= 0.1 + ratio * 0.02, "{table}");
        assert!(ratio >= last, "the lowest ratio is first: {table}");
        last = ratio;
    }
    assert!(
        table.contains("10 of 10 rows are below the goal of 1000000"),
        "{table}"
    );
    assert_eq!(table.matches("\n- ").count(), 10, "{table}");
    server.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn one_server_has_a_table_of_its_own_and_a_missing_process_fails_the_sweep() {
    let server = Server::start(&["--storage=memory"]).await;
    let flags = ["--resource=widgets", "--verb=create", "--verb=list-pages"];
    let text = table(&sweep(&server, &flags).await);
    assert_eq!(text.lines().count(), 1 + 4 + 1, "{text}");
    assert!(
        text.contains("create      custom, CEL rules  json"),
        "{text}"
    );

    let other = Server::start(&["--storage=memory"]).await;
    let kubeconfig = other.kubeconfig().display().to_string();
    let missing = ["--against", &kubeconfig, "--against-pid", "1073741824"];
    let output = sweep(&server, &[&flags[..], &missing].concat()).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("cannot measure process 1073741824"),
        "{stderr}"
    );
    server.stop().await;
    other.stop().await;
}
