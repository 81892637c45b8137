//! Tests of the rule that a run is not valid if the load generator is the bottleneck.

use std::process::Stdio;

use serde_json::json;
use tokio::time::timeout;

use super::{check, report};
use crate::harness::{PATIENCE, command};

/// One thread of the generator reads what eight threads of the floor write.
async fn read_with_one_thread(flags: &[&str]) -> (bool, serde_json::Value, String) {
    let mut running = command();
    running.args(["bench", "floor", "list", "--json", "--threads=1"]);
    running.args([
        "--count=10000",
        "--size=2000",
        "--requests=60",
        "--connections=8",
    ]);
    running
        .args(flags)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = timeout(PATIENCE, running.output()).await;
    let output = output.expect("in time").expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), report(&output), stderr)
}

#[tokio::test]
async fn a_generator_that_is_the_bottleneck_fails_the_run() {
    let (success, report, stderr) = read_with_one_thread(&[]).await;
    check(
        &report,
        &[
            ("requests_answered", json!(60)),
            ("generator_is_bottleneck", json!("true")),
        ],
    );
    assert!(!success, "{report:#}");
    assert!(
        stderr.contains("the run is not valid: the load generator was the bottleneck"),
        "{stderr}"
    );
    assert!(report["generator_busy"].as_f64() >= Some(0.9), "{report:#}");

    let (success, report, stderr) = read_with_one_thread(&["--saturate"]).await;
    check(
        &report,
        &[
            ("generator_is_bottleneck", json!("true")),
            ("faults", json!([])),
        ],
    );
    assert!(success, "{stderr}");
}

#[tokio::test]
async fn a_run_at_a_low_rate_is_valid() {
    let mut running = command();
    running.args([
        "bench",
        "floor",
        "watch",
        "--json",
        "--watchers=3",
        "--events=20",
        "--rate=20",
    ]);
    let output = running.output().await.expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = report(&output);
    check(
        &report,
        &[
            ("generator_is_bottleneck", json!("false")),
            ("events_delivered", json!(60)),
        ],
    );
    assert!(output.status.success(), "{stderr}");
    assert!(report["generator_busy"].as_f64() < Some(0.9), "{report:#}");
}
