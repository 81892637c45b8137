//! Tests of schemas: pruning, defaults, validation of objects, and validation of the definitions themselves.

use super::*;

/// Returns foos whose specs have defaults, limits and rules.
fn strict() -> Value {
    let mut definition = foos();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = json!({
        "type": "object", "required": ["color"],
        "properties": {
            "color": {"type": "string", "enum": ["red", "blue"]},
            "size": {"type": "integer", "minimum": 1, "default": 3},
            "port": {"x-kubernetes-int-or-string": true},
            "namespace": {"type": "string"},
            "parts": {"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object",
                    "properties": {"name": {"type": "string"}, "n": {"type": "integer", "default": 1}}}},
        },
        "x-kubernetes-validations": [
            {"rule": "self.color != 'blue' || self.size < 5", "message": "blue ones are small"},
            {"rule": "self.color == oldSelf.color", "message": "color is immutable"},
            // Reserved words of CEL are field names, plain or escaped.
            {"rule": "!has(self.namespace) || self.namespace == self.__namespace__ && self.namespace != 'b'",
                "message": "namespace must not be b"},
        ],
    });
    definition
}

/// Returns the field and message of each cause.
fn causes(status: &Value) -> Vec<(&str, &str)> {
    let causes = status["details"]["causes"].as_array();
    let causes = causes.unwrap_or_else(|| panic!("{status}"));
    causes
        .iter()
        .map(|c| {
            (
                c["field"].as_str().unwrap_or_default(),
                c["message"].as_str().unwrap_or_default(),
            )
        })
        .collect()
}

pub(super) async fn objects_are_defaulted_and_validated(world: &mut World) {
    world.define(&strict()).await;
    let given = json!({"color": "red", "unknown": 1, "parts": [{"name": "a", "x": 1}]});
    let (code, made) = world.post(FOOS, &foo("a", given)).await;
    assert_eq!(code, 201, "{made}");
    let filled = json!({"color": "red", "size": 3, "parts": [{"name": "a", "n": 1}]});
    assert_eq!(made["spec"], filled);
    for (spec, field, message) in [
        (json!({}), "spec.color", "Required value"),
        (
            json!({"color": "green"}),
            "spec.color",
            r#"Unsupported value: "green": supported values: "red", "blue""#,
        ),
        (
            json!({"color": "red", "size": "x"}),
            "spec.size",
            r#"Invalid value: "string": spec.size in body must be of type integer: "string""#,
        ),
        (
            json!({"color": "red", "size": 0}),
            "spec.size",
            "Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"color": "red", "parts": [{"name": "a"}, {"name": "a"}]}),
            "spec.parts[1]",
            r#"Duplicate value: {"name":"a"}"#,
        ),
        (
            json!({"color": "blue", "size": 7}),
            "spec",
            r#"Invalid value: "object": blue ones are small"#,
        ),
        (
            json!({"color": "red", "namespace": "b"}),
            "spec",
            r#"Invalid value: "object": namespace must not be b"#,
        ),
    ] {
        let (code, refused) = world.post(FOOS, &foo("b", spec)).await;
        assert_eq!(code, 422, "{refused}");
        assert_eq!(causes(&refused)[0], (field, message));
    }
    let path = format!("{FOOS}/a");
    let patch = json!({"spec": {"color": "blue"}});
    let (code, refused) = world.patch(&path, "merge", &patch).await;
    assert_eq!(code, 422, "{refused}");
    assert_eq!(
        causes(&refused),
        [("spec", r#"Invalid value: "object": color is immutable"#)]
    );
    let body = foo("c", json!({})).to_string();
    let output = world
        .kubectl
        .run_failing_with(&["create", "-f", "-"], &body)
        .await;
    assert!(output.contains("spec.color: Required value"), "{output}");
    assert!(
        output.contains("some validation rules were not checked"),
        "{output}"
    );
}

/// WC-212
pub(super) async fn unknown_fields_are_warned_about_or_rejected(world: &mut World) {
    world.define(&strict()).await;
    let body = foo("a", json!({"color": "red", "unknown": 1}));
    let path = format!("{FOOS}?fieldValidation=Strict");
    let (code, refused) = world.post(&path, &body).await;
    assert_eq!(code, 400, "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains(r#"unknown field "spec.unknown""#),
        "{message}"
    );
    let headers = [("content-type", "application/json")];
    let answer = world
        .wire
        .send(Method::POST, FOOS, &headers, &body.to_string())
        .await;
    assert_eq!(answer.status, 201);
    let warning = answer
        .headers
        .get("warning")
        .expect("a warning")
        .to_str()
        .unwrap();
    assert!(warning.contains("unknown field"), "{warning}");
    assert_eq!(answer.json()["spec"].get("unknown"), None);
}

/// An object that a stricter schema makes invalid can be updated in its other fields.
pub(super) async fn an_object_that_a_stricter_schema_makes_invalid_can_be_updated(
    world: &mut World,
) {
    world.define(&foos()).await;
    let (code, _) = world
        .post(FOOS, &foo("a", json!({"color": "green", "size": 2})))
        .await;
    assert_eq!(code, 201);
    let mut watch = world.server.plain(Protocol::Http1).await;
    let patch = json!({"spec": {"versions": strict()["spec"]["versions"]}});
    let definition = format!("{DEFINITIONS}/foos.example.com");
    let (code, body) = world.patch(&definition, "merge", &patch).await;
    assert_eq!(code, 200, "{body}");
    // The new schema takes effect after a short delay.
    let refused = async {
        while world
            .post(FOOS, &foo("b", json!({"color": "green"})))
            .await
            .0
            == 201
        {
            world.delete(&format!("{FOOS}/b")).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused)
        .await
        .expect("it is followed");
    let path = format!("{FOOS}/a");
    let (code, body) = world
        .patch(&path, "merge", &json!({"spec": {"size": 4}}))
        .await;
    assert_eq!(code, 200, "{body}");
    let (code, body) = world
        .patch(&path, "merge", &json!({"spec": {"size": 0}}))
        .await;
    assert_eq!(code, 422, "{body}");
    let headers: [(&str, &str); 0] = [];
    let list = format!("{FOOS}?watch=1&resourceVersion=0&timeoutSeconds=5");
    let answer = watch.send(Method::GET, &list, &headers, "").await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(text.contains(r#""size":4"#), "{text}");
}

pub(super) async fn definitions_are_validated(world: &mut World) {
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    let at = "spec.versions[0].schema.openAPIV3Schema";
    for (pointer, value, field, message) in [
        (
            "/metadata/name",
            json!("x.example.com"),
            "metadata.name".to_owned(),
            r#"Invalid value: "x.example.com": must be spec.names.plural+"."+spec.group"#,
        ),
        (
            "/spec/scope",
            json!("Galaxy"),
            "spec.scope".to_owned(),
            r#"Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced""#,
        ),
        (
            "/spec/versions/0/storage",
            json!(false),
            "spec.versions".to_owned(),
            r#"Invalid value: "v1": must have exactly one version marked as storage version"#,
        ),
        (
            "/spec/versions/0/schema",
            json!({}),
            at.to_owned(),
            "Required value: schemas are required",
        ),
        (
            schema,
            json!({"type": "string"}),
            format!("{at}.type"),
            r#"Invalid value: "string": must be object at the root"#,
        ),
        (
            schema,
            json!({"type": "object", "properties": {"a": {}}}),
            format!("{at}.properties[a].type"),
            "Required value: must not be empty for specified object fields",
        ),
        (
            schema,
            json!({"type": "object", "properties": {"a": {"type": "array"}}}),
            format!("{at}.properties[a].items"),
            "Required value: must be specified",
        ),
        (
            schema,
            json!({"type": "object", "allOf": [{"type": "object"}]}),
            format!("{at}.allOf[0].type"),
            "Forbidden: must be empty to be structural",
        ),
        (
            schema,
            json!({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
            format!("{at}.properties[a].default"),
            "Invalid value: \"string\"",
        ),
        (
            schema,
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "self."}]}),
            format!("{at}.x-kubernetes-validations[0].rule"),
            "Invalid value: \"self.\": compilation failed",
        ),
        (
            schema,
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "missing == 1"}]}),
            format!("{at}.x-kubernetes-validations[0].rule"),
            "undeclared reference to 'missing'",
        ),
        (
            "/spec/versions/0/additionalPrinterColumns/0/jsonPath",
            json!("x"),
            "spec.versions[0].additionalPrinterColumns[0].jsonPath".to_owned(),
            r#"Invalid value: "x": must be a simple json path starting with ."#,
        ),
        (
            "/spec/versions/0/selectableFields/0/jsonPath",
            json!(".spec.none"),
            "spec.versions[0].selectableFields[0].jsonPath".to_owned(),
            "is an invalid path",
        ),
        (
            "/spec/group",
            json!("batch.k8s.io"),
            "metadata.annotations[api-approved.kubernetes.io]".to_owned(),
            "protected groups must have approval annotation",
        ),
    ] {
        let mut definition = foos();
        if pointer == "/spec/group" {
            definition["metadata"]["name"] = "foos.batch.k8s.io".into();
        }
        *definition.pointer_mut(pointer).unwrap() = value;
        let (code, refused) = world.post(DEFINITIONS, &definition).await;
        assert_eq!(code, 422, "{pointer}: {refused}");
        let reported = causes(&refused);
        let found = reported
            .iter()
            .any(|(f, m)| *f == field && m.contains(message));
        assert!(found, "{field}: {message}\n{reported:#?}");
    }
    world.define(&foos()).await;
    let path = format!("{DEFINITIONS}/foos.example.com");
    let (code, refused) = world
        .patch(&path, "merge", &json!({"spec": {"scope": "Cluster"}}))
        .await;
    assert_eq!(code, 422, "{refused}");
    assert_eq!(
        causes(&refused),
        [(
            "spec.scope",
            r#"Invalid value: "Cluster": field is immutable"#
        )]
    );
}

pub(super) async fn rules_and_patterns_are_validated(world: &mut World) {
    let with = |spec: Value| {
        let mut definition = foos();
        let version = &mut definition["spec"]["versions"][0];
        version["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec;
        version["selectableFields"] = json!([]);
        definition
    };
    let rules = |rules: &[&str]| {
        let rules: Vec<Value> = rules.iter().map(|rule| json!({"rule": rule})).collect();
        with(
            json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
            "size": {"type": "integer"}, "list": {"type": "array", "items": {"type": "string"}}}}),
        )
    };
    let wrong = rules(&[
        "self.sise > 1",
        "self.size",
        "self.list.all(x, x.size() > self.size)",
    ]);
    let (code, body) = world.post(DEFINITIONS, &wrong).await;
    assert_eq!(code, 422, "{body}");
    let at = "spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations";
    let received: Vec<(&str, &str)> = body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cause| {
            (
                cause["field"].as_str().unwrap(),
                cause["message"].as_str().unwrap(),
            )
        })
        .collect();
    let first = format!("{at}[0].rule");
    let second = format!("{at}[1].rule");
    let expected = [
        (
            first.as_str(),
            r#"Invalid value: "self.sise > 1": compilation failed: undefined field 'sise'"#,
        ),
        (
            second.as_str(),
            r#"Invalid value: "self.size": cel expression must evaluate to a bool"#,
        ),
    ];
    assert_eq!(received, expected);
    // Each pattern alone is allowed; together they exceed the limit.
    let patterns = |each: &dyn Fn(usize) -> String| {
        let property = |n: usize| {
            (
                format!("p{n}"),
                json!({"type": "string", "pattern": each(n)}),
            )
        };
        let properties: serde_json::Map<String, Value> = (0..2_000).map(property).collect();
        with(json!({"type": "object", "properties": properties}))
    };
    let (code, body) = world
        .post(DEFINITIONS, &patterns(&|n| format!("^x{n}$")))
        .await;
    assert_eq!(code, 422, "{}", body["message"]);
    let message = body["message"].as_str().unwrap();
    assert!(
        message.contains("the patterns of the definition take more than"),
        "{message}"
    );
    // Equal patterns are compiled once and count once.
    world
        .define(&patterns(&|_| "^[a-z]{1,63}$".to_owned()))
        .await;
    let (code, body) = world.post(FOOS, &foo("a", json!({"p1999": "A"}))).await;
    assert_eq!(code, 422, "{body}");
}

/// An unusable webhook configuration is rejected when the definition is written, not at the first conversion.
pub(super) async fn conversion_webhook_clients_are_validated(world: &mut World) {
    for (client, field, words) in [
        (json!({}), "", "exactly one of url or service is required"),
        (
            json!({"url": "http://example.com"}),
            ".url",
            "'https' is the only allowed URL scheme",
        ),
        (
            json!({"service": {"namespace": "a", "name": "b", "port": 70_000}}),
            ".service.port",
            "must be between 1 and 65535",
        ),
    ] {
        let mut definition = foos();
        definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": client}});
        let (code, body) = world.post(DEFINITIONS, &definition).await;
        assert_eq!(code, 422, "{body}");
        let cause = &body["details"]["causes"][0];
        let at = format!("spec.conversion.webhook.clientConfig{field}");
        assert_eq!(cause["field"], at, "{body}");
        assert!(cause["message"].as_str().unwrap().contains(words), "{body}");
    }
}

/// OpenAPI listed strategic merge patch for custom resources, so kubectl used it to apply and failed.
pub(super) async fn kubectl_applies_changes_repeatedly(world: &mut World) {
    world.define(&foos()).await;
    let kubectl = &world.kubectl;
    for (size, output) in [(1, "created"), (2, "configured"), (2, "unchanged")] {
        let object = foo("a", json!({"size": size, "color": "red"})).to_string();
        let applied = kubectl.run_with(&["apply", "-f", "-"], &object).await;
        assert_eq!(applied.trim(), format!("foo.example.com/a {output}"));
    }
    let (_, got) = world.get(&format!("{FOOS}/a")).await;
    assert_eq!(got["spec"], json!({"size": 2, "color": "red"}));
}
