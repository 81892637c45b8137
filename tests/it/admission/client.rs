//! Tests of the client for webhooks against a real HTTPS server: connections, trust, limits, and error messages.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::time::Instant;
use watchet::admission::client::{
    ClientConfig, RESPONSE_BYTES_MAX, ServiceResolver, WebhookClient, WebhookError,
};
use watchet::tasks::Tasks;

use crate::harness::{PATIENCE, Reply, Replying, Webhook, WebhookRequest};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Resolves every Service to this port of the loopback interface.
#[derive(Debug)]
struct At(Option<u16>);

#[async_trait]
impl ServiceResolver for At {
    async fn resolve(&self, _: &str, name: &str, _: u16) -> Result<(String, u16), String> {
        let port = self
            .0
            .ok_or_else(|| format!("service {name:?} not found"))?;
        Ok(("127.0.0.1".to_owned(), port))
    }
}

fn client() -> WebhookClient {
    WebhookClient::new(&Tasks::new(), Arc::new(At(None)))
}

async fn call(client: &WebhookClient, config: &Value) -> Result<Bytes, WebhookError> {
    let config = ClientConfig::parse(config)?;
    client
        .call(&config, Bytes::from_static(b"{\"a\":1}"), TIMEOUT)
        .await
}

fn echo(call: &WebhookRequest) -> Reply {
    Reply::json(&json!({"path": call.path, "body": call.body}))
}

/// Asserts that a call fails with this error.
async fn refused(webhook: &Webhook, config: Value, expect: &str) {
    let error = call(&client(), &config).await.unwrap_err().to_string();
    let expect = expect.replace("ADDRESS", &format!("127.0.0.1:{}", webhook.port()));
    assert_eq!(error, expect);
}

#[tokio::test]
async fn connections_are_reused() {
    let webhook = Webhook::answering(echo).await;
    let client = client();
    for _ in 0..5 {
        let answer = call(&client, &webhook.client_config("/x")).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer, json!({"path": "/x?timeout=10s", "body": {"a": 1}}));
    }
    assert_eq!(webhook.connections(), 1);
    // A different configuration has different trust, so it uses its own connections.
    call(&client, &webhook.client_config("/y")).await.unwrap();
    assert_eq!(webhook.connections(), 2);
}

/// The webhook responds only after it has received all of the concurrent calls.
#[tokio::test]
async fn concurrent_calls_do_not_wait_for_each_other() {
    const CALLS: usize = 8;
    let received = Arc::new(Barrier::new(CALLS));
    let webhook = Webhook::start(move |_| {
        let received = received.clone();
        Box::pin(async move {
            received.wait().await;
            Reply::json(&json!({}))
        })
    })
    .await;
    let client = client();
    let config = webhook.client_config("/");
    for _ in 0..2 {
        let calls = (0..CALLS).map(|_| call(&client, &config));
        for response in futures::future::join_all(calls).await {
            response.unwrap();
        }
    }
    assert_eq!(
        webhook.connections(),
        CALLS,
        "the second round uses the idle connections"
    );
}

/// Some certificates that Go accepts were rejected: a serving certificate as its own bundle, which controller-runtime's
/// envtest installs ("signed by unknown authority"), and a certificate that is its own CA, which kopf creates
/// (`CaUsedAsEndEntity`).
#[tokio::test]
async fn certificates_that_only_go_accepts_are_accepted() {
    let echoing = |call: WebhookRequest| -> Replying { Box::pin(async move { echo(&call) }) };
    let webhook = Webhook::answering(echo).await;
    let own = Webhook::start_self_signed(echoing).await;
    for webhook in [&webhook, &own] {
        let config = json!({"url": webhook.url("//x/"), "caBundle": webhook.leaf_bundle()});
        let answer = call(&client(), &config).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        // Go's client cleans the path: Go's servers redirect requests with other paths.
        assert_eq!(answer["path"], "/x?timeout=10s");
    }
    let unknown = "Post \"https://ADDRESS/?timeout=10s\": tls: failed to verify certificate: x509: \
                   certificate signed by unknown authority";
    let config = json!({"url": own.url("/"), "caBundle": webhook.leaf_bundle()});
    refused(&own, config, unknown).await;
    // The name is also checked for a certificate that is itself trusted.
    let named = Webhook::start_as("hook.ns.svc", echoing).await;
    let config = json!({"url": named.url("/"), "caBundle": named.leaf_bundle()});
    let expect = "Post \"https://ADDRESS/?timeout=10s\": tls: failed to verify certificate: x509: \
                  certificate is valid for hook.ns.svc, not 127.0.0.1";
    refused(&named, config, expect).await;
}

#[tokio::test]
async fn only_the_bundle_is_trusted_and_the_name_is_checked() {
    let webhook = Webhook::answering(echo).await;
    let other = Webhook::answering(echo).await;
    let config = json!({"url": webhook.url("/"), "caBundle": other.ca_bundle()});
    let unknown = "Post \"https://ADDRESS/?timeout=10s\": tls: failed to verify certificate: x509: \
                   certificate signed by unknown authority";
    refused(&webhook, config, unknown).await;
    // Without a bundle the CAs of the system apply, which have not signed this certificate.
    refused(&webhook, json!({"url": webhook.url("/")}), unknown).await;

    let named = Webhook::start_as("hook.ns.svc", |call| Box::pin(async move { echo(&call) })).await;
    let expect = "Post \"https://ADDRESS/?timeout=10s\": tls: failed to verify certificate: x509: \
                  certificate is valid for hook.ns.svc, not 127.0.0.1";
    refused(&named, named.client_config("/"), expect).await;

    let client = WebhookClient::new(&Tasks::new(), Arc::new(At(Some(named.port()))));
    let service = json!({
        "service": {"namespace": "ns", "name": "hook", "path": "/p"},
        "caBundle": named.ca_bundle(),
    });
    let answer = call(&client, &service).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["path"], "/p?timeout=10s");
}

#[tokio::test]
async fn a_configuration_without_a_reachable_service_is_an_error() {
    let webhook = Webhook::answering(echo).await;
    let config = json!({"url": webhook.url("/"), "caBundle": "bm8gUEVN"});
    let expect = "unable to load root certificates: unable to parse bytes as PEM block";
    refused(&webhook, config, expect).await;
    let config = json!({"service": {"namespace": "ns", "name": "gone"}});
    let expect = "Post \"https://gone.ns.svc:443/?timeout=10s\": service \"gone\" not found";
    refused(&webhook, config, expect).await;
    let config = json!({"url": "https://127.0.0.1:1/"});
    let expect = "Post \"https://127.0.0.1:1/?timeout=10s\": dial tcp 127.0.0.1:1: connect: \
                  connection refused";
    refused(&webhook, config, expect).await;
}

#[tokio::test]
async fn a_failed_response_has_upstreams_message() {
    let cases = [
        (
            404,
            "nothing here",
            "the server could not find the requested resource",
        ),
        (
            302,
            "",
            "the server responded with the status code 302 but did not return more information",
        ),
        (
            500,
            "boom\n",
            "an error on the server (\"boom\") has prevented the request from succeeding",
        ),
        (
            500,
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"conversion failed"}"#,
            "conversion failed",
        ),
    ];
    for (code, body, expect) in cases {
        let webhook = Webhook::answering(move |_| Reply::other(code, body)).await;
        refused(&webhook, webhook.client_config("/"), expect).await;
        assert_eq!(
            webhook.calls().len(),
            1,
            "no redirect is followed, nothing is tried again"
        );
    }
}

#[tokio::test]
async fn hanging_webhook_fails_after_its_timeout() {
    let webhook = Webhook::start(|_| Box::pin(std::future::pending())).await;
    let config = ClientConfig::parse(&webhook.client_config("/slow")).unwrap();
    let begun = Instant::now();
    let client = client();
    let call = client.call(&config, Bytes::new(), Duration::from_secs(1));
    let answer = tokio::time::timeout(PATIENCE, call).await;
    let answer = answer.expect("the call ends");
    let expect = format!(
        "Post \"{}?timeout=1s\": context deadline exceeded",
        webhook.url("/slow")
    );
    assert_eq!(answer.unwrap_err().to_string(), expect);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn a_response_over_the_size_limit_is_rejected() {
    let webhook = Webhook::answering(|_| Reply {
        code: 200,
        body: vec![b' '; RESPONSE_BYTES_MAX + 1],
    })
    .await;
    let expect = format!(
        "Post \"https://ADDRESS/?timeout=10s\": the response is larger than {RESPONSE_BYTES_MAX} bytes"
    );
    refused(&webhook, webhook.client_config("/"), &expect).await;
}

/// A call must not fail because the webhook has closed an idle connection.
#[tokio::test]
async fn a_connection_that_was_closed_is_opened_again() {
    let tasks = Tasks::new();
    let client = WebhookClient::new(&tasks, Arc::new(At(None)));
    let webhook = Webhook::answering(echo).await;
    call(&client, &webhook.client_config("/")).await.unwrap();
    webhook.close_connections();
    tokio::time::sleep(Duration::from_millis(50)).await;
    call(&client, &webhook.client_config("/")).await.unwrap();
    assert_eq!(webhook.connections(), 2);
    // The connections are tasks of the group and end with it.
    tasks.drain(Duration::from_secs(5)).await.unwrap();
}
