//! Tests of requests that are too large, too deep or too numerous, with the real program on both back ends: each gets a
//! `Status` that names the problem, and the server stays available. Also tests the media types of error responses. Unit
//! tests count the work of a rejection.

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{Protocol, Server, Wire, on_both, request};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";

on_both!(|server| (server) => [
    bodies, patches, oversized_queries, refusals_in_each_media_type, managed_fields_are_dropped_if_the_object_is_too_large,
    invalid_names_in_paths, extreme_quantities, definitions_with_large_messages_and_defaults
]);

fn map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"text": text}})
}

async fn wire(server: &Server) -> Wire {
    server.plain(Protocol::Http1).await
}

/// Sends a request over a new connection, which the server may close; returns the code and the message.
async fn send(
    server: &Server,
    method: Method,
    path: &str,
    content_type: &str,
    body: &str,
) -> (u16, String) {
    let headers = [("content-type", content_type)];
    let answer = wire(server).await.send(method, path, &headers, body).await;
    let status = answer.json();
    if answer.status.is_success() {
        return (answer.status.as_u16(), String::new());
    }
    assert_eq!(status["kind"], "Status", "{status}");
    assert_eq!(status["code"], answer.status.as_u16(), "{status}");
    let message = status["message"].as_str().unwrap_or_default();
    (answer.status.as_u16(), message.to_owned())
}

async fn post(server: &Server, content_type: &str, body: &str) -> (u16, String) {
    send(server, Method::POST, MAPS, content_type, body).await
}

async fn bodies(server: &Server) {
    let large = map("large", &"x".repeat(3 << 20)).to_string();
    let (code, message) = post(server, JSON, &large).await;
    assert_eq!(
        (code, &*message),
        (413, "Request entity too large: limit is 3145728")
    );
    // The same in chunks, without a Content-Length.
    let chunks: Vec<Result<_, std::io::Error>> = large
        .as_bytes()
        .chunks(64 << 10)
        .map(|chunk| Ok(Frame::data(Bytes::copy_from_slice(chunk))))
        .collect();
    let body = StreamBody::new(futures::stream::iter(chunks)).boxed();
    let chunked = request(Method::POST, MAPS, &[("content-type", JSON)], body);
    let answer = wire(server).await.open(chunked).await.expect("an answer");
    assert_eq!(answer.status(), 413);
    // A body that is within the limit of requests but too large for a config map or for the store.
    let large = "x".repeat(2 << 20);
    let (code, message) = post(server, JSON, &map("much", &large).to_string()).await;
    assert_eq!(code, 422);
    assert!(
        message.contains("Too long: may not be more than 1048576"),
        "{message}"
    );
    let revision = json!({"metadata": {"name": "r"}, "revision": 1, "data": {"text": large}});
    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let (code, message) = send(server, Method::POST, revisions, JSON, &revision.to_string()).await;
    assert_eq!(code, 413, "{message}");
    assert!(message.contains("too large"), "{message}");
    // As upstream, the server does not decompress bodies.
    let gzip = [("content-type", JSON), ("content-encoding", "gzip")];
    let answer = wire(server)
        .await
        .send(Method::POST, MAPS, &gzip, "\u{1f}x")
        .await;
    assert_eq!(answer.status, 400);

    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for depth in [1_000, 1_000_000] {
        let body = map("deep", "x").to_string().replace("\"x\"", &deep(depth));
        for content_type in [JSON, "application/yaml"] {
            let (code, message) = post(server, content_type, &body).await;
            assert_eq!(code, 400, "{content_type} {depth}: {message}");
        }
    }
    let laughs = (1..12).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, level| {
        let before = format!("*a{},", level - 1).repeat(9);
        format!("{text}a{level}: &a{level} [{before}]\n")
    });
    let (code, message) = post(server, "application/yaml", &laughs).await;
    assert_eq!(code, 400, "{message}");
    let garbage = "k8s\0\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}";
    let (code, message) = post(server, "application/vnd.kubernetes.protobuf", garbage).await;
    assert_eq!(code, 400, "{message}");

    let mut annotated = map("annotated", "x");
    annotated["metadata"]["annotations"] = json!({"a": "x".repeat(300 << 10)});
    let (code, message) = post(server, JSON, &annotated.to_string()).await;
    assert_eq!(code, 422, "{message}");
    let (code, message) = post(server, JSON, &map(&"n".repeat(1 << 20), "x").to_string()).await;
    assert_eq!(code, 422, "{message}");
    assert_eq!(
        post(server, JSON, &map("good", "x").to_string()).await.0,
        201
    );
}

async fn patches(server: &Server) {
    assert_eq!(post(server, JSON, &map("a", "x").to_string()).await.0, 201);
    let path = format!("{MAPS}/a");
    let json_patch = "application/json-patch+json";
    let patch = async |content_type: &str, body: &Value| {
        send(
            server,
            Method::PATCH,
            &path,
            content_type,
            &body.to_string(),
        )
        .await
    };
    let operation = json!({"op": "test", "path": "/data/text", "value": "x"});
    let (code, message) = patch(json_patch, &vec![operation.clone(); 10_001].into()).await;
    assert!(code == 413 && message.contains("10000"), "{code} {message}");
    assert_eq!(
        patch(json_patch, &vec![operation; 10_000].into()).await.0,
        200
    );
    let double = |n: usize| json!({"op": "copy", "from": "", "path": format!("/data/{n}")});
    let bomb: Value = (0..64).map(double).collect();
    let (code, message) = patch(json_patch, &bomb).await;
    assert!(matches!(code, 400 | 413), "{code} {message}");
    let deep = (0..120).fold(json!("x"), |inner, _| json!({"d": inner}));
    for content_type in [
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ] {
        let (code, message) = patch(content_type, &json!({"data": deep})).await;
        assert!(
            matches!(code, 400 | 422),
            "{content_type}: {code} {message}"
        );
    }
    let large = json!({"data": {"text": "x".repeat(2 << 20)}});
    let (code, message) = patch("application/merge-patch+json", &large).await;
    assert_eq!(code, 422);
    assert!(
        message.contains("Too long: may not be more than 1048576"),
        "{message}"
    );
    let answer = wire(server).await.get(&path).await;
    assert_eq!(
        answer.json()["data"],
        json!({"text": "x"}),
        "none of it was stored"
    );
}

async fn oversized_queries(server: &Server) {
    let ask =
        async |query: &str| send(server, Method::GET, &format!("{MAPS}?{query}"), JSON, "").await;
    // Many requirements and many values that no object matches.
    let keys: Vec<String> = (0..2_000).map(|n| format!("k{n}%3Dv")).collect();
    assert_eq!(
        ask(&format!("labelSelector={}", keys.join(","))).await.0,
        200
    );
    let values: Vec<String> = (0..5_000).map(|n| format!("v{n}")).collect();
    let many = format!("labelSelector=k%20in%20({})", values.join(","));
    assert_eq!(ask(&many).await.0, 200);
    let (code, message) = ask(&format!("labelSelector={}", "(".repeat(10_000))).await;
    assert_eq!(code, 400, "{message}");
    let (code, message) = ask(&format!("fieldSelector={}", "a=b,".repeat(3_000))).await;
    assert_eq!(code, 400, "{message}");
    let (code, _) = ask(&"dryRun=All&".repeat(3_000)).await;
    assert_eq!(code, 200);
    let (code, message) = ask(&format!("continue={}", "A".repeat(20_000))).await;
    assert_eq!(code, 400, "{message}");
    // The size of the request line and of the headers is limited.
    let mut stream = TcpStream::connect(server.insecure()).await.unwrap();
    let endless = "a".repeat(1 << 20);
    let request = format!("GET {MAPS}?labelSelector={endless} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    // The server closes the connection before it has read everything.
    let written = stream.write_all(request.as_bytes()).await;
    let mut answer = [0; 12];
    let read = stream.read_exact(&mut answer).await;
    assert!(
        answer == *b"HTTP/1.1 414"
            || answer == *b"HTTP/1.1 431"
            || written.and(read.map(drop)).is_err(),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    assert_eq!(ask("").await.0, 200);
}

async fn refusals_in_each_media_type(server: &Server) {
    let missing = format!("{MAPS}/missing");
    let refusal = async |accept: &str| {
        let headers = [("accept", accept)];
        let answer = wire(server)
            .await
            .send(Method::GET, &missing, &headers, "")
            .await;
        assert_eq!(answer.status, 404);
        (
            answer.headers["content-type"].to_str().unwrap().to_owned(),
            answer.body,
        )
    };
    let words = b"configmaps \"missing\" not found";
    let has = |body: &Bytes| body.windows(words.len()).any(|part| part == words);
    let (content_type, body) = refusal("application/vnd.kubernetes.protobuf,*/*").await;
    assert_eq!(content_type, "application/vnd.kubernetes.protobuf");
    assert!(body.starts_with(b"k8s\0") && has(&body), "{body:?}");
    let (content_type, body) = refusal("application/yaml").await;
    assert_eq!(content_type, "application/yaml");
    assert!(
        body.starts_with(b"kind: Status\n") || has_line(&body, "kind: Status"),
        "{body:?}"
    );
    for other in ["application/json;as=Table;v=v1;g=meta.k8s.io", "*/*"] {
        let (content_type, body) = refusal(other).await;
        assert_eq!(content_type, "application/json");
        let status: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status["reason"], "NotFound");
    }
    // The same for the Status of a deletion.
    assert_eq!(
        post(server, JSON, &map("gone", "x").to_string()).await.0,
        201
    );
    let path = format!("{MAPS}/gone");
    let headers = [("accept", "application/vnd.kubernetes.protobuf")];
    let answer = wire(server)
        .await
        .send(Method::DELETE, &path, &headers, "")
        .await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.starts_with(b"k8s\0"), "{:?}", answer.body);
}

fn has_line(body: &Bytes, line: &str) -> bool {
    String::from_utf8_lossy(body)
        .lines()
        .any(|found| found == line)
}

/// With its managed fields the object is larger than storage accepts.
async fn managed_fields_are_dropped_if_the_object_is_too_large(server: &Server) {
    let keys = |count: usize| -> Value {
        let keys = (0..count).map(|n| (format!("key-{n:06}"), Value::from("")));
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "wide"},
            "data": keys.collect::<serde_json::Map<_, _>>()})
    };
    let mut wire = wire(server).await;
    let made = wire.post(MAPS, &keys(10)).await.json();
    assert!(made["metadata"]["managedFields"].is_array(), "{made}");
    let path = format!("{MAPS}/wide");
    let headers = [("content-type", JSON)];
    let body = keys(60_000).to_string();
    let grown = wire.send(Method::PUT, &path, &headers, &body).await.json();
    assert_eq!(
        grown["data"].as_object().map(serde_json::Map::len),
        Some(60_000)
    );
    assert!(grown["metadata"]["managedFields"].is_null());
    wire.send(Method::DELETE, &path, &[], "").await;
    let made = wire.post(MAPS, &keys(60_000)).await;
    assert_eq!(made.status, 201);
    assert!(made.json()["metadata"]["managedFields"].is_null());
}

/// A name or namespace that cannot be part of a key is rejected before any look-up, for every verb.
async fn invalid_names_in_paths(server: &Server) {
    let body = map("a", "x").to_string();
    for (part, problem) in [
        ("..", "may not be '..'"),
        (".", "may not be '.'"),
        ("%2e%2E", "may not be '..'"),
        ("a%25b", "may not contain '%'"),
    ] {
        let maps = format!("/api/v1/namespaces/{part}/configmaps");
        let one = format!("{maps}/a");
        let watched = format!("{maps}?watch=1");
        let old_watched = format!("/api/v1/watch/namespaces/{part}/configmaps");
        let named = format!("{MAPS}/{part}");
        for (method, path) in [
            (Method::GET, &maps),
            (Method::GET, &watched),
            (Method::GET, &old_watched),
            (Method::POST, &maps),
            (Method::DELETE, &maps),
            (Method::GET, &one),
            (Method::PUT, &one),
            (Method::DELETE, &one),
            (Method::GET, &named),
            (Method::PUT, &named),
            (Method::DELETE, &named),
        ] {
            let (code, message) = send(server, method.clone(), path, JSON, &body).await;
            assert!(
                code == 400 && message.ends_with(problem),
                "{method} {path}: {code} {message}"
            );
        }
        let apply = "application/apply-patch+yaml";
        let path = format!("{named}?fieldManager=a");
        let (code, message) = send(server, Method::PATCH, &path, apply, &body).await;
        assert!(
            code == 400 && message.ends_with(problem),
            "{path}: {message}"
        );
    }
    // Escaped slashes separate segments like others. These are valid keys without an object.
    for path in [
        "/api/v1/namespaces/a%2Fb/configmaps",
        "/api/v1/namespaces//configmaps",
        "/api/v1/namespaces/default/configmaps/a%2Fb",
        "/api/v1/namespaces/UPPER/configmaps/a",
        "/api/v1/namespaces/a%20b/configmaps/a",
    ] {
        let (code, message) = send(server, Method::GET, path, JSON, "").await;
        assert_eq!(code, 404, "{path}: {message}");
    }
    for namespace in ["UPPER", "a%20b", "%00"] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let (code, message) = send(server, Method::POST, &path, JSON, &body).await;
        assert_eq!(code, 404, "{path}: {message}");
    }
}

/// Amounts larger than any integer are stored exactly; fractions below a billionth are rounded up.
async fn extreme_quantities(server: &Server) {
    let mut wire = wire(server).await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let long = "9".repeat(100_000);
    let hard = [
        (
            "requests.cpu",
            "123456789012345678901",
            "123456789012345678901",
        ),
        ("limits.cpu", "1e2000000000", "100e1999999998"),
        ("requests.memory", "99999999999Gi", "9223372036854775807"),
        ("limits.memory", "1000E", "1e21"),
        ("limits.ephemeral-storage", "0.1234567891", "123456790n"),
        ("requests.storage", &long, &long),
    ];
    let given: serde_json::Map<_, _> = hard
        .iter()
        .map(|(name, sent, _)| ((*name).to_owned(), Value::from(*sent)))
        .collect();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": given}});
    let path = format!("{quotas}?dryRun=All");
    let answer = wire.post(&path, &quota).await.json();
    assert_eq!(answer["kind"], "ResourceQuota", "{answer}");
    for (name, _, canonical) in hard {
        assert_eq!(answer["spec"]["hard"][name], canonical, "{name}");
    }
}

/// A definition and a small object whose messages and defaults would take all of the memory.
async fn definitions_with_large_messages_and_defaults(server: &Server) {
    let mut wire = wire(server).await;
    let item = json!({"type": "object", "properties": {
        "a": {"type": "string", "default": "x".repeat(1_000)}}});
    let rule = json!({"rule": "self == 'y'",
        "messageExpression": "'a'.replace('', self).replace('', self).replace('', self)"});
    let spec = json!({"type": "object", "properties": {
        "text": {"type": "string", "x-kubernetes-validations": [rule]},
        "items": {"type": "object", "additionalProperties": item},
    }});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let definition = json!({"metadata": {"name": "muches.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "muches", "singular": "much", "kind": "Much", "listKind": "MuchList"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(wire.post(definitions, &definition).await.status, 201);
    let path = "/apis/example.com/v1/namespaces/default/muches";
    let begun = tokio::time::Instant::now();
    while wire.get(path).await.status != 200 {
        assert!(
            begun.elapsed() < crate::harness::PATIENCE,
            "it is never served"
        );
    }
    let much = |spec: Value| {
        json!({"apiVersion": "example.com/v1", "kind": "Much", "metadata": {"name": "m"},
            "spec": spec})
        .to_string()
    };
    let text = much(json!({"text": "x".repeat(3_000)}));
    let (code, message) = send(server, Method::POST, path, JSON, &text).await;
    assert!(
        code == 422 && message.contains("failed rule"),
        "{code} {message}"
    );
    let items: serde_json::Map<_, _> = (0..100_000).map(|n| (n.to_string(), json!({}))).collect();
    let items = much(json!({ "items": items }));
    let (code, message) = send(server, Method::POST, path, JSON, &items).await;
    assert!(
        code == 413 && message.contains("defaults"),
        "{code} {message}"
    );
    let (code, message) = send(
        server,
        Method::POST,
        path,
        JSON,
        &much(json!({"text": "y"})),
    )
    .await;
    assert_eq!(code, 201, "{message}");
}
