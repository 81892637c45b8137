//! The token webhook: its requests, cache, retries and failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{ca_of, review, user_of, who_has, write};
use crate::harness::{PATIENCE, Protocol, Reply, Server, Webhook};

const AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";

async fn start(webhook: &Webhook, more: &[&str]) -> (Server, tempfile::TempDir) {
    assert!(ca_of(webhook).contains("BEGIN CERTIFICATE"));
    let directory = tempfile::tempdir().unwrap();
    let file = write(
        directory.path(),
        "webhook.kubeconfig",
        &webhook.kubeconfig("/authenticate"),
    );
    let flag = format!(
        "--authentication-token-webhook-config-file={}",
        file.display()
    );
    let server = Server::start(&[&[flag.as_str()], more].concat()).await;
    (server, directory)
}

fn reviewed(status: Value) -> Reply {
    Reply::json(
        &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}),
    )
}

fn answer(body: &Value) -> Reply {
    let user =
        |name: &str| json!({"username": name, "uid": "1", "groups": ["g"], "extra": {"k": ["v"]}});
    match body["spec"]["token"].as_str().unwrap_or_default() {
        "good" => reviewed(json!({"authenticated": true, "user": user("jane")})),
        "for-others" => reviewed(json!({
            "authenticated": true, "user": user("joe"), "audiences": ["others"],
        })),
        "bad" => reviewed(json!({"authenticated": false})),
        "known-bad" => reviewed(json!({"authenticated": false, "error": "revoked yesterday"})),
        "junk" => Reply::other(200, "no review"),
        _ => Reply::other(403, "forbidden"),
    }
}

#[tokio::test]
async fn the_webhook_decides_about_unknown_tokens() {
    let webhook = Webhook::answering(|call| answer(&call.body)).await;
    let (server, _directory) =
        start(&webhook, &["--authentication-token-webhook-version=v1"]).await;
    for _ in 0..3 {
        let user = user_of(&server, "good").await;
        assert_eq!(
            user,
            json!({
                "username": "jane", "uid": "1", "groups": ["g", "system:authenticated"], "extra": {"k": ["v"]},
            })
        );
    }
    // One call: the others are cached.
    let calls = webhook.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(calls[0].path, "/authenticate?timeout=30s");
    assert_eq!(calls[0].authorization, "Bearer of-the-server");
    let body = &calls[0].body;
    assert_eq!(body["apiVersion"], "authentication.k8s.io/v1");
    assert_eq!(
        body["spec"],
        json!({"token": "good", "audiences": [AUDIENCE]})
    );

    for _ in 0..2 {
        for token in ["bad", "known-bad", "for-others", "junk", "error"] {
            assert_eq!(who_has(&server, token).await.status, 401, "{token}");
        }
    }
    let count = |token: &str| {
        let calls = webhook.calls();
        calls
            .iter()
            .filter(|one| one.body["spec"]["token"] == token)
            .count()
    };
    assert_eq!(
        ["bad", "known-bad", "for-others", "junk", "error"].map(count),
        [1, 2, 1, 2, 2]
    );

    // Reviews pass through it, with their audiences.
    let status = review(&server, json!({"token": "good"})).await;
    assert_eq!(
        (&status["user"]["username"], &status["audiences"]),
        (&json!("jane"), &json!([AUDIENCE]))
    );
    assert_eq!(count("good"), 1);
    let status = review(
        &server,
        json!({"token": "for-others", "audiences": ["others"]}),
    )
    .await;
    assert_eq!(
        (&status["user"]["username"], &status["audiences"]),
        (&json!("joe"), &json!(["others"]))
    );
    let status = review(&server, json!({"token": "known-bad"})).await;
    assert_eq!(status["error"], "revoked yesterday");

    // The server's own credentials do not reach it.
    let before = webhook.calls().len();
    let mut admin = server.admin(Protocol::Http2).await;
    assert_eq!(admin.get("/api/v1/namespaces").await.status, 200);
    assert_eq!(webhook.calls().len(), before);
    server.stop().await;
}

#[tokio::test]
async fn transient_errors_are_retried_and_nothing_is_cached_without_a_ttl() {
    let failures = Arc::new(AtomicUsize::new(2));
    let left = Arc::clone(&failures);
    let webhook = Webhook::answering(move |call| {
        let fails = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1)
        });
        match fails {
            Ok(_) => Reply::other(500, "later"),
            Err(_) => answer(&call.body),
        }
    });
    let webhook = webhook.await;
    let (server, _directory) =
        start(&webhook, &["--authentication-token-webhook-cache-ttl=0s"]).await;
    assert_eq!(user_of(&server, "good").await["username"], "jane");
    assert_eq!(webhook.calls().len(), 3);
    assert_eq!(
        webhook.calls()[0].body["apiVersion"],
        "authentication.k8s.io/v1beta1"
    );
    assert_eq!(user_of(&server, "good").await["username"], "jane");
    assert_eq!(webhook.calls().len(), 4);
    server.stop().await;
}

/// A webhook that never responds must not delay requests with other credentials.
#[tokio::test]
async fn a_silent_webhook_delays_no_other_request() {
    let webhook = Webhook::start(|_| Box::pin(std::future::pending())).await;
    let (server, _directory) = start(&webhook, &[]).await;
    let others = async {
        let mut admin = server.admin(Protocol::Http1).await;
        while webhook.calls().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        for _ in 0..10 {
            assert_eq!(admin.get("/api/v1/namespaces").await.status, 200);
        }
    };
    tokio::select! {
        biased;
        response = who_has(&server, "good") => panic!("{}", response.status),
        () = others => {}
    }
    server.kill().await;
}

/// The server reads the kubeconfig again: before the change, only a restart did.
#[tokio::test]
async fn a_changed_kubeconfig_takes_effect_and_an_invalid_one_does_not() {
    let names = |name: &'static str| {
        move |call: &crate::harness::WebhookRequest| match call.body["spec"]["token"] == "good" {
            true => reviewed(json!({"authenticated": true, "user": {"username": name}})),
            false => reviewed(json!({"authenticated": false})),
        }
    };
    let first = Webhook::answering(names("first")).await;
    let second = Webhook::answering(names("second")).await;
    let (server, directory) = start(&first, &[]).await;
    assert_eq!(user_of(&server, "good").await["username"], "first");

    let file = |text: &str| write(directory.path(), "webhook.kubeconfig", text);
    file("clusters: [");
    let logged = async {
        while !server.log().contains("changed file ignored") {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let within = tokio::time::timeout(PATIENCE, logged).await;
    within.expect("the invalid file is logged");
    let log = server.log();
    assert!(
        log.contains("--authentication-token-webhook-config-file"),
        "{log}"
    );
    let status = review(&server, json!({"token": "another"})).await;
    assert_ne!(status["authenticated"], true);
    assert_eq!(first.calls().len(), 2, "the previous server is asked");

    // The cached response of the first server, which is valid for two minutes, is not used.
    file(&second.kubeconfig("/authenticate"));
    let changed = async {
        while user_of(&server, "good").await["username"] != "second" {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let within = tokio::time::timeout(PATIENCE, changed).await;
    within.unwrap_or_else(|_| panic!("the second server is not asked:\n{}", server.log()));
    assert_eq!(first.calls().len(), 2);
    server.stop().await;
}
