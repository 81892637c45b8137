//! Tests of server-side apply with kubectl and kube-rs on both back ends. `conformance::applying` tests the rules.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Error};
use serde_json::{Value, json};

use crate::harness::{Kubectl, Server, on_both};

on_both!(|server| (server) => [
    kubectl_applies_on_the_server,
    kubectl_migrates_to_server_side_apply,
    a_custom_resource_is_applied,
    an_object_of_maximum_depth_can_be_deleted,
    kube_rs_applies,
]);

fn deployment(replicas: u32, image: &str) -> String {
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [
                    {"name": "c", "image": image, "ports": [{"containerPort": 80}]},
                ]},
            },
        },
    });
    deployment.to_string()
}

async fn get(kubectl: &Kubectl, what: &[&str]) -> Value {
    let args = [&["get", "-o", "json", "--show-managed-fields"], what].concat();
    serde_json::from_str(&kubectl.run(&args).await).expect("JSON")
}

/// Returns `manager operation` of each entry.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array();
    let text = |entry: &Value, member: &str| entry[member].as_str().unwrap().to_owned();
    let entry = |entry: &Value| format!("{} {}", text(entry, "manager"), text(entry, "operation"));
    entries.into_iter().flatten().map(entry).collect()
}

const APPLY: [&str; 4] = ["apply", "--server-side", "-f", "-"];
const DIFF: [&str; 4] = ["diff", "--server-side", "-f", "-"];

async fn kubectl_applies_on_the_server(server: &Server) {
    let kubectl = Kubectl::new(&server.kubeconfig());
    let applied = "deployment.apps/web serverside-applied\n";
    assert_eq!(
        kubectl.run_with(&APPLY, &deployment(1, "i:1")).await,
        applied
    );
    let made = get(&kubectl, &["deployment", "web"]).await;
    assert_eq!(managers(&made), ["kubectl Apply"]);
    let port = r#"k:{"containerPort":80,"protocol":"TCP"}"#;
    let container = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:template"]["f:spec"]
        ["f:containers"]["k:{\"name\":\"c\"}"];
    assert!(container["f:ports"][port].is_object(), "{container}");

    // The same configuration again changes nothing, in an apply and in a diff.
    assert_eq!(
        kubectl.run_with(&APPLY, &deployment(1, "i:1")).await,
        applied
    );
    let again = get(&kubectl, &["deployment", "web"]).await;
    assert_eq!(again["metadata"], made["metadata"]);
    assert_eq!(kubectl.run_with(&DIFF, &deployment(1, "i:1")).await, "");
    kubectl.run_failing_with(&DIFF, &deployment(1, "i:2")).await;

    kubectl
        .run(&["scale", "deployment", "web", "--replicas=4"])
        .await;
    kubectl
        .run(&["set", "image", "deployment/web", "c=i:3"])
        .await;
    let refused = kubectl
        .run_failing_with(&APPLY, &deployment(2, "i:2"))
        .await;
    for received in [
        "Apply failed with 2 conflicts",
        "conflicts with \"kubectl\" with subresource \"scale\" using apps/v1:\n- .spec.replicas",
        "conflicts with \"kubectl-set\" using apps/v1:\n\
         - .spec.template.spec.containers[name=\"c\"].image",
    ] {
        assert!(refused.contains(received), "{refused}");
    }
    let force = [&APPLY[..], &["--force-conflicts"]].concat();
    assert_eq!(
        kubectl.run_with(&force, &deployment(2, "i:2")).await,
        applied
    );
    let now = get(&kubectl, &["deployment", "web"]).await;
    assert_eq!(managers(&now), ["kubectl Apply"]);
    assert_eq!(now["spec"]["replicas"], 2);
}

async fn kubectl_migrates_to_server_side_apply(server: &Server) {
    let kubectl = Kubectl::new(&server.kubeconfig());
    kubectl
        .run_with(&["apply", "-f", "-"], &deployment(1, "i:1"))
        .await;
    let made = get(&kubectl, &["deployment", "web"]).await;
    assert_eq!(managers(&made), ["kubectl-client-side-apply Update"]);
    // kubectl takes over the fields of its client-side apply.
    kubectl.run_with(&APPLY, &deployment(2, "i:2")).await;
    let now = get(&kubectl, &["deployment", "web"]).await;
    // kubectl moves the annotation to a separate manager.
    // Entries are in the order of their times, whole seconds: both of one second are in the order of their names.
    let expected = ["kubectl Apply", "kubectl-last-applied Apply"];
    let mut found = managers(&now);
    found.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(now["spec"]["replicas"], 2);
    let last = "kubectl.kubernetes.io/last-applied-configuration";
    let last = now["metadata"]["annotations"][last]
        .as_str()
        .expect("it is kept");
    let last: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(last["spec"]["replicas"], 2);
    // A field that the next apply omits is removed.
    let mut less: Value = serde_json::from_str(&deployment(2, "i:2")).unwrap();
    less["metadata"].as_object_mut().unwrap().remove("labels");
    kubectl.run_with(&APPLY, &less.to_string()).await;
    let now = get(&kubectl, &["deployment", "web"]).await;
    assert!(now["metadata"]["labels"].is_null(), "{now}");
    // After a client-side apply the annotation has the applied configuration.
    kubectl
        .run_with(&["apply", "-f", "-"], &deployment(3, "i:2"))
        .await;
    let now = get(&kubectl, &["deployment", "web"]).await;
    assert_eq!(now["spec"]["replicas"], 3);
}

async fn a_custom_resource_is_applied(server: &Server) {
    let kubectl = Kubectl::new(&server.kubeconfig());
    let list = json!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "size": {"type": "integer"},
        }},
    });
    let spec =
        json!({"type": "object", "properties": {"parts": list, "color": {"type": "string"}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    });
    kubectl.run_with(&APPLY, &definition.to_string()).await;
    let wait = [
        "wait",
        "--for=condition=Established",
        "crd/things.example.com",
    ];
    kubectl.run(&wait).await;
    let thing = |spec: Value| {
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec})
            .to_string()
    };
    let by = |name: &'static str| [&APPLY[..], &["--field-manager", name]].concat();
    let parts = json!([{"name": "a", "size": 1}]);
    kubectl
        .run_with(&by("one"), &thing(json!({"parts": parts, "color": "red"})))
        .await;
    let color = thing(json!({"color": "blue"}));
    let refused = kubectl.run_failing_with(&by("two"), &color).await;
    assert!(
        refused.contains("conflict with \"one\": .spec.color"),
        "{refused}"
    );
    let made = get(&kubectl, &["things", "t"]).await;
    assert_eq!(managers(&made), ["one Apply"]);
    let force = [&by("two")[..], &["--force-conflicts"]].concat();
    kubectl.run_with(&force, &color).await;
    let now = get(&kubectl, &["things", "t"]).await;
    assert_eq!(now["spec"], json!({"parts": parts, "color": "blue"}));
    // Null as the value of a label was an internal error.
    let labelled = r#"{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "labels": {"a": null}}}"#;
    let unchecked = [&by("three")[..], &["--validate=false"]].concat();
    kubectl.run_with(&unchecked, labelled).await;
    let now = get(&kubectl, &["things", "t"]).await;
    assert_eq!(now["metadata"]["labels"], json!({"a": ""}));
}

async fn kube_rs_applies(server: &Server) {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.expect("a configuration")).expect("a client");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    let data = map(json!({"a": "1", "b": "1"}));
    let made = maps
        .patch("m", &one, &Patch::Apply(&data))
        .await
        .expect("it is made");
    let version = made.metadata.resource_version.clone();
    let again = maps
        .patch("m", &one, &Patch::Apply(&data))
        .await
        .expect("it is there");
    assert_eq!(again.metadata.resource_version, version);
    let other = map(json!({"a": "2"}));
    let refused = maps
        .patch("m", &two, &Patch::Apply(&other))
        .await
        .expect_err("a conflict");
    let Error::Api(status) = refused else {
        panic!("{refused}");
    };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    let forced = maps
        .patch("m", &two.force(), &Patch::Apply(&other))
        .await
        .expect("it is forced");
    assert_eq!(forced.data.expect("data")["a"], "2");
    // Fields that the first manager releases are removed, except for those that the second one owns.
    let now = maps
        .patch("m", &one, &Patch::Apply(&map(json!({}))))
        .await
        .expect("it is less");
    let data: Vec<_> = now.data.expect("data").into_iter().collect();
    assert_eq!(data, [("a".to_owned(), "2".to_owned())]);
    let entries = now.metadata.managed_fields.expect("managers");
    let names: Vec<_> = entries
        .iter()
        .filter_map(|e| e.manager.as_deref())
        .collect();
    assert!(names.contains(&"two"), "{names:?}");
}

/// The managedFields entry nests deeper than the object itself; the stored object could not be read, changed or
/// deleted.
async fn an_object_of_maximum_depth_can_be_deleted(server: &Server) {
    let kubectl = Kubectl::new(&server.kubeconfig());
    let data = (0..126).fold(json!("x"), |inner, _| json!({"d": inner}));
    let mut revision = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "deep"},
        "revision": 1, "data": data,
    });
    kubectl
        .run_with(&["create", "-f", "-"], &revision.to_string())
        .await;
    revision.as_object_mut().unwrap().remove("data");
    revision["metadata"]["labels"] = json!({"a": "b"});
    let output = kubectl
        .run_failing_with(&APPLY, &revision.to_string())
        .await;
    assert!(output.contains("more than 127 levels deep"), "{output}");
    let output = kubectl.run(&["delete", "controllerrevision/deep"]).await;
    assert!(output.contains("deleted"), "{output}");
}
