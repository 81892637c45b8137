//! Tests of OpenAPI documents: kubectl's use of them with the real program on both back ends, and the documents
//! themselves over HTTP.

use http::Method;
use prost::Message as _;
use serde_json::{Value, json};

use crate::harness::{Kubectl, PATIENCE, Protocol, Response, Server, Wire, full, on_both, request};

on_both!(|server| (server) => [
    kubectl_explains,
    kubectl_applies_what_changed,
    kubectl_validates_strictly,
    documents_are_cached_until_they_change,
    custom_resources_are_described_and_checked,
]);

fn deployment(containers: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": containers},
            },
        },
    })
}

async fn kubectl_explains(server: &Server) {
    let kubectl = Kubectl::new(&server.kubeconfig());
    let received = kubectl
        .run(&["explain", "pod.spec.containers", "--recursive"])
        .await;
    for line in [
        "FIELD: containers <[]Container>",
        "List of containers belonging to the pod.",
        "  name\t<string> -required-",
        "  ports\t<[]ContainerPort>",
        "    containerPort\t<integer> -required-",
        "    protocol\t<string>",
        "  resources\t<ResourceRequirements>",
        "    limits\t<map[string]Quantity>",
    ] {
        assert!(received.contains(line), "{line:?} is not in {received}");
    }
    let received = kubectl
        .run(&["explain", "deploy.spec.strategy.rollingUpdate.maxSurge"])
        .await;
    assert!(
        received.contains("FIELD: maxSurge <IntOrString>"),
        "{received}"
    );
    let received = kubectl
        .run(&["explain", "deploy", "--output=plaintext-openapiv2"])
        .await;
    assert!(
        received.contains("KIND:     Deployment\nVERSION:  apps/v1"),
        "{received}"
    );
    assert!(received.contains("   spec\t<Object>"), "{received}");
    let received = kubectl
        .run(&[
            "explain",
            "svc.spec.ports.port",
            "--output=plaintext-openapiv2",
        ])
        .await;
    assert!(received.contains("FIELD:    port <integer>"), "{received}");
    let received = kubectl.run_failing(&["explain", "pod.spec.nothing"]).await;
    assert!(
        received.contains("field \"nothing\" does not exist"),
        "{received}"
    );
    let received = kubectl.run(&["api-resources", "--no-headers"]).await;
    let pods = received.lines().find(|line| line.starts_with("pods "));
    let words: Vec<&str> = pods.unwrap_or_default().split_whitespace().collect();
    assert_eq!(words, ["pods", "po", "v1", "true", "Pod"]);
}

async fn kubectl_applies_what_changed(server: &Server) {
    let kubectl = Kubectl::new(&server.kubeconfig());
    let apply = async |object: &Value| {
        kubectl
            .run_with(&["apply", "-f", "-"], &object.to_string())
            .await
    };
    let container = |name: &str, image: &str| json!({"name": name, "image": image, "ports": [{"containerPort": 80}]});
    let first = deployment(json!([container("a", "one"), container("b", "one")]));
    assert_eq!(apply(&first).await, "deployment.apps/web created\n");
    assert_eq!(apply(&first).await, "deployment.apps/web unchanged\n");
    // Another client adds a container, which becomes the first one; the next apply changes one of its own containers
    // and removes one.
    let added = json!({"spec": {"template": {"spec": {"containers": [container("c", "two")]}}}});
    let patch = ["patch", "deploy", "web", "--patch", &added.to_string()];
    kubectl.run(&patch).await;
    let second = deployment(json!([container("a", "two")]));
    let diff = kubectl
        .run_failing_with(&["diff", "-f", "-"], &second.to_string())
        .await;
    assert!(!diff.contains("error"), "{diff}");
    assert_eq!(apply(&second).await, "deployment.apps/web configured\n");
    let images = "jsonpath={range .spec.template.spec.containers[*]}{.name}={.image} {end}";
    let images = kubectl.run(&["get", "deploy", "web", "-o", images]).await;
    assert_eq!(images, "c=two a=two ");
    assert_eq!(
        kubectl
            .run_with(&["diff", "-f", "-"], &second.to_string())
            .await,
        "",
        "there is no difference left"
    );
}

async fn kubectl_validates_strictly(server: &Server) {
    let kubectl = Kubectl::new(&server.kubeconfig());
    let mut object = deployment(json!([{"name": "a", "image": "i", "imagePulPolicy": "x"}]));
    object["spec"]["replica"] = 3.into();
    let text = object.to_string();
    let output = kubectl
        .run_failing_with(&["create", "-f", "-"], &text)
        .await;
    assert!(
        output.contains(
            "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: \
             unknown field \"spec.replica\", unknown field \
             \"spec.template.spec.containers[0].imagePulPolicy\""
        ),
        "{output}"
    );
    let create = ["create", "--validate=ignore", "-f", "-"];
    let output = kubectl.run_with(&create, &text).await;
    assert_eq!(output, "deployment.apps/web created\n");
}

/// Sends a GET with these headers.
async fn get(wire: &mut Wire, path: &str, headers: &[(&str, &str)]) -> Response {
    let answer = wire.send(Method::GET, path, headers, "");
    tokio::time::timeout(PATIENCE, answer)
        .await
        .expect("it answers")
}

async fn documents_are_cached_until_they_change(server: &Server) {
    let mut wire = server.plain(Protocol::Http1).await;
    let index: Value =
        serde_json::from_slice(&get(&mut wire, "/openapi/v3", &[]).await.body).unwrap();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    let answer = get(&mut wire, url, &[]).await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.headers["cache-control"]
            .to_str()
            .unwrap()
            .contains("immutable")
    );
    let etag = answer.headers["etag"].to_str().unwrap().to_owned();
    assert!(
        url.ends_with(&format!("?hash={}", etag.trim_matches('"'))),
        "{url} {etag}"
    );
    let document: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(document["openapi"], "3.0.0");
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert!(schemas.contains_key("io.k8s.api.apps.v1.Deployment"));
    assert!(!schemas.contains_key("io.k8s.api.core.v1.Node"));
    let known = [("if-none-match", etag.as_str())];
    let answer = get(&mut wire, "/openapi/v3/apis/apps/v1", &known).await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (304, 0));
    let answer = get(&mut wire, "/openapi/v3/apis/apps/v1?hash=OLD", &[]).await;
    assert_eq!(answer.status, 301);
    assert_eq!(answer.headers["location"].to_str().unwrap(), url);
    let packed = get(&mut wire, url, &[("accept-encoding", "gzip")]).await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert_eq!(
        get(&mut wire, "/openapi/v3/apis/apps/v9", &[]).await.status,
        404
    );
    let media = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
    let old = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
    for accept in [media, old] {
        let answer = get(&mut wire, url, &[("accept", accept)]).await;
        assert_eq!(answer.headers["content-type"], media);
        let read = V3::decode(&*answer.body).expect("a message");
        assert_eq!(read.openapi, "3.0.0");
        let paths = read.paths.expect("paths").named;
        let path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status";
        assert!(paths.iter().any(|named| named.name == path));
        let schemas = read.components.and_then(|all| all.schemas);
        let schemas = schemas.expect("schemas").named;
        let of = |name: &str| schemas.iter().find(|named| named.name == name);
        let deployment = of("io.k8s.api.apps.v1.Deployment").and_then(|d| d.value.clone());
        let schema = deployment
            .and_then(|either| either.schema)
            .expect("a schema");
        assert_eq!(schema.kind, "object");
        let names: Vec<&str> = schema.extensions.iter().map(|one| &*one.name).collect();
        assert!(
            names.contains(&"x-kubernetes-group-version-kind"),
            "{names:?}"
        );
    }
    let neither = [("accept", "application/xml")];
    assert_eq!(get(&mut wire, url, &neither).await.status, 406);

    let v2 = get(&mut wire, "/openapi/v2", &[]).await;
    let v2_etag = v2.headers["etag"].to_str().unwrap().to_owned();
    let document: Value = serde_json::from_slice(&v2.body).unwrap();
    assert_eq!(document["swagger"], "2.0");
    for definition in ["io.k8s.api.core.v1.Pod", "io.k8s.api.batch.v1.CronJob"] {
        assert!(
            document["definitions"][definition].is_object(),
            "{definition}"
        );
    }
    let path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status";
    assert!(document["paths"][path]["patch"].is_object());
    let answer = get(&mut wire, "/openapi/v2", &[("if-none-match", &v2_etag)]).await;
    assert_eq!(answer.status, 304);
    let old = [(
        "accept",
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    )];
    let answer = get(&mut wire, "/openapi/v2", &old).await;
    let media = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    assert_eq!(answer.headers["content-type"], media);
    assert_eq!(&answer.body[..5], b"\x0a\x032.0");
}

/// The tested part of gnostic's `openapi.v3.Document`.
#[derive(Clone, PartialEq, prost::Message)]
struct V3 {
    #[prost(string, tag = "1")]
    openapi: String,
    #[prost(message, optional, tag = "4")]
    paths: Option<Paths>,
    #[prost(message, optional, tag = "5")]
    components: Option<Components>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Paths {
    #[prost(message, repeated, tag = "1")]
    named: Vec<Extension>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Components {
    #[prost(message, optional, tag = "1")]
    schemas: Option<Schemas>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Schemas {
    #[prost(message, repeated, tag = "1")]
    named: Vec<Named>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Either>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Either {
    #[prost(message, optional, tag = "1")]
    schema: Option<Schema>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Schema {
    #[prost(string, tag = "25")]
    kind: String,
    #[prost(message, repeated, tag = "36")]
    extensions: Vec<Extension>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Extension {
    #[prost(string, tag = "1")]
    name: String,
}

fn tabs(size: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "tabs.stable.example.com"},
        "spec": {
            "group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": "tabs", "singular": "tab", "kind": "Tab", "listKind": "TabList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "description": "A tab is for the test.",
                    "properties": {"spec": {"type": "object", "properties": {
                        "size": {"type": "integer", "description": size},
                        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "port": {"x-kubernetes-int-or-string": true},
                        "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                            "x-kubernetes-preserve-unknown-fields": true},
                    }}},
                }},
            }],
        },
    })
}

async fn custom_resources_are_described_and_checked(server: &Server) {
    let kubectl = Kubectl::new(&server.kubeconfig());
    let apply = ["apply", "--server-side=false", "-f", "-"];
    kubectl
        .run_with(&apply, &tabs("How large it is.").to_string())
        .await;
    let wait = [
        "wait",
        "--for=condition=Established",
        "crd/tabs.stable.example.com",
    ];
    kubectl.run(&wait).await;
    let received = kubectl.run(&["explain", "tab.spec.size"]).await;
    assert!(received.contains("FIELD: size <integer>"), "{received}");
    assert!(received.contains("How large it is."), "{received}");
    let received = kubectl
        .run(&["explain", "tab.spec", "--output=plaintext-openapiv2"])
        .await;
    assert!(received.contains("How large it is."), "{received}");

    let mut wire = server.plain(Protocol::Http1).await;
    let path = "/openapi/v3/apis/stable.example.com/v1";
    let before = get(&mut wire, path, &[]).await.headers["etag"].clone();
    kubectl
        .run_with(&apply, &tabs("Its size.").to_string())
        .await;
    let changed = async {
        while get(&mut wire, path, &[]).await.headers["etag"] == before {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        get(&mut wire, path, &[]).await
    };
    let changed = tokio::time::timeout(PATIENCE, changed)
        .await
        .expect("a new document");
    let document: Value = serde_json::from_slice(&changed.body).unwrap();
    let tab = &document["components"]["schemas"]["com.example.stable.v1.Tab"];
    assert_eq!(
        tab["properties"]["spec"]["properties"]["size"]["description"],
        "Its size."
    );
    let spec = &tab["properties"]["spec"]["properties"];
    assert_eq!(spec["port"]["anyOf"][1]["type"], "string");
    let template = &spec["template"];
    assert_eq!(template["required"], json!(["kind", "apiVersion"]));
    let older = get(&mut wire, "/openapi/v2", &[]).await;
    let older: Value = serde_json::from_slice(&older.body).unwrap();
    let tab = &older["definitions"]["com.example.stable.v1.Tab"];
    let spec = &tab["properties"]["spec"]["properties"];
    let any = json!({"x-kubernetes-preserve-unknown-fields": true});
    assert_eq!(
        spec["any"], any,
        "older kubectl refuses all members otherwise"
    );
    assert!(older["paths"]["/api/v1/watch/pods"]["get"].is_object());

    let object = json!({
        "apiVersion": "stable.example.com/v1", "kind": "Tab", "metadata": {"name": "a"},
        "spec": {"size": 1, "sise": 2},
    });
    let received = kubectl
        .run_failing_with(&["create", "-f", "-"], &object.to_string())
        .await;
    assert!(
        received.contains("strict decoding error: unknown field \"spec.sise\""),
        "{received}"
    );
    let path = "/apis/stable.example.com/v1/namespaces/default/tabs";
    let answer = request(
        Method::POST,
        path,
        &[("content-type", "application/json")],
        full(&object.to_string()),
    );
    let response = wire.open(answer).await.unwrap();
    assert_eq!(response.status(), 201);
    let warning = response.headers()["warning"].to_str().unwrap();
    assert_eq!(warning, "299 - \"unknown field \\\"spec.sise\\\"\"");
    let stored = kubectl
        .run(&["get", "tab", "a", "-o", "jsonpath={.spec}"])
        .await;
    assert_eq!(stored, r#"{"size":1}"#);
}
