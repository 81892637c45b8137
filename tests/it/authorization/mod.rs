//! Authorization by configuration: webhooks, alone and with roles, and changes of the configuration.

mod changes;
mod configuration;
mod webhook_mode;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::{
    PATIENCE, Protocol, Reply, Response, Scrape, Server, Webhook, WebhookRequest, write_file,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What a webhook responds about a user.
#[derive(Clone)]
enum Verdict {
    /// With this `status` of the review.
    Status(Value),
    /// With this code and body.
    Other(u16, &'static str),
}

/// A webhook that reviews requests.
struct Reviewer {
    webhook: Webhook,
    /// By user; it has no opinion about others.
    verdicts: Arc<Mutex<BTreeMap<&'static str, Verdict>>>,
}

impl Reviewer {
    async fn start() -> Self {
        let verdicts: Arc<Mutex<BTreeMap<&'static str, Verdict>>> = Arc::default();
        let current = Arc::clone(&verdicts);
        let webhook = Webhook::answering(move |call| {
            let user = call.body["spec"]["user"].as_str().unwrap_or_default();
            let verdict = current.lock().get(user).cloned();
            match verdict {
                Some(Verdict::Other(code, body)) => Reply::other(code, body),
                Some(Verdict::Status(status)) => reviewed(call, &status),
                None => reviewed(call, &json!({"allowed": false})),
            }
        });
        Self {
            webhook: webhook.await,
            verdicts,
        }
    }

    /// Sets what it responds about `user`.
    fn decide(&self, user: &'static str, verdict: Verdict) {
        self.verdicts.lock().insert(user, verdict);
    }

    fn allow(&self, user: &'static str) {
        self.decide(user, Verdict::Status(json!({"allowed": true})));
    }

    /// Returns the reviews about `user` so far.
    fn calls(&self, user: &str) -> Vec<WebhookRequest> {
        let mut calls = self.webhook.calls();
        calls.retain(|one| one.body["spec"]["user"] == user);
        calls
    }
}

/// Returns a review of the version in which it was requested.
fn reviewed(call: &WebhookRequest, status: &Value) -> Reply {
    let version = &call.body["apiVersion"];
    Reply::json(&json!({"apiVersion": version, "kind": "SubjectAccessReview", "status": status}))
}

/// Writes a file for a flag.
fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    write_file(&path, text);
    path
}

/// Sends a request as `user`.
async fn as_user(server: &Server, user: &str, path: &str) -> Response {
    let mut admin = server.admin(Protocol::Http2).await;
    let headers = [("impersonate-user", user)];
    admin.send(Method::GET, path, &headers, "").await
}

async fn status_of(server: &Server, user: &str) -> u16 {
    as_user(server, user, MAPS).await.status.as_u16()
}

/// Waits until the list of `user` has the status `expected`, because the server learns of a change later.
async fn wait_for_status(server: &Server, user: &str, expected: u16) {
    let attempts = async {
        while status_of(server, user).await != expected {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let within = tokio::time::timeout(PATIENCE, attempts).await;
    within.unwrap_or_else(|_| panic!("the status never is {expected}:\n{}", server.log()));
}

async fn scrape(server: &Server) -> Scrape {
    let mut wire = server.plain(Protocol::Http1).await;
    Scrape::parse(&wire.get("/metrics").await.text())
}
