//! Tests of audit logging with the real program.

mod console;
mod events;
mod files;
mod webhook;

use std::path::Path;

use serde_json::Value;

use crate::harness::{Protocol, Scrape, Server};

pub(super) const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub(super) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Starts a server with a policy of these rules, which logs into `directory`.
pub(super) async fn start(directory: &Path, rules: &str, flags: &[&str]) -> Server {
    let policy = directory.join("policy.yaml");
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}\n");
    std::fs::write(&policy, text).expect("the policy can be written");
    let own = [
        "--storage=memory".to_owned(),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", directory.join("audit.log").display()),
    ];
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    Server::start_in(directory, &[&own[..], flags].concat()).await
}

/// Stops the server, which writes the last events, and returns all events.
pub(super) async fn logged(server: Server, directory: &Path) -> Vec<Value> {
    server.stop().await;
    let text = std::fs::read_to_string(directory.join("audit.log")).expect("a log");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

/// Returns the events of requests by `agent`.
pub(super) fn of_agent<'a>(events: &'a [Value], agent: &str) -> Vec<&'a Value> {
    let has_agent = |event: &&Value| event["userAgent"] == agent;
    events.iter().filter(has_agent).collect()
}

/// Returns the metrics of a server.
async fn metrics(server: &Server) -> Scrape {
    let scraped = server.plain(Protocol::Http1).await.get("/metrics").await;
    Scrape::parse(std::str::from_utf8(&scraped.body).expect("text"))
}

/// Returns the number of events that a plugin has lost.
async fn errors(server: &Server, plugin: &str) -> f64 {
    let series = format!("apiserver_audit_error_total{{plugin=\"{plugin}\"}}");
    metrics(server).await.get(&series).expect("the metric")
}
