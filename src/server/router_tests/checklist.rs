//! HTTP tests of lines of the conformance checklist (docs/conformance.md) that need no setup of
//! their own.

use super::*;

/// Returns the reasons and fields of a failure's causes.
fn causes(received: &ReceivedResponse) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let status = received.json();
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    causes
        .map(|cause| (text(&cause["reason"]), text(&cause["field"])))
        .collect()
}

#[tokio::test]
async fn invalid_read_options_name_the_field() {
    let server = Server::new().await;
    const FORBIDDEN: &str = "FieldValueForbidden";
    const MATCH: &str = "resourceVersionMatch";
    for (query, reason, field) in [
        ("resourceVersionMatch=Exact", FORBIDDEN, MATCH),
        (
            "resourceVersionMatch=Exact&resourceVersion=5&continue=x",
            FORBIDDEN,
            MATCH,
        ),
        (
            "resourceVersionMatch=New&resourceVersion=5",
            "FieldValueNotSupported",
            MATCH,
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            FORBIDDEN,
            MATCH,
        ),
        ("sendInitialEvents=false", FORBIDDEN, "sendInitialEvents"),
        ("watch=1&sendInitialEvents=true", FORBIDDEN, MATCH),
        (
            "watch=1&resourceVersionMatch=NotOlderThan",
            FORBIDDEN,
            MATCH,
        ),
    ] {
        let refused = server.get(&format!("{CONFIG_MAPS}?{query}")).await;
        let actual = refused.failure(422, "Invalid");
        assert!(actual.starts_with("ListOptions.meta.k8s.io "), "{actual}");
        assert_eq!(
            causes(&refused),
            [(reason.to_owned(), field.to_owned())],
            "{query}"
        );
    }
    let page = server.get(&format!("{CONFIG_MAPS}?limit=1")).await;
    assert_eq!(page.code, 200);
    for (query, actual) in [
        ("resourceVersion=abc", "invalid resource version"),
        ("resourceVersion=-1", "invalid resource version"),
        ("watch=1&resourceVersion=abc", "invalid resource version"),
        (
            "continue=garbage",
            "invalid continue token: continue key is not valid",
        ),
    ] {
        let refused = server.get(&format!("{CONFIG_MAPS}?{query}")).await;
        let message = refused.failure(400, "BadRequest");
        assert!(message.starts_with(actual), "{query}: {message}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_continued_list_keeps_its_version() {
    let server = Server::new().await;
    for name in ["a", "b", "c"] {
        server.put_config_map(name, "x").await;
    }
    let page = server.get(&format!("{CONFIG_MAPS}?limit=1")).await.json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let versioned = format!("{CONFIG_MAPS}?continue={token}&resourceVersion=5");
    let actual = server.get(&versioned).await.failure(400, "BadRequest");
    assert_eq!(
        actual,
        "specifying resource version is not allowed when using continue"
    );
    let any = format!("{CONFIG_MAPS}?continue={token}&resourceVersion=0&limit=1");
    let rest = server.get(&any).await.json();
    assert_eq!(
        rest["items"].as_array().unwrap().len(),
        2,
        "the limit is ignored"
    );
    server.stop().await;
}

#[tokio::test]
async fn body_and_path_must_match() {
    let server = Server::new().await;
    let made = server.put_config_map("a.b", "x").await;
    let json_type = ["content-type: application/json"];
    let ask =
        async |line: &str, body: &Value| server.call(line, &json_type, body.to_string()).await;
    let path = format!("{CONFIG_MAPS}/a.b");
    let mut elsewhere = made.clone();
    elsewhere["metadata"]["namespace"] = json!("other");
    let mut renamed = made.clone();
    renamed["metadata"]["name"] = json!("b");
    let in_patch = |member: &str| json!({"metadata": {member: "other"}});
    let merge = ["content-type: application/merge-patch+json"];
    for refused in [
        server.post(CONFIG_MAPS, &elsewhere).await,
        ask(&format!("PUT {path}"), &elsewhere).await,
        ask(&format!("PUT {path}"), &renamed).await,
        server
            .call(
                &format!("PATCH {path}"),
                &merge,
                in_patch("name").to_string(),
            )
            .await,
        server
            .call(
                &format!("PATCH {path}"),
                &merge,
                in_patch("namespace").to_string(),
            )
            .await,
        server.get(&format!("{CONFIG_MAPS}/%2e%2e")).await,
    ] {
        refused.failure(400, "BadRequest");
    }
    let dry = server
        .post(
            &format!("{CONFIG_MAPS}?dryRun=All"),
            &config_map("a.b", "x"),
        )
        .await;
    dry.failure(409, "AlreadyExists");
    let mut stale = made.clone();
    stale["metadata"]["resourceVersion"] = json!("1");
    ask(&format!("PUT {path}"), &stale)
        .await
        .failure(409, "Conflict");
    server.stop().await;
}

#[tokio::test]
async fn deletes_have_finalizers_and_preconditions() {
    let server = Server::new().await;
    let mut body = config_map("a", "x");
    body["metadata"]["finalizers"] = json!(["x.y/z"]);
    let made = server.post(CONFIG_MAPS, &body).await.json();
    let delete = format!("DELETE {CONFIG_MAPS}/a");
    let json_type = ["content-type: application/json"];
    for (query, body) in [
        ("?preconditions.uid=other", json!(null)),
        ("?preconditions.resourceVersion=1", json!(null)),
        ("", json!({"preconditions": {"uid": "other"}})),
        ("", json!({"preconditions": {"resourceVersion": "1"}})),
    ] {
        let body = match body.is_null() {
            true => String::new(),
            false => body.to_string(),
        };
        let line = format!("{delete}{query}");
        let refused = server.call(&line, &json_type, body).await;
        refused.failure(409, "Conflict");
    }
    let pending = server.call(&delete, &[], "").await;
    assert_eq!(pending.code, 200);
    let marked = pending.json()["metadata"]["deletionTimestamp"].clone();
    assert!(marked.is_string());
    let still = server.get(&format!("{CONFIG_MAPS}/a")).await.json();
    assert_eq!(still["metadata"]["deletionTimestamp"], marked);
    let again = server
        .call(&format!("{delete}?orphanDependents=false"), &[], "")
        .await;
    assert_eq!(
        (again.code, &again.json()["metadata"]["deletionTimestamp"]),
        (202, &marked)
    );

    let version = still["metadata"]["resourceVersion"].as_str().unwrap();
    let merge = ["content-type: application/merge-patch+json"];
    let patch = r#"{"metadata":{"finalizers":null}}"#;
    let released = server
        .call(&format!("PATCH {CONFIG_MAPS}/a"), &merge, patch)
        .await;
    assert_eq!(released.code, 200);
    server
        .get(&format!("{CONFIG_MAPS}/a"))
        .await
        .failure(404, "NotFound");
    let watch = format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}");
    let actual = watched(&server, &watch, 1).await.remove(0);
    assert_eq!(actual["type"], "DELETED");
    assert_eq!(actual["object"]["metadata"]["uid"], made["metadata"]["uid"]);
    let at = |value: &Value| -> u64 {
        let version = value["metadata"]["resourceVersion"].as_str();
        version.unwrap().parse().unwrap()
    };
    assert!(
        at(&actual["object"]) > at(&still),
        "at the version of the deletion"
    );
    server.stop().await;
}

/// An update without changes causes no event; the next event proves it.
#[tokio::test]
async fn an_update_without_changes_causes_no_event() {
    let server = Server::new().await;
    let made = server.put_config_map("a", "x").await;
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let json_type = ["content-type: application/json"];
    let put = format!("PUT {CONFIG_MAPS}/a");
    let same = server.call(&put, &json_type, made.to_string()).await.json();
    assert_eq!(same, made);
    server.put_config_map("marker", "x").await;
    let watch = format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}");
    let actual = watched(&server, &watch, 1).await.remove(0);
    assert_eq!(actual["object"]["metadata"]["name"], "marker");
    server.stop().await;
}
