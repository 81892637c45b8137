//! The requests of the console in the audit log.

use http::Method;
use serde_json::json;

use super::{logged, start};
use crate::harness::Protocol;

/// A login code is worth a session of the user, so it is not recorded, whatever the level.
#[tokio::test]
async fn login_codes_are_not_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), "rules: [{level: RequestResponse}]", &[]).await;
    let mut wire = server.admin(Protocol::Http1).await;
    let link = wire.post("/console/link", &json!({})).await;
    assert_eq!(link.status, 201, "{}", link.text());
    let code = link.json()["code"].as_str().unwrap().to_owned();
    let other = wire.send(Method::GET, "/version", &[], "").await;
    assert_eq!(other.status, 200);
    let events = logged(server, directory.path()).await;
    let mut of_link = events
        .iter()
        .filter(|event| event["requestURI"] == "/console/link");
    let event = of_link.next_back().expect("the request is recorded");
    assert_eq!(event["responseStatus"]["code"], 201);
    let text = serde_json::to_string(&events).unwrap();
    assert!(!text.contains(&code), "{event}");
    assert!(
        text.contains("responseObject"),
        "other responses are recorded"
    );
}
