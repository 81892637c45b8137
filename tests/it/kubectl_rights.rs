//! Each command of kubectl as a user with exactly the rights that it needs, and without each of them.
//!
//! The rights are kubectl's: what it reads before it writes, and which subresource it writes. A command succeeds with all
//! rights of its row, so there is no hidden requirement; without one of them it is forbidden, so no right is too wide.

use std::fmt::Write as _;

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

use crate::harness::{Kubectl, PATIENCE, Protocol, Server};

const GROUP: &str = "rbac.authorization.k8s.io";
/// The number of rows that are tested at the same time.
const CONCURRENT_ROWS: usize = 3;

/// A command, with the rights it needs separated by commas: a verb and a resource, or a path. `{n}` is the row's number;
/// the namespace is `row-{n}`.
struct Row {
    command: &'static str,
    rights: &'static str,
    /// The input of `-f -`.
    input: &'static str,
}

const fn row(command: &'static str, rights: &'static str) -> Row {
    Row {
        command,
        rights,
        input: "",
    }
}

const fn with_input(command: &'static str, rights: &'static str, input: &'static str) -> Row {
    Row {
        command,
        rights,
        input,
    }
}

const NEW_MAP: &str = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}"#;
const CHANGED_MAP: &str =
    r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"a": "2"}}"#;

const ROWS: &[Row] = &[
    row("get configmaps", "list configmaps"),
    row("get configmap map", "get configmaps"),
    row("get pods,services", "list pods, list services"),
    row("get pods --all-namespaces", "list pods"),
    row("get --raw /metrics", "get /metrics"),
    row("get --raw /api/v1/nodes", "list nodes"),
    row(
        "get deployment web --subresource=status",
        "get deployments.apps/status",
    ),
    row("describe configmap map", "get configmaps, list events"),
    row("events", "list events"),
    row("create configmap new", "create configmaps"),
    with_input("create -f -", "create configmaps", NEW_MAP),
    row("create namespace made-{n}", "create namespaces"),
    row("create token robot", "create serviceaccounts/token"),
    with_input("apply -f -", "get configmaps, create configmaps", NEW_MAP),
    with_input(
        "apply -f -",
        "get configmaps, patch configmaps",
        CHANGED_MAP,
    ),
    with_input(
        "apply --server-side -f -",
        "patch configmaps, create configmaps",
        NEW_MAP,
    ),
    with_input(
        "apply --server-side --force-conflicts -f -",
        "patch configmaps",
        CHANGED_MAP,
    ),
    with_input("diff -f -", "get configmaps, patch configmaps", CHANGED_MAP),
    with_input("replace -f -", "update configmaps", CHANGED_MAP),
    with_input("delete --wait=false -f -", "delete configmaps", CHANGED_MAP),
    row("delete --wait=false configmap map", "delete configmaps"),
    row(
        "delete --wait=false configmaps --all",
        "list configmaps, delete configmaps",
    ),
    row(
        "delete --raw /api/v1/namespaces/row-{n}/configmaps/map",
        "delete configmaps",
    ),
    row("edit configmap map", "get configmaps, patch configmaps"),
    row(
        "label configmap map a=b",
        "get configmaps, patch configmaps",
    ),
    row(
        "annotate configmap map a=b",
        "get configmaps, patch configmaps",
    ),
    row(
        r#"patch configmap map -p {"data":{"a":"3"}}"#,
        "get configmaps, patch configmaps",
    ),
    row(
        "patch deployment web --subresource=status --type=merge -p {\"status\":{\"replicas\":3}}",
        "get deployments.apps/status, patch deployments.apps/status",
    ),
    row(
        "scale deployment web --replicas=2",
        "get deployments.apps, patch deployments.apps/scale",
    ),
    row(
        "scale deployment web --current-replicas=1 --replicas=2",
        "get deployments.apps, get deployments.apps/scale, update deployments.apps/scale",
    ),
    row(
        "autoscale deployment web --max=3",
        "get deployments.apps, create horizontalpodautoscalers.autoscaling",
    ),
    row(
        "expose deployment web --port=80",
        "get deployments.apps, create services",
    ),
    row("run one --image=i", "create pods"),
    row(
        "set image deployment/web c=other",
        "get deployments.apps, patch deployments.apps",
    ),
    row(
        "set env deployment/web A=b",
        "get deployments.apps, patch deployments.apps",
    ),
    row(
        "set resources deployment/web --limits=cpu=1",
        "get deployments.apps, patch deployments.apps",
    ),
    row(
        "set serviceaccount deployment/web robot",
        "get deployments.apps, patch deployments.apps",
    ),
    row(
        "rollout restart deployment/web",
        "get deployments.apps, patch deployments.apps",
    ),
    row(
        "rollout pause deployment/web",
        "get deployments.apps, patch deployments.apps",
    ),
    row(
        "rollout history deployment/web",
        "get deployments.apps, list replicasets.apps",
    ),
    row(
        "taint node node-{n} a=b:NoSchedule",
        "get nodes, patch nodes",
    ),
    // kubectl only warns if it cannot cordon the node.
    row(
        "drain node-{n} --force --grace-period=0 --timeout=20s",
        "get nodes, list pods, create pods/eviction, get pods",
    ),
    row(
        "certificate approve csr-{n}",
        "get certificatesigningrequests.certificates.k8s.io, update certificatesigningrequests.certificates.k8s.io/approval, \
         approve signers.certificates.k8s.io",
    ),
    row(
        "debug pod --image=i --attach=false --profile=general",
        "get pods, patch pods/ephemeralcontainers",
    ),
    row("logs pod", "get pods, get pods/log"),
    row("exec pod -- true", "get pods, create pods/exec"),
];

/// Commands that end with another error although they are allowed: no kubelet runs.
const NEED_A_KUBELET: &[&str] = &["logs", "exec"];

/// What each row's namespace has, and cluster-scoped objects with its number.
fn fixture(number: usize) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(vec!["a.example".to_owned()]);
    let request = parameters.expect("a name").serialize_request(&key);
    let pem = request
        .and_then(|request| request.pem())
        .expect("a request");
    let pem = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem);
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("row-{number}")}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number}")}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"a": "1"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": {
            "nodeName": format!("node-{number}"), "containers": [{"name": "c", "image": "i"}]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}},
        {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": format!("csr-{number}")},
            "spec": {"request": pem, "usages": ["client auth"], "signerName": "rights.example.com/signer"}},
    ]})
}

/// A right: what a rule allows.
fn rule(right: &str) -> Value {
    let (verb, target) = right.split_once(' ').expect("a verb and a target");
    if target.starts_with('/') {
        return json!({"verbs": [verb], "nonResourceURLs": [target]});
    }
    let (resource, subresource) = target.split_once('/').unwrap_or((target, ""));
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let full = match subresource {
        "" => plural.to_owned(),
        _ => format!("{plural}/{subresource}"),
    };
    json!({"verbs": [verb], "apiGroups": [group], "resources": [full]})
}

/// Returns a cluster role with `rights`, bound to the user of its name.
fn role(user: &str, rights: &[&str]) -> [Value; 2] {
    let rules: Vec<Value> = rights.iter().copied().map(rule).collect();
    let api_version = format!("{GROUP}/v1");
    [
        json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules}),
        json!({"apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": {"name": user},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}]}),
    ]
}

impl Row {
    fn rights(&self) -> Vec<&'static str> {
        self.rights.split(',').map(str::trim).collect()
    }

    /// Returns the rights without the one at `index`.
    fn without(&self, index: usize) -> Vec<&'static str> {
        let mut rights = self.rights();
        rights.remove(index);
        rights
    }

    async fn run(&self, kubectl: &Kubectl, number: usize, user: &str) -> Result<String, String> {
        let command = self.command.replace("{n}", &number.to_string());
        let (user, namespace) = (format!("--as={user}"), format!("--namespace=row-{number}"));
        let (before, after) = match command.split_once(" -- ") {
            Some((before, after)) => (before, Some(after)),
            None => (command.as_str(), None),
        };
        let mut words: Vec<&str> = before.split(' ').collect();
        words.extend([user.as_str(), namespace.as_str()]);
        if let Some(after) = after {
            words.push("--");
            words.extend(after.split(' '));
        }
        kubectl.try_with(&words, self.input).await
    }

    /// Runs the command without each of the rights, then with all.
    async fn check(&self, kubectl: &Kubectl, number: usize) -> Vec<String> {
        let mut problems = Vec::new();
        for (index, right) in self.rights().into_iter().enumerate() {
            let user = format!("row-{number}-without-{index}");
            let problem = match self.run(kubectl, number, &user).await {
                Ok(output) => format!("it succeeds: {output}"),
                Err(error) if is_forbidden(&error) => continue,
                Err(error) => format!("another error: {error}"),
            };
            problems.push(format!("{} without {right}: {problem}", self.command));
        }
        let user = format!("row-{number}");
        let verb = self.command.split(' ').next().unwrap_or_default();
        let is_diff = verb == "diff";
        match self.run(kubectl, number, &user).await {
            Ok(_) if !is_diff => {}
            // diff exits with 1 if there are differences.
            Err(error) if is_diff && error.is_empty() => {}
            Err(error) if NEED_A_KUBELET.contains(&verb) && !is_forbidden(&error) => {}
            other => problems.push(format!("{} with all rights: {other:?}", self.command)),
        }
        problems
    }
}

fn is_forbidden(error: &str) -> bool {
    error.contains("forbidden") || error.contains("Forbidden")
}

/// Waits until the last right of each user is effective.
async fn wait_until_bound(server: &Server, users: &[(String, Vec<&str>)]) {
    let mut wire = server.plain(Protocol::Http1).await;
    for (user, rights) in users {
        let Some(rule) = rights.last().copied().map(rule) else {
            continue;
        };
        let attributes = match rule["nonResourceURLs"][0].as_str() {
            Some(path) => {
                json!({"nonResourceAttributes": {"path": path, "verb": rule["verbs"][0]}})
            }
            None => {
                let full = rule["resources"][0].as_str().unwrap_or_default();
                let (resource, subresource) = full.split_once('/').unwrap_or((full, ""));
                json!({"resourceAttributes": {"verb": rule["verbs"][0], "group": rule["apiGroups"][0],
                    "resource": resource, "subresource": subresource}})
            }
        };
        let mut spec = attributes;
        spec["user"] = user.as_str().into();
        let allowed = async {
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let review = json!({"spec": spec});
            while wire.post(path, &review).await.json()["status"]["allowed"] != true {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let within = tokio::time::timeout(PATIENCE, allowed).await;
        within.unwrap_or_else(|_| panic!("the rights of {user} never are effective: {rights:?}"));
    }
}

#[tokio::test]
async fn each_command_needs_exactly_its_rights() {
    let server = Server::start(&["--disable-admission-plugins=ServiceAccount"]).await;
    let kubectl = Kubectl::new(&server.kubeconfig()).editing("a: \"1\"", "a: \"2\"");
    let mut users = Vec::new();
    for (number, row) in ROWS.iter().enumerate() {
        users.push((format!("row-{number}"), row.rights()));
        for index in 0..row.rights().len() {
            let user = format!("row-{number}-without-{index}");
            users.push((user, row.without(index)));
        }
    }
    let roles = users.iter().flat_map(|(user, rights)| role(user, rights));
    let roles = json!({"apiVersion": "v1", "kind": "List", "items": roles.collect::<Vec<_>>()});
    kubectl
        .run_with(&["create", "-f", "-"], &roles.to_string())
        .await;
    wait_until_bound(&server, &users).await;

    let rows = stream::iter(ROWS.iter().enumerate()).map(|(number, row)| {
        let kubectl = &kubectl;
        async move {
            let namespace = format!("--namespace=row-{number}");
            let objects = fixture(number).to_string();
            kubectl
                .run_with(&["create", &namespace, "-f", "-"], &objects)
                .await;
            row.check(kubectl, number).await
        }
    });
    let problems: Vec<Vec<String>> = rows.buffer_unordered(CONCURRENT_ROWS).collect().await;
    let mut text = String::new();
    for problem in problems.into_iter().flatten() {
        writeln!(text, "{problem}").expect("a string");
    }
    assert!(text.is_empty(), "{text}");
    server.stop().await;
}
