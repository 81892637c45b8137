//! Tests of bodies with unknown members, duplicate members and values of wrong types, in each kind of write.

use http::Method;
use serde_json::{Value, json};

use super::site::{MAPS, Response, Site};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Returns a deployment with two unknown members and a duplicate one.
fn mistaken(name: &str) -> String {
    format!(
        r#"{{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {{"name": "{name}"}},
            "spec": {{
                "replicas": 1, "foo": 1, "replicas": 2,
                "selector": {{"matchLabels": {{"a": "b"}}}},
                "template": {{
                    "metadata": {{"labels": {{"a": "b"}}}},
                    "spec": {{"containers": [{{"name": "c", "image": "i", "imagePulPolicy": "x"}}]}}
                }}
            }}}}"#
    )
}

const MISTAKES: [&str; 3] = [
    r#"unknown field "spec.foo""#,
    r#"duplicate field "spec.replicas""#,
    r#"unknown field "spec.template.spec.containers[0].imagePulPolicy""#,
];

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// Returns the texts of the Warning headers, unquoted.
fn warnings(answer: &Response) -> Vec<String> {
    let values = answer.headers.get_all("warning").iter();
    let text = |value: &http::HeaderValue| {
        let value = value.to_str().expect("text");
        let quoted = value
            .strip_prefix("299 - \"")
            .and_then(|v| v.strip_suffix('"'));
        let quoted = quoted.unwrap_or_else(|| panic!("{value}"));
        quoted.replace("\\\"", "\"")
    };
    values.map(text).collect()
}

pub(crate) async fn wc_212_field_validation_ignores_warns_or_rejects(site: &Site) {
    // The default is Warn.
    for (name, query) in [("a", ""), ("b", "?fieldValidation=Warn")] {
        let path = format!("{DEPLOYMENTS}{query}");
        let answer = site.send(Method::POST, &path, &JSON, &mistaken(name)).await;
        let spec = &answer.ok(201)["spec"];
        assert_eq!(warnings(&answer), MISTAKES);
        assert_eq!(spec["replicas"], 2);
        assert!(spec["foo"].is_null(), "{spec}");
        let stored = site.get(&format!("{DEPLOYMENTS}/{name}")).await.ok(200);
        assert!(stored["spec"]["foo"].is_null(), "{stored}");
        let container = &stored["spec"]["template"]["spec"]["containers"][0];
        assert!(container["imagePulPolicy"].is_null(), "{container}");
    }
    let path = format!("{DEPLOYMENTS}?fieldValidation=Ignore");
    let answer = site.send(Method::POST, &path, &JSON, &mistaken("c")).await;
    assert!(answer.ok(201)["spec"]["foo"].is_null());
    assert_eq!(warnings(&answer), [""; 0]);

    let strict = "?fieldValidation=Strict";
    let path = format!("{DEPLOYMENTS}{strict}");
    let refused = site.send(Method::POST, &path, &JSON, &mistaken("d")).await;
    let received = format!(
        "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: {}",
        MISTAKES.join(", ")
    );
    assert_eq!(refused.failure(400, "BadRequest")["message"], received);
    site.get(&format!("{DEPLOYMENTS}/d"))
        .await
        .failure(404, "NotFound");
    let path = format!("{DEPLOYMENTS}/a{strict}");
    let refused = site.send(Method::PUT, &path, &JSON, &mistaken("a")).await;
    assert_eq!(refused.failure(400, "BadRequest")["message"], received);
    // YAML has the same warnings; a correct body has none.
    let yaml = [("content-type", "application/yaml")];
    let maps = format!("{MAPS}{strict}");
    let refused = site
        .send(
            Method::POST,
            &maps,
            &yaml,
            "metadata: {name: m}\ndata:\n  a: b\n  a: c\ndate: {}\n",
        )
        .await;
    assert_eq!(
        refused.failure(400, "BadRequest")["message"],
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
         duplicate field \"data.a\", unknown field \"date\""
    );
    let answer = site
        .send(
            Method::POST,
            &maps,
            &yaml,
            "metadata: {name: m}\ndata: {a: b}\n",
        )
        .await;
    answer.ok(201);
    assert_eq!(warnings(&answer), [""; 0]);
    let other = site
        .send(
            Method::POST,
            &format!("{MAPS}?fieldValidation=Lax"),
            &JSON,
            "{}",
        )
        .await;
    other.failure(422, "Invalid");
}

/// The result of a patch is decoded as an object of its kind.
pub(crate) async fn patched_objects_are_decoded_as_their_kind(site: &Site) {
    site.send(Method::POST, DEPLOYMENTS, &JSON, &mistaken("a"))
        .await
        .ok(201);
    let path = format!("{DEPLOYMENTS}/a");
    let patches = |value: Value, operation: Value| {
        [
            ("merge", json!({"spec": value})),
            ("strategic-merge", json!({"spec": value})),
            ("json", json!([operation])),
        ]
    };
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    for (kind, patch) in patches(json!({"foo": 1}), add("/spec/foo", 1.into())) {
        let answer = site.patch(&path, kind, &patch).await;
        assert!(answer.ok(200)["spec"]["foo"].is_null(), "{kind}");
        assert_eq!(warnings(&answer), [r#"unknown field "spec.foo""#], "{kind}");
        let quiet = site
            .patch(&format!("{path}?fieldValidation=Ignore"), kind, &patch)
            .await;
        assert_eq!(warnings(&quiet), [""; 0]);
        let refused = site
            .patch(&format!("{path}?fieldValidation=Strict"), kind, &patch)
            .await;
        let status = refused.failure(422, "Invalid");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(
            message.starts_with(" \"\" is invalid: patch: Invalid value: "),
            "{message}"
        );
        assert!(
            message.ends_with(r#": strict decoding error: unknown field "spec.foo""#),
            "{message}"
        );
        assert_eq!(status["details"]["causes"][0]["field"], "patch");
    }
    for value in [
        json!("three"),
        json!(3_000_000_000_u64),
        json!(1.5),
        json!([1]),
    ] {
        let operation = add("/spec/replicas", value.clone());
        for (kind, patch) in patches(json!({"replicas": &value}), operation) {
            let status = site
                .patch(&path, kind, &patch)
                .await
                .failure(422, "Invalid");
            let message = status["message"].as_str().unwrap_or_default();
            // Only a strategic merge patch converts untyped values. Numbers that are too large for an integer are left
            // to the JSON decoder.
            let expected = match (kind, value.is_f64(), value.is_number()) {
                ("strategic-merge", true, _) => "cannot convert float64 to int32",
                ("strategic-merge", _, false) => "unrecognized type: int32",
                _ => "Go struct field DeploymentSpec.spec.replicas of type int32",
            };
            assert!(message.ends_with(expected), "{kind} {value}: {message}");
        }
    }
    // Duplicate members of the patch itself.
    let merge = [("content-type", "application/merge-patch+json")];
    let twice = r#"{"spec": {"paused": true, "paused": false}}"#;
    let answer = site.send(Method::PATCH, &path, &merge, twice).await;
    answer.ok(200);
    assert_eq!(warnings(&answer), [r#"duplicate field "spec.paused""#]);
    let strict = format!("{path}?fieldValidation=Strict");
    let refused = site.send(Method::PATCH, &strict, &merge, twice).await;
    let status = refused.failure(422, "Invalid");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        message.ends_with(r#"strict decoding error: duplicate field "spec.paused""#),
        "{message}"
    );
    // The body of a subresource with its own kind is decoded as that kind.
    let scale = format!("{path}/scale?fieldValidation=Strict");
    let answer = site
        .patch(&scale, "merge", &json!({"spec": {"replicas": 5}}))
        .await;
    assert_eq!(answer.ok(200)["spec"]["replicas"], 5);
    assert_eq!(warnings(&answer), [""; 0]);
    let refused = site
        .patch(&scale, "merge", &json!({"spec": {"paused": true}}))
        .await;
    let status = refused.failure(422, "Invalid");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        message.ends_with(r#"unknown field "spec.paused""#),
        "{message}"
    );
}
