//! Tests of writes and of the limits on requests.

use super::*;

#[tokio::test]
async fn create_update_patch_delete() {
    let server = Server::new().await;
    let created = server.put_config_map("a", "one").await;
    let uri = format!("{CONFIG_MAPS}/a");
    let mut changed = created.clone();
    changed["data"]["text"] = "two".into();
    let json_type = "content-type: application/json";
    let put = format!("PUT {uri}");
    let received = server.call(&put, &[json_type], changed.to_string()).await;
    assert_eq!(
        (received.code, &received.json()["data"]["text"]),
        (200, &json!("two"))
    );
    let stale = server.call(&put, &[json_type], changed.to_string()).await;
    let message = stale.failure(409, "Conflict");
    assert!(
        message.starts_with("Operation cannot be fulfilled on configmaps \"a\":"),
        "{message}"
    );

    for (media, patch, expect) in [
        (
            "merge-patch+json",
            json!({"data": {"text": "three"}}),
            "three",
        ),
        (
            "strategic-merge-patch+json",
            json!({"data": {"text": "four"}}),
            "four",
        ),
        (
            "json-patch+json",
            json!([{"op": "replace", "path": "/data/text", "value": "five"}]),
            "five",
        ),
    ] {
        let media = format!("content-type: application/{media}");
        let received = server
            .call(&format!("PATCH {uri}"), &[&media], patch.to_string())
            .await;
        assert_eq!(
            (received.code, &received.json()["data"]["text"]),
            (200, &json!(expect))
        );
    }

    let deleted = server.call(&format!("DELETE {uri}"), &[], "").await;
    let status = deleted.json();
    assert_eq!((deleted.code, &status["status"]), (200, &json!("Success")));
    let uid = &created["metadata"]["uid"];
    let details = json!({"name": "a", "kind": "configmaps", "uid": uid});
    assert_eq!(status["details"], details);
    server.get(&uri).await.failure(404, "NotFound");
    server.stop().await;
}

#[tokio::test]
async fn invalid_writes_are_rejected() {
    let server = Server::new().await;
    let post = format!("POST {CONFIG_MAPS}");
    let json_type = "content-type: application/json";
    let received = server.call(&post, &[json_type], "{\"a\":\n1").await;
    let message = received.failure(400, "BadRequest");
    assert!(message.contains("line 2 column 1"), "{message}");
    let received = server
        .call(&post, &["content-type: text/plain"], "{}")
        .await;
    received.failure(415, "UnsupportedMediaType");
    let large = " ".repeat((3 << 20) + 1);
    let received = server.call(&post, &[json_type], large).await;
    received.failure(413, "RequestEntityTooLarge");
    let body = config_map("a", "x");
    let received = server
        .post(&format!("{CONFIG_MAPS}?dryRun=Some"), &body)
        .await;
    assert!(
        received
            .failure(422, "Invalid")
            .starts_with("CreateOptions.meta.k8s.io")
    );
    let not_acceptable = [json_type, "accept: text/html"];
    let received = server.call(&post, &not_acceptable, body.to_string()).await;
    received.failure(406, "NotAcceptable");
    let list = server.get(CONFIG_MAPS).await.json();
    assert_eq!(list["items"], json!([]), "nothing was written");

    server.put_config_map("a", "x").await;
    let again = server.post(CONFIG_MAPS, &body).await;
    again.failure(409, "AlreadyExists");
    let apply = ["content-type: application/apply-patch+yaml"];
    let received = server
        .call(&format!("PATCH {CONFIG_MAPS}/a"), &apply, "{}")
        .await;
    // An apply without a field manager.
    received.failure(422, "Invalid");
    let both = "?propagationPolicy=Orphan&orphanDependents=true";
    let received = server
        .call(&format!("DELETE {CONFIG_MAPS}/a{both}"), &[], "")
        .await;
    received.failure(422, "Invalid");
    server.stop().await;
}

#[tokio::test]
async fn yaml_request_table_response_and_dry_run() {
    let server = Server::new().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  text: hi\n";
    let headers = ["content-type: application/yaml", TABLE];
    let dry = server
        .call(&format!("POST {CONFIG_MAPS}?dryRun=All"), &headers, yaml)
        .await;
    assert_eq!((dry.code, &dry.json()["metadata"]), (201, &json!({})));
    server
        .get(&format!("{CONFIG_MAPS}/m"))
        .await
        .failure(404, "NotFound");
    let wet = server
        .call(&format!("POST {CONFIG_MAPS}"), &headers, yaml)
        .await
        .json();
    assert_eq!(wet["rows"][0]["cells"][0], "m");
    assert!(wet["metadata"]["resourceVersion"].is_string());
    server.stop().await;
}

#[tokio::test]
async fn a_collection_is_deleted_by_selection() {
    let server = Server::new().await;
    for name in ["a", "b"] {
        server.put_config_map(name, "x").await;
    }
    let line = format!("DELETE {CONFIG_MAPS}?labelSelector=app%3Da");
    let deleted = server.call(&line, &[], "").await.json();
    assert_eq!(deleted["kind"], "ConfigMapList");
    assert_eq!(deleted["items"].as_array().unwrap().len(), 1);
    let left = server.get(CONFIG_MAPS).await.json();
    assert_eq!(left["items"][0]["metadata"]["name"], "b");
    server.stop().await;
}

#[tokio::test]
async fn reads_in_flight_are_limited_until_the_body_is_sent() {
    let config = HttpConfig {
        reads_in_flight_max: 1,
        ..HttpConfig::default()
    };
    let server = Server::start(config).await;
    let held = server.send(request("GET /api/v1/pods", &[], "")).await;
    assert_eq!(held.status(), StatusCode::OK);
    let refused = server.get("/api/v1/pods").await;
    refused.failure(429, "TooManyRequests");
    assert_eq!(refused.headers["retry-after"], "1");
    for document in ["/api", "/apis/apps/v1", "/openapi/v2", "/version"] {
        let refused = server.get(document).await;
        refused.failure(429, "TooManyRequests");
    }
    // Watches, probes, scrapes and writes are not limited by the reads in flight.
    assert_eq!(server.get("/readyz").await.code, 200);
    let message = server.get("/metrics").await;
    assert_eq!(message.code, 200);
    let in_flight = "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1";
    assert!(String::from_utf8_lossy(&message.body).contains(in_flight));
    let watch = server.get("/api/v1/pods?watch=1&timeoutSeconds=1").await;
    assert_eq!(watch.code, 200);
    server.put_config_map("a", "x").await;
    drop(held);
    assert_eq!(server.get("/api/v1/pods").await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_request_times_out() {
    let server = Server::new().await;
    let never = Body::from_stream(futures_util::stream::pending::<Result<Bytes, axum::Error>>());
    let received = server
        .call(&format!("POST {CONFIG_MAPS}?timeout=50ms"), &[], never)
        .await;
    let message = received.failure(504, "Timeout");
    assert_eq!(
        message,
        "Timeout: the request was not completed within 50ms"
    );
    let received = server.get("/api/v1/pods?timeout=soon").await;
    received.failure(400, "BadRequest");
    server.stop().await;
}

/// The warning about a dropped owner reference is sent even if the write is rejected for another
/// reason.
#[tokio::test]
async fn a_dropped_owner_is_a_warning() {
    let server = Server::new().await;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1"});
    let mut body = config_map("a", "x");
    body["metadata"]["ownerReferences"] = json!([owner, owner]);
    let expect = "299 - \"metadata.ownerReferences contains duplicate entries, which are dropped; \
                  please fix your requests; duplicate UID(s) observed: [\\\"u1\\\"]\"";
    let created = server.post(CONFIG_MAPS, &body).await;
    assert_eq!(
        (created.code, &created.headers["warning"]),
        (201, &expect.parse().unwrap())
    );
    let owners = &created.json()["metadata"]["ownerReferences"];
    assert_eq!(owners.as_array().unwrap().len(), 1);
    let again = server.post(CONFIG_MAPS, &body).await;
    again.failure(409, "AlreadyExists");
    assert_eq!(again.headers["warning"], expect);
    let path = format!("PATCH {CONFIG_MAPS}/a");
    let headers = ["content-type: application/merge-patch+json"];
    let patch = json!({"metadata": {"ownerReferences": [owner, owner]}});
    let patched = server.call(&path, &headers, patch.to_string()).await;
    assert_eq!(
        (patched.code, &patched.headers["warning"]),
        (200, &expect.parse().unwrap())
    );
    let clean = server.put_config_map("b", "x").await;
    assert!(clean["metadata"]["ownerReferences"].is_null());
    assert!(
        !server
            .get(CONFIG_MAPS)
            .await
            .headers
            .contains_key("warning")
    );
    server.stop().await;
}

#[tokio::test]
async fn a_panic_is_a_status() {
    let config = HttpConfig {
        checks: vec![HealthCheck::new("bad", || async { panic!("on purpose") })],
        ..HttpConfig::default()
    };
    let server = Server::start(config).await;
    let message = server.get("/readyz").await.failure(500, "InternalError");
    assert!(
        !message.contains("on purpose"),
        "the detail is only logged: {message}"
    );
    assert_eq!(server.get("/livez").await.code, 200);
    server.stop().await;
}

/// Errors about a corrupt object, and its deletion with
/// `ignoreStoreReadErrorWithClusterBreakingPotential`.
#[tokio::test]
async fn a_corrupt_object_is_reported_and_can_be_deleted() {
    let server = Server::new().await;
    server.put_raw("/configmaps/default/bad", "garbage").await;
    let bad = format!("{CONFIG_MAPS}/bad");
    server.get(&bad).await.failure(500, "InternalError");
    let delete = format!("DELETE {bad}");
    let refused = server.call(&delete, &[], "").await;
    refused.failure(500, "InternalError");
    let listed = server.get("/api/v1/configmaps?limit=5").await;
    let message = listed.failure(500, "StorageReadError");
    assert_eq!(
        message,
        "failed to read one or more configmaps from the storage"
    );
    let details = &listed.json()["details"];
    assert_eq!(
        (&details["name"], &details["kind"]),
        (&json!("list"), &json!("configmaps"))
    );
    assert_eq!(details["causes"][0]["field"], "/configmaps/default/bad");

    let ignoring_errors = "?ignoreStoreReadErrorWithClusterBreakingPotential=true";
    let collection = format!("DELETE {CONFIG_MAPS}{ignoring_errors}");
    let refused = server.call(&collection, &[], "").await;
    refused.failure(422, "Invalid");
    let deleted = server
        .call(&format!("{delete}{ignoring_errors}"), &[], "")
        .await;
    let status = deleted.json();
    assert_eq!(
        (deleted.code, &status["status"]),
        (200, &json!("Success")),
        "{status}"
    );
    let details = json!({"name": "bad", "kind": "ConfigMap"});
    assert_eq!(status["details"], details);
    let listed = server.get("/api/v1/configmaps?limit=5").await;
    assert_eq!((listed.code, &listed.json()["items"]), (200, &json!([])));
    server.stop().await;
}
