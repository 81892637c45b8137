//! Tests of several versions of a resource that differ only in the name.

use super::*;

const OLDER: &str = "/apis/example.com/v1alpha1/namespaces/default/foos";

/// Returns foos in two versions; `storage` is the storage version.
fn two_versions(storage: &str) -> Value {
    let mut definition = foos();
    let version = definition["spec"]["versions"][0].clone();
    let named = |name: &str| {
        let mut version = version.clone();
        version["name"] = name.into();
        version["storage"] = (name == storage).into();
        version
    };
    let mut older = named("v1alpha1");
    older["deprecated"] = true.into();
    older["additionalPrinterColumns"] = json!([]);
    definition["spec"]["versions"] = json!([named("v1"), older]);
    definition
}

pub(super) async fn each_version_lists_the_objects_of_the_others(world: &mut World) {
    world.define(&two_versions("v1alpha1")).await;
    let (code, made) = world.post(FOOS, &foo("a", json!({"color": "red"}))).await;
    assert_eq!(
        (code, &made["apiVersion"]),
        (201, &json!("example.com/v1")),
        "{made}"
    );
    // One object is stored as v1alpha1; the next is stored as v1, and both can be read.
    let path = format!("{DEFINITIONS}/foos.example.com");
    let patch = json!({"spec": {"versions": two_versions("v1")["spec"]["versions"]}});
    let (code, body) = world.patch(&path, "merge", &patch).await;
    assert_eq!(code, 200, "{body}");
    assert_eq!(body["status"]["storedVersions"], json!(["v1alpha1", "v1"]));
    let mut older = foo("b", json!({"color": "blue"}));
    older["apiVersion"] = "example.com/v1alpha1".into();
    let (code, body) = world.post(OLDER, &older).await;
    assert_eq!(
        (code, &body["apiVersion"]),
        (201, &json!("example.com/v1alpha1")),
        "{body}"
    );
    for (path, version) in [(FOOS, "example.com/v1"), (OLDER, "example.com/v1alpha1")] {
        let (_, list) = world.get(path).await;
        let items = list["items"].as_array().unwrap();
        assert_eq!((&list["apiVersion"], items.len()), (&json!(version), 2));
        assert!(
            items.iter().all(|item| item["apiVersion"] == version),
            "{list}"
        );
        for name in ["a", "b"] {
            let (_, got) = world.get(&format!("{path}/{name}")).await;
            assert_eq!(got["apiVersion"], version);
        }
        let headers: [(&str, &str); 0] = [];
        let watch = format!("{path}?watch=1&timeoutSeconds=5");
        let answer = world.wire.send(Method::GET, &watch, &headers, "").await;
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        for line in text.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            assert_eq!(event["object"]["apiVersion"], version);
        }
    }
    let patch = json!({"spec": {"size": 5}});
    let (code, body) = world.patch(&format!("{OLDER}/a"), "merge", &patch).await;
    assert_eq!(
        (code, &body["apiVersion"]),
        (200, &json!("example.com/v1alpha1")),
        "{body}"
    );
    let (_, got) = world.get(&format!("{FOOS}/a")).await;
    assert_eq!(
        (&got["apiVersion"], &got["spec"]["size"]),
        (&json!("example.com/v1"), &json!(5))
    );
    let (_, group) = world.get("/apis/example.com").await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let headers: [(&str, &str); 0] = [];
    let answer = world.wire.send(Method::GET, OLDER, &headers, "").await;
    let warning = answer
        .headers
        .get("warning")
        .expect("it is deprecated")
        .to_str()
        .unwrap();
    assert!(
        warning.contains("example.com/v1alpha1 Foo is deprecated"),
        "{warning}"
    );
}

/// Two watches of the same event as Tables: each has the columns of its version.
pub(super) async fn tables_have_the_columns_of_their_version(world: &mut World) {
    world.define(&two_versions("v1")).await;
    world.post(FOOS, &foo("a", json!({"color": "red"}))).await;
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    for (path, columns) in [(FOOS, 5), (OLDER, 2), (FOOS, 5)] {
        let watch = format!("{path}?watch=1&timeoutSeconds=5");
        let answer = world.wire.send(Method::GET, &watch, &headers, "").await;
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        let event: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let received = event["object"]["columnDefinitions"]
            .as_array()
            .map(Vec::len);
        assert_eq!(received, Some(columns), "{event}");
    }
}
