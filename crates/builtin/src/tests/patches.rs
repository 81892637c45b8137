//! Patches, through storage.

use super::custom::established;
use super::*;

fn json_patch(operations: Value) -> Patch {
    Patch::Json(serde_json::from_value(operations).unwrap())
}

#[tokio::test]
async fn each_kind_of_patch_is_applied() {
    let fixture = fixture().await;
    fixture.create("pods", pod("a")).await;
    let patch = json_patch(json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}]));
    let a = fixture.try_patch("pods/a", patch).await.unwrap();
    assert_eq!(a["metadata"]["labels"], json!({"a": "1"}));
    let a = fixture
        .merge_patch("pods/a", json!({"metadata": {"labels": {"b": "2"}}}))
        .await;
    assert_eq!(a["metadata"]["labels"], json!({"a": "1", "b": "2"}));
    let mut labelled = deployment("d");
    labelled["metadata"]["labels"] = json!({"a": "1", "b": "2"});
    fixture.create("deployments", labelled).await;
    let patch = json!({
        "spec": {"template": {"spec": {"containers": [{"name": "b", "image": "j"}]}}},
        "metadata": {"labels": {"a": null}},
    });
    let d = fixture
        .try_patch("deployments/d", Patch::Strategic(patch))
        .await
        .unwrap();
    let containers = &d["spec"]["template"]["spec"]["containers"];
    let containers = containers.as_array().unwrap();
    let names_and_images = containers.iter().map(|c| (&c["name"], &c["image"]));
    assert_eq!(
        names_and_images.collect::<Vec<_>>(),
        [(&json!("b"), &json!("j")), (&json!("a"), &json!("i"))]
    );
    assert_eq!(d["metadata"]["labels"], json!({"b": "2"}));
    assert_eq!(fixture.get("deployments/d").await, d);
}

/// A malformed patch is 400, one that does not apply 422, one of a missing object 404, one with too many operations 413.
#[tokio::test]
async fn each_kind_of_invalid_patch_has_its_status_code() {
    let fixture = fixture().await;
    fixture.create("pods", pod("a")).await;
    let refused = async |patch| fixture.try_patch("pods/a", patch).await.unwrap_err();
    let error = refused(json_patch(json!([{"op": "remove", "path": "/no/such"}]))).await;
    assert!(matches!(error, ApiError::Unprocessable(_)), "{error}");
    let test = json!([{"op": "test", "path": "/metadata/name", "value": "b"}]);
    let error = refused(json_patch(test)).await;
    assert!(matches!(error, ApiError::Unprocessable(_)), "{error}");
    bad_request(refused(Patch::Merge(json!([]))).await);
    bad_request(refused(Patch::Strategic(json!({"spec": {"$patch": "what"}}))).await);
    let keyless = Patch::Strategic(json!({"spec": {"containers": [{"image": "x"}]}}));
    let error = refused(keyless).await;
    assert!(matches!(error, ApiError::Unprocessable(_)), "{error}");
    bad_request(refused(Patch::Merge(json!({"metadata": {"name": "b"}}))).await);
    let error = fixture
        .try_patch("pods/none", Patch::Merge(json!({})))
        .await
        .unwrap_err();
    assert!(error.is_not_found(), "{error}");

    let test = json!({"op": "test", "path": "/metadata/name", "value": "a"});
    let at_limit = json_patch(vec![test.clone(); 10_000].into());
    fixture.try_patch("pods/a", at_limit).await.unwrap();
    let error = refused(json_patch(vec![test; 10_001].into())).await;
    assert!(matches!(error, ApiError::TooLarge(_)), "{error}");
}

#[tokio::test]
async fn version_in_a_patch_is_a_precondition() {
    let fixture = fixture().await;
    let created = fixture.create("pods", pod("a")).await;
    let versioned = json!({"metadata": {"resourceVersion": created["metadata"]["resourceVersion"],
        "labels": {"a": "1"}}});
    fixture.merge_patch("pods/a", versioned.clone()).await;
    let stale = json!({"metadata": {"resourceVersion": created["metadata"]["resourceVersion"],
        "labels": {"a": "2"}}});
    let error = fixture
        .try_patch("pods/a", Patch::Merge(stale))
        .await
        .unwrap_err();
    assert!(conflict(error).starts_with("the object has been modified"));
    let current = fixture.get("pods/a").await;
    let test = json_patch(json!([
        {"op": "test", "path": "/metadata/resourceVersion",
         "value": current["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/metadata/labels/a", "value": "3"}]));
    let patched = fixture.try_patch("pods/a", test).await.unwrap();
    assert_eq!(patched["metadata"]["labels"], json!({"a": "3"}));
}

/// An object that could be stored but not decoded could never be changed or deleted again.
#[tokio::test]
async fn write_that_nests_too_deeply_is_rejected() {
    let fixture = fixture().await;
    let list = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    let mut body = deployment("a");
    body["spec"]["deep"] = list(125);
    fixture.create("deployments", body.clone()).await;
    let deepest = format!("/spec/deep{}", "/0".repeat(125));
    for value in [json!([1]), list(100)] {
        let deeper = json_patch(json!([{"op": "add", "path": deepest, "value": value}]));
        bad_request(
            fixture
                .try_patch("deployments/a", deeper)
                .await
                .unwrap_err(),
        );
    }
    let shallower = json_patch(json!([{"op": "remove", "path": "/spec/deep"}]));
    fixture.try_patch("deployments/a", shallower).await.unwrap();
    body["metadata"]["name"] = "b".into();
    body["spec"]["deep"] = list(126);
    bad_request(fixture.try_create("deployments", body).await.unwrap_err());
}

/// A patch that gave metadata a value of another type was a 400, and a strategic merge patch returned the message of
/// the JSON decoder. Users of client-go check `IsInvalid` and the field of the cause.
#[tokio::test]
async fn patch_result_of_another_type_is_invalid() {
    let fixture = fixture().await;
    fixture.create("pods", pod("a")).await;
    fixture.define(definition("foos", "Foo")).await;
    fixture.until_defined("foos.example.com", established).await;
    fixture.create("foos", named("a")).await;
    let operation =
        |path: &str, value: Value| json_patch(json!([{"op": "add", "path": path, "value": value}]));
    let labels = json!({"metadata": {"labels": "x"}});
    let labels_problem = |owner: &str| {
        format!(
            "json: cannot unmarshal string into Go struct field ObjectMeta.{owner} of type \
             map[string]string"
        )
    };
    for (path, patch, detail) in [
        (
            "pods/a",
            Patch::Strategic(labels.clone()),
            "cannot restore map from string".to_owned(),
        ),
        (
            "pods/a",
            Patch::Strategic(json!({"spec": {"containers": "x"}})),
            "cannot restore slice from string".to_owned(),
        ),
        (
            "pods/a",
            Patch::Merge(labels.clone()),
            labels_problem("metadata.labels"),
        ),
        (
            "pods/a/status",
            operation("/metadata/labels", json!("x")),
            labels_problem("metadata.labels"),
        ),
        (
            "pods/a",
            Patch::Merge(json!({"kind": "Pot"})),
            "no kind \"Pot\" is registered for version \"v1\" in scheme \
             \"pkg/api/legacyscheme/scheme.go:30\""
                .to_owned(),
        ),
        (
            "pods/a",
            operation("/kind", json!("Secret")),
            "converting (v1.Secret) to (core.Pod): unknown conversion".to_owned(),
        ),
        ("foos/a", Patch::Merge(labels), labels_problem("labels")),
        (
            "foos/a",
            operation("/apiVersion", json!("v9")),
            "request to convert CR from an invalid group/version: v9".to_owned(),
        ),
    ] {
        let value = match &patch {
            Patch::Strategic(_) => "map[".to_owned(),
            _ => String::new(),
        };
        let error = fixture.try_patch(path, patch).await.unwrap_err();
        let ApiError::Invalid { kind, name, .. } = &error else {
            panic!("{path}: {error}");
        };
        assert_eq!((kind.as_str(), name.as_str()), ("", ""));
        let causes = causes(error);
        assert_eq!(causes.len(), 1, "{causes:?}");
        let (field, message) = &causes[0];
        assert_eq!(field, "patch");
        assert!(
            message.starts_with(&format!("Invalid value: \"{value}")),
            "{message}"
        );
        assert!(
            message.ends_with(&format!(": {detail}")),
            "{message}, not {detail}"
        );
    }
    // A patch cannot change the kind of a built-in object.
    let kind = Patch::Strategic(json!({"kind": "Secret", "metadata": {"labels": {"a": "1"}}}));
    let patched = fixture.try_patch("pods/a", kind).await.unwrap();
    assert_eq!(patched["kind"], "Pod");
    assert_eq!(patched["metadata"]["labels"]["a"], "1");
}
