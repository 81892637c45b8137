//! Patches, through storage.

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
    let told = containers.iter().map(|c| (&c["name"], &c["image"]));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [(&json!("b"), &json!("j")), (&json!("a"), &json!("i"))]
    );
    assert_eq!(d["metadata"]["labels"], json!({"b": "2"}));
    assert_eq!(fixture.get("deployments/d").await, d);
}

/// §8.6: malformed 400, inapplicable 422, absent 404, too long 413.
#[tokio::test]
async fn a_patch_is_refused_for_what_it_is() {
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
async fn a_version_in_a_patch_is_a_condition() {
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

/// An object that could be stored but not read back could never be changed or deleted again.
#[tokio::test]
async fn no_write_makes_an_object_that_cannot_be_deleted() {
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
