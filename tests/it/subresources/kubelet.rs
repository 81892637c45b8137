//! Tests of exec, attach, port-forward, proxy and logs, which need a kubelet: they return an error with every protocol.

use http::Method;
use serde_json::json;

use super::{Cluster, pod};
use crate::harness::Protocol;

pub(super) async fn subresources_that_need_a_kubelet_are_errors(cluster: &Cluster) {
    cluster.create(&pod("p")).await;
    let patch = r#"{"status":{"phase":"Running"}}"#;
    cluster
        .kubectl
        .run(&[
            "patch",
            "pod",
            "p",
            "--subresource=status",
            "--type=merge",
            "-p",
            patch,
        ])
        .await;
    for (args, part) in [
        (&["logs", "p"][..], "log"),
        (&["exec", "p", "--", "true"], "exec"),
        (&["attach", "p"], "attach"),
        (&["port-forward", "pod/p", "1:1"], "portforward"),
    ] {
        let output = cluster.kubectl.run_failing(args).await;
        assert!(
            output.contains(&format!("{part} needs a kubelet")),
            "{args:?}: {output}"
        );
        assert!(output.contains("runs no containers"), "{args:?}: {output}");
    }
    let output = cluster.kubectl.run_failing(&["logs", "q"]).await;
    assert!(output.contains("pods \"q\" not found"), "{output}");

    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 80}]},
    });
    cluster.create(&service).await;
    let mut wire = cluster.server.admin(Protocol::Http1).await;
    let namespaced = "/api/v1/namespaces/default";
    for (method, path, code) in [
        (
            Method::GET,
            format!("{namespaced}/services/http:s:80/proxy/a/b"),
            501,
        ),
        (Method::POST, format!("{namespaced}/pods/p:80/proxy"), 501),
        (Method::GET, format!("{namespaced}/pods/q/proxy"), 404),
        (Method::PUT, format!("{namespaced}/pods/p/log"), 405),
        (Method::GET, "/api/v1/nodes/n/proxy/stats".to_owned(), 404),
    ] {
        let answer = wire.send(method, &path, &[], "").await;
        assert_eq!(answer.status, code, "{path}");
        let status = answer.json();
        assert_eq!(
            (&status["kind"], &status["code"]),
            (&json!("Status"), &json!(code))
        );
        if code == 501 {
            assert_eq!(status["reason"], "NotImplemented");
        }
    }
    for upgrade in ["websocket", "SPDY/3.1"] {
        let mut wire = cluster.server.admin(Protocol::Http1).await;
        let headers = [
            ("connection", "Upgrade"),
            ("upgrade", upgrade),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-version", "13"),
        ];
        let path = format!("{namespaced}/pods/p/exec?command=true");
        let answer = wire.send(Method::GET, &path, &headers, "").await;
        assert_eq!(answer.status, 501, "{upgrade}");
        assert_eq!(answer.json()["reason"], "NotImplemented", "{upgrade}");
    }
}
