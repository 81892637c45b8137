//! Changes while the server runs: keys, issuers that start late, the configuration.

use http::Method;
use serde_json::json;

use super::issuer::{Behaviour, Issuer, SigningKey, configuration};
use super::{user_of, wait_for_status, who_has, write};
use crate::harness::{PATIENCE, Protocol, Scrape, Server};

#[tokio::test]
async fn new_keys_are_fetched_when_a_token_has_one() {
    let directory = tempfile::tempdir().unwrap();
    // Down when the server starts.
    let mut issuer = Issuer::start_with(Behaviour::Unavailable).await;
    let text = configuration(&[issuer.configuration(json!({}))]);
    let file = write(directory.path(), "authentication.json", &text);
    let flag = format!("--authentication-config={}", file.display());
    let server = Server::start(&[&flag]).await;
    let old = issuer.token(json!({}));
    assert_eq!(who_has(&server, &old).await.status, 401);
    issuer.behave(Behaviour::Normal);
    wait_for_status(&server, &old, 201).await;

    issuer.rotate("second");
    wait_for_status(&server, &issuer.token(json!({})), 201).await;
    assert_eq!(
        who_has(&server, &issuer.token(json!({"sub": "joe"})))
            .await
            .status,
        201
    );
    // Tokens of the old key are refused once no cached result is left.
    wait_for_status(&server, &old, 401).await;

    // Unknown keys cause few fetches.
    let before = issuer.requests("/tenant/keys");
    for number in 0..50 {
        let token = SigningKey::new("third").sign(&issuer.claims(json!({"n": number})));
        assert_eq!(who_has(&server, &token).await.status, 401);
    }
    let fetches = issuer.requests("/tenant/keys") - before;
    assert!(fetches < 20, "{fetches} fetches");
    server.stop().await;
}

#[tokio::test]
async fn changes_of_the_configuration_take_effect() {
    let directory = tempfile::tempdir().unwrap();
    let issuer = Issuer::start().await;
    let issuers = configuration(&[issuer.configuration(json!({}))]);
    let file = write(directory.path(), "authentication.json", &configuration(&[]));
    let flag = format!("--authentication-config={}", file.display());
    let server = Server::start(&[&flag]).await;
    let token = issuer.token(json!({}));
    assert_eq!(who_has(&server, &token).await.status, 401);
    write(directory.path(), "authentication.json", &issuers);
    wait_for_status(&server, &token, 201).await;

    // An invalid file is logged and counted, and the previous configuration remains.
    let invalid = issuers.replace("https:", "http:");
    write(directory.path(), "authentication.json", &invalid);
    let name = "apiserver_authentication_config_controller_automatic_reloads_total";
    let counted = async {
        let mut wire = server.admin(Protocol::Http1).await;
        loop {
            let metrics = wire.send(Method::GET, "/metrics", &[], "").await;
            let scrape = Scrape::parse(std::str::from_utf8(&metrics.body).unwrap());
            let count = |status: &str| scrape.get(&format!("{name}{{status=\"{status}\"}}"));
            if count("failure") == Some(1.0) {
                assert_eq!(count("success"), Some(1.0));
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, counted)
        .await
        .expect("the change is counted");
    assert!(
        server.log().contains("jwt[0].issuer.url: Invalid value"),
        "{}",
        server.log()
    );
    assert_eq!(user_of(&server, &token).await["username"], "oidc:jane");

    // An issuer that is removed is no longer accepted.
    write(directory.path(), "authentication.json", &configuration(&[]));
    wait_for_status(&server, &token, 401).await;
    server.stop().await;
}

/// The server reads `--oidc-ca-file` again: before the change, only a restart did.
#[tokio::test]
async fn changed_cas_of_the_issuer_take_effect() {
    let directory = tempfile::tempdir().unwrap();
    let (issuer, other) = (Issuer::start().await, Issuer::start().await);
    let ca = write(directory.path(), "ca.crt", &other.ca());
    let server = Server::start(&[
        &format!("--oidc-issuer-url={}", issuer.url()),
        &format!("--oidc-ca-file={}", ca.display()),
        "--oidc-client-id=watchet",
        "--oidc-signing-algs=ES256",
    ])
    .await;
    let token = issuer.token(json!({}));
    assert_eq!(who_has(&server, &token).await.status, 401);
    write(directory.path(), "ca.crt", &issuer.ca());
    wait_for_status(&server, &token, 201).await;

    // A file without a certificate is logged, and the previous one remains in effect.
    write(directory.path(), "ca.crt", "");
    let logged = async {
        while !server.log().contains("has no certificate in PEM") {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let within = tokio::time::timeout(PATIENCE, logged).await;
    within.expect("the invalid file is logged");
    let fresh = issuer.token(json!({"sub": "joe"}));
    assert_eq!(who_has(&server, &fresh).await.status, 201);
    server.stop().await;
}
