//! Tests of gets, lists, documents, and requests that are rejected before a read.

use std::io::Read as _;

use super::*;

#[tokio::test]
async fn every_response_has_its_headers() {
    let server = Server::new().await;
    let received = server.get("/api/v1/namespaces/default").await;
    assert_eq!(received.code, 200);
    assert_eq!(received.headers["cache-control"], "no-cache, private");
    assert_eq!(received.headers["content-type"], "application/json");
    assert_eq!(received.headers["audit-id"].len(), 36);
    let received = server
        .call("GET /api/v1/pods", &["audit-id: mine"], "")
        .await;
    assert_eq!(received.headers["audit-id"], "mine");
    let head = server
        .call("HEAD /api/v1/namespaces/default", &[], "")
        .await;
    assert_eq!((head.code, head.body.len()), (200, 0));
    server.stop().await;
}

#[tokio::test]
async fn unknown_paths_and_objects_get_a_status() {
    let server = Server::new().await;
    let not_found = "the server could not find the requested resource";
    for path in [
        "/foo",
        "/api/v2",
        "/api/v1/sofas",
        "/apis/sofa.example",
        "/apis/apps/v9/deployments",
        "/api/v1/pods/a",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/namespaces/default/pods/a/sofa",
        "/readyz/sofa",
    ] {
        let found = server.get(path).await;
        assert_eq!(found.failure(404, "NotFound"), not_found, "{path}");
    }
    assert_eq!(server.get("/apis/apps").await.json()["kind"], "APIGroup");
    let missing = server
        .get("/apis/apps/v1/namespaces/default/deployments/x")
        .await;
    let actual = missing.failure(404, "NotFound");
    assert_eq!(actual, "deployments.apps \"x\" not found");
    let details = json!({"name": "x", "group": "apps", "kind": "deployments"});
    assert_eq!(missing.json()["details"], details);
    for line in [
        "POST /api/v1/pods",
        "PUT /api/v1/namespaces/default/pods",
        "OPTIONS /api/v1/pods",
        "POST /version",
        "DELETE /api",
        "POST /readyz",
        "DELETE /api/v1/pods",
    ] {
        let received = server.call(line, &[], "").await;
        received.failure(405, "MethodNotAllowed");
    }
    server
        .get("/api/v1/pods/%zz")
        .await
        .failure(400, "BadRequest");
    server
        .get("/api/v1/pods?labelSelector=%zz")
        .await
        .failure(400, "BadRequest");
    let received = server
        .call("GET /api/v1/pods", &["accept: text/html"], "")
        .await;
    received.failure(406, "NotAcceptable");
    server.stop().await;
}

#[tokio::test]
async fn lists_in_pages_and_forms() {
    let server = Server::new().await;
    for name in ["a", "b", "c"] {
        server.put_config_map(name, "x").await;
    }
    let page = server.get(&format!("{CONFIG_MAPS}?limit=2")).await.json();
    assert_eq!(page["kind"], "ConfigMapList");
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
    let token = page["metadata"]["continue"].as_str().unwrap();
    server.put_config_map("bb", "later").await;
    let rest = server
        .get(&format!("{CONFIG_MAPS}?limit=2&continue={token}"))
        .await
        .json();
    assert_eq!(
        rest["metadata"]["resourceVersion"],
        page["metadata"]["resourceVersion"]
    );
    assert_eq!(rest["metadata"].get("continue"), None);
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    assert_eq!(rest["items"][0]["metadata"]["name"], "c");

    let selected = server
        .get(&format!("{CONFIG_MAPS}?labelSelector=app%3Db"))
        .await
        .json();
    assert_eq!(selected["items"][0]["metadata"]["name"], "b");
    let table = server
        .call(&format!("GET {CONFIG_MAPS}"), &[TABLE], "")
        .await
        .json();
    assert_eq!(
        (&table["kind"], &table["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(table["rows"].as_array().unwrap().len(), 4);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let one = server
        .call(&format!("GET {CONFIG_MAPS}/a"), &[TABLE], "")
        .await
        .json();
    assert_eq!(
        one["rows"][0]["cells"],
        json!(["a", 1, one["rows"][0]["cells"][2]])
    );
    let yaml = ["accept: application/yaml"];
    let yaml = server
        .call(&format!("GET {CONFIG_MAPS}/a"), &yaml, "")
        .await;
    assert_eq!(yaml.headers["content-type"], "application/yaml");
    let text = std::str::from_utf8(&yaml.body).unwrap();
    assert!(text.contains("\n  name: a\n"), "{text}");
    assert!(
        text.contains("resourceVersion: \""),
        "a quoted number stays a string: {text}"
    );
    server.stop().await;
}

#[tokio::test]
async fn json_is_verbatim_or_indented_for_interactive_clients() {
    let server = Server::new().await;
    let created = server.post(CONFIG_MAPS, &config_map("a", "x")).await;
    let read = server.get(&format!("{CONFIG_MAPS}/a")).await;
    assert_eq!(created.body, read.body);
    let curl = ["user-agent: curl/8"];
    let pretty = server
        .call(&format!("GET {CONFIG_MAPS}/a"), &curl, "")
        .await;
    assert!(pretty.body.starts_with(b"{\n  \""));
    assert_eq!(pretty.json(), read.json());
    let missing = server
        .call(&format!("GET {CONFIG_MAPS}/x"), &curl, "")
        .await;
    missing.failure(404, "NotFound");
    assert!(missing.body.starts_with(b"{\n  \"kind\": \"Status\""));
    let pretty = server.get(&format!("{CONFIG_MAPS}?pretty=true")).await;
    let plain = server.get(CONFIG_MAPS).await;
    assert!(pretty.body.len() > plain.body.len() && pretty.json() == plain.json());
    server.stop().await;
}

#[tokio::test]
async fn large_lists_are_compressed_if_accepted() {
    let server = Server::new().await;
    let text = "0123456789abcdef".repeat(64);
    for n in 0..200 {
        server.put_config_map(&format!("m{n:03}"), &text).await;
    }
    let gzip = ["accept-encoding: gzip, br"];
    let line = format!("GET {CONFIG_MAPS}");
    let packed = server.call(&line, &gzip, "").await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert_eq!(packed.headers["vary"], "Accept-Encoding");
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..])
        .read_to_end(&mut unpacked)
        .unwrap();
    let plain = server.get(CONFIG_MAPS).await;
    assert!(packed.body.len() < plain.body.len() / 4);
    assert_eq!(&unpacked[..], &plain.body[..]);
    let small = server
        .call(&format!("GET {CONFIG_MAPS}?limit=3"), &gzip, "")
        .await;
    assert_eq!(small.headers.get("content-encoding"), None);
    let refused = ["accept-encoding: gzip;q=0"];
    let plain = server.call(&line, &refused, "").await;
    assert_eq!(plain.headers.get("content-encoding"), None);
    server.stop().await;
}

#[tokio::test]
async fn both_groups_serve_an_event_in_their_own_version() {
    let server = Server::new().await;
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "message": "hello",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "type": "Normal",
    });
    let core = "/api/v1/namespaces/default/events";
    let newer = "/apis/events.k8s.io/v1/namespaces/default/events";
    assert_eq!(server.post(core, &event).await.code, 201);
    let check = |event: &Value| {
        assert_eq!(event["apiVersion"], "events.k8s.io/v1");
        assert_eq!(
            (&event["note"], event.get("message")),
            (&json!("hello"), None)
        );
        assert_eq!(event["regarding"]["name"], "p");
        assert!(event["metadata"]["resourceVersion"].is_string());
    };
    check(&server.get(&format!("{newer}/e")).await.json());
    let list = server.get(newer).await.json();
    assert_eq!(list["kind"], "EventList");
    check(&list["items"][0]);
    let watch = server
        .get(&format!("{newer}?watch=1&timeoutSeconds=1"))
        .await
        .json();
    assert_eq!(watch["type"], "ADDED");
    check(&watch["object"]);
    assert_eq!(
        server.get(core).await.json()["items"][0]["message"],
        "hello"
    );
    let include = format!("GET {newer}?includeObject=Object");
    check(&server.call(&include, &[TABLE], "").await.json()["rows"][0]["object"]);
    server.stop().await;
}

#[tokio::test]
async fn discovery_lists_the_served_resources() {
    let server = Server::new().await;
    let groups = server.get("/apis").await.json();
    let listed = groups["groups"].as_array().unwrap();
    assert!(listed.iter().any(|group| group["name"] == "apps"));
    let aggregated = "accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let received = server.call("GET /apis", &[aggregated], "").await;
    assert_eq!(
        received.json()["items"].as_array().unwrap().len(),
        listed.len()
    );
    let known = format!(
        "if-none-match: {}",
        received.headers["etag"].to_str().unwrap()
    );
    let again = server.call("GET /apis", &[aggregated, &known], "").await;
    assert_eq!((again.code, again.body.len()), (304, 0));
    // Everything in discovery can be listed.
    for group in listed {
        for version in group["versions"].as_array().unwrap() {
            let path = format!("/apis/{}", version["groupVersion"].as_str().unwrap());
            for resource in server.get(&path).await.json()["resources"]
                .as_array()
                .unwrap()
            {
                let name = resource["name"].as_str().unwrap();
                let verbs = resource["verbs"].as_array().unwrap();
                if verbs.contains(&json!("list")) {
                    let list = server.get(&format!("{path}/{name}?limit=1")).await;
                    assert_eq!(list.code, 200, "{path}/{name}: {list:?}");
                }
            }
        }
    }
    let core = server.get("/api").await.json();
    assert_eq!(core["versions"], json!(["v1"]));
    let root = server.get("/").await.json();
    assert!(
        root["paths"]
            .as_array()
            .unwrap()
            .contains(&json!("/apis/apps/v1"))
    );
    let documents = server.get("/openapi/v3").await.json();
    let url = documents["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str();
    assert!(url.unwrap().starts_with("/openapi/v3/apis/apps/v1?hash="));
    assert_eq!(server.get("/readyz/ping").await.body, "ok");
    assert_eq!(server.get("/readyz/watchcache").await.body, "ok");
    server.stop().await;
}
