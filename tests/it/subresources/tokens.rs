//! Tests of service account tokens: creation, authentication, reviews and rejection.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Cluster, pod};
use crate::harness::{Kubectl, Protocol, Server};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

fn account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
}

fn request(spec: Value) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
}

/// Returns the status of a request with this token.
async fn status_with(server: &Server, token: &str, protocol: Protocol) -> StatusCode {
    let mut wire = server.stranger(protocol).await;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let answer = wire.send(Method::GET, "/api", &headers, "").await;
    answer.status
}

/// Returns the claims of a token, without verification.
fn claims(token: &str) -> Value {
    let part = token.split('.').nth(1).expect("a payload");
    let bytes = base64::Engine::decode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, part);
    serde_json::from_slice(&bytes.expect("base64")).expect("JSON")
}

async fn review(cluster: &Cluster, token: &str, audiences: &[&str]) -> Value {
    let spec = json!({"token": token, "audiences": audiences});
    let response = cluster.post(REVIEWS, &json!({"spec": spec})).await;
    assert_eq!(response["kind"], "TokenReview");
    response["status"].clone()
}

pub(super) async fn token_authenticates_its_service_account(cluster: &Cluster) {
    cluster.create(&account("robot")).await;
    let uid = cluster.get(&["sa", "robot"]).await["metadata"]["uid"].clone();
    let token = cluster.kubectl.run(&["create", "token", "robot"]).await;
    let token = token.trim();
    let claimed = claims(token);
    assert_eq!(
        claimed["iss"],
        "https://kubernetes.default.svc.cluster.local"
    );
    assert_eq!(
        claimed["aud"],
        json!(["https://kubernetes.default.svc.cluster.local"])
    );
    assert_eq!(claimed["sub"], "system:serviceaccount:default:robot");
    let lasts = |claimed: &Value| {
        claimed["exp"].as_i64().unwrap_or(0) - claimed["iat"].as_i64().unwrap_or(0)
    };
    assert_eq!(lasts(&claimed), 3600);
    let account = json!({"namespace": "default", "serviceaccount": {"name": "robot", "uid": uid}});
    assert_eq!(claimed["kubernetes.io"], account);

    // kubectl prefers a certificate to a token, so this kubeconfig has no certificate.
    let mut config = cluster.server.kubeconfig_value();
    config["users"][0]["user"] = json!({});
    let path = cluster.server.data_dir().join("robot");
    std::fs::write(&path, config.to_string()).expect("it can be written");
    let robot = Kubectl::new(&path);
    let args = ["auth", "whoami", "-o", "json", "--token", token];
    let output: Value = serde_json::from_str(&robot.run(&args).await).expect("JSON");
    let info = &output["status"]["userInfo"];
    assert_eq!(info["username"], "system:serviceaccount:default:robot");
    assert_eq!(info["uid"], uid);
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ];
    assert_eq!(info["groups"], json!(groups));
    let credential = &info["extra"]["authentication.kubernetes.io/credential-id"][0];
    assert_eq!(
        credential,
        &json!(format!("JTI={}", claimed["jti"].as_str().expect("a name")))
    );
    let refused = robot
        .run_failing(&["get", "namespaces", "--token", token])
        .await;
    assert!(refused.contains("namespaces is forbidden"), "{refused}");
    let user = "system:serviceaccount:default:robot";
    cluster.server.allow_everything(user).await;
    robot.run(&["get", "namespaces", "--token", token]).await;

    for protocol in [Protocol::Http1, Protocol::Http2] {
        assert_eq!(status_with(&cluster.server, token, protocol).await, 200);
        let forged = format!("{}x", token.trim_end_matches(char::is_alphanumeric));
        assert_eq!(status_with(&cluster.server, &forged, protocol).await, 401);
    }
    let elsewhere = [
        "create",
        "token",
        "robot",
        "--audience=vault",
        "--duration=10m",
    ];
    let elsewhere = cluster.kubectl.run(&elsewhere).await;
    assert_eq!(lasts(&claims(elsewhere.trim())), 600);
    let status = status_with(&cluster.server, elsewhere.trim(), Protocol::Http2).await;
    assert_eq!(status, 401, "it is for others");
    let response = review(cluster, elsewhere.trim(), &["vault", "other"]).await;
    assert_eq!(
        (&response["authenticated"], &response["audiences"]),
        (&json!(true), &json!(["vault"]))
    );
    let response = review(cluster, elsewhere.trim(), &[]).await;
    assert!(response["authenticated"].is_null(), "{response}");
    let why = response["error"].as_str().unwrap_or_default();
    assert!(
        why.starts_with("token audiences [\"vault\"] is invalid for the target"),
        "{why}"
    );

    let response = review(cluster, token, &[]).await;
    assert_eq!(
        response["user"]["username"],
        "system:serviceaccount:default:robot"
    );
    assert_eq!(
        review(cluster, "sesame", &[]).await["error"],
        "invalid bearer token"
    );

    cluster.kubectl.run(&["delete", "sa", "robot"]).await;
    assert_eq!(
        status_with(&cluster.server, token, Protocol::Http2).await,
        401,
        "it is gone"
    );
    cluster.create(&self::account("robot")).await;
    assert_eq!(
        status_with(&cluster.server, token, Protocol::Http2).await,
        401,
        "it is another"
    );
    let why = review(cluster, token, &[]).await["error"].clone();
    assert!(
        why.as_str()
            .is_some_and(|why| why.contains("does not match claim")),
        "{why}"
    );
}

pub(super) async fn tokens_can_be_bound_to_objects(cluster: &Cluster) {
    cluster.create(&account("robot")).await;
    let mut first = pod("p");
    first["spec"]["serviceAccountName"] = "robot".into();
    first["spec"]["nodeName"] = "n".into();
    first["spec"]["terminationGracePeriodSeconds"] = 0.into();
    cluster.create(&first).await;
    let uid = cluster.get(&["pod", "p"]).await["metadata"]["uid"].clone();
    let path = format!("{ACCOUNTS}/robot/token");
    let bound = |kind: &str, name: &str, uid: &Value| {
        let reference = json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
        request(json!({"audiences": [], "boundObjectRef": reference}))
    };
    let response = cluster.post(&path, &bound("Pod", "p", &uid)).await;
    assert_eq!(response["kind"], "TokenRequest");
    assert_eq!(response["metadata"]["name"], "robot");
    assert!(
        response["status"]["expirationTimestamp"].is_string(),
        "{response}"
    );
    let token = response["status"]["token"].as_str().expect("a token");
    let claimed = claims(token)["kubernetes.io"].clone();
    assert_eq!(claimed["pod"], json!({"name": "p", "uid": uid}));
    assert_eq!(claimed["node"], json!({"name": "n"}));
    let response = review(cluster, token, &[]).await;
    let extra = &response["user"]["extra"];
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["p"]));
    assert_eq!(extra["authentication.kubernetes.io/pod-uid"], json!([uid]));
    assert_eq!(
        extra["authentication.kubernetes.io/node-name"],
        json!(["n"])
    );

    for (body, expect) in [
        (bound("Pod", "q", &json!("")), "pods \"q\" not found"),
        (
            bound("Pod", "p", &json!("other")),
            "the UID in the bound object reference (other) does not",
        ),
        (bound("Secret", "s", &json!("")), "secrets \"s\" not found"),
        (
            bound("ConfigMap", "c", &json!("")),
            "cannot bind token to object of type",
        ),
        (
            request(json!({"expirationSeconds": 599})),
            "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 \
             minutes",
        ),
    ] {
        let message = cluster.refused(&path, &body).await;
        assert!(message.contains(expect), "{message}");
    }
    let message = cluster
        .refused(&format!("{ACCOUNTS}/missing/token"), &request(json!({})))
        .await;
    assert!(
        message.contains("serviceaccounts \"missing\" not found"),
        "{message}"
    );
    cluster.create(&account("another")).await;
    let message = cluster
        .refused(
            &format!("{ACCOUNTS}/another/token"),
            &bound("Pod", "p", &uid),
        )
        .await;
    assert!(
        message.contains("to pod running with different serviceaccount name."),
        "{message}"
    );

    assert_eq!(
        status_with(&cluster.server, token, Protocol::Http1).await,
        200
    );
    cluster.kubectl.run(&["delete", "pod", "p"]).await;
    assert_eq!(
        status_with(&cluster.server, token, Protocol::Http1).await,
        401
    );
    let why = review(cluster, token, &[]).await["error"].clone();
    assert_eq!(why, "service account token has been invalidated");
}

pub(super) async fn public_keys_are_served(cluster: &Cluster) {
    let mut wire = cluster.server.admin(Protocol::Http2).await;
    let path = "/.well-known/openid-configuration";
    let output = cluster.kubectl.run(&["get", "--raw", path]).await;
    let response: Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!(
        response["issuer"],
        "https://kubernetes.default.svc.cluster.local"
    );
    let uri = response["jwks_uri"].as_str().expect("where the keys are");
    assert_eq!(
        uri,
        format!("https://{}/openid/v1/jwks", cluster.server.secure())
    );
    let answer = wire.get("/openid/v1/jwks").await;
    assert_eq!(answer.headers["content-type"], "application/jwk-set+json");
    let key = &answer.json()["keys"][0];
    assert_eq!((&key["use"], &key["kty"]), (&json!("sig"), &json!("EC")));
    cluster.create(&account("robot")).await;
    let token = cluster.kubectl.run(&["create", "token", "robot"]).await;
    let header = token.split('.').next().expect("a header");
    let header = base64::Engine::decode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, header);
    let header: Value = serde_json::from_slice(&header.expect("base64")).expect("JSON");
    assert_eq!(header, json!({"alg": "ES256", "kid": key["kid"]}));
    let mut stranger = cluster.server.stranger(Protocol::Http2).await;
    assert_eq!(stranger.get("/openid/v1/jwks").await.status, 401);
}

/// A token is valid after a restart, and on another server with the same key.
#[tokio::test]
async fn signing_key_is_persistent_and_configurable() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let first = Server::start_in(directory.path(), &[]).await;
    let kubectl = Kubectl::new(&first.kubeconfig());
    kubectl.run(&["create", "sa", "robot"]).await;
    let token = kubectl.run(&["create", "token", "robot"]).await;
    let key = first.data_dir().join("pki/service-account.key");
    let key = std::fs::read_to_string(key).expect("a key");
    first.stop().await;
    let other = rcgen::KeyPair::generate().expect("a key").serialize_pem();
    let file = directory.path().join("given.pem");
    std::fs::write(&file, other).expect("it can be written");
    let signing = format!("--service-account-signing-key-file={}", file.display());
    let args = [signing.as_str(), "--service-account-issuer=https://me"];
    let second = Server::start_in(directory.path(), &args).await;
    let status = status_with(&second, token.trim(), Protocol::Http2).await;
    assert_eq!(status, 401, "another issues tokens now");
    let fresh = Kubectl::new(&second.kubeconfig())
        .run(&["create", "token", "robot"])
        .await;
    assert_eq!(claims(&fresh)["iss"], "https://me");
    assert_eq!(
        status_with(&second, fresh.trim(), Protocol::Http2).await,
        200
    );
    second.stop().await;
    std::fs::write(&file, &key).expect("it can be written");
    let keys = format!("--service-account-key-file={}", file.display());
    let third = Server::start_in(directory.path(), &[&keys]).await;
    assert_eq!(
        status_with(&third, token.trim(), Protocol::Http2).await,
        200
    );
    third.stop().await;
}
