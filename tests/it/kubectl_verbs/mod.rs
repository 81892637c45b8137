//! A script of all verbs of kubectl on resources, with the real program on both back ends: each line is a command and
//! its output. `kubectl.rs` tests some in more detail.

mod access;
mod rollouts;

use serde_json::{Value, json};

use crate::harness::{Kubectl, Server};
use crate::storage::etcd::EtcdProcess;

#[tokio::test]
async fn on_the_embedded_store() {
    let server = Server::start(&[]).await;
    the_verbs(Kubectl::new(&server.kubeconfig())).await;
    server.stop().await;
}

#[tokio::test]
async fn with_the_newest_kubectl() {
    let server = Server::start(&[]).await;
    the_verbs(Kubectl::newest(&server.kubeconfig())).await;
    server.stop().await;
}

#[tokio::test]
async fn on_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let server = Server::start(&["--storage=etcd", &servers]).await;
    the_verbs(Kubectl::new(&server.kubeconfig())).await;
    server.stop().await;
}

async fn the_verbs(kubectl: Kubectl) {
    let script = Script {
        kubectl,
        files: tempfile::tempdir().expect("a temporary directory"),
    };
    script.creating().await;
    script.applying().await;
    script.changing().await;
    script.reading().await;
    script.describing().await;
    script.server_side_apply().await;
    script.explain().await;
    script.access_reviews().await;
    script.certificates().await;
    script.generators().await;
    script.rollouts().await;
    script.nodes().await;
    script.deleting().await;
}

struct Script {
    kubectl: Kubectl,
    files: tempfile::TempDir,
}

/// Splits a command line into words; single quotes preserve spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (index, part) in line.split('\'').enumerate() {
        let last = words.last_mut().expect("it never gets empty");
        match index % 2 {
            1 => last.push_str(part),
            _ => {
                let mut pieces = part.split(' ');
                last.push_str(pieces.next().unwrap_or_default());
                words.extend(pieces.map(str::to_owned));
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Removes ` from default namespace`, which kubectl 1.34 and newer append to the lines of deletions.
fn without_namespaces(output: &str) -> String {
    let cut = |line: &str| match line.split_once(" deleted from ") {
        Some((before, namespace)) if namespace.ends_with(" namespace") => {
            format!("{before} deleted")
        }
        _ => line.to_owned(),
    };
    let end = if output.ends_with('\n') { "\n" } else { "" };
    output.lines().map(cut).collect::<Vec<_>>().join("\n") + end
}

impl Script {
    /// Runs a command that must succeed; returns its output.
    async fn run(&self, line: &str) -> String {
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        without_namespaces(&self.kubectl.run(&words).await)
    }

    /// Runs a command and asserts its complete output.
    async fn says(&self, line: &str, expected: &str) {
        let output = self.run(line).await;
        assert_eq!(output.trim_end(), expected.trim_end(), "kubectl {line}");
    }

    /// Runs a command and asserts that its output contains each of these texts.
    async fn prints(&self, line: &str, expected: &[&str]) {
        let output = self.run(line).await;
        let squeezed = output.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in expected {
            assert!(
                squeezed.contains(expected),
                "kubectl {line}: {expected:?}\n{output}"
            );
        }
    }

    /// Runs a command that must fail, and asserts that its stderr contains this text.
    async fn fails(&self, line: &str, expected: &str) {
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = self.kubectl.run_failing(&words).await;
        assert!(output.contains(expected), "kubectl {line}: {output}");
    }

    /// Writes a file and returns its path.
    fn file(&self, name: &str, content: &str) -> String {
        let path = self.files.path().join(name);
        std::fs::write(&path, content).expect("it can be written");
        path.display().to_string()
    }

    async fn get(&self, what: &str) -> Value {
        let output = self.run(&format!("get {what} -o json")).await;
        serde_json::from_str(&output).expect("JSON")
    }

    async fn creating(&self) {
        for (line, made) in [
            (
                "deployment web --image=nginx --replicas=2",
                "deployment.apps/web",
            ),
            ("service clusterip web --tcp=80:8080", "service/web"),
            ("service nodeport outer --tcp=80", "service/outer"),
            (
                "service externalname away --external-name=a.example",
                "service/away",
            ),
            (
                "configmap settings --from-literal=colour=red",
                "configmap/settings",
            ),
            (
                "secret generic password --from-literal=p=q",
                "secret/password",
            ),
            ("serviceaccount robot", "serviceaccount/robot"),
            (
                "role reader --verb=get,list --resource=pods,deployments.apps",
                "role.rbac.authorization.k8s.io/reader",
            ),
            (
                "rolebinding readers --role=reader --serviceaccount=default:robot",
                "rolebinding.rbac.authorization.k8s.io/readers",
            ),
            (
                "clusterrole looker --verb=get --resource=nodes",
                "clusterrole.rbac.authorization.k8s.io/looker",
            ),
            (
                "clusterrolebinding lookers --clusterrole=looker --user=jane",
                "clusterrolebinding.rbac.authorization.k8s.io/lookers",
            ),
            ("job once --image=busybox -- true", "job.batch/once"),
            (
                "cronjob tick --image=busybox --schedule='0 3 * * *' -- true",
                "cronjob.batch/tick",
            ),
            (
                "ingress front --class=nginx --rule=a.example/*=web:80",
                "ingress.networking.k8s.io/front",
            ),
            ("quota few --hard=pods=40", "resourcequota/few"),
            (
                "poddisruptionbudget steady --selector=app=web --min-available=1",
                "poddisruptionbudget.policy/steady",
            ),
            (
                "priorityclass high --value=1000 --description=first",
                "priorityclass.scheduling.k8s.io/high",
            ),
            ("namespace shop", "namespace/shop"),
        ] {
            self.says(&format!("create {line}"), &format!("{made} created"))
                .await;
        }
        self.says("run one --image=nginx --labels=app=one", "pod/one created")
            .await;
        let line = "expose deployment web --port=80 --name=exposed";
        self.says(line, "service/exposed exposed").await;
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "f"}});
        let map = self.file("map.json", &map.to_string());
        self.says(&format!("create -f {map}"), "configmap/f created")
            .await;
        let line = format!("create -f {map}");
        self.fails(&line, "configmaps \"f\" already exists").await;
        let line = "create configmap dry --dry-run=server --from-literal=a=b -o name";
        self.says(line, "configmap/dry").await;
        self.fails("get configmap dry", "configmaps \"dry\" not found")
            .await;
    }

    async fn applying(&self) {
        let deployment = |image: &str| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "api", "labels": {"tier": "back"}},
                "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "api"}},
                    "template": {"metadata": {"labels": {"app": "api"}},
                        "spec": {"containers": [{"name": "c", "image": image}]}}},
            })
        };
        let first = self.file("api-1.json", &deployment("api:1").to_string());
        let second = self.file("api-2.json", &deployment("api:2").to_string());
        self.says(&format!("apply -f {first}"), "deployment.apps/api created")
            .await;
        self.says(
            &format!("apply -f {first}"),
            "deployment.apps/api unchanged",
        )
        .await;
        self.says(&format!("diff -f {first}"), "").await;
        // If there is a difference, `diff` fails with an exit code and prints no error.
        let output = self.kubectl.run_failing(&["diff", "-f", &second]).await;
        assert_eq!(output, "");
        self.says(
            &format!("apply -f {second}"),
            "deployment.apps/api configured",
        )
        .await;
        let line = "apply view-last-applied deployment api -o json";
        self.prints(line, &["\"image\": \"api:2\""]).await;
        let editing = self.kubectl.editing("api:2", "api:3");
        let output = editing.run(&["edit", "deployment", "api"]).await;
        assert_eq!(output, "deployment.apps/api edited\n");
        self.says(
            &format!("replace -f {second}"),
            "deployment.apps/api replaced",
        )
        .await;
        let line = format!("replace --force -f {second}");
        self.prints(
            &line,
            &[
                "deployment.apps \"api\" deleted",
                "deployment.apps/api replaced",
            ],
        )
        .await;

        std::fs::create_dir(self.files.path().join("kustomized")).expect("a directory");
        self.file(
            "kustomized/kustomization.yaml",
            "namePrefix: pre-\nresources: [map.yaml]\n",
        );
        let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: k}, data: {a: b}}";
        self.file("kustomized/map.yaml", map);
        let directory = self.files.path().join("kustomized").display().to_string();
        self.says(&format!("apply -k {directory}"), "configmap/pre-k created")
            .await;
        self.prints(&format!("kustomize {directory}"), &["name: pre-k"])
            .await;
        self.says(
            &format!("delete -k {directory}"),
            "configmap \"pre-k\" deleted",
        )
        .await;
    }

    async fn changing(&self) {
        let patches = [
            r#"patch deployment api -p '{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"api:4"}]}}}}'"#,
            r#"patch deployment api --type=merge -p '{"spec":{"replicas":3}}'"#,
            r#"patch deployment api --type=json -p '[{"op":"add","path":"/metadata/labels/x","value":"y"}]'"#,
            r#"patch deployment api --subresource=status --type=merge -p '{"status":{"replicas":3}}'"#,
        ];
        for line in patches {
            self.says(line, "deployment.apps/api patched").await;
        }
        let same = r#"patch deployment api --type=merge -p '{"spec":{"replicas":3}}'"#;
        self.says(same, "deployment.apps/api patched (no change)")
            .await;
        let api = self.get("deployment api").await;
        let shown = [
            &api["spec"]["template"]["spec"]["containers"][0]["image"],
            &api["spec"]["replicas"],
            &api["metadata"]["labels"]["x"],
            &api["status"]["replicas"],
        ];
        assert_eq!(json!(shown), json!(["api:4", 3, "y", 3]));

        self.says(
            "label deployment api team=blue",
            "deployment.apps/api labeled",
        )
        .await;
        self.fails(
            "label deployment api team=red",
            "already has a value (blue)",
        )
        .await;
        let line = "label deployment api team=red --overwrite";
        self.says(line, "deployment.apps/api labeled").await;
        self.says(
            "label deployment api team-",
            "deployment.apps/api unlabeled",
        )
        .await;
        self.says(
            "annotate deployment api note=x",
            "deployment.apps/api annotated",
        )
        .await;
        self.says(
            "annotate deployment api note-",
            "deployment.apps/api annotated",
        )
        .await;

        self.says(
            "scale deployment api --replicas=5",
            "deployment.apps/api scaled",
        )
        .await;
        let line = "scale deployment api --replicas=1 --current-replicas=4";
        self.fails(line, "Expected replicas to be 4, was 5").await;
        for (line, received) in [
            ("image deployment/api c=api:9", "image"),
            ("env deployment/api KEY=value", "env"),
            (
                "resources deployment/api --limits=cpu=200m",
                "resource requirements",
            ),
            ("serviceaccount deployment/api robot", "serviceaccount"),
        ] {
            let received = format!("deployment.apps/api {received} updated");
            self.says(&format!("set {line}"), &received).await;
        }
        let line = "set selector service web app=other";
        self.says(line, "service/web selector updated").await;
        let line = "set subject rolebinding readers --user=joe";
        self.says(
            line,
            "rolebinding.rbac.authorization.k8s.io/readers subjects updated",
        )
        .await;
        let api = self.get("deployment api").await;
        let spec = &api["spec"]["template"]["spec"];
        let container = &spec["containers"][0];
        let shown = [
            &container["image"],
            &container["env"][0]["value"],
            &container["resources"]["limits"]["cpu"],
            &spec["serviceAccountName"],
        ];
        assert_eq!(json!(shown), json!(["api:9", "value", "200m", "robot"]));
    }

    async fn reading(&self) {
        self.prints(
            "get all -o wide",
            &[
                "pod/one",
                "service/web",
                "deployment.apps/api",
                "cronjob.batch/tick",
                "job.batch/once",
            ],
        )
        .await;
        let columns = "NAME CLASS HOSTS ADDRESS PORTS AGE front nginx a.example 80";
        self.prints("get ingress", &[columns]).await;
        self.prints("get cronjobs", &["tick 0 3 * * * <none> False 0 <none>"])
            .await;
        self.prints("get rolebindings -o wide", &["readers Role/reader"])
            .await;
        self.prints("get priorityclasses", &["high 1000 false"])
            .await;
        self.prints("get roles", &["NAME CREATED AT reader 20"])
            .await;
        self.prints(
            "get deployment api -o yaml",
            &["kind: Deployment", "image: api:9"],
        )
        .await;
        self.prints("get deployment api -o json", &["\"kind\": \"Deployment\""])
            .await;
        self.says("get deployment api -o jsonpath='{.spec.replicas}'", "5")
            .await;
        let line =
            "get deployments -o custom-columns=N:.metadata.name,R:.spec.replicas --no-headers";
        self.prints(line, &["api 5 web 2"]).await;
        self.says(
            "get deployments -o name",
            "deployment.apps/api\ndeployment.apps/web",
        )
        .await;
        let line = "get deployment api -o go-template='{{.metadata.name}}{{.kind}}'";
        self.says(line, "apiDeployment").await;
        let line = "get deployments --sort-by=.spec.replicas -o name";
        self.says(line, "deployment.apps/web\ndeployment.apps/api")
            .await;
        self.says("get pods -l app=one -o name", "pod/one").await;
        self.says(
            "get pods --field-selector=status.phase=Pending -o name",
            "pod/one",
        )
        .await;
        self.prints(
            "get pods -A --show-labels",
            &["default one 0/1 Pending", "app=one"],
        )
        .await;
        self.prints(
            "get deploy/api cm/settings",
            &["deployment.apps/api", "configmap/settings"],
        )
        .await;
        self.says("get pods missing --ignore-not-found", "").await;
        self.prints(
            "api-resources --api-group=apps",
            &["deployments deploy apps/v1 true Deployment"],
        )
        .await;
        self.prints("api-versions", &["apps/v1", "batch/v1"]).await;
        self.prints(
            "cluster-info",
            &["control plane is running at https://127.0.0.1"],
        )
        .await;
        self.says("auth can-i delete nodes", "yes").await;
        self.prints("auth whoami", &["kubernetes-admin", "system:masters"])
            .await;
        self.fails("top nodes", "Metrics API not available").await;
        self.says("get --raw /readyz", "ok").await;

        let mut watching = self
            .kubectl
            .start(&["get", "configmaps", "--watch", "-o", "name"]);
        watching.line_with("configmap/settings").await;
        self.run("create configmap later").await;
        watching.line_with("configmap/later").await;
        watching.kill().await;
        self.waits().await;
    }

    async fn waits(&self) {
        let line = "wait --for=condition=Ready pod/one --timeout=0s";
        self.fails(line, "condition not met for pods/one").await;
        let ready = json!({"status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}]}});
        let line = format!("patch pod one --subresource=status --type=merge -p '{ready}'");
        self.says(&line, "pod/one patched").await;
        let met = "pod/one condition met";
        self.says("wait --for=condition=Ready pod/one --timeout=20s", met)
            .await;
        let line = "wait --for=jsonpath='{.status.phase}'=Running pod/one --timeout=20s";
        self.says(line, met).await;
        // The wait succeeds, whether it starts before or after the deletion.
        let wait = self.run("wait --for=delete configmap/later --timeout=20s");
        tokio::join!(wait, self.run("delete configmap later"));
        self.fails("get configmap later", "\"later\" not found")
            .await;
    }

    async fn describing(&self) {
        self.prints(
            "describe pod one",
            &["Name: one", "Image: nginx", "QoS Class: BestEffort"],
        )
        .await;
        self.prints(
            "describe deployment api",
            &["Replicas: 5 desired", "cpu: 200m"],
        )
        .await;
        self.prints(
            "describe service web",
            &["Selector: app=other", "TargetPort: 8080/TCP"],
        )
        .await;
        self.prints("describe ingress front", &["a.example", "web:80"])
            .await;
        self.prints("describe secret password", &["p: 1 bytes"])
            .await;
        let uid = self.get("pod one").await["metadata"]["uid"].clone();
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "one.1"},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "one",
                "namespace": "default", "uid": uid},
            "type": "Warning", "reason": "Sneezed", "message": "it sneezed",
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        });
        let event = self.file("event.json", &event.to_string());
        self.says(&format!("create -f {event}"), "event/one.1 created")
            .await;
        self.prints(
            "events --for=pod/one",
            &["Warning Sneezed Pod/one it sneezed"],
        )
        .await;
        self.prints("get events", &["Warning Sneezed pod/one it sneezed"])
            .await;
        self.prints("describe pod one", &["Warning Sneezed"]).await;
    }
}
