//! `--authorization-mode=Webhook,RBAC`: requests to the webhook, its cache, its failures.

use serde_json::json;

use super::{MAPS, Reviewer, Verdict, as_user, scrape, status_of, write};
use crate::harness::{Kubectl, Protocol, Server};

async fn start(reviewer: &Reviewer, more: &[&str]) -> (Server, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = reviewer.webhook.kubeconfig("/authorize");
    let file = write(directory.path(), "webhook.kubeconfig", &kubeconfig);
    let file = format!("--authorization-webhook-config-file={}", file.display());
    let flags = ["--authorization-mode=Webhook,RBAC", &file];
    let server = Server::start(&[&flags, more].concat()).await;
    (server, directory)
}

#[tokio::test]
async fn the_webhook_is_asked_first_and_its_responses_are_cached() {
    let reviewer = Reviewer::start().await;
    let (server, _directory) = start(&reviewer, &[]).await;
    reviewer.allow("jane");
    server.allow_everything("joe").await;
    server.allow_everything("ann").await;
    let denied = json!({"allowed": false, "denied": true, "reason": "not today"});
    reviewer.decide("joe", Verdict::Status(denied));

    let path = format!("{MAPS}?labelSelector=app%3Dweb&fieldSelector=metadata.name%3Da");
    for _ in 0..3 {
        assert_eq!(as_user(&server, "jane", &path).await.status, 200);
    }
    let calls = reviewer.calls("jane");
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(calls[0].path, "/authorize?timeout=30s");
    assert_eq!(calls[0].authorization, "Bearer of-the-server");
    let body = &calls[0].body;
    assert_eq!(body["apiVersion"], "authorization.k8s.io/v1beta1");
    assert_eq!(
        body["spec"],
        json!({
            "user": "jane", "group": ["system:authenticated"],
            "resourceAttributes": {
                "namespace": "default", "verb": "list", "version": "v1", "resource": "configmaps", "name": "a",
                "fieldSelector": {"requirements": [
                    {"key": "metadata.name", "operator": "In", "values": ["a"]},
                ]},
                "labelSelector": {"requirements": [{"key": "app", "operator": "In", "values": ["web"]}]},
            },
        })
    );

    // A denial is final, whatever the roles allow; without an opinion they decide.
    let refused = as_user(&server, "joe", MAPS).await;
    assert_eq!(refused.status, 403);
    assert_eq!(
        refused.json()["message"],
        r#"configmaps is forbidden: User "joe" cannot list resource "configmaps" in API group "" in the namespace "default": not today"#
    );
    assert_eq!(status_of(&server, "ann").await, 200);
    for _ in 0..3 {
        assert_eq!(status_of(&server, "bob").await, 403);
    }
    assert_eq!(reviewer.calls("bob").len(), 1);

    // Reviews, and the server's own administrator, who is not asked about.
    let kubectl = Kubectl::new(&server.kubeconfig());
    let can_i = ["auth", "can-i", "list", "configmaps"];
    kubectl.run(&[&can_i[..], &["--as=jane"]].concat()).await;
    let as_joe = [&can_i[..], &["--as=joe"]].concat();
    let no = kubectl.run_failing(&as_joe).await;
    assert!(no.contains("not today"), "{no}");
    assert!(reviewer.calls("kubernetes-admin").is_empty());

    let metrics = scrape(&server).await;
    for (labels, expected) in [
        (r#"decision="allowed",name="default",type="Webhook""#, 3.0),
        (r#"decision="allowed",name="rbac",type="RBAC""#, 1.0),
    ] {
        let series = format!("apiserver_authorization_decisions_total{{{labels}}}");
        let count = metrics.get(&series).unwrap_or_default();
        assert!(count >= expected, "{series}: {count}");
    }
    let series =
        r#"apiserver_authorization_webhook_evaluations_total{name="default",result="success"}"#;
    assert_eq!(
        metrics.get(series),
        Some(reviewer.webhook.calls().len() as f64)
    );
    server.stop().await;
}

#[tokio::test]
async fn a_failing_webhook_is_an_internal_error_unless_roles_allow_the_request() {
    let reviewer = Reviewer::start().await;
    let (server, _directory) = start(&reviewer, &["--authorization-webhook-version=v1"]).await;
    server.allow_everything("ann").await;
    for user in ["ann", "jane"] {
        reviewer.decide(user, Verdict::Other(200, "no review"));
    }
    reviewer.decide("joe", Verdict::Other(403, "who are you?"));
    assert_eq!(status_of(&server, "ann").await, 200);
    for (user, cause) in [("jane", "invalid response"), ("joe", "who are you?")] {
        let failed = as_user(&server, user, MAPS).await;
        assert_eq!(failed.status, 500);
        assert_eq!(failed.json()["reason"], "InternalError");
        let message = failed.json()["message"].as_str().unwrap().to_owned();
        assert!(
            message.contains("authorization failed") && message.contains(cause),
            "{message}"
        );
    }
    // Reviews report the error, and failures are not cached.
    let mut admin = server.admin(Protocol::Http1).await;
    let review = json!({"spec": {"user": "jane", "resourceAttributes": {
        "verb": "list", "namespace": "default", "resource": "configmaps",
    }}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let status = admin.post(path, &review).await.json()["status"].clone();
    assert_eq!(status["allowed"], false);
    let error = status["evaluationError"].as_str().unwrap();
    assert!(error.contains("invalid response"), "{error}");
    reviewer.allow("jane");
    assert_eq!(status_of(&server, "jane").await, 200);
    let series = r#"apiserver_authorization_webhook_evaluations_fail_open_total{name="default",result="error"}"#;
    let failures = scrape(&server).await.get(series).unwrap_or_default();
    assert!(failures >= 4.0, "{failures}");
    // Each failed review used to be logged.
    let log = server.log();
    let logged = log.matches("authorization webhook failed").count();
    assert_eq!(logged, 1, "{log}");
    server.stop().await;
}

#[tokio::test]
async fn temporary_errors_are_retried_and_nothing_is_cached_without_ttls() {
    let reviewer = Reviewer::start().await;
    let uncached = [
        "--authorization-webhook-cache-authorized-ttl=0s",
        "--authorization-webhook-cache-unauthorized-ttl=0s",
    ];
    let (server, _directory) = start(&reviewer, &uncached).await;
    reviewer.allow("jane");
    for _ in 0..2 {
        assert_eq!(status_of(&server, "jane").await, 200);
    }
    assert_eq!(reviewer.calls("jane").len(), 2);
    reviewer.decide("jane", Verdict::Other(500, "later"));
    let waiting = status_of(&server, "jane");
    let recovered = async {
        while reviewer.calls("jane").len() < 4 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        reviewer.allow("jane");
    };
    assert_eq!(tokio::join!(waiting, recovered).0, 200);
    server.stop().await;
}
