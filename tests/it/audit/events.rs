//! Tests of which requests have events, what these contain, and that no secret is in them below the level Request.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{CONFIG_MAPS, SECRETS, logged, of_agent, start};
use crate::harness::{Kubectl, PATIENCE, Protocol};

#[tokio::test]
async fn every_write_has_one_event_with_both_users_and_no_object_at_metadata() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "omitStages: [RequestReceived]\nrules: [{level: Metadata}]";
    let server = start(directory.path(), rules, &[]).await;
    server.allow_everything("ann").await;
    let mut wire = server.admin(Protocol::Http2).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "hunter2"}});
    let secret = secret.to_string();
    let patch = r#"{"stringData":{"k":"hunter2-again"}}"#;
    let one = format!("{SECRETS}/s");
    for (method, path, content_type, body) in [
        (Method::POST, SECRETS, "application/json", secret.as_str()),
        (Method::GET, &one, "application/json", ""),
        (Method::PUT, &one, "application/json", &secret),
        (Method::PATCH, &one, "application/merge-patch+json", patch),
        (Method::DELETE, &one, "application/json", ""),
        (Method::DELETE, SECRETS, "application/json", ""),
    ] {
        let headers = [
            ("content-type", content_type),
            ("user-agent", "writer"),
            ("impersonate-user", "ann"),
            ("audit-id", "mine"),
        ];
        let response = wire.send(method.clone(), path, &headers, body).await;
        assert!(
            response.status.is_success(),
            "{method} {path}: {response:?}"
        );
        assert_eq!(response.headers["audit-id"], "mine");
    }
    let metrics = wire.get("/metrics").await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    let none_dropped = "apiserver_audit_error_total{plugin=\"buffered\"} 0";
    assert!(metrics.contains(none_dropped), "{metrics}");
    let events = logged(server, directory.path()).await;
    let ours = of_agent(&events, "writer");
    let verbs: Vec<&Value> = ours.iter().map(|event| &event["verb"]).collect();
    let expect = [
        "create",
        "get",
        "update",
        "patch",
        "delete",
        "deletecollection",
    ];
    assert_eq!(verbs, expect);
    for event in &ours {
        assert_eq!(event["stage"], "ResponseComplete", "{event}");
        assert_eq!(event["user"]["username"], "kubernetes-admin", "{event}");
        assert_eq!(event["impersonatedUser"]["username"], "ann", "{event}");
        assert_eq!(event["auditID"], "mine");
        assert_eq!(event["sourceIPs"], json!(["127.0.0.1"]));
        assert_eq!(event["objectRef"]["resource"], "secrets");
        assert_eq!(
            event["annotations"]["authorization.k8s.io/decision"],
            "allow"
        );
        assert!(event.get("requestObject").is_none() && event.get("responseObject").is_none());
    }
    assert_eq!(ours[0]["objectRef"]["name"], "s", "from the body");
    assert_eq!(ours[0]["responseStatus"]["code"], 201);
    let text = std::fs::read_to_string(directory.path().join("audit.log")).unwrap();
    assert!(
        !text.contains("hunter2") && !text.contains("aHVudGVyMg"),
        "{text}"
    );
}

#[tokio::test]
async fn a_write_of_kubectl_has_one_event() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "omitStages: [RequestReceived]\nrules: [{level: Metadata, verbs: [create]}]";
    let server = start(directory.path(), rules, &["--audit-log-mode=blocking"]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    kubectl.run(&["create", "configmap", "by-kubectl"]).await;
    let events = logged(server, directory.path()).await;
    let named = |event: &&Value| event["objectRef"]["name"] == "by-kubectl";
    assert_eq!(events.iter().filter(named).count(), 1, "{events:?}");
}

#[tokio::test]
async fn the_legacy_format_has_one_line_per_event_and_a_stop_writes_throttled_batches() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "omitStages: [RequestReceived]\nrules: [{level: Metadata, verbs: [create], \
                 resources: [{group: '', resources: [configmaps]}]}]";
    let flags = [
        "--audit-log-format=legacy",
        "--audit-log-batch-max-size=1",
        "--audit-log-batch-throttle-enable",
        "--audit-log-batch-throttle-qps=0.01",
        "--audit-log-batch-throttle-burst=1",
    ];
    let server = start(directory.path(), rules, &flags).await;
    let mut wire = server.admin(Protocol::Http1).await;
    for index in 0..5 {
        let map = json!({"metadata": {"name": format!("m{index}")}});
        assert_eq!(wire.post(CONFIG_MAPS, &map).await.status, 201);
    }
    let log = directory.path().join("audit.log");
    let written = std::fs::read_to_string(&log).unwrap();
    assert!(written.lines().count() < 5, "not throttled: {written}");
    server.stop().await;
    let text = std::fs::read_to_string(&log).unwrap();
    let ours: Vec<_> = text
        .lines()
        .filter(|line| line.contains("user=\"kubernetes-admin\""))
        .collect();
    assert_eq!(ours.len(), 5, "{text}");
    for line in ours {
        let (time, rest) = line.split_once(" AUDIT: id=").expect(line);
        time.parse::<jiff::Timestamp>().expect(line);
        assert!(rest.contains("stage=\"ResponseComplete\""), "{line}");
        assert!(rest.ends_with("response=\"201\""), "{line}");
    }
}

#[tokio::test]
async fn rejected_requests_have_one_event() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "omitStages: [RequestReceived]\nrules: [{level: Metadata}]";
    let server = start(directory.path(), rules, &[]).await;
    let mut stranger = server.stranger(Protocol::Http1).await;
    let headers = [
        ("user-agent", "stranger"),
        ("authorization", "Bearer hunter2"),
    ];
    let response = stranger.send(Method::GET, CONFIG_MAPS, &headers, "").await;
    assert_eq!(response.status, StatusCode::UNAUTHORIZED);
    let mut wire = server.admin(Protocol::Http1).await;
    let headers = [("user-agent", "eve-agent"), ("impersonate-user", "eve")];
    let response = wire.send(Method::GET, CONFIG_MAPS, &headers, "").await;
    assert_eq!(response.status, StatusCode::FORBIDDEN);
    let events = logged(server, directory.path()).await;
    let unauthorized = of_agent(&events, "stranger");
    assert_eq!(unauthorized.len(), 1, "{unauthorized:?}");
    assert_eq!(unauthorized[0]["responseStatus"]["code"], 401);
    assert_eq!(unauthorized[0]["stage"], "ResponseStarted");
    let forbidden = of_agent(&events, "eve-agent");
    assert_eq!(forbidden.len(), 1, "{forbidden:?}");
    assert_eq!(forbidden[0]["responseStatus"]["reason"], "Forbidden");
    assert_eq!(forbidden[0]["impersonatedUser"]["username"], "eve");
    assert_eq!(
        forbidden[0]["annotations"]["authorization.k8s.io/decision"],
        "forbid"
    );
    let text = std::fs::read_to_string(directory.path().join("audit.log")).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn levels_choose_the_objects_and_watches_have_two_stages() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "rules:\n\
         - {level: RequestResponse, verbs: [create], omitManagedFields: true}\n\
         - {level: Request, verbs: [update]}\n\
         - {level: Metadata, verbs: [watch], omitStages: [RequestReceived]}";
    let server = start(directory.path(), rules, &[]).await;
    let mut wire = server.admin(Protocol::Http2).await;
    let map = json!({"metadata": {"name": "m"}, "data": {"k": "v"}}).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("accept-encoding", "gzip"),
        ("user-agent", "objects"),
    ];
    let created = wire.send(Method::POST, CONFIG_MAPS, &headers, &map).await;
    assert_eq!(created.status, StatusCode::CREATED);
    let one = format!("{CONFIG_MAPS}/m");
    let updated = wire.send(Method::PUT, &one, &headers, &map).await;
    assert_eq!(updated.status, StatusCode::OK);
    let watch = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1");
    let watched = wire.send(Method::GET, &watch, &headers, "");
    let watched = timeout(PATIENCE + Duration::from_secs(1), watched).await;
    assert_eq!(watched.expect("the watch ends").status, StatusCode::OK);
    let events = logged(server, directory.path()).await;
    let ours = of_agent(&events, "objects");
    let stages: Vec<String> = ours
        .iter()
        .map(|event| format!("{} {}", event["verb"], event["stage"]).replace('"', ""))
        .collect();
    let expect = [
        "create RequestReceived",
        "create ResponseComplete",
        "update RequestReceived",
        "update ResponseComplete",
        "watch ResponseStarted",
        "watch ResponseComplete",
    ];
    assert_eq!(stages, expect);
    assert_eq!(ours[1]["requestObject"]["data"]["k"], "v");
    assert_eq!(ours[1]["responseObject"]["data"]["k"], "v");
    let metadata = &ours[1]["responseObject"]["metadata"];
    assert!(metadata["uid"].is_string() && metadata.get("managedFields").is_none());
    assert_eq!(ours[3]["requestObject"]["data"]["k"], "v");
    assert!(ours[3].get("responseObject").is_none(), "{}", ours[3]);
}

#[tokio::test]
async fn an_invalid_policy_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("policy.yaml");
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]\n";
    std::fs::write(&policy, text).unwrap();
    let output = crate::harness::command()
        .arg("--data-dir")
        .arg(directory.path().join("data"))
        .args(["--secure-port=0", "--storage=memory", "--audit-log-path=-"])
        .arg(format!("--audit-policy-file={}", policy.display()))
        .output();
    let output = timeout(PATIENCE, output).await.unwrap().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("rules[0].level: unsupported value \"All\""),
        "{error}"
    );
}
