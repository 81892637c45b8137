//! Tests of discovery, Tables, field selectors and writes of custom resources.

use super::*;

pub(super) async fn kubectl_finds_waits_and_prints(world: &mut World) {
    let kubectl = &world.kubectl;
    let created = kubectl
        .run_with(&["create", "-f", "-"], &foos().to_string())
        .await;
    assert_eq!(
        created,
        "customresourcedefinition.apiextensions.k8s.io/foos.example.com created\n"
    );
    let waited = kubectl
        .run(&[
            "wait",
            "--for=condition=established",
            "crd/foos.example.com",
            "--timeout=30s",
        ])
        .await;
    assert!(waited.ends_with("condition met\n"), "{waited}");
    let mut object = foo("a", json!({"color": "red", "size": 3}));
    kubectl
        .run_with(&["create", "-f", "-"], &object.to_string())
        .await;
    object["metadata"]["name"] = "b".into();
    object["spec"] = json!({});
    kubectl
        .run_with(&["create", "-f", "-"], &object.to_string())
        .await;
    let status = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    kubectl
        .run(&[
            "patch",
            "foo",
            "a",
            "--subresource=status",
            "--type=merge",
            "-p",
            status,
        ])
        .await;
    let table = kubectl.run(&["get", "fo"]).await;
    let words: Vec<Vec<&str>> = table
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(words[0], ["NAME", "COLOR", "READY", "AGE"]);
    assert_eq!(words[1][..3], ["a", "red", "True"]);
    assert_eq!(
        words[2].len(),
        2,
        "what is not there shows nothing: {table}"
    );
    let wide = kubectl.run(&["get", "foos", "-o", "wide"]).await;
    let words: Vec<Vec<&str>> = wide
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(words[0], ["NAME", "COLOR", "READY", "SIZE", "AGE"]);
    assert_eq!(words[1][..4], ["a", "red", "True", "3"]);
    let all = kubectl.run(&["get", "all", "-o", "name"]).await;
    assert!(all.contains("foo.example.com/a"), "{all}");
    let listed = kubectl
        .run(&["api-resources", "--api-group=example.com", "--no-headers"])
        .await;
    let words: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(words, ["foos", "fo", "example.com/v1", "true", "Foo"]);
}

/// WC-208
pub(super) async fn fields_select(world: &mut World) {
    world.define(&foos()).await;
    for (name, spec) in [
        ("a", json!({"color": "red", "size": 1})),
        ("b", json!({"color": "blue", "size": 1})),
        ("c", json!({"size": 2})),
    ] {
        let (code, body) = world.post(FOOS, &foo(name, spec)).await;
        assert_eq!(code, 201, "{body}");
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}"));
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
        items.iter().map(name).collect()
    };
    for (selector, expected) in [
        ("spec.color=red", &["a"][..]),
        ("spec.color!=red", &["b", "c"]),
        ("spec.color=", &["c"]),
        ("spec.size=1", &["a", "b"]),
        ("spec.size=1,spec.color=blue", &["b"]),
        ("metadata.name=c", &["c"]),
    ] {
        let selector = selector
            .replace('=', "%3D")
            .replace('!', "%21")
            .replace(',', "%2C");
        let (code, list) = world.get(&format!("{FOOS}?fieldSelector={selector}")).await;
        assert_eq!(
            (code, names(&list)),
            (200, expected.iter().map(|s| (*s).to_owned()).collect())
        );
    }
    let (code, body) = world
        .get(&format!("{FOOS}?fieldSelector=spec.other%3D1"))
        .await;
    assert_eq!(code, 400, "{body}");
    let watch = format!("{FOOS}?watch=1&fieldSelector=spec.color%3Dblue&timeoutSeconds=5");
    let headers: [(&str, &str); 0] = [];
    let answer = world.wire.send(Method::GET, &watch, &headers, "").await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(r#""name":"b""#), "{text}");
    let (code, _) = world
        .delete(&format!("{FOOS}?fieldSelector=spec.size%3D1"))
        .await;
    assert_eq!(code, 200);
    let (_, list) = world.get(FOOS).await;
    assert_eq!(names(&list), ["c"]);
}

/// Also WC-014, which `conformance` tests for built-in types.
pub(super) async fn wc_013_051_214_writes_keep_the_rules_of_custom_resources(world: &mut World) {
    world.define(&foos()).await;
    let body = foo("a", json!({"size": 1}));
    let (_, made) = world.post(FOOS, &body).await;
    assert_eq!(made["metadata"]["generation"], 1);
    let path = format!("{FOOS}/a");
    let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap();
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let (_, now) = world.patch(&path, "merge", &labels).await;
    assert_eq!(generation(&now), 1);
    let resized = json!([{"op": "replace", "path": "/spec/size", "value": 2}]);
    let (_, now) = world.patch(&path, "json", &resized).await;
    assert_eq!(generation(&now), 2);
    let both = json!({"spec": {"size": 9}, "status": {"seen": 2}});
    let (_, now) = world.patch(&path, "merge", &both).await;
    assert_eq!((now.get("status"), generation(&now)), (None, 3));
    let mut report = now.clone();
    report["status"] = json!({"seen": 3});
    report["spec"] = json!({"size": 100});
    let (code, now) = world.put(&format!("{path}/status"), &report).await;
    assert_eq!(code, 200, "{now}");
    assert_eq!(
        (&now["spec"], &now["status"]),
        (&json!({"size": 9}), &json!({"seen": 3}))
    );
    assert_eq!(generation(&now), 3);
    let (code, refused) = world.put(&path, &body).await;
    assert_eq!(code, 422, "{refused}");
    assert_eq!(
        refused["details"]["causes"][0]["field"],
        "metadata.resourceVersion"
    );
    let (code, refused) = world.patch(&path, "strategic-merge", &labels).await;
    assert_eq!(code, 415, "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("application/merge-patch+json"),
        "{message}"
    );
    assert!(!message.contains("strategic"), "{message}");
}
