//! Keys of service account tokens that change while the server runs, and the maximum validity of tokens.

use rcgen::KeyPair;
use serde_json::json;

use super::{wait_for_status, who_has, write};
use crate::harness::{Protocol, Server};

/// Returns a new token and its validity in seconds.
async fn token(server: &Server) -> (String, i64) {
    let mut wire = server.admin(Protocol::Http1).await;
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let issued = wire
        .post(path, &json!({"spec": {"expirationSeconds": 36000}}))
        .await;
    assert_eq!(issued.status, 201, "{}", issued.json());
    let issued = issued.json();
    let seconds = issued["spec"]["expirationSeconds"].as_i64().unwrap();
    (
        issued["status"]["token"].as_str().unwrap().to_owned(),
        seconds,
    )
}

#[tokio::test]
async fn changed_keys_take_effect_and_tokens_have_a_maximum_validity() {
    let directory = tempfile::tempdir().unwrap();
    let key = || KeyPair::generate().unwrap().serialize_pem();
    let first = key();
    let signing = write(directory.path(), "sa.key", &first);
    let others = write(directory.path(), "others.pem", &first);
    let server = Server::start(&[
        &format!("--service-account-signing-key-file={}", signing.display()),
        &format!("--service-account-key-file={}", others.display()),
        "--service-account-max-token-expiration=2h",
    ])
    .await;
    let mut wire = server.admin(Protocol::Http1).await;
    let account = json!({"metadata": {"name": "robot"}});
    let created = wire
        .post("/api/v1/namespaces/default/serviceaccounts", &account)
        .await;
    assert_eq!(created.status, 201);
    let (old, seconds) = token(&server).await;
    assert_eq!(seconds, 7200);
    assert_eq!(who_has(&server, &old).await.status, 201);

    // A new signing key; the other file still has the first.
    let second = key();
    write(directory.path(), "sa.key", &second);
    let changed = async {
        let kid = |token: &str| token.split('.').next().unwrap().to_owned();
        while kid(&token(&server).await.0) == kid(&old) {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let within = tokio::time::timeout(crate::harness::PATIENCE, changed).await;
    within.expect("the new key signs");
    assert_eq!(who_has(&server, &old).await.status, 201);
    let (new, seconds) = token(&server).await;
    assert_eq!(
        (who_has(&server, &new).await.status.as_u16(), seconds),
        (201, 7200)
    );

    // An invalid file changes nothing; without the first key its tokens are refused.
    write(directory.path(), "others.pem", "junk");
    let logged = async {
        while !server.log().contains("holds no key in PEM") {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let within = tokio::time::timeout(crate::harness::PATIENCE, logged).await;
    within.expect("the invalid file is logged");
    assert_eq!(who_has(&server, &old).await.status, 201);
    write(directory.path(), "others.pem", &second);
    wait_for_status(&server, &old, 401).await;
    assert_eq!(who_has(&server, &new).await.status, 201);
    server.stop().await;
}
