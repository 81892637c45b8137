//! Tests of the pages of `bench` and of `bench compare`: two runs on a server are compared, different loads and other
//! files are errors.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::{bench, succeed};
use crate::harness::{PATIENCE, Server, command};

/// Runs `bench compare` with these arguments.
async fn compare(args: &[&str]) -> Output {
    let mut command = command();
    command.args(["bench", "compare"]).args(args);
    let output = timeout(PATIENCE, command.output()).await;
    output.expect("in time").expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes a report to a file of the directory and returns its path.
fn write_report(directory: &Path, name: &str, report: &Value) -> String {
    let path = directory.join(name);
    std::fs::write(&path, report.to_string()).expect("the directory is writable");
    path.display().to_string()
}

/// Asserts that a page is self-contained.
fn check_page(path: &PathBuf, parts: &[&str]) {
    let page = std::fs::read_to_string(path).expect("it is written");
    for part in parts {
        assert!(page.contains(part), "{part}: {page}");
    }
    for outside in ["src=", "href=", "url(", "<script", "@import"] {
        assert!(!page.contains(outside), "{outside}: {page}");
    }
}

#[tokio::test]
async fn two_runs_are_compared() {
    let server = Server::start(&["--storage=memory"]).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let page = directory.path().join("page.html");
    let pid = server.pid().to_string();
    let run = async |watchers: &str| {
        let html = page.to_str().expect("a UTF-8 path");
        let watch = ["watch", "--events=60", "--rate=200", "--pid", &pid];
        let more = ["--watchers", watchers, "--html", html];
        succeed(bench(&server.kubeconfig(), &[&watch[..], &more].concat())).await
    };
    let (old, new) = (run("3").await, run("4").await);
    server.stop().await;
    assert_eq!(old["format"], "watchet-bench-report");
    assert_eq!(old["server"]["storage"], "memory", "{old:#}");
    let version = old["server"]["version"].as_str().expect("a version");
    assert!(version.starts_with("v1."), "{version}");
    assert_eq!(old["metadata"]["parameters"]["events"], "60");
    let repeated = "watchet bench watch --kubeconfig FILE --pid PID --saturate --watchers 3 --events 60 --rate 200";
    assert_eq!(old["metadata"]["command"], repeated);
    check_page(
        &page,
        &[
            "<h1>Passed</h1>\n<p class=\"loss\">0 of 240 events lost</p>",
            "<h2>Latency percentiles</h2>",
            "<h2>Throughput over time</h2>",
            "<th scope=\"row\">Storage</th><td>memory</td>",
            "watchet bench watch --kubeconfig FILE",
        ],
    );

    let old = write_report(directory.path(), "old.json", &old);
    let new = write_report(directory.path(), "new.json", &new);
    let both = directory.path().join("both.html");
    let html = both.display().to_string();
    let output = compare(&[&old, &new, "--html", &html, "--name-b", "new <commit>"]).await;
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    // A busy machine may add a warning that the generator was the bottleneck.
    let warning = "watchet bench: warning: the runs have different parameters: watchers (old: 3, new <commit>: 4)";
    assert!(stderr.lines().any(|line| line == warning), "{stderr}");
    let delivered = stdout
        .lines()
        .find(|line| line.starts_with("Events delivered"));
    let words: Vec<_> = delivered.expect("a row").split_whitespace().collect();
    assert_eq!(
        words,
        ["Events", "delivered", "180", "240", "1.33"],
        "{stdout}"
    );
    check_page(
        &both,
        &[
            "<h1>new &lt;commit&gt; compared with old</h1>",
            "different parameters: watchers (old: 3, new &lt;commit&gt;: 4)",
            "0 of 180 events lost",
            "0 of 240 events lost",
        ],
    );
}

#[tokio::test]
async fn reports_of_different_loads_are_not_compared() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, report: Value| write_report(directory.path(), name, &report);
    // Reports of earlier versions have neither a format nor the arguments of the run.
    let get = write("get.json", json!({"load": "get", "bytes": 5, "faults": []}));
    let list = write(
        "list.json",
        json!({"load": "list", "bytes": 5, "faults": []}),
    );
    let output = compare(&[&get, &get]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("Size of all bodies"));
    let later = write("later.json", json!({"format_version": 99}));
    let other = write("other.json", json!({"kind": "Pod"}));
    for (a, b, messages) in [
        (
            &get,
            &list,
            &["get is a report of `bench get` and list one of `bench list`"][..],
        ),
        (
            &get,
            &later,
            &[
                "later.json",
                "its format version is 99",
                "watchet bench LOAD --json",
            ],
        ),
        (&other, &get, &["other.json", "it has no member \"load\""]),
        (&get, &"/no/such/file".to_owned(), &["/no/such/file"]),
    ] {
        let output = compare(&[a, b]).await;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        for message in messages {
            assert!(stderr.contains(message), "{message}: {stderr}");
        }
    }
}
