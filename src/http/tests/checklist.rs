//! Lines of the conformance checklist that are about requests and have no story of their own: each is
//! asked over HTTP and answered by a Status of the right code, reason and cause.

use super::*;

/// The reasons of a failure's causes, and their fields.
fn causes(answer: &Answer) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let status = answer.json();
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    causes
        .map(|cause| (text(&cause["reason"]), text(&cause["field"])))
        .collect()
}

/// WC-007, WC-092 to WC-098, WC-139, WC-166, WC-167
#[tokio::test]
async fn options_of_reads_are_refused_by_name() {
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
        let told = refused.failure(422, "Invalid");
        assert!(told.starts_with("ListOptions.meta.k8s.io "), "{told}");
        assert_eq!(
            causes(&refused),
            [(reason.to_owned(), field.to_owned())],
            "{query}"
        );
    }
    let page = server.get(&format!("{CONFIG_MAPS}?limit=1")).await;
    assert_eq!(page.code, 200);
    for (query, told) in [
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
        assert!(message.starts_with(told), "{query}: {message}");
    }
    server.stop().await;
}

/// WC-097, WC-101
#[tokio::test]
async fn a_continued_list_goes_on_at_its_own_version() {
    let server = Server::new().await;
    for name in ["a", "b", "c"] {
        server.put_config_map(name, "x").await;
    }
    let page = server.get(&format!("{CONFIG_MAPS}?limit=1")).await.json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let versioned = format!("{CONFIG_MAPS}?continue={token}&resourceVersion=5");
    let told = server.get(&versioned).await.failure(400, "BadRequest");
    assert_eq!(
        told,
        "specifying resource version is not allowed when using continue"
    );
    let any = format!("{CONFIG_MAPS}?continue={token}&resourceVersion=0&limit=1");
    let rest = server.get(&any).await.json();
    assert_eq!(
        rest["items"].as_array().unwrap().len(),
        2,
        "the limit is void"
    );
    server.stop().await;
}

/// WC-002, WC-009, WC-010, WC-030, WC-071
#[tokio::test]
async fn bodies_and_paths_must_agree() {
    let server = Server::new().await;
    let made = server.put_config_map("a.b", "x").await;
    let json_type = ["content-type: application/json"];
    let ask = async |line: &str, body: &Value| server.ask(line, &json_type, body.to_string()).await;
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
            .ask(
                &format!("PATCH {path}"),
                &merge,
                in_patch("name").to_string(),
            )
            .await,
        server
            .ask(
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

/// WC-014, WC-068, WC-069, WC-073
#[tokio::test]
async fn deletes_wait_and_have_conditions() {
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
        let refused = server.ask(&line, &json_type, body).await;
        refused.failure(409, "Conflict");
    }
    let pending = server.ask(&delete, &[], "").await;
    assert_eq!(pending.code, 200);
    let marked = pending.json()["metadata"]["deletionTimestamp"].clone();
    assert!(marked.is_string());
    let still = server.get(&format!("{CONFIG_MAPS}/a")).await.json();
    assert_eq!(still["metadata"]["deletionTimestamp"], marked);
    let again = server
        .ask(&format!("{delete}?orphanDependents=false"), &[], "")
        .await;
    assert_eq!(
        (again.code, &again.json()["metadata"]["deletionTimestamp"]),
        (202, &marked)
    );

    let version = still["metadata"]["resourceVersion"].as_str().unwrap();
    let merge = ["content-type: application/merge-patch+json"];
    let patch = r#"{"metadata":{"finalizers":null}}"#;
    let released = server
        .ask(&format!("PATCH {CONFIG_MAPS}/a"), &merge, patch)
        .await;
    assert_eq!(released.code, 200);
    server
        .get(&format!("{CONFIG_MAPS}/a"))
        .await
        .failure(404, "NotFound");
    let watch = format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}");
    let told = watched(&server, &watch, 1).await.remove(0);
    assert_eq!(told["type"], "DELETED");
    assert_eq!(told["object"]["metadata"]["uid"], made["metadata"]["uid"]);
    let at = |value: &Value| -> u64 {
        let version = value["metadata"]["resourceVersion"].as_str();
        version.unwrap().parse().unwrap()
    };
    assert!(
        at(&told["object"]) > at(&still),
        "at the version of the deletion"
    );
    server.stop().await;
}

/// WC-041: what changes nothing is no event; the next one shows that.
#[tokio::test]
async fn a_write_that_changes_nothing_is_silent() {
    let server = Server::new().await;
    let made = server.put_config_map("a", "x").await;
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let json_type = ["content-type: application/json"];
    let put = format!("PUT {CONFIG_MAPS}/a");
    let same = server.ask(&put, &json_type, made.to_string()).await.json();
    assert_eq!(same, made);
    server.put_config_map("marker", "x").await;
    let watch = format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}");
    let told = watched(&server, &watch, 1).await.remove(0);
    assert_eq!(told["object"]["metadata"]["name"], "marker");
    server.stop().await;
}
