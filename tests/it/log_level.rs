//! The log level changes while the server runs, at `/debug/flags/log-level`.

use crate::harness::{Kubectl, Server};

const PATH: &str = "/debug/flags/log-level";

/// Sets the level and returns the response.
async fn change(kubectl: &Kubectl, level: &str) -> String {
    let args = ["replace", "--raw", PATH, "-f", "-"];
    kubectl.run_with(&args, level).await
}

#[tokio::test]
async fn an_administrator_changes_the_log_level() {
    let server = Server::start(&["--authorization-mode=RBAC"]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    let h2_lines = || server.log().matches("TRACE h2").count();
    assert_eq!(kubectl.run(&["get", "--raw", PATH]).await, "info\n");
    kubectl.run(&["create", "configmap", "a"]).await;
    assert_eq!(h2_lines(), 0, "{}", server.log());

    // kubectl uses HTTP/2.
    let filter = "info,h2=trace";
    assert_eq!(change(&kubectl, filter).await, format!("{filter}\n"));
    assert!(
        server.log().contains("log level changed"),
        "{}",
        server.log()
    );
    kubectl.run(&["create", "configmap", "b"]).await;
    assert!(h2_lines() > 0, "{}", server.log());
    // The path of kube-apiserver, with its numbers.
    assert_eq!(
        kubectl.run(&["get", "--raw", "/debug/flags/v"]).await,
        format!("{filter}\n")
    );
    assert_eq!(change(&kubectl, "2").await, "2\n");
    // The server may still be logging the end of the connection of that command.
    let mut lines = h2_lines();
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let before = std::mem::replace(&mut lines, h2_lines());
        if lines == before {
            break;
        }
    }
    kubectl.run(&["create", "configmap", "c"]).await;
    assert_eq!(h2_lines(), lines, "{}", server.log());

    let args = ["replace", "--raw", PATH, "-f", "-"];
    let error = kubectl.run_failing_with(&args, "loud").await;
    assert!(
        error.contains(r#"log level "loud": must be error, warn, info, debug, trace"#),
        "{error}"
    );
    assert_eq!(kubectl.run(&["get", "--raw", PATH]).await, "2\n");
    let error = kubectl
        .run_failing(&["get", "--raw", PATH, "--as=ann"])
        .await;
    assert!(error.contains("Forbidden"), "{error}");
}
