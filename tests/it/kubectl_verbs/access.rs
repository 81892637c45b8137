//! The part of the script about server-side apply, `explain`, access reviews, tokens and certificates, and commands
//! that need a kubelet.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::Script;

impl Script {
    pub(super) async fn server_side_apply(&self) {
        let map = |colour: &str| {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "paint"},
                "data": {"colour": colour}});
            self.file(&format!("{colour}.json"), &map.to_string())
        };
        let (red, blue) = (map("red"), map("blue"));
        let applied = "configmap/paint serverside-applied";
        let apply = |file: &str| format!("apply --server-side -f {file}");
        self.says(&apply(&red), applied).await;
        self.says(&format!("diff --server-side -f {red}"), "").await;
        let other = format!("{} --field-manager=other", apply(&blue));
        let conflict = "conflict with \"kubectl\": .data.colour";
        self.fails(&other, conflict).await;
        let line = "get configmap paint -o jsonpath='{.data.colour}'";
        self.says(line, "red").await;
        let forced = format!("{other} --force-conflicts");
        self.says(&forced, applied).await;
        self.says(line, "blue").await;
        self.fails(&apply(&red), "conflict with \"other\"").await;
        let line = "get configmap paint --show-managed-fields -o \
                    jsonpath='{.metadata.managedFields[*].manager}'";
        // A manager that owns no field has no entry.
        self.says(line, "other").await;
        self.says("delete configmap paint", "configmap \"paint\" deleted")
            .await;
    }

    /// `explain` of built-in and custom resources.
    pub(super) async fn explain(&self) {
        let line = "explain deployment.spec.strategy --recursive";
        let received = [
            "GROUP: apps",
            "rollingUpdate <RollingUpdateDeployment>",
            "maxSurge <IntOrString>",
        ];
        self.prints(line, &received).await;
        let fields = json!({"size": {"type": "integer", "description": "How large it is."},
            "parts": {"type": "array", "items": {"type": "object",
                "properties": {"name": {"type": "string"}}}}});
        let schema = json!({"type": "object", "description": "Something to turn.",
            "properties": {"spec": {"type": "object", "required": ["size"],
                "properties": fields}}});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "knobs.verbs.example.com"},
            "spec": {"group": "verbs.example.com", "scope": "Namespaced",
                "names": {"plural": "knobs", "singular": "knob", "kind": "Knob",
                    "shortNames": ["kn"]},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema}}]},
        });
        let definition = self.file("knobs.json", &definition.to_string());
        self.run(&format!("create -f {definition}")).await;
        let line = "wait --for=condition=Established crd/knobs.verbs.example.com --timeout=20s";
        self.prints(line, &["condition met"]).await;
        self.prints("explain knob", &["KIND: Knob", "Something to turn."])
            .await;
        let received = [
            "size <integer> -required-",
            "parts <[]Object> name <string>",
        ];
        self.prints("explain knobs.spec --recursive", &received)
            .await;
        self.prints("explain kn.spec.size", &["How large it is."])
            .await;
        self.fails("explain knob.spec.colour", "does not exist")
            .await;
        let line = "delete crd knobs.verbs.example.com";
        self.prints(line, &["\"knobs.verbs.example.com\" deleted"])
            .await;
    }

    pub(super) async fn access_reviews(&self) {
        let token = self.run("create token robot --duration=20m").await;
        let claims: Vec<&str> = token.trim_end().split('.').collect();
        let claims = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(claims[1]);
        let claims: Value = serde_json::from_slice(&claims.expect("base64")).expect("JSON");
        assert_eq!(claims["sub"], "system:serviceaccount:default:robot");
        let bearer = format!("--token={}", token.trim_end());
        self.says(&format!("auth can-i list pods {bearer}"), "yes")
            .await;
        self.prints("auth can-i --list", &["*.* [] [] [*]"]).await;
        let line = "get nodes --as=system:anonymous";
        self.fails(line, "Forbidden").await;

        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "reconciled", "namespace": "default"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
        let role = self.file("role.json", &role.to_string());
        let reconciled = "role.rbac.authorization.k8s.io/reconciled reconciled";
        self.prints(&format!("auth reconcile -f {role}"), &[reconciled])
            .await;
        let line = "get role reconciled -o jsonpath='{.rules[0].verbs}'";
        self.says(line, "[\"get\"]").await;
    }

    /// Certificate requests and their approval.
    pub(super) async fn certificates(&self) {
        for name in ["jane", "joe"] {
            let key = rcgen::KeyPair::generate().expect("a key");
            let parameters = rcgen::CertificateParams::new(vec![format!("{name}.example")]);
            let request = parameters.expect("a name").serialize_request(&key);
            let pem = request
                .and_then(|request| request.pem())
                .expect("a request");
            let request = json!({
                "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
                "metadata": {"name": name},
                "spec": {"request": BASE64_STANDARD.encode(pem), "usages": ["client auth"],
                    "signerName": "verbs.example.com/signer", "username": "another-user"},
            });
            let file = self.file("csr.json", &request.to_string());
            self.run(&format!("create -f {file}")).await;
        }
        let pending = "verbs.example.com/signer kubernetes-admin <none> Pending";
        self.prints("get csr jane", &[pending]).await;
        let line = "certificate approve jane joe-is-not-asked-for --allow-missing-template-keys";
        self.fails(line, "\"joe-is-not-asked-for\" not found").await;
        let csr = "certificatesigningrequest.certificates.k8s.io";
        self.says("certificate approve jane", &format!("{csr}/jane approved"))
            .await;
        self.says("certificate deny joe", &format!("{csr}/joe denied"))
            .await;
        self.prints(
            "get csr",
            &["kubernetes-admin <none> Approved", "<none> Denied"],
        )
        .await;
        self.fails("certificate deny jane", "is already Approved")
            .await;
        let both = r#"patch csr jane --subresource=approval --type=json -p '[{"op":"add","path":"/status/conditions/-","value":{"type":"Denied","status":"True"}}]'"#;
        let exclusive = "Approved and Denied conditions are mutually exclusive";
        self.fails(both, exclusive).await;
        let line = "wait --for=condition=Approved csr/jane --timeout=20s";
        self.prints(line, &["condition met"]).await;
        let gone = r#"patch csr jane --subresource=approval --type=json -p '[{"op":"remove","path":"/status/conditions"}]'"#;
        let refusal = "updates may not remove a condition of type \"Approved\"";
        self.fails(gone, refusal).await;
        let denied = r#"patch csr jane --subresource=status --type=json -p '[{"op":"add","path":"/status/conditions/-","value":{"type":"Denied","status":"True"}}]'"#;
        let refusal = "updates may not add a condition of type \"Denied\"";
        self.fails(denied, refusal).await;
        self.prints("describe csr jane", &["Status: Approved"])
            .await;
        // The spec of a request is immutable.
        let line = r#"patch csr joe --type=merge -p '{"spec":{"usages":["any"]}}'"#;
        self.run(line).await;
        let line = "get csr joe -o jsonpath='{.spec.usages}'";
        self.says(line, "[\"client auth\"]").await;
        self.prints(
            "delete csr jane joe",
            &["\"jane\" deleted", "\"joe\" deleted"],
        )
        .await;
    }

    /// Generators, and commands that derive one object from another.
    pub(super) async fn generators(&self) {
        for (line, output) in [
            (
                "expose pod one --port=80 --name=of-one",
                "service/of-one exposed",
            ),
            (
                "create job now --from=cronjob/tick",
                "job.batch/now created",
            ),
            (
                "create service loadbalancer lb --tcp=80",
                "service/lb created",
            ),
            (
                "create secret docker-registry pull --docker-username=a --docker-password=b",
                "secret/pull created",
            ),
            (
                "create clusterrole sum --aggregation-rule=a=b",
                "clusterrole.rbac.authorization.k8s.io/sum created",
            ),
            (
                "autoscale deployment web --min=1 --max=3 --cpu-percent=50",
                "horizontalpodautoscaler.autoscaling/web autoscaled",
            ),
            (
                "label configmaps --all seen=yes",
                "configmap/f labeled\nconfigmap/settings labeled",
            ),
        ] {
            self.says(line, output).await;
        }
        let scaled = "web Deployment/web cpu: <unknown>/50% 1 3 0";
        self.prints("get hpa web", &[scaled]).await;
        self.prints("get job now", &["now Running 0/1"]).await;
        self.prints("get pods -L app --show-kind", &["pod/one 0/1"])
            .await;
        self.run("debug one --image=busybox --container=look --profile=general")
            .await;
        let line = "get pod one -o jsonpath='{.spec.ephemeralContainers[*].name}'";
        self.says(line, "look").await;
        // Commands that need a kubelet print an error.
        for line in [
            "logs one -c one",
            "exec one -c one -- true",
            "attach one -c one",
        ] {
            self.fails(line, "this server keeps objects and runs no containers")
                .await;
        }
        self.run("delete services of-one lb").await;
        self.run("delete hpa/web job/now secret/pull clusterrole/sum")
            .await;
    }
}
