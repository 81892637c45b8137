//! Impersonation: the user that reviews and webhooks see, and the headers that are rejected.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Cluster;
use crate::harness::{Protocol, Reply, Webhook, Wire};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

const JANE: [(&str, &str); 6] = [
    ("content-type", "application/json"),
    ("impersonate-user", "jane"),
    ("impersonate-uid", "u-1"),
    ("impersonate-group", "dev"),
    ("impersonate-extra-example.com%2fscope", "read"),
    ("impersonate-extra-example.com%2fscope", "write"),
];

fn jane() -> Value {
    json!({
        "username": "jane", "uid": "u-1", "groups": ["dev", "system:authenticated"],
        "extra": {"example.com/scope": ["read", "write"]},
    })
}

/// Returns connections to the ports with and without authentication.
async fn ports(cluster: &Cluster) -> [(Wire, &'static str); 3] {
    let server = &cluster.server;
    [
        (server.plain(Protocol::Http1).await, "system:unsecured"),
        (server.admin(Protocol::Http1).await, "kubernetes-admin"),
        (server.admin(Protocol::Http2).await, "kubernetes-admin"),
    ]
}

/// Returns a response that allows an AdmissionReview.
fn allow(call: &Value) -> Reply {
    Reply::json(&json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": call["request"]["uid"], "allowed": true},
    }))
}

pub(super) async fn reviews_and_webhooks_have_the_impersonated_user(cluster: &Cluster) {
    let webhook = Webhook::answering(|call| allow(&call.body)).await;
    let configuration = json!({
        "metadata": {"name": "who"},
        "webhooks": [{
            "name": "who.example.com", "clientConfig": webhook.client_config("/who"),
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["secrets"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 10,
        }],
    });
    let mut wire = cluster.server.plain(Protocol::Http1).await;
    let made = wire.post(HOOKS, &configuration).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.json());

    cluster.server.allow_everything("jane").await;
    for (round, (mut wire, own)) in ports(cluster).await.into_iter().enumerate() {
        let response = wire.post(REVIEWS, &json!({})).await.json();
        assert_eq!(response["status"]["userInfo"]["username"], own);
        let response = wire.send(Method::POST, REVIEWS, &JANE, "{}").await.json();
        assert_eq!(response["status"]["userInfo"], jane(), "{own}");
        let secret = json!({"metadata": {"name": format!("s-{round}")}}).to_string();
        let secrets = "/api/v1/namespaces/default/secrets";
        let made = wire.send(Method::POST, secrets, &JANE, &secret).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.json());
        let calls = webhook.calls();
        let call = calls.last().expect("the webhook was asked");
        assert_eq!(call.body["request"]["userInfo"], jane(), "{own}");
    }
}

/// Impersonation headers without a user were ignored, and the request was executed as the caller.
pub(super) async fn impersonation_headers_without_a_user_are_rejected(cluster: &Cluster) {
    for (mut wire, own) in ports(cluster).await {
        for (header, listed) in [
            (("impersonate-group", "dev"), "{Group  dev    }"),
            (
                ("impersonate-uid", "u-1"),
                "{UID  u-1  authentication.k8s.io/v1  }",
            ),
            (
                ("impersonate-extra-scopes", "all"),
                "{UserExtra  all  authentication.k8s.io/v1  scopes}",
            ),
        ] {
            let path = "/api/v1/namespaces/default";
            let response = wire.send(Method::GET, path, &[header], "").await;
            assert_eq!(response.status, StatusCode::BAD_REQUEST, "{own} {header:?}");
            let received = response.json();
            assert_eq!(received["reason"], "BadRequest");
            let expect = format!("requested [{listed}] without impersonating a user");
            assert_eq!(received["message"], expect, "{own}");
        }
    }
}
