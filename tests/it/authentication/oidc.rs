//! Which tokens of issuers are accepted, and their users.

use http::Method;
use serde_json::{Value, json};

use super::issuer::{Behaviour, Issuer, SigningKey, configuration, encode, message, now};
use super::{review, user_of, wait_for_status, who_has, write};
use crate::harness::{Kubectl, Protocol, Server};

fn flag(path: &std::path::Path) -> String {
    format!("--authentication-config={}", path.display())
}

fn hs256(secret: &[u8], claims: &Value) -> String {
    let message = message(&json!({"alg": "HS256", "kid": "first"}), claims);
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret);
    let signature = aws_lc_rs::hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", encode(signature.as_ref()))
}

#[tokio::test]
async fn only_valid_tokens_are_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let (issuer, other) = (Issuer::start().await, Issuer::start().await);
    let rules = json!({
        "claimMappings": {
            "username": {"claim": "email", "prefix": "oidc:"},
            "groups": {"claim": "groups", "prefix": "oidc:"},
            "uid": {"claim": "sub"},
        },
        "claimValidationRules": [{"claim": "hd", "requiredValue": "example.com"}],
        "userValidationRules": [{
            "expression": "!user.username.startsWith('oidc:system')", "message": "reserved",
        }],
    });
    let text = configuration(&[issuer.configuration(rules)]);
    let file = write(directory.path(), "authentication.json", &text);
    let server = Server::start(&[&flag(&file)]).await;

    let email = json!({"email": "jane@example.com", "hd": "example.com"});
    let with = |more: Value| {
        let mut all = email.clone();
        for (name, value) in more.as_object().unwrap() {
            all[name] = value.clone();
        }
        all
    };
    let valid = issuer.token(with(
        json!({"groups": ["dev", "ops"], "email_verified": true}),
    ));
    assert_eq!(
        user_of(&server, &valid).await,
        json!({
            "username": "oidc:jane@example.com", "uid": "jane",
            "groups": ["oidc:dev", "oidc:ops", "system:authenticated"],
        })
    );
    let single = issuer.token(with(json!({"groups": "dev", "aud": "watchet"})));
    let groups = json!(["oidc:dev", "system:authenticated"]);
    assert_eq!(user_of(&server, &single).await["groups"], groups);

    let claims = issuer.claims(email.clone());
    let unsigned = message(&json!({"alg": "none", "kid": "first"}), &claims);
    let of_another_key = SigningKey::new("first").sign(&claims);
    let (signed, _) = valid.rsplit_once('.').unwrap();
    let (_, other_signature) = of_another_key.rsplit_once('.').unwrap();
    for (token, why) in [
        (other.token(email.clone()), ""),
        (other.key.sign(&claims), "failed to verify signature"),
        (of_another_key.clone(), "failed to verify signature"),
        (
            format!("{signed}.{other_signature}"),
            "failed to verify signature",
        ),
        (
            SigningKey::new("unknown").sign(&claims),
            "failed to verify signature",
        ),
        (format!("{unsigned}."), "unsupported algorithm"),
        (hs256(issuer.key.point(), &claims), "unsupported algorithm"),
        (
            issuer.token(with(json!({"aud": "another"}))),
            "expected audience in",
        ),
        (
            issuer.token(with(json!({"exp": now() - 1}))),
            "token is expired",
        ),
        (issuer.token(with(json!({"exp": null}))), "exp is no number"),
        (
            issuer.token(with(json!({"nbf": now() + 120}))),
            "before the nbf",
        ),
        (
            issuer.token(with(json!({"email_verified": false}))),
            "email not verified",
        ),
        (
            issuer.token(with(json!({"hd": "another"}))),
            "value does not match",
        ),
        (
            issuer.token(json!({"email": "a"})),
            "required claim hd not present",
        ),
        (
            issuer.token(json!({"hd": "example.com"})),
            "claim not present",
        ),
        (
            issuer.token(with(json!({"email": "system:admin"}))),
            "failed: reserved",
        ),
        (
            issuer.token(with(json!({"groups": [7]}))),
            "parse groups claim",
        ),
        ("sesame".to_owned(), ""),
    ] {
        assert_eq!(who_has(&server, &token).await.status, 401, "{why}: {token}");
        let status = review(&server, json!({"token": token})).await;
        let error = status["error"].as_str().unwrap_or_default();
        assert!(
            status["authenticated"] != true && error.contains(why),
            "{why}: {status}"
        );
    }
    // Reviews of valid tokens, for this server and for another audience.
    let status = review(&server, json!({"token": valid})).await;
    assert_eq!(status["user"]["username"], "oidc:jane@example.com");
    let own = json!(["https://kubernetes.default.svc.cluster.local"]);
    assert_eq!(status["audiences"], own);
    let status = review(&server, json!({"token": valid, "audiences": ["else"]})).await;
    assert!(status["authenticated"] != true, "{status}");
    server.stop().await;
}

#[tokio::test]
async fn expressions_map_claims_and_groups_have_roles() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (Issuer::start().await, Issuer::start().await);
    let rules = json!({
        "claimMappings": {
            "username": {"expression": "claims.email_verified ? claims.email : 'unverified:' + claims.sub"},
            "groups": {"expression": "claims.roles.split(',').map(role, 'team:' + role)"},
            "uid": {"expression": "claims.id"},
            "extra": [{"key": "example.com/tenant", "valueExpression": "claims.tenant"}],
        },
        "claimValidationRules": [{
            "expression": "claims.exp - claims.iat <= 3600", "message": "the token is valid for too long",
        }],
    });
    let text = configuration(&[first.configuration(json!({})), second.configuration(rules)]);
    let file = write(directory.path(), "authentication.json", &text);
    let server = Server::start(&[&flag(&file)]).await;
    assert_eq!(
        user_of(&server, &first.token(json!({}))).await["username"],
        "oidc:jane"
    );
    let more = json!({
        "email": "jane@example.com", "email_verified": true, "roles": "dev,ops", "id": "7", "tenant": ["a", "b"],
    });
    let token = second.token(more.clone());
    assert_eq!(
        user_of(&server, &token).await,
        json!({
            "username": "jane@example.com", "uid": "7",
            "groups": ["team:dev", "team:ops", "system:authenticated"],
            "extra": {"example.com/tenant": ["a", "b"]},
        })
    );
    let mut long = more.clone();
    long["exp"] = json!(now() + 7200);
    let status = review(&server, json!({"token": second.token(long)})).await;
    let error = status["error"].as_str().unwrap();
    assert!(
        error.ends_with("failed: the token is valid for too long"),
        "{error}"
    );
    let mut incomplete = more;
    incomplete["id"] = Value::Null;
    let status = review(&server, json!({"token": second.token(incomplete)})).await;
    let error = status["error"].as_str().unwrap();
    assert!(
        error.ends_with("uid claim expression must return a string"),
        "{error}"
    );

    // kubectl with the token, and a role of a group.
    let admin = Kubectl::new(&server.kubeconfig());
    let create = [
        "create",
        "clusterrolebinding",
        "devs",
        "--clusterrole=view",
        "--group=team:dev",
    ];
    admin.run(&create).await;
    let mut config = server.kubeconfig_value();
    config["users"][0]["user"] = json!({"token": token});
    let path = write(directory.path(), "kubeconfig", &config.to_string());
    let kubectl = Kubectl::new(&path);
    let shown = kubectl.run(&["auth", "whoami"]).await;
    assert!(
        shown.contains("jane@example.com") && shown.contains("team:dev"),
        "{shown}"
    );
    let allowed = async {
        while kubectl.try_run(&["get", "configmaps"]).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let within = tokio::time::timeout(crate::harness::PATIENCE, allowed).await;
    within.expect("the role takes effect");
    let refused = kubectl.run_failing(&["create", "configmap", "a"]).await;
    assert!(
        refused.contains(r#"User "jane@example.com" cannot create"#),
        "{refused}"
    );
    server.stop().await;
}

#[tokio::test]
async fn one_issuer_can_be_configured_by_flags() {
    let directory = tempfile::tempdir().unwrap();
    let issuer = Issuer::start().await;
    let ca = write(directory.path(), "ca.crt", &issuer.ca());
    let (url, ca) = (
        format!("--oidc-issuer-url={}", issuer.url()),
        format!("--oidc-ca-file={}", ca.display()),
    );
    let flags = [
        url.as_str(),
        &ca,
        "--oidc-client-id=watchet",
        "--oidc-groups-claim=groups",
        "--oidc-groups-prefix=g:",
        "--oidc-required-claim=hd=example.com",
        "--oidc-signing-algs=RS256,ES256",
    ];
    let server = Server::start(&flags).await;
    let token = issuer.token(json!({"groups": ["dev"], "hd": "example.com"}));
    let user = user_of(&server, &token).await;
    assert_eq!(user["username"], format!("{}#jane", issuer.url()));
    assert_eq!(user["groups"], json!(["g:dev", "system:authenticated"]));
    assert_eq!(who_has(&server, &issuer.token(json!({}))).await.status, 401);
    server.stop().await;

    // ES256 is not allowed by default.
    let server = Server::start(&flags[..6]).await;
    let status = review(&server, json!({"token": token})).await;
    let error = status["error"].as_str().unwrap();
    assert!(
        error.contains(r#"expected ["RS256"] got "ES256""#),
        "{error}"
    );
    server.stop().await;
}

/// An issuer that hangs or sends too much must not delay other authentication.
#[tokio::test]
async fn hostile_issuers_delay_no_other_request() {
    let directory = tempfile::tempdir().unwrap();
    let silent = Issuer::start_with(Behaviour::Silent).await;
    let huge = Issuer::start_with(Behaviour::Huge).await;
    let foreign = Issuer::start_with(Behaviour::Foreign).await;
    let good = Issuer::start().await;
    let all = [&silent, &huge, &foreign, &good].map(|issuer| issuer.configuration(json!({})));
    let file = write(
        directory.path(),
        "authentication.json",
        &configuration(&all),
    );
    let server = Server::start(&[&flag(&file)]).await;
    let (hanging, token) = (silent.token(json!({})), good.token(json!({})));
    let others = async {
        assert_eq!(user_of(&server, &token).await["username"], "oidc:jane");
        let mut admin = server.admin(Protocol::Http1).await;
        assert_eq!(admin.get("/api/v1/namespaces").await.status, 200);
        assert_eq!(who_has(&server, "sesame").await.status, 401);
        let status = review(&server, json!({"token": huge.token(json!({}))})).await;
        let error = status["error"].as_str().unwrap();
        assert!(
            error.contains("the document is larger than 1048576 bytes"),
            "{error}"
        );
        let status = review(&server, json!({"token": foreign.token(json!({}))})).await;
        let error = status["error"].as_str().unwrap();
        assert!(error.contains("issuer did not match"), "{error}");
    };
    tokio::select! {
        biased;
        refused = who_has(&server, &hanging) => panic!("{} before the others", refused.status),
        () = others => {}
    }
    // Tokens of the silent issuer are refused, not accepted, once the fetch has timed out.
    assert_eq!(who_has(&server, &hanging).await.status, 401);
    let mut admin = server.admin(Protocol::Http1).await;
    let discovery = admin.send(Method::GET, "/openapi/v3", &[], "").await;
    assert_eq!(discovery.status, 200);
    good.behave(Behaviour::Unavailable);
    wait_for_status(&server, &good.token(json!({"sub": "joe"})), 201).await;
    server.stop().await;
}
