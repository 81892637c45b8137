//! Tokens of pods: their extended validity, and the metrics and audit events of their use after the requested validity.

use std::path::Path;

use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::Method;
use jiff::Timestamp;
use rcgen::KeyPair;
use watchet::auth::{Claims, TokenIssuer};

use super::*;
use crate::harness::Scrape;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const PODS: &str = "/api/v1/namespaces/default/pods";
const YEAR: i64 = 365 * 24 * 60 * 60;

/// Starts a server with a service account and a pod that runs as it. The server signs with the key in `directory` and logs
/// audit events there.
async fn start(directory: &Path, flags: &[&str]) -> Server {
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";
    let policy = write(directory, "policy.yaml", policy);
    let own = [
        "--storage=memory".to_owned(),
        format!(
            "--service-account-signing-key-file={}",
            directory.join("sa.key").display()
        ),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", directory.join("audit.log").display()),
    ];
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let server = Server::start_in(directory, &[&own[..], flags].concat()).await;
    let mut admin = server.admin(Protocol::Http1).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}],
    }});
    let account = json!({"metadata": {"name": "robot"}});
    for (path, object) in [(ACCOUNTS, account), (PODS, pod)] {
        let created = admin.post(path, &object).await;
        assert_eq!(created.status, 201, "{}", created.json());
    }
    server
}

/// Requests a token of the service account with this spec; returns the response.
async fn issue(server: &Server, spec: Value) -> Response {
    let mut admin = server.admin(Protocol::Http1).await;
    let path = format!("{ACCOUNTS}/robot/token");
    let issued = admin.post(&path, &json!({"spec": spec})).await;
    assert_eq!(issued.status, 201, "{}", issued.json());
    issued
}

fn bound_to_pod(seconds: i64, audiences: &[&str]) -> Value {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "p"});
    json!({"expirationSeconds": seconds, "audiences": audiences, "boundObjectRef": pod})
}

fn token_of(issued: &Response) -> String {
    let token = issued.json()["status"]["token"].clone();
    token.as_str().expect("a token").to_owned()
}

fn claims_of(token: &str) -> Claims {
    let payload = token.split('.').nth(1).expect("a payload");
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).expect("base64");
    serde_json::from_slice(&payload).expect("claims")
}

/// Returns the seconds from the issue until the token expires, and until its use is reported.
fn lifetime(issued: &Response) -> (i64, Option<i64>) {
    let claims = claims_of(&token_of(issued));
    let warn_after = claims.kubernetes.warnafter.map(|at| at - claims.iat);
    (claims.exp - claims.iat, warn_after)
}

/// Returns the validity in seconds that the status reports.
fn reported(issued: &Response) -> i64 {
    let issued = issued.json();
    let time = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap();
    let until = time(&issued["status"]["expirationTimestamp"]);
    until.as_second() - time(&issued["metadata"]["creationTimestamp"]).as_second()
}

/// Returns the numbers of counted uses of valid and of stale tokens.
async fn counted(server: &Server) -> (f64, f64) {
    let scraped = server.plain(Protocol::Http1).await.get("/metrics").await;
    let scrape = Scrape::parse(&scraped.text());
    let get = |name: &str| scrape.get(name).expect("the metric");
    (
        get("serviceaccount_valid_tokens_total"),
        get("serviceaccount_stale_tokens_total"),
    )
}

#[tokio::test]
async fn tokens_of_pods_are_valid_for_a_year_unless_that_is_disabled() {
    let directory = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap().serialize_pem();
    write(directory.path(), "sa.key", &key);
    let server = start(
        directory.path(),
        &["--service-account-max-token-expiration=2h"],
    )
    .await;
    for (spec, expected) in [
        (bound_to_pod(3607, &[]), (YEAR, Some(3607))),
        (bound_to_pod(3600, &[]), (3600, None)),
        (bound_to_pod(3607, &["vault"]), (3607, None)),
        (json!({"expirationSeconds": 3607}), (3607, None)),
    ] {
        let issued = issue(&server, spec.clone()).await;
        assert_eq!(lifetime(&issued), expected, "{spec}");
        let requested = spec["expirationSeconds"].as_i64().unwrap();
        assert_eq!(reported(&issued), requested, "{spec}");
        assert_eq!(issued.json()["spec"]["expirationSeconds"], requested);
        assert!(issued.headers.get("warning").is_none(), "{spec}");
    }
    let shortened = issue(&server, bound_to_pod(86_400, &[])).await;
    assert_eq!(lifetime(&shortened), (7200, None));
    assert_eq!(
        shortened.headers["warning"],
        "299 - \"requested expiration of 86400 seconds shortened to 7200 seconds\""
    );
    let log = server.log();
    assert!(log.contains("tokens of pods are valid for longer"), "{log}");
    server.stop().await;

    let flag = "--service-account-extend-token-expiration=false";
    let server = start(directory.path(), &[flag]).await;
    let issued = issue(&server, bound_to_pod(3607, &[])).await;
    assert_eq!(lifetime(&issued), (3607, None));
    server.stop().await;

    let flag = "--service-account-max-token-expiration=1h";
    let server = start(directory.path(), &[flag]).await;
    let issued = issue(&server, bound_to_pod(3607, &[])).await;
    assert_eq!((lifetime(&issued), reported(&issued)), ((3600, None), 3600));
    let log = server.log();
    assert!(log.contains("tokens of pods is not extended"), "{log}");
    server.stop().await;
}

#[tokio::test]
async fn use_of_an_extended_token_is_counted_and_after_an_hour_audited() {
    let directory = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap().serialize_pem();
    write(directory.path(), "sa.key", &key);
    let server = start(directory.path(), &[]).await;
    let fresh = token_of(&issue(&server, bound_to_pod(3607, &[])).await);
    let plain = token_of(&issue(&server, json!({"expirationSeconds": 3607})).await);
    // As if it was issued two hours ago.
    let mut claims = claims_of(&fresh);
    for at in [&mut claims.iat, &mut claims.nbf, &mut claims.exp] {
        *at -= 7200;
    }
    let warn_after = claims.kubernetes.warnafter.as_mut().expect("the claim");
    *warn_after -= 7200;
    let warned = *warn_after;
    let issuer = TokenIssuer::new(&key, &[], Vec::new(), Vec::new()).unwrap();
    let stale = issuer.sign(&claims).unwrap();
    assert_eq!(counted(&server).await, (0.0, 0.0));

    let mut stranger = server.stranger(Protocol::Http2).await;
    for (agent, token) in [("plain", &plain), ("fresh", &fresh), ("stale", &stale)] {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("user-agent", agent)];
        let response = stranger.send(Method::GET, "/api", &headers, "").await;
        assert_eq!(response.status, 200, "{agent}");
    }
    assert_eq!(counted(&server).await, (1.0, 1.0));
    let mut admin = server.admin(Protocol::Http1).await;
    let body = json!({"spec": {"token": stale}}).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("user-agent", "reviewer"),
    ];
    let reviewed = admin.send(Method::POST, REVIEWS, &headers, &body).await;
    assert_eq!(reviewed.json()["status"]["authenticated"], true);
    assert_eq!(counted(&server).await, (1.0, 2.0));
    // A token that is rejected is not counted.
    let pod = format!("{PODS}/p");
    let deleted = admin
        .send(Method::DELETE, &pod, &[], r#"{"gracePeriodSeconds":0}"#)
        .await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    // Tokens are checked with cached pods, so the deletion takes effect a moment later.
    let mut stale_uses = 2.0;
    let attempts = async {
        while who_has(&server, &stale).await.status != 401 {
            stale_uses += 1.0;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let rejected = tokio::time::timeout(PATIENCE, attempts).await;
    rejected.expect("the token of the deleted pod is rejected");
    assert_eq!(counted(&server).await, (1.0, stale_uses));

    server.stop().await;
    let now = Timestamp::now().as_second();
    let log = std::fs::read_to_string(directory.path().join("audit.log")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str(line).unwrap());
    let events: Vec<Value> = events.collect();
    for (agent, is_stale) in [
        ("plain", false),
        ("fresh", false),
        ("stale", true),
        ("reviewer", true),
    ] {
        let event = events.iter().find(|event| event["userAgent"] == agent);
        let annotation = &event.expect(agent)["annotations"]["authentication.k8s.io/stale-token"];
        let Some(text) = annotation.as_str() else {
            assert!(!is_stale, "{agent}");
            continue;
        };
        assert!(is_stale, "{agent}: {text}");
        let subject =
            "subject: system:serviceaccount:default:robot, seconds after warning threshold: ";
        let seconds = text.strip_prefix(subject).expect(text).parse::<i64>();
        let seconds = seconds.expect(text);
        assert!(
            (0..=60).contains(&(now - warned - seconds)),
            "{agent}: {text}"
        );
    }
}
