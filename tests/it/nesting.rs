//! Texts that nest 100,000 levels deep, for each parser of a client's text, sent to the real binary: each is refused with an
//! error, and the server goes on. A parser that recurses without a limit overflows the stack, which ends the process.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use http::Method;
use serde_json::{Value, json};

use crate::harness::{Protocol, Server, Wire};

const LEVELS: usize = 100_000;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const A: &str = "/api/v1/namespaces/default/configmaps/a";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

/// Returns `value` inside as many pairs of `open` and `close`.
fn nested(open: &str, value: &str, close: &str) -> String {
    nested_to(LEVELS, open, value, close)
}

fn nested_to(levels: usize, open: &str, value: &str, close: &str) -> String {
    open.repeat(levels) + value + &close.repeat(levels)
}

/// Returns the values that nest in JSON, each complete.
fn json_values() -> [String; 3] {
    [
        nested("[", "", "]"),
        nested(r#"{"a":"#, "1", "}"),
        nested(r#"[{"a":"#, "1", "}]"),
    ]
}

/// Returns a JSONSchemaProps of protobuf that contains itself as `not`, its field 28. All lengths have four bytes.
fn nested_not() -> Vec<u8> {
    const LEVEL_BYTES: usize = 6;
    let level = |level: usize| {
        let length = LEVEL_BYTES * (LEVELS - 1 - level);
        [0xe2, 0x01].into_iter().chain(four_bytes(length))
    };
    (0..LEVELS).flat_map(level).collect()
}

/// Returns a varint of four bytes.
fn four_bytes(number: usize) -> [u8; 4] {
    let seven = |n: usize| (number >> (7 * n) & 0x7f) as u8;
    [seven(0) | 0x80, seven(1) | 0x80, seven(2) | 0x80, seven(3)]
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2], &four_bytes(content.len())[..], content].concat()
}

fn protobuf(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let types = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &types), field(2, object)].concat()
}

/// A server with the config map `a`.
struct Target {
    server: Server,
    wire: Wire,
}

impl Target {
    async fn start() -> Self {
        let server = Server::start(&[]).await;
        let mut wire = server.plain(Protocol::Http1).await;
        let made = wire.post(MAPS, &json!({"metadata": {"name": "a"}})).await;
        assert_eq!(made.status, 201);
        Self { server, wire }
    }

    /// Sends a body and checks that the response is an error of the client, and that the server goes on.
    async fn refuses(&mut self, what: &str, method: Method, path: &str, kind: &str, body: &[u8]) {
        let response = self
            .send(what, method, path, &[("content-type", kind)], body)
            .await;
        assert!((400..500).contains(&response.0), "{what}: {response:?}");
    }

    async fn is_created(
        &mut self,
        what: &str,
        method: Method,
        path: &str,
        kind: &str,
        body: &str,
        is_expected: bool,
    ) {
        let response = self
            .send(
                what,
                method,
                path,
                &[("content-type", kind)],
                body.as_bytes(),
            )
            .await;
        assert_eq!(response.0 == 201, is_expected, "{what}: {response:?}");
    }

    async fn send(
        &mut self,
        what: &str,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> (u16, String) {
        // The server may close the connection after an error of the body.
        self.wire = self.server.plain(Protocol::Http1).await;
        let response = self
            .wire
            .send_bytes(method, path, headers, body.to_vec())
            .await;
        let text = String::from_utf8_lossy(&response.body);
        let text: String = text.chars().take(300).collect();
        println!("{what}: {} {text}", response.status);
        let mut other = self.server.plain(Protocol::Http1).await;
        assert_eq!(other.get("/healthz").await.status, 200, "{what}");
        (response.status.as_u16(), text)
    }
}

/// JSON and YAML: of an object in a known, an unknown and a free member; of each kind of patch; of options.
#[tokio::test]
async fn json_and_yaml_have_a_limit_of_levels() {
    let mut target = Target::start().await;
    for value in json_values() {
        for (path, member) in [(MAPS, "data"), (REVISIONS, "data")] {
            let object =
                format!(r#"{{"metadata":{{"name":"b"}},"revision":1,"{member}":{value}}}"#);
            for kind in [JSON, YAML] {
                let what = format!("{kind} {member}");
                target
                    .refuses(&what, Method::POST, path, kind, object.as_bytes())
                    .await;
            }
        }
        target
            .refuses("whole", Method::POST, MAPS, JSON, value.as_bytes())
            .await;
        target
            .refuses("whole", Method::POST, MAPS, YAML, value.as_bytes())
            .await;
        target
            .refuses("options", Method::DELETE, A, JSON, value.as_bytes())
            .await;
        let patch = format!(r#"{{"data":{value}}}"#);
        for kind in [MERGE_PATCH, STRATEGIC] {
            target
                .refuses(kind, Method::PATCH, A, kind, patch.as_bytes())
                .await;
        }
        let apply = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},"data":{value}}}"#
        );
        let path = format!("{A}?fieldManager=m");
        target
            .refuses(APPLY, Method::PATCH, &path, APPLY, apply.as_bytes())
            .await;
        let patch = format!(r#"[{{"op":"add","path":"/data","value":{value}}}]"#);
        target
            .refuses(JSON_PATCH, Method::PATCH, A, JSON_PATCH, patch.as_bytes())
            .await;
        let fields = format!(
            r#"{{"metadata":{{"name":"b","managedFields":[{{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{value}}}]}}}}"#
        );
        target
            .refuses("FieldsV1", Method::POST, MAPS, JSON, fields.as_bytes())
            .await;
    }
    let indented: String = (0..2000).map(|level| " ".repeat(level) + "a:\n").collect();
    target
        .refuses("block", Method::POST, MAPS, YAML, indented.as_bytes())
        .await;
    let dashes = "- ".repeat(LEVELS);
    target
        .refuses("dashes", Method::POST, MAPS, YAML, dashes.as_bytes())
        .await;
    // An alias repeats what it names: nine levels of nine aliases are 9^9 values.
    let mut laughs = String::from("a0: &a0 [x]\n");
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(",");
        laughs += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    target
        .refuses("aliases", Method::POST, MAPS, YAML, laughs.as_bytes())
        .await;
    target.server.stop().await;
}

/// JSON has the same limit under the media types of YAML, under which clients in Go send it to apply it. YAML has a lower
/// one: 127 levels of it overflowed the stack.
#[tokio::test]
async fn values_up_to_the_limit_are_accepted() {
    let mut target = Target::start().await;
    for (levels, is_accepted) in [(125, true), (126, false)] {
        let value = nested_to(levels, "[", "", "]");
        let types = r#""apiVersion":"apps/v1","kind":"ControllerRevision","revision":1"#;
        let body =
            format!(r#"{{{types},"metadata":{{"generateName":"b"}},"data":{{"a":{value}}}}}"#);
        for kind in [JSON, YAML] {
            let what = format!("{levels} levels, {kind}");
            target
                .is_created(&what, Method::POST, REVISIONS, kind, &body, is_accepted)
                .await;
        }
        let body = format!(
            r#"{{{types},"metadata":{{"name":"applied-{levels}"}},"data":{{"a":{value}}}}}"#
        );
        let path = format!("{REVISIONS}/applied-{levels}?fieldManager=m");
        target
            .is_created("apply", Method::PATCH, &path, APPLY, &body, is_accepted)
            .await;
    }
    for (levels, is_accepted) in [(62, true), (63, false)] {
        let types = "apiVersion: apps/v1\nkind: ControllerRevision\nrevision: 1\n";
        let values = [
            nested_to(levels, "[", "", "]"),
            format!("\n  {}1", "- ".repeat(levels)),
        ];
        for value in values {
            let body = format!("{types}metadata:\n  generateName: b\ndata:\n  a: {value}");
            let what = format!("{levels} levels");
            target
                .is_created(&what, Method::POST, REVISIONS, YAML, &body, is_accepted)
                .await;
        }
    }
    target.server.stop().await;
}

/// A patch whose every operation adds a level, so that no text nests, only the result.
#[tokio::test]
async fn patches_have_a_limit_of_levels_of_their_result() {
    let mut target = Target::start().await;
    let operations: Vec<Value> = (0..200)
        .map(|level| json!({"op": "add", "path": format!("/x{}", "/x".repeat(level)), "value": {}}))
        .collect();
    let patch = Value::from(operations).to_string();
    target
        .refuses("adds", Method::PATCH, A, JSON_PATCH, patch.as_bytes())
        .await;
    target.server.stop().await;
}

/// A definition of custom resources, whose schema contains itself in its member `not`; and bytes that contain JSON.
#[tokio::test]
async fn protobuf_has_a_limit_of_levels() {
    let mut target = Target::start().await;
    let schema = field(4, &field(1, &nested_not()));
    let version = [field(1, b"v1"), schema].concat();
    let spec = [field(1, b"example.com"), field(7, &version)].concat();
    let definition = [field(1, &field(1, b"foos.example.com")), field(2, &spec)].concat();
    let (group, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let body = protobuf(group, kind, &definition);
    target
        .refuses("not", Method::POST, DEFINITIONS, PROTOBUF, &body)
        .await;
    for value in json_values() {
        let raw = field(2, &field(1, value.as_bytes()));
        let body = [field(1, &field(1, b"b")), raw].concat();
        let body = protobuf("apps/v1", "ControllerRevision", &body);
        target
            .refuses("raw JSON", Method::POST, REVISIONS, PROTOBUF, &body)
            .await;
    }
    target.server.stop().await;
}

/// Texts inside an object: expressions, paths, patterns, schemas, certificates.
#[tokio::test]
async fn texts_inside_objects_have_a_limit_of_levels() {
    let mut target = Target::start().await;
    let expressions = [
        nested("(", "true", ")"),
        nested("[", "1", "]") + " == []",
        nested("!", "true", ""),
        nested("{'a':", "1", "}") + " == {}",
        nested("has(a.b) && ", "true", ""),
        nested("true ? true : ", "true", ""),
    ];
    for text in &expressions {
        let policy = json!({
            "metadata": {"name": "p"},
            "spec": {
                "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}]},
                "validations": [{"expression": text}],
            },
        });
        let body = policy.to_string();
        target
            .refuses("CEL", Method::POST, POLICIES, JSON, body.as_bytes())
            .await;
        let body = definition(
            json!({"type": "object", "x-kubernetes-validations": [{"rule": text}]}),
            json!([]),
        );
        target
            .refuses("rule", Method::POST, DEFINITIONS, JSON, body.as_bytes())
            .await;
    }
    for path in [nested("[?(@", "", ")]"), nested("[?(@.a", "==1", ")]")] {
        let column = json!([{"name": "c", "type": "string", "jsonPath": format!(".spec{path}")}]);
        let body = definition(json!({"type": "object"}), column);
        target
            .refuses("JSONPath", Method::POST, DEFINITIONS, JSON, body.as_bytes())
            .await;
    }
    for pattern in [
        nested("(", "a", ")"),
        nested("(?:", "a", ")*"),
        nested("[", "a", "]"),
    ] {
        let schema =
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}});
        let body = definition(schema, json!([]));
        target
            .refuses("pattern", Method::POST, DEFINITIONS, JSON, body.as_bytes())
            .await;
    }
    let schema = nested_to(
        1000,
        r#"{"type":"object","properties":{"a":"#,
        r#"{"type":"string"}"#,
        "}}",
    );
    let body = definition(json!("SCHEMA"), json!([])).replace("\"SCHEMA\"", &schema);
    target
        .refuses("schema", Method::POST, DEFINITIONS, JSON, body.as_bytes())
        .await;
    // Sequences of DER, each the content of the one before.
    let mut der = Vec::new();
    for level in 0..LEVELS {
        let length = 5 * (LEVELS - 1 - level);
        der.extend([
            0x30,
            0x83,
            (length >> 16) as u8,
            (length >> 8) as u8,
            length as u8,
        ]);
    }
    let pem = format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        BASE64_STANDARD.encode(der)
    );
    let request = json!({
        "metadata": {"name": "r"},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], "request": BASE64_STANDARD.encode(pem)},
    });
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    target
        .refuses(
            "DER",
            Method::POST,
            path,
            JSON,
            request.to_string().as_bytes(),
        )
        .await;
    target.server.stop().await;
}

/// Returns a definition with this schema of the member `spec` and these columns.
fn definition(spec: Value, columns: Value) -> String {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    })
    .to_string()
}

/// Texts in the path and in headers.
#[tokio::test]
async fn queries_and_headers_have_a_limit_of_levels() {
    // A path of a request is at most 64 KiB long.
    const HEAD_LEVELS: usize = 30_000;
    let mut target = Target::start().await;
    let parentheses = nested_to(HEAD_LEVELS, "(", "", ")");
    for query in [
        format!("labelSelector=a+in+{parentheses}"),
        format!("labelSelector={}a", "!".repeat(HEAD_LEVELS)),
        format!(
            "limit=1&continue={}",
            BASE64_URL_SAFE_NO_PAD.encode(nested_to(HEAD_LEVELS / 2, "[", "", "]"))
        ),
        format!(
            "limit=1&continue={}",
            BASE64_URL_SAFE_NO_PAD.encode(nested_to(HEAD_LEVELS / 8, r#"{"v":"#, "1", "}"))
        ),
    ] {
        let what: String = query.chars().take(30).collect();
        let (code, _) = target
            .send(&what, Method::GET, &format!("{MAPS}?{query}"), &[], b"")
            .await;
        assert!((400..500).contains(&code), "{what}: {code}");
    }
    let json = BASE64_URL_SAFE_NO_PAD.encode(nested_to(HEAD_LEVELS / 2, "[", "", "]"));
    let token = format!("Bearer {json}.{json}.{json}");
    let mut stranger = target.server.stranger(Protocol::Http1).await;
    let response = stranger
        .send(Method::GET, MAPS, &[("authorization", &token)], "")
        .await;
    assert_eq!(response.status, 401);
    target.server.stop().await;
}
