//! Tokens of Secrets, over the memory store and real caches.

use serde_json::{Value, json};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::*;
use crate::tests::{Fixture, fixture};
use watchet_auth::{AuthenticatedToken, InvalidToken, TokenAuthenticator, TokenIssuer};
use watchet_test_registry::named;

/// A token as upstream's token controller signs it.
fn token(key: &str, account: &Value, secret: &str) -> String {
    let claims = json!({
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:default:robot",
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": account["metadata"]["uid"],
    });
    let header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::ES256);
    let key = jsonwebtoken::EncodingKey::from_ec_pem(key.as_bytes()).unwrap();
    jsonwebtoken::encode(&header, &claims, &key).unwrap()
}

async fn user(
    fixture: &Fixture,
    tokens: &TokenAuthenticator,
    token: &str,
) -> Result<String, String> {
    let authenticated = tokens.authenticate(token, &[]);
    let AuthenticatedToken::ServiceAccount(token) =
        authenticated.map_err(|error| error.to_string())?
    else {
        panic!("the token is of a service account");
    };
    let user = token.validate(&TokenObjects(&*fixture.registry)).await;
    user.map(|user| user.name)
        .map_err(|error| error.to_string())
}

/// The token that kube-controller-manager writes into a Secret was a 401: its issuer is not the server's, and it has no
/// expiry.
#[tokio::test]
async fn token_is_valid_as_long_as_its_secret_holds_it() {
    let fixture = fixture().await;
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let issuer = TokenIssuer::new(&key, &[], Vec::new(), Vec::new()).unwrap();
    let tokens = TokenAuthenticator::new(None, issuer);
    let account = fixture.create("serviceaccounts", named("robot")).await;
    let (kept, other) = (
        token(&key, &account, "kept"),
        token(&key, &account, "other"),
    );
    let mut secret = named("kept");
    secret["data"] = json!({"token": BASE64_STANDARD.encode(&kept)});
    fixture.create("secrets", secret).await;

    let expect = Ok("system:serviceaccount:default:robot".to_owned());
    assert_eq!(user(&fixture, &tokens, &kept).await, expect);
    let stored = fixture.stored("/secrets/default/kept").await.unwrap();
    assert_eq!(
        stored["metadata"]["labels"][LAST_USED],
        day(Timestamp::now())
    );
    // A second use on the same day writes nothing.
    assert_eq!(user(&fixture, &tokens, &kept).await, expect);
    let again = fixture.stored("/secrets/default/kept").await.unwrap();
    assert_eq!(again, stored);

    let expect = Err("service account token has been invalidated".to_owned());
    assert_eq!(user(&fixture, &tokens, &other).await, expect);
    let mut secret = named("other");
    secret["data"] = json!({"token": BASE64_STANDARD.encode(&kept)});
    fixture.create("secrets", secret).await;
    let expect = Err("Token does not match server's copy".to_owned());
    assert_eq!(user(&fixture, &tokens, &other).await, expect);

    let foreign = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let forged = token(&foreign, &account, "kept");
    let expect = Err(InvalidToken::Unknown.to_string());
    assert_eq!(user(&fixture, &tokens, &forged).await, expect);
}

/// Upstream's cleaner invalidates the token of a Secret by a label before it deletes the Secret.
#[tokio::test]
async fn labelled_secret_invalidates_its_token() {
    let fixture = fixture().await;
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let issuer = TokenIssuer::new(&key, &[], Vec::new(), Vec::new()).unwrap();
    let tokens = TokenAuthenticator::new(None, issuer);
    let account = fixture.create("serviceaccounts", named("robot")).await;
    let old = token(&key, &account, "old");
    let mut secret = named("old");
    secret["data"] = json!({"token": BASE64_STANDARD.encode(&old)});
    secret["metadata"]["labels"] =
        json!({"kubernetes.io/legacy-token-invalid-since": "2026-01-01"});
    fixture.create("secrets", secret).await;
    let refused = user(&fixture, &tokens, &old).await.unwrap_err();
    assert!(refused.contains("marked invalid"), "{refused}");
}

/// kube-controller-manager logs an error at each start without this object.
#[tokio::test]
async fn tracking_starts_once() {
    let fixture = fixture().await;
    start_token_tracking(&fixture.registry).await;
    let key = "/configmaps/kube-system/kube-apiserver-legacy-service-account-token-tracking";
    let stored = fixture.stored(key).await.unwrap();
    assert_eq!(stored["data"]["since"], day(Timestamp::now()));
    start_token_tracking(&fixture.registry).await;
    assert_eq!(fixture.stored(key).await.unwrap(), stored);
}
