//! Changes: of `--authorization-config` while the server runs, and of what a webhook allows to open watches.

use std::path::Path;

use tokio::time::timeout;

use super::configuration::{RBAC, configuration, webhook};
use super::{Reviewer, Verdict, scrape, status_of, wait_for_status, write};
use crate::harness::{Kubectl, OpenWatch, PATIENCE, Protocol, Server};

const RELOADS: &str = "apiserver_authorization_config_controller_automatic_reloads_total";
const AS_JANE: [(&str, &str); 1] = [("impersonate-user", "jane")];

async fn start(directory: &Path, authorizers: &str) -> Server {
    let file = write(directory, "authorization.yaml", &configuration(authorizers));
    Server::start(&[&format!("--authorization-config={}", file.display())]).await
}

async fn wait_for_reloads(server: &Server, status: &str, expected: f64) {
    let series = format!("{RELOADS}{{status=\"{status}\"}}");
    let attempts = async {
        while scrape(server).await.get(&series) != Some(expected) {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let within = timeout(PATIENCE, attempts).await;
    within.unwrap_or_else(|_| panic!("never {expected} {status}:\n{}", server.log()));
}

#[tokio::test]
async fn a_changed_configuration_takes_effect_and_ends_watches() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let reviewer = Reviewer::start().await;
    reviewer.allow("jane");
    let with_webhook = webhook(path, "w", &reviewer, "    failurePolicy: NoOpinion\n") + RBAC;
    let server = start(path, &with_webhook).await;
    assert_eq!(status_of(&server, "jane").await, 200);
    let admin = server.admin(Protocol::Http2).await;
    let mut watch = OpenWatch::start(admin, &AS_JANE).await;

    // Invalid ones, and those that need a restart, change nothing.
    for (failures, authorizers) in [
        (1.0, "\n- {type: RBAC, name: roles}\n"),
        (2.0, "\n- {type: AlwaysDeny, name: alwaysdeny}\n"),
    ] {
        write(path, "authorization.yaml", &configuration(authorizers));
        wait_for_reloads(&server, "failure", failures).await;
        assert_eq!(status_of(&server, "jane").await, 200);
    }
    assert!(server.log().contains("missing required types: RBAC"));
    let added = with_webhook.clone() + "- {type: Node, name: node}\n";
    write(path, "authorization.yaml", &configuration(&added));
    wait_for_reloads(&server, "failure", 3.0).await;
    let log = server.log();
    assert!(
        log.contains("authorizer type Node is not allowed if it was not enabled"),
        "{log}"
    );

    write(path, "authorization.yaml", &configuration(RBAC));
    let denial = watch.error().await;
    assert_eq!(denial["code"], 403);
    assert_eq!(status_of(&server, "jane").await, 403);
    write(path, "authorization.yaml", &configuration(&with_webhook));
    wait_for_status(&server, "jane", 200).await;
    wait_for_reloads(&server, "success", 2.0).await;
    server.stop().await;
}

/// Fails with kube-apiserver, where the watch goes on until it times out.
#[tokio::test]
async fn a_watch_ends_when_the_webhook_no_longer_allows_it_but_not_when_the_webhook_fails() {
    let directory = tempfile::tempdir().unwrap();
    let reviewer = Reviewer::start().await;
    reviewer.allow("jane");
    let short = "    failurePolicy: Deny\n    authorizedTTL: 1s\n    unauthorizedTTL: 1s\n";
    let text = webhook(directory.path(), "w", &reviewer, short) + RBAC;
    let server = start(directory.path(), &text).await;
    let admin = server.admin(Protocol::Http2).await;
    let mut watch = OpenWatch::start(admin, &AS_JANE).await;

    let before = reviewer.calls("jane").len();
    reviewer.decide("jane", Verdict::Other(404, "no such path"));
    let failures = async {
        while reviewer.calls("jane").len() < before + 2 {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, failures).await.expect("two reviews fail");
    let kubectl = Kubectl::new(&server.kubeconfig());
    kubectl.run(&["create", "configmap", "seen"]).await;
    assert_eq!(
        watch.next().await.unwrap()["object"]["metadata"]["name"],
        "seen"
    );

    let denied = serde_json::json!({"denied": true, "reason": "retired"});
    reviewer.decide("jane", Verdict::Status(denied));
    let denial = watch.error().await;
    assert_eq!(denial["code"], 403);
    assert!(
        denial["message"].as_str().unwrap().ends_with(": retired"),
        "{denial}"
    );
    server.stop().await;
}

/// The server reads the kubeconfigs again: before the change, only a restart or a change of `--authorization-config` did.
#[tokio::test]
async fn a_changed_kubeconfig_of_a_webhook_takes_effect() {
    let (first, second) = (Reviewer::start().await, Reviewer::start().await);
    first.allow("jane");
    second.allow("joe");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let listed = webhook(path, "w", &first, "    failurePolicy: NoOpinion\n") + RBAC;
    let of_flag = first.webhook.kubeconfig("/w");
    let of_flag = write(path, "flag.kubeconfig", &of_flag);
    let of_flag = format!("--authorization-webhook-config-file={}", of_flag.display());
    let by_file = start(path, &listed).await;
    let by_flag = Server::start(&["--authorization-mode=Webhook,RBAC", &of_flag]).await;
    for (server, file) in [(&by_file, "w.kubeconfig"), (&by_flag, "flag.kubeconfig")] {
        assert_eq!(status_of(server, "jane").await, 200);
        let admin = server.admin(Protocol::Http2).await;
        let mut watch = OpenWatch::start(admin, &AS_JANE).await;
        write(path, file, "{}");
        let logged = async {
            while !server.log().contains("changed file ignored") {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        let within = timeout(PATIENCE, logged).await;
        within.expect("the invalid file is logged");
        assert_eq!(status_of(server, "jane").await, 200);
        assert_eq!(status_of(server, "joe").await, 403);

        write(path, file, &second.webhook.kubeconfig("/w"));
        let denial = watch.error().await;
        assert_eq!(denial["code"], 403, "{file}");
        wait_for_status(server, "joe", 200).await;
        assert_eq!(status_of(server, "jane").await, 403);
    }
    by_file.stop().await;
    by_flag.stop().await;
}
