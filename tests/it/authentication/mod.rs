//! Authentication by other programs: issuers of JSON Web Tokens, the token webhook, front proxies; and anonymous
//! requests.

mod anonymous;
mod extended_tokens;
mod front_proxy;
mod issuer;
mod oidc;
mod oidc_changes;
mod service_account_keys;
mod webhook;

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use crate::harness::{PATIENCE, Protocol, Response, Server, Webhook, write_file};

const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// Writes a file for a flag.
fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    write_file(&path, text);
    path
}

/// Returns the CA of a TLS server in PEM.
fn ca_of(server: &Webhook) -> String {
    let pem = STANDARD.decode(server.ca_bundle()).expect("base64");
    String::from_utf8(pem).expect("PEM")
}

/// Asks the server who has the token; returns the response.
async fn who_has(server: &Server, token: &str) -> Response {
    let mut wire = server.stranger(Protocol::Http2).await;
    let authorization = format!("Bearer {token}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
    ];
    wire.send(Method::POST, WHO_AM_I, &headers, "{}").await
}

/// Returns the user of a token, which must be valid.
async fn user_of(server: &Server, token: &str) -> Value {
    let response = who_has(server, token).await;
    assert_eq!(response.status, 201, "{}", response.json());
    response.json()["status"]["userInfo"].clone()
}

/// Repeats [`who_has`] until the status is `expected`, because the server learns of a change later.
async fn wait_for_status(server: &Server, token: &str, expected: u16) {
    let attempts = async {
        while who_has(server, token).await.status != expected {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let within = tokio::time::timeout(PATIENCE, attempts).await;
    within.unwrap_or_else(|_| panic!("the status never is {expected}:\n{}", server.log()));
}

/// Returns the status of a `TokenReview`.
async fn review(server: &Server, spec: Value) -> Value {
    let mut wire = server.admin(Protocol::Http1).await;
    let reviewed = wire.post(REVIEWS, &json!({"spec": spec})).await;
    assert_eq!(reviewed.status, 201, "{}", reviewed.json());
    reviewed.json()["status"].clone()
}
