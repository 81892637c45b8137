//! The part of the script about rollouts, nodes and deletions.

use serde_json::{Value, json};

use super::Script;

impl Script {
    /// Creates the objects that the deployment controller would create: a replica set for each revision, and the
    /// status.
    pub(super) async fn rollouts(&self) {
        let uid = self.get("deployment web").await["metadata"]["uid"].clone();
        for revision in ["1", "2"] {
            let labels = json!({"app": "web", "pod-template-hash": revision});
            let set = json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": {"name": format!("web-{revision}"), "labels": labels,
                    "annotations": {"deployment.kubernetes.io/revision": revision,
                        "kubernetes.io/change-cause": format!("cause {revision}")},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment",
                        "name": "web", "uid": uid, "controller": true}]},
                "spec": {"replicas": 1, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [
                        {"name": "nginx", "image": format!("nginx:{revision}")}]}}},
            });
            let set = self.file("set.json", &set.to_string());
            let made = format!("replicaset.apps/web-{revision} created");
            self.says(&format!("create -f {set}"), &made).await;
        }
        self.run("annotate deployment web deployment.kubernetes.io/revision=2")
            .await;
        let history = "REVISION CHANGE-CAUSE 1 cause 1 2 cause 2";
        self.prints("rollout history deployment web", &[history])
            .await;
        let line = "rollout history deployment web --revision=1";
        self.prints(line, &["revision #1", "Image: nginx:1"]).await;
        self.says(
            "rollout undo deployment web",
            "deployment.apps/web rolled back",
        )
        .await;
        let line = "get deployment web -o jsonpath='{.spec.template.spec.containers[0].image}'";
        self.says(line, "nginx:1").await;
        self.says("rollout pause deployment web", "deployment.apps/web paused")
            .await;
        self.fails(
            "rollout restart deployment web",
            "can't restart paused deployment",
        )
        .await;
        self.says(
            "rollout resume deployment web",
            "deployment.apps/web resumed",
        )
        .await;
        self.says(
            "rollout restart deployment web",
            "deployment.apps/web restarted",
        )
        .await;

        let mut following = self.kubectl.start(&["rollout", "status", "deployment/web"]);
        following
            .line_with("Waiting for deployment spec update")
            .await;
        let web = self.get("deployment web").await;
        let generation = &web["metadata"]["generation"];
        let status = json!({"status": {"observedGeneration": generation, "replicas": 2,
            "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}});
        let line = format!("patch deployment web --subresource=status --type=merge -p '{status}'");
        self.says(&line, "deployment.apps/web patched").await;
        following.line_with("successfully rolled out").await;
        self.prints("get deployment web", &["web 2/2 2 2"]).await;
    }

    pub(super) async fn nodes(&self) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let node = self.file("node.json", &node.to_string());
        self.says(&format!("create -f {node}"), "node/n1 created")
            .await;
        self.says("taint node n1 k=v:NoSchedule", "node/n1 tainted")
            .await;
        self.says("taint node n1 k-", "node/n1 untainted").await;
        self.says("cordon n1", "node/n1 cordoned").await;
        self.prints("get nodes", &["n1 Ready,SchedulingDisabled <none>"])
            .await;
        self.prints("describe node n1", &["Unschedulable: true", "Ready True"])
            .await;
        self.prints("drain n1", &["node/n1 already cordoned", "node/n1 drained"])
            .await;
        self.says("uncordon n1", "node/n1 uncordoned").await;
        let seat = r#"'{"spec":{"nodeName":"n1"}}'"#;
        self.run(&format!("run seated --image=nginx --overrides={seat}"))
            .await;
        self.fails("drain n1", "cannot delete Pods that declare no controller")
            .await;
        let evicted = ["pod/seated evicted", "node/n1 drained"];
        self.prints("drain n1 --force --grace-period=0", &evicted)
            .await;
        self.fails("get pod seated", "pods \"seated\" not found")
            .await;
        self.says("delete node n1", "node \"n1\" deleted").await;
    }

    pub(super) async fn deleting(&self) {
        let line = "delete pod one --grace-period=0 --force";
        self.says(line, "pod \"one\" force deleted").await;
        self.run("run two --image=nginx --labels=app=two").await;
        self.says("delete pod two --now", "pod \"two\" deleted")
            .await;
        self.cascading().await;
        let line = "delete job once --cascade=background";
        self.says(line, "job.batch \"once\" deleted").await;
        self.says("delete configmap -l nothing=here", "No resources found")
            .await;
        self.says(
            "delete service web outer",
            "service \"web\" deleted\nservice \"outer\" deleted",
        )
        .await;
        self.prints(
            "delete configmap --all",
            &["configmap \"settings\" deleted"],
        )
        .await;
        self.run("create configmap inside -n shop").await;
        self.says("delete namespace shop", "namespace \"shop\" deleted")
            .await;
        self.fails("get namespace shop", "namespaces \"shop\" not found")
            .await;
        self.fails("get configmap inside -n shop", "not found")
            .await;
    }

    /// The three propagation policies of a deletion.
    async fn cascading(&self) {
        for (cascade, survives) in [
            ("background", false),
            ("foreground", false),
            ("orphan", true),
        ] {
            self.run(&format!("create configmap owner-{cascade}")).await;
            let owner = self.get(&format!("configmap owner-{cascade}")).await;
            let owned = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("owned-{cascade}"), "ownerReferences": [{
                    "apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": true,
                    "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]},
            });
            let owned = self.file("owned.json", &owned.to_string());
            self.run(&format!("create -f {owned}")).await;
            let line = format!("delete configmap owner-{cascade} --cascade={cascade}");
            let output = format!("configmap \"owner-{cascade}\" deleted");
            self.says(&line, &output).await;
            if survives {
                let owned = self.get(&format!("configmap owned-{cascade}")).await;
                let owners = owned["metadata"]["ownerReferences"].as_array();
                assert!(owners.is_none_or(Vec::is_empty), "{owned}");
                assert_eq!(
                    owned["metadata"]["deletionTimestamp"],
                    Value::Null,
                    "{owned}"
                );
            } else {
                let line = format!("wait --for=delete configmap/owned-{cascade} --timeout=20s");
                self.run(&line).await;
                let missing = format!("configmaps \"owned-{cascade}\" not found");
                self.fails(&format!("get configmap owned-{cascade}"), &missing)
                    .await;
            }
        }
        let line = "delete deployment web --cascade=orphan";
        self.says(line, "deployment.apps \"web\" deleted").await;
        self.prints("get replicasets -o name", &["replicaset.apps/web-1"])
            .await;
    }
}
