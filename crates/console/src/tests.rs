//! Tests of the routes and of the table of files.

use std::collections::BTreeSet;

use axum::body::to_bytes;
use serde_json::{Value, json};
use tower_service::Service as _;

use super::*;
use crate::assets::ASSETS;
use watchet_api::UserInfo;
use watchet_auth::SessionIdentity;

async fn send(router: &mut Router, request: http::request::Builder, body: &str) -> Response {
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let sent: Result<Response, _> = router.call(request).await;
    sent.unwrap()
}

fn get(path: &str) -> http::request::Builder {
    Request::builder().uri(path)
}

fn post(path: &str) -> http::request::Builder {
    let json = "application/json";
    get(path).method("POST").header("Content-Type", json)
}

#[test]
fn table_has_all_files_of_the_directory() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
    let files = std::fs::read_dir(directory).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names = ASSETS.iter().map(|asset| asset.name.to_owned());
    assert_eq!(files.collect::<BTreeSet<_>>(), names.collect());
}

#[tokio::test]
async fn files_have_a_strict_policy_and_an_entity_tag() {
    let mut router = router(Arc::default());
    let page = send(&mut router, get("/console/"), "").await;
    assert_eq!(page.status(), 200);
    let header = |name: &str| page.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "text/html; charset=utf-8");
    assert!(
        header("content-security-policy").starts_with("default-src 'none'; script-src 'self';")
    );
    assert_eq!(header("x-content-type-options"), "nosniff");
    let known = get("/console/").header("If-None-Match", header("etag"));
    assert_eq!(send(&mut router, known, "").await.status(), 304);
    for (path, expected) in [
        ("/console", 308),
        ("/console/index.html", 200),
        ("/console/../Cargo.toml", 404),
        ("/console/absent.js", 404),
        ("/console/login", 405),
    ] {
        let response = send(&mut router, get(path), "").await;
        assert_eq!(response.status(), expected, "{path}");
    }
    let response = send(&mut router, post("/console/"), "").await;
    assert_eq!(response.status(), 405);
}

#[tokio::test]
async fn code_is_exchanged_for_a_session() {
    let sessions = Arc::new(ConsoleSessions::default());
    let identity = SessionIdentity {
        user: Arc::new(UserInfo::unsecured()),
        credential: None,
    };
    let now = jiff::Timestamp::now().as_second();
    let code = sessions.new_code(identity, now);
    let mut router = router(sessions);
    let body = json!({ "code": code }).to_string();
    let form = get("/console/login").method("POST");
    assert_eq!(send(&mut router, form, &body).await.status(), 415);
    let login = post("/console/login");
    assert_eq!(send(&mut router, login, "{").await.status(), 400);
    let response = send(&mut router, post("/console/login"), &body).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["cache-control"], "no-store");
    let session = to_bytes(response.into_body(), 9999).await.unwrap();
    let session: Value = serde_json::from_slice(&session).unwrap();
    assert_eq!(session["user"], "system:unsecured");
    assert!(session["token"].as_str().unwrap().len() > 64);
    let again = send(&mut router, post("/console/login"), &body).await;
    assert_eq!(again.status(), 401);
    let response = send(&mut router, post("/console/logout"), "").await;
    assert_eq!(response.status(), 204);
}

#[test]
fn paths_of_the_console_do_not_include_the_link() {
    for (path, expected) in [
        ("/console", true),
        ("/console/", true),
        ("/console/app.js", true),
        ("/console/link", false),
        ("/consoles", false),
        ("/api", false),
    ] {
        assert_eq!(is_console_path(path), expected, "{path}");
    }
}
