//! Tests of versions that a webhook converts over HTTPS. `v1` is flat where `v2` nests: `spec.size` is
//! `spec.dimensions.size`.

use super::*;
use crate::harness::{Reply, Webhook, WebhookRequest};

pub(crate) const NEWER: &str = "/apis/example.com/v2/namespaces/default/foos";
pub(super) const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.example.com";

/// Returns foos with v1 and v2; `storage` is the storage version, and the webhook of `client_config` converts.
pub(crate) fn converted_foos(storage: &str, client_config: Value) -> Value {
    let mut definition = foos();
    let integer = json!({"type": "integer"});
    let version = |name: &str, spec: Value| {
        json!({
            "name": name, "served": true, "storage": name == storage,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}},
        })
    };
    let mut older = version("v1", json!({"size": integer, "color": {"type": "string"}}));
    older["selectableFields"] = json!([{"jsonPath": ".spec.size"}]);
    older["additionalPrinterColumns"] =
        json!([{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]);
    let nested = json!({"dimensions": {"type": "object", "properties": {"size": integer}},
        "color": {"type": "string"}});
    let mut newer = version("v2", nested);
    newer["selectableFields"] = json!([{"jsonPath": ".spec.dimensions.size"}]);
    newer["additionalPrinterColumns"] =
        json!([{"name": "Dim", "type": "integer", "jsonPath": ".spec.dimensions.size"}]);
    definition["spec"]["versions"] = json!([older, newer]);
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": client_config,
    }});
    definition
}

/// Returns the conversion of one object.
fn convert(object: &Value, to: &str) -> Value {
    let mut converted = object.clone();
    converted["apiVersion"] = to.into();
    let Some(spec) = converted["spec"].as_object_mut() else {
        return converted;
    };
    match to.ends_with("/v2") {
        true => {
            if let Some(size) = spec.remove("size") {
                spec.insert("dimensions".to_owned(), json!({"size": size}));
            }
        }
        false => {
            if let Some(dimensions) = spec.remove("dimensions") {
                spec.insert("size".to_owned(), dimensions["size"].clone());
            }
        }
    }
    converted
}

/// Returns the response to a ConversionReview of objects that have a size.
pub(super) fn answer(call: &WebhookRequest) -> Value {
    let request = &call.body["request"];
    let to = request["desiredAPIVersion"].as_str().unwrap();
    let objects = request["objects"].as_array().unwrap();
    let converted: Vec<Value> = objects.iter().map(|object| convert(object, to)).collect();
    json!({
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "response": {"uid": request["uid"], "result": {"status": "Success"},
            "convertedObjects": converted},
    })
}

pub(crate) async fn converter() -> Webhook {
    Webhook::answering(|call| Reply::json(&answer(call))).await
}

pub(crate) fn sized(version: &str, name: &str, size: i64) -> Value {
    let spec = match version {
        "v1" => json!({"size": size}),
        _ => json!({"dimensions": {"size": size}}),
    };
    let mut object = foo(name, spec);
    object["apiVersion"] = format!("example.com/{version}").into();
    object
}

/// Returns the number of objects in each review from the `from`th on.
pub(super) fn reviewed(webhook: &Webhook, from: usize) -> Vec<usize> {
    let calls = webhook.calls().split_off(from);
    let count = |call: &WebhookRequest| call.body["request"]["objects"].as_array().unwrap().len();
    calls.iter().map(count).collect()
}

/// Returns the events of a watch until it ends.
pub(super) async fn watched(wire: &mut Wire, path: &str) -> Vec<Value> {
    let headers: [(&str, &str); 0] = [];
    let response = wire.send(Method::GET, path, &headers, "").await.body;
    let lines = response
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

pub(super) async fn each_version_has_its_own_form(world: &mut World) {
    let webhook = converter().await;
    // Conversion webhooks trust certificates and clean paths as admission webhooks do.
    let client_config = json!({"url": webhook.url("//convert"), "caBundle": webhook.leaf_bundle()});
    let definition = converted_foos("v1", client_config);
    world.define(&definition).await;
    let (code, made) = world.post(NEWER, &sized("v2", "a", 1)).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["apiVersion"], "example.com/v2");
    assert_eq!(made["spec"], json!({"dimensions": {"size": 1}}));
    // As upstream, an entry has the version in which its manager wrote.
    assert_eq!(
        made["metadata"]["managedFields"][0]["apiVersion"],
        "example.com/v2"
    );
    let calls = webhook.calls();
    assert!(
        calls
            .iter()
            .all(|call| call.path.starts_with("/convert?timeout=30s"))
    );
    let stored = &calls[0].body["request"];
    assert_eq!(stored["desiredAPIVersion"], "example.com/v1");
    assert_eq!(
        stored["objects"][0]["spec"],
        json!({"dimensions": {"size": 1}})
    );

    for n in 0..20 {
        let (code, body) = world.post(FOOS, &sized("v1", &format!("b{n:02}"), n)).await;
        assert_eq!(code, 201, "{body}");
    }
    let before = webhook.calls().len();
    let (_, list) = world.get(NEWER).await;
    let items = list["items"].as_array().unwrap();
    assert_eq!(
        (&list["apiVersion"], items.len()),
        (&json!("example.com/v2"), 21)
    );
    for (n, item) in items[1..].iter().enumerate() {
        assert_eq!(item["spec"], json!({"dimensions": {"size": n}}), "{item}");
        assert_eq!(item["apiVersion"], "example.com/v2");
        assert!(item["metadata"]["resourceVersion"].is_string());
    }
    assert_eq!(
        reviewed(&webhook, before),
        [20],
        "one review, without what was converted before"
    );
    let before = webhook.calls().len();
    let (_, again) = world.get(NEWER).await;
    assert_eq!(again, list);
    let (_, got) = world.get(&format!("{NEWER}/b07")).await;
    assert_eq!(got, items[8]);
    assert_eq!(reviewed(&webhook, before), [0; 0], "nothing has changed");
    let (_, older) = world.get(&format!("{FOOS}/b07")).await;
    assert_eq!(older["spec"], json!({"size": 7}));

    let patch = json!({"spec": {"dimensions": {"size": 70}}});
    let (code, patched) = world.patch(&format!("{NEWER}/b07"), "merge", &patch).await;
    assert_eq!((code, &patched["spec"]), (200, &patch["spec"]), "{patched}");
    assert_eq!(patched["metadata"]["generation"], 2);
    let status = json!({"status": {"ready": true}});
    let (code, body) = world
        .patch(&format!("{NEWER}/b07/status"), "merge", &status)
        .await;
    assert_eq!((code, &body["status"]), (200, &status["status"]), "{body}");
    let (_, older) = world.get(&format!("{FOOS}/b07")).await;
    assert_eq!(older["spec"], json!({"size": 70}));
    assert_eq!(older["status"], status["status"]);
    let (code, body) = world.patch(&format!("{NEWER}/b07"), "merge", &patch).await;
    assert_eq!(code, 200, "{body}");
    assert_eq!(
        body["metadata"]["resourceVersion"], older["metadata"]["resourceVersion"],
        "what changes nothing is no write"
    );
    let wrong = json!({"spec": {"dimensions": {"size": "large"}}});
    let (code, body) = world.patch(&format!("{NEWER}/b07"), "merge", &wrong).await;
    assert_eq!(code, 422, "it is held to the schema of its version: {body}");
    assert_eq!(
        body["details"]["causes"][0]["field"],
        "spec.dimensions.size"
    );
    let (code, body) = world.delete(&format!("{NEWER}/b07")).await;
    assert_eq!((code, &body["status"]), (200, &json!("Success")), "{body}");
    let (code, _) = world.get(&format!("{FOOS}/b07")).await;
    assert_eq!(code, 404);
}

pub(super) async fn kubectl_reads_and_writes_every_version(world: &mut World) {
    let webhook = converter().await;
    world
        .define(&converted_foos("v1", webhook.client_config("/")))
        .await;
    let kubectl = &world.kubectl;
    let newer = sized("v2", "a", 3).to_string();
    kubectl
        .run_with(&["apply", "--server-side", "-f", "-"], &newer)
        .await;
    kubectl
        .run_with(&["apply", "-f", "-"], &sized("v2", "b", 4).to_string())
        .await;
    kubectl
        .run_with(&["apply", "-f", "-"], &sized("v2", "b", 5).to_string())
        .await;
    let table = kubectl.run(&["get", "foos.v2.example.com"]).await;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(rows, [["NAME", "DIM"], ["a", "3"], ["b", "5"]]);
    let table = kubectl.run(&["get", "foos.v1.example.com"]).await;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(rows, [["NAME", "SIZE"], ["a", "3"], ["b", "5"]]);
    let path = "jsonpath={.items[*].spec.size}";
    let sizes = kubectl
        .run(&["get", "foos.v1.example.com", "-o", path])
        .await;
    assert_eq!(sizes, "3 5");
    drop(webhook);
    let (_, body) = world
        .patch(&format!("{FOOS}/a"), "merge", &json!({"spec": {"size": 9}}))
        .await;
    assert_eq!(
        body["spec"]["size"], 9,
        "the stored version needs no webhook: {body}"
    );
    let refused = world
        .kubectl
        .run_failing(&["get", "foos.v2.example.com"])
        .await;
    let begins = "Error from server: conversion webhook for example.com/v1, Kind=Foo failed: Post ";
    assert!(refused.starts_with(begins), "{refused}");
}

/// All watchers of an event together cause one call, including those that connect later.
pub(super) async fn watchers_share_converted_objects(world: &mut World) {
    let webhook = converter().await;
    world
        .define(&converted_foos("v1", webhook.client_config("/")))
        .await;
    let (_, list) = world.get(FOOS).await;
    let at = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let before = webhook.calls().len();
    let path = format!("{NEWER}?watch=1&timeoutSeconds=10&resourceVersion={at}");
    let mut wires = Vec::new();
    for _ in 0..20 {
        wires.push(world.server.plain(Protocol::Http1).await);
    }
    let watches = wires.iter_mut().map(|wire| watched(wire, &path));
    let watching = futures_util::future::join_all(watches);
    let writing = async {
        let (code, _) = world.post(FOOS, &sized("v1", "a", 1)).await;
        assert_eq!(code, 201);
        let patch = json!({"spec": {"size": 2}});
        assert_eq!(
            world.patch(&format!("{FOOS}/a"), "merge", &patch).await.0,
            200
        );
        assert_eq!(world.delete(&format!("{FOOS}/a")).await.0, 200);
    };
    let (received, ()) = tokio::join!(watching, writing);
    for events in &received {
        let seen: Vec<_> = events
            .iter()
            .map(|e| {
                (
                    e["type"].as_str().unwrap(),
                    &e["object"]["spec"]["dimensions"]["size"],
                )
            })
            .collect();
        let (one, two) = (json!(1), json!(2));
        assert_eq!(
            seen,
            [("ADDED", &one), ("MODIFIED", &two), ("DELETED", &two)]
        );
        assert!(
            events
                .iter()
                .all(|e| e["object"]["apiVersion"] == "example.com/v2")
        );
    }
    let objects: usize = reviewed(&webhook, before).iter().sum();
    assert_eq!(
        objects,
        3,
        "each event was converted once for {} watchers",
        received.len()
    );
    // A watch of Tables, and a watch with initial events.
    assert_eq!(world.post(FOOS, &sized("v1", "b", 7)).await.0, 201);
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let path = format!("{NEWER}?watch=1&timeoutSeconds=5");
    let response = world.wire.send(Method::GET, &path, &headers, "").await;
    let event: Value = serde_json::from_slice(response.body.trim_ascii()).unwrap();
    assert_eq!(
        event["object"]["rows"][0]["cells"],
        json!(["b", 7]),
        "{event}"
    );
}

/// Field selectors apply to the fields of the requested version.
pub(super) async fn fields_select_in_every_version(world: &mut World) {
    let webhook = converter().await;
    world
        .define(&converted_foos("v1", webhook.client_config("/")))
        .await;
    for (name, size) in [("a", 1), ("b", 2), ("c", 1)] {
        assert_eq!(world.post(FOOS, &sized("v1", name, size)).await.0, 201);
    }
    let (_, list) = world.get(FOOS).await;
    let at = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}"));
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
        items.iter().map(name).collect()
    };
    for path in [
        format!("{FOOS}?fieldSelector=spec.size%3D1"),
        format!("{NEWER}?fieldSelector=spec.dimensions.size%3D1"),
    ] {
        let (_, list) = world.get(&path).await;
        assert_eq!(names(&list), ["a", "c"], "{path}");
        let (mut all, mut token) = (Vec::new(), String::new());
        loop {
            let (_, page) = world.get(&format!("{path}&limit=1&continue={token}")).await;
            all.extend(names(&page));
            match page["metadata"]["continue"].as_str() {
                Some(more) => token = more.to_owned(),
                None => break,
            }
        }
        assert_eq!(all, ["a", "c"], "page by page: {path}");
    }
    for size in [2, 3, 1] {
        let patch = json!({"spec": {"size": size}});
        let (_, patched) = world.patch(&format!("{FOOS}/a"), "merge", &patch).await;
        assert_eq!(patched["spec"]["size"], size, "{patched}");
    }
    let label = json!({"metadata": {"labels": {"l": "v"}}});
    assert_eq!(
        world.patch(&format!("{FOOS}/a"), "merge", &label).await.0,
        200
    );
    assert_eq!(world.delete(&format!("{FOOS}/b")).await.0, 200);
    assert_eq!(world.delete(&format!("{FOOS}/c")).await.0, 200);
    for (path, size) in [(FOOS, "spec.size"), (NEWER, "spec.dimensions.size")] {
        let watch = format!(
            "{path}?watch=1&timeoutSeconds=5&resourceVersion={at}&fieldSelector={size}%3D1"
        );
        let events = watched(&mut world.wire, &watch).await;
        let received: Vec<_> = events
            .iter()
            .map(|event| {
                let name = event["object"]["metadata"]["name"].as_str().unwrap();
                (event["type"].as_str().unwrap(), name)
            })
            .collect();
        let expected = [
            ("DELETED", "a"),
            ("ADDED", "a"),
            ("MODIFIED", "a"),
            ("DELETED", "c"),
        ];
        assert_eq!(received, expected, "{path}: {events:?}");
        // A DELETED event has the last matching state.
        let spec = &events[0]["object"]["spec"];
        assert!(*spec == json!({"size": 1}) || *spec == json!({"dimensions": {"size": 1}}));
    }
    let (code, body) = world
        .get(&format!("{NEWER}?fieldSelector=spec.size%3D1"))
        .await;
    assert_eq!(code, 400, "it is no field of that version: {body}");
}
