//! `--authorization-config`: several webhooks, their conditions and failure policies; errors at the start.

use std::path::Path;

use serde_json::json;
use tokio::time::timeout;

use super::{MAPS, Reviewer, Verdict, as_user, scrape, status_of, write};
use crate::harness::{PATIENCE, Protocol, Server, command};

/// Returns an authorizer of a configuration.
pub(super) fn webhook(directory: &Path, name: &str, reviewer: &Reviewer, more: &str) -> String {
    let kubeconfig = reviewer.webhook.kubeconfig(&format!("/{name}"));
    let file = write(directory, &format!("{name}.kubeconfig"), &kubeconfig);
    let file = file.display();
    format!(
        "
- type: Webhook
  name: {name}
  webhook:
    timeout: 30s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {file}}}
{more}"
    )
}

pub(super) const RBAC: &str = "\n- {type: RBAC, name: rbac}\n";

pub(super) fn configuration(authorizers: &str) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:{authorizers}"
    )
}

#[tokio::test]
async fn webhooks_are_asked_in_order_about_the_requests_that_meet_their_conditions() {
    let directory = tempfile::tempdir().unwrap();
    let (guard, owner) = (Reviewer::start().await, Reviewer::start().await);
    // The first may only deny what concerns secrets; the second decides about everything that is no path.
    let strict = "    failurePolicy: Deny
    matchConditions:
    - expression: has(request.resourceAttributes)
    - expression: request.resourceAttributes.resource == 'secrets'
    - expression: \"!('system:masters' in request.groups)\"
";
    let lenient = "    failurePolicy: NoOpinion
    matchConditions: [{expression: 'request.resourceAttributes.verb in [\"get\", \"list\"]'}]
";
    let text = webhook(directory.path(), "guard", &guard, strict)
        + &webhook(directory.path(), "owner", &owner, lenient)
        + RBAC;
    let file = write(
        directory.path(),
        "authorization.yaml",
        &configuration(&text),
    );
    let flag = format!("--authorization-config={}", file.display());
    let server = Server::start(&[&flag]).await;
    owner.allow("jane");
    server.allow_everything("ann").await;

    assert_eq!(status_of(&server, "jane").await, 200);
    assert!(guard.calls("jane").is_empty(), "no secret");
    assert_eq!(owner.calls("jane")[0].path, "/owner?timeout=30s");
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(as_user(&server, "jane", secrets).await.status, 200);
    assert_eq!(guard.calls("jane").len(), 1);
    let denied = json!({"denied": true, "reason": "secret"});
    guard.decide("ann", Verdict::Status(denied));
    assert_eq!(as_user(&server, "ann", secrets).await.status, 403);
    assert_eq!(status_of(&server, "ann").await, 200);

    // If the first fails, others are not asked; the condition of the second cannot be evaluated for paths.
    guard.decide("joe", Verdict::Other(404, "no such path"));
    owner.allow("joe");
    assert_eq!(as_user(&server, "joe", secrets).await.status, 500);
    assert!(owner.calls("joe").is_empty());
    let path = as_user(&server, "bob", "/metrics").await;
    assert_eq!(path.status, 500);
    let message = path.json()["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("cel evaluation error: expression 'request.resourceAttributes.verb in"),
        "{message}"
    );

    let metrics = scrape(&server).await;
    for series in [
        r#"apiserver_authorization_match_condition_exclusions_total{name="guard",type="Webhook"}"#,
        r#"apiserver_authorization_match_condition_evaluation_errors_total{name="owner",type="Webhook"}"#,
        r#"apiserver_authorization_decisions_total{decision="denied",name="guard",type="Webhook"}"#,
    ] {
        assert!(
            metrics.get(series).is_some_and(|count| count >= 1.0),
            "{series}"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn a_denial_is_a_403_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let guard = Reviewer::start().await;
    let text = webhook(
        directory.path(),
        "guard",
        &guard,
        "    failurePolicy: Deny\n",
    ) + RBAC;
    let file = write(
        directory.path(),
        "authorization.yaml",
        &configuration(&text),
    );
    let server = Server::start(&[&format!("--authorization-config={}", file.display())]).await;
    server.allow_everything("ann").await;
    guard.decide("ann", Verdict::Status(json!({"denied": true})));
    let mut admin = server.admin(Protocol::Http1).await;
    let headers = [
        ("impersonate-user", "ann"),
        ("content-type", "application/json"),
    ];
    let body = json!({"metadata": {"name": "a"}}).to_string();
    let refused = admin.send(http::Method::POST, MAPS, &headers, &body).await;
    assert_eq!(refused.status, 403);
    assert_eq!(admin.get(&format!("{MAPS}/a")).await.status, 404);
    server.stop().await;
}

/// Runs the program, which must fail; returns its stderr.
async fn failure(directory: &Path, flags: &[&str]) -> String {
    let data = format!("--data-dir={}", directory.join("data").display());
    let run = command().arg(&data).args(flags).output();
    let output = timeout(PATIENCE, run)
        .await
        .expect("it ends")
        .expect("it runs");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn invalid_settings_are_start_errors() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let invalid = configuration("\n- {type: RBAC, name: roles}\n");
    let invalid = write(path, "invalid.yaml", &invalid);
    let invalid = format!("--authorization-config={}", invalid.display());
    let empty = write(path, "empty.kubeconfig", "apiVersion: v1\nkind: Config\n");
    let empty = format!("--authorization-webhook-config-file={}", empty.display());
    for (flags, expected) in [
        (
            vec![invalid.as_str()],
            vec![
                "--authorization-config",
                "expected name rbac for authorizer RBAC instead of roles",
            ],
        ),
        (
            vec![&invalid, "--authorization-mode=RBAC"],
            vec!["can not be specified when", "remove --authorization-mode"],
        ),
        (
            vec![&invalid, "--authorization-webhook-cache-authorized-ttl=1m"],
            vec!["remove --authorization-webhook-cache-authorized-ttl"],
        ),
        (
            vec!["--authorization-mode=Webhook"],
            vec!["config file not passed: give --authorization-webhook-config-file"],
        ),
        (
            vec![&empty],
            vec!["without mode Webhook: add it to --authorization-mode"],
        ),
        (
            vec![&empty, "--authorization-mode=Webhook"],
            vec!["--authorization-webhook-config-file", "empty.kubeconfig"],
        ),
        (
            vec!["--authorization-mode=ABAC"],
            vec![
                "the mode ABAC is not supported: use Node, RBAC, Webhook, AlwaysAllow or AlwaysDeny",
            ],
        ),
    ] {
        let text = failure(path, &flags).await;
        for expected in expected {
            assert!(text.contains(expected), "{flags:?}: {text}");
        }
    }
}
