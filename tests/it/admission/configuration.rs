//! Tests of `--admission-control-config-file` with the real program: the configurations of plugins, and files that stop
//! the server from starting.

use std::path::Path;

use serde_json::{Value, json};

use super::cluster::{Cluster, MAPS, allow, hook, map, pod};
use crate::harness::{Kubectl, PATIENCE, Server, Webhook, command};

const HEAD: &str =
    "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n";

/// Writes an admission configuration with these plugins and returns the flag for it.
fn flag(directory: &Path, plugins: &str) -> String {
    let path = directory.join("admission.yaml");
    std::fs::write(&path, format!("{HEAD}{plugins}")).expect("it can be written");
    format!("--admission-control-config-file={}", path.display())
}

async fn start(directory: &Path, plugins: &str) -> Server {
    Server::start(&[&flag(directory, plugins)]).await
}

const BASELINE: &str = "
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults:
      enforce: baseline
      audit: restricted
    exemptions:
      usernames: [builder]
      namespaces: [kube-system]
      runtimeClasses: [sandbox]
";

fn host_pod(name: &str, namespace: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["namespace"] = json!(namespace);
    pod["spec"]["hostNetwork"] = json!(true);
    pod
}

#[tokio::test]
async fn the_configured_level_of_pod_security_is_enforced_without_labels() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = start(directory.path(), BASELINE).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    let apply = ["create", "-f", "-"];
    let violating = host_pod("p", "default").to_string();
    let refused = kubectl.run_failing_with(&apply, &violating).await;
    let expected = "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces \
                    (hostNetwork=true)";
    assert!(refused.contains(expected), "{refused}");
    // Exempt by namespace, by user, and by runtime class.
    kubectl
        .run_with(&apply, &host_pod("p", "kube-system").to_string())
        .await;
    server.allow_everything("builder").await;
    let as_user = ["create", "--as=builder", "-f", "-"];
    kubectl.run_with(&as_user, &violating).await;
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandbox"},
        "handler": "runsc",
    });
    kubectl.run_with(&apply, &class.to_string()).await;
    let mut sandboxed = host_pod("q", "default");
    sandboxed["spec"]["runtimeClassName"] = json!("sandbox");
    kubectl.run_with(&apply, &sandboxed.to_string()).await;
    // A label of the namespace takes precedence.
    let label = "pod-security.kubernetes.io/enforce=privileged";
    kubectl.run(&["label", "namespace", "default", label]).await;
    kubectl
        .run_with(&apply, &host_pod("r", "default").to_string())
        .await;
    let log = server.log();
    let annotated: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("audit annotations"))
        .collect();
    for expected in [
        "\"pod-security.kubernetes.io/exempt\": \"namespace\"",
        "\"pod-security.kubernetes.io/exempt\": \"user\"",
        "\"pod-security.kubernetes.io/exempt\": \"runtimeClass\"",
        "\"pod-security.kubernetes.io/enforce-policy\": \"baseline:latest\"",
        "\"pod-security.kubernetes.io/audit-violations\": \"would violate PodSecurity \\\"restricted:latest",
    ] {
        let lines = annotated.iter().filter(|line| line.contains(expected));
        assert_ne!(lines.count(), 0, "{expected}\n{annotated:#?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn limited_resources_without_a_quota_are_forbidden() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let plugins = "
- name: ResourceQuota
  path: quota.json
";
    let quota = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
        "limitedResources": [
            {"resource": "pods", "matchScopes": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},
            ]},
            {"resource": "services", "matchContains": ["loadbalancers"]},
        ],
    });
    std::fs::write(directory.path().join("quota.json"), quota.to_string()).expect("it is written");
    let server = start(directory.path(), plugins).await;
    let cluster = Cluster(&server);
    let class = json!({"metadata": {"name": "high"}, "value": 10});
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    cluster.post(classes, &class).await.ok(201);
    let pods = "/api/v1/namespaces/default/pods";
    cluster.post(pods, &pod("plain")).await.ok(201);
    let mut important = pod("important");
    important["spec"]["priorityClassName"] = json!("high");
    let refused = cluster.post(pods, &important).await;
    let words = "insufficient quota to match these scopes: [{PriorityClass In [high]}]";
    refused.refused(500, "", words);
    let service = json!({
        "metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    let services = "/api/v1/namespaces/default/services";
    let refused = cluster.post(services, &service).await;
    let words =
        "services \"s\" is forbidden: insufficient quota to consume: services.loadbalancers";
    refused.refused(403, "Forbidden", words);
    let kubectl = Kubectl::new(&server.kubeconfig());
    let covering = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "5"}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},
        ]}},
    });
    kubectl
        .run_with(&["create", "-f", "-"], &covering.to_string())
        .await;
    let used = "jsonpath={.status.used.pods}=0";
    kubectl
        .run(&["wait", "quota/q", &format!("--for={used}"), "--timeout=30s"])
        .await;
    cluster.post(pods, &important).await.ok(201);
    server.stop().await;
}

#[tokio::test]
async fn webhooks_get_the_credentials_of_their_plugin() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pair = rcgen::generate_simple_self_signed(vec!["client".to_owned()]).expect("a pair");
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        path.display().to_string()
    };
    write("client.crt", &pair.cert.pem());
    write("client.key", &pair.signing_key.serialize_pem());
    let webhook = Webhook::start_with_client(pair.cert.der().clone(), |call| {
        let reply = allow(&call);
        Box::pin(async move { reply })
    })
    .await;
    let mutating = write(
        "mutating",
        "users: [{name: '*', user: {client-certificate: client.crt, client-key: client.key}}]",
    );
    write("token", "first\n");
    let validating = write(
        "validating",
        &format!(
            "users: [{{name: '127.0.0.1:{}', user: {{tokenFile: token}}}}]",
            webhook.port()
        ),
    );
    let plugin = |name: &str, kubeconfig: &str| {
        format!(
            "
- name: {name}
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: {kubeconfig}
"
        )
    };
    let plugins = plugin("MutatingAdmissionWebhook", &mutating)
        + &plugin("ValidatingAdmissionWebhook", &validating);
    let server = start(directory.path(), &plugins).await;
    let cluster = Cluster(&server);
    for (kind, path) in [("Mutating", "/mutate"), ("Validating", "/validate")] {
        let hook = hook(&webhook, path, json!({}));
        cluster.configure(kind, "w", &[hook]).await;
    }
    cluster.post(MAPS, &map("a")).await.ok(201);
    // The file is read for each call.
    write("token", "second\n");
    cluster.post(MAPS, &map("b")).await.ok(201);
    let calls = webhook.calls();
    let of = |path: &str| -> Vec<(String, bool)> {
        let calls = calls.iter().filter(|call| call.path.starts_with(path));
        calls
            .map(|call| (call.authorization.clone(), call.has_certificate))
            .collect()
    };
    assert_eq!(
        of("/mutate"),
        [(String::new(), true), (String::new(), true)]
    );
    let tokens = ["Bearer first", "Bearer second"].map(|token| (token.to_owned(), false));
    assert_eq!(of("/validate"), tokens);
    server.stop().await;
}

/// Unit tests cover each kind of mistake; this test covers the exit of the process.
#[tokio::test]
async fn a_wrong_file_stops_the_server_at_start() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (plugins, expected) in [
        (
            "- {name: EventRateLimit, path: e.yaml}",
            "plugins[0]: \"EventRateLimit\" is not part of this server: remove the entry",
        ),
        (
            "- {name: PodSecurty}",
            "plugins[0]: \"PodSecurty\" is no admission plugin: choose among ",
        ),
        (
            "- {name: PodSecurity, configuration: 1}",
            "must be a mapping with apiVersion: pod-security",
        ),
    ] {
        let flag = flag(directory.path(), plugins);
        let output = command()
            .args(["--storage=memory", "--secure-port=0", &flag])
            .output();
        let output = tokio::time::timeout(PATIENCE, output)
            .await
            .expect("it ends");
        let output = output.expect("the binary starts");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.starts_with("watchet: --admission-control-config-file ")
                && stderr.contains(expected),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
