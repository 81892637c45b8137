//! Updates, by PUT and to subresources.

use super::*;

/// WC-010, WC-040, WC-044, WC-050
#[tokio::test]
async fn update_checks_name_existence_and_version() {
    let fixture = fixture().await;
    let created = fixture.create("pods", pod("a")).await;
    let other = bad_request(
        fixture
            .try_update("pods/b", created.clone())
            .await
            .unwrap_err(),
    );
    assert_eq!(
        other,
        "the name of the object (a) does not match the name on the URL (b)"
    );
    let nameless = bad_request(fixture.try_update("pods/a", json!({})).await.unwrap_err());
    assert!(nameless.contains("undeterminable: name must be provided"));
    let missing = fixture
        .try_update("pods/none", pod("none"))
        .await
        .unwrap_err();
    assert!(missing.is_not_found(), "{missing}");

    let mut body = created.clone();
    body["metadata"]["labels"] = json!({"a": "1"});
    let updated = fixture.update("pods/a", body.clone()).await;
    assert!(rv(&updated) > rv(&created));
    body["metadata"]["labels"] = json!({"a": "2"});
    let late = conflict(
        fixture
            .try_update("pods/a", body.clone())
            .await
            .unwrap_err(),
    );
    assert!(late.starts_with("the object has been modified; please apply your changes"));

    body["metadata"]["resourceVersion"] = json!("");
    fixture.update("pods/a", body.clone()).await;
    body["metadata"]["uid"] = json!("another");
    let error = fixture
        .try_update("pods/a", body.clone())
        .await
        .unwrap_err();
    assert!(conflict(error).contains("UID in precondition: another"));
    body["metadata"]["resourceVersion"] = json!("x");
    body["metadata"]["uid"] = json!("");
    let error = fixture.try_update("pods/a", body).await.unwrap_err();
    assert_eq!(causes(error)[0].0, "metadata.resourceVersion");
}

/// WC-041, WC-042
#[tokio::test]
async fn an_update_without_changes_writes_nothing() {
    let fixture = fixture().await;
    let created = fixture.create("pods", pod("a")).await;
    let writes = *fixture.storage.writes.lock();
    let mut body = created.clone();
    body["metadata"]["selfLink"] = json!("/else");
    assert_eq!(fixture.update("pods/a", body).await, created);
    assert_eq!(fixture.merge_patch("pods/a", json!({})).await, created);
    assert_eq!(*fixture.storage.writes.lock(), writes);
}

#[tokio::test]
async fn identity_survives_an_update() {
    let fixture = fixture().await;
    let created = fixture.create("pods", pod("a")).await;
    let mut body = pod("a");
    body["metadata"]["creationTimestamp"] = json!("1999-01-01T00:00:00Z");
    body["metadata"]["deletionTimestamp"] = json!("1999-01-01T00:00:00Z");
    body["metadata"]["generation"] = json!(99);
    body["metadata"]["labels"] = json!({"a": "b"});
    let updated = fixture.update("pods/a", body).await;
    for member in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "generation",
    ] {
        assert_eq!(
            updated["metadata"][member], created["metadata"][member],
            "{member}"
        );
    }
    assert_eq!(updated["metadata"]["labels"], json!({"a": "b"}));
}

/// WC-013, WC-014
#[tokio::test]
async fn generation_counts_desired_states() {
    let fixture = fixture().await;
    fixture.create("deployments", deployment("d")).await;
    let generation = |v: &Value| v["metadata"]["generation"].as_i64().unwrap();
    let d = fixture
        .merge_patch("deployments/d", json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    assert_eq!(generation(&d), 1);
    let d = fixture
        .merge_patch("deployments/d", json!({"spec": {"replicas": 2}}))
        .await;
    assert_eq!(generation(&d), 2);

    let both = json!({"spec": {"replicas": 9}, "status": {"replicas": 2},
        "metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}, "finalizers": ["x.y/z"]}});
    let d = fixture
        .merge_patch("deployments/d/status", both.clone())
        .await;
    assert_eq!((generation(&d), &d["spec"]["replicas"]), (2, &json!(2)));
    assert_eq!(d["status"], json!({"replicas": 2}));
    assert_eq!(
        d["metadata"]["labels"],
        json!({"a": "b"}),
        "a status says nothing of labels"
    );
    assert!(d["metadata"]["finalizers"].is_null());

    let main = json!({"spec": {"replicas": 3}, "status": {"replicas": 7}});
    let d = fixture.merge_patch("deployments/d", main).await;
    assert_eq!((generation(&d), &d["status"]), (3, &json!({"replicas": 2})));
    let mut body = deployment("d");
    body["spec"]["replicas"] = json!(3);
    let d = fixture.update("deployments/d", body).await;
    assert_eq!((generation(&d), &d["status"]), (3, &json!({"replicas": 2})));

    fixture.create("pods", pod("a")).await;
    let a = fixture.merge_patch("pods/a/status", both).await;
    assert_eq!(a["metadata"]["labels"], json!({"x": "y"}));
    let error = fixture
        .try_update("configmaps/c/status", named("c"))
        .await
        .unwrap_err();
    assert!(matches!(error, ApiError::MethodNotAllowed(_)), "{error}");
}

/// WC-040
#[tokio::test]
async fn some_resources_are_created_by_an_update() {
    let fixture = fixture().await;
    let target = fixture.target("leases/l");
    let options = WriteOptions::default();
    let put = |body| fixture.registry.update(&target, body, &options);
    let (lease, created) = put(named("l")).await.unwrap();
    assert!(created);
    let mut body = value(&lease);
    body["spec"] = json!({"holderIdentity": "me"});
    let (_, created) = put(body).await.unwrap();
    assert!(!created);
    let error = fixture
        .try_update("configmaps/c", named("c"))
        .await
        .unwrap_err();
    assert!(error.is_not_found(), "{error}");

    // A resourceVersion is a condition only if the object exists.
    let mut body = named("other");
    body["metadata"]["resourceVersion"] = json!("4");
    let other = fixture.update("leases/other", body).await;
    assert!(other["metadata"]["uid"].is_string());
    let class = json!({"metadata": {"name": "r"}, "handler": "h"});
    fixture.update("runtimeclasses/r", class).await;
    // A uid is a precondition on one object, which does not exist.
    for (path, name) in [("leases/third", "third"), ("configmaps/third", "third")] {
        let mut body = named(name);
        body["metadata"]["uid"] = json!("u");
        let error = fixture.try_update(path, body).await.unwrap_err();
        assert_eq!(
            conflict(error),
            "Precondition failed: UID in precondition: u, UID in object meta: "
        );
    }
    let nowhere = Target {
        namespace: Some("none".to_owned()),
        ..fixture.target("leases/l")
    };
    let error = fixture
        .registry
        .update(&nowhere, named("l"), &options)
        .await;
    assert!(error.unwrap_err().is_not_found(), "the namespace");
}

/// Two concurrent PUTs of an object that does not exist: the second one updates the created object, and its error must
/// not report that the object cannot be created.
#[tokio::test]
async fn update_of_a_concurrently_created_object_updates_it() {
    let fixture = fixture().await;
    let theirs = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Endpoints", "subsets": [{"addresses": [{"ip": "10.0.0.1"}]}],
            "metadata": {"name": name, "namespace": "default", "uid": "theirs"}})
    };
    let key = "/services/endpoints/default/e";
    let before = Before::Put(key, theirs("e"));
    fixture.storage.before_writes.lock().push_back(before);
    let target = fixture.target("endpoints/e");
    let options = WriteOptions::default();
    let put = fixture.registry.update(&target, named("e"), &options).await;
    let (object, created) = put.unwrap();
    assert!(!created);
    assert_eq!(value(&object)["metadata"]["uid"], "theirs");

    let key = "/leases/default/l";
    let before = Before::Put(key, theirs("l"));
    fixture.storage.before_writes.lock().push_back(before);
    let mut body = named("l");
    body["metadata"]["resourceVersion"] = json!("4");
    let error = fixture.try_update("leases/l", body).await.unwrap_err();
    assert!(conflict(error).starts_with("the object has been modified"));
}

/// A PUT without a version once overwrote the holder of a lease.
#[tokio::test]
async fn some_resources_require_a_version_for_updates() {
    let fixture = fixture().await;
    for plural in ["leases", "poddisruptionbudgets", "csinodes"] {
        let created = fixture.create(plural, named("x")).await;
        let path = format!("{plural}/x");
        for version in ["", "0"] {
            let mut body = created.clone();
            body["metadata"]["resourceVersion"] = json!(version);
            body["spec"] = json!({"holderIdentity": "another"});
            match fixture.try_update(&path, body).await.unwrap_err() {
                ApiError::Invalid { kind, causes, .. } => {
                    assert_eq!((&*kind, causes.len()), (plural, 1));
                    assert_eq!(causes[0].field, "metadata.resourceVersion");
                    let expected = "Invalid value: 0: must be specified for an update";
                    assert_eq!(causes[0].message, expected);
                }
                other => panic!("{other}"),
            }
        }
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        fixture.merge_patch(&path, patch).await;
    }
}

/// The labels of a new job were those of its template only after the first update: an update without a change made a new
/// version. Found by fuzzing.
#[tokio::test]
async fn an_update_of_a_new_job_without_a_change_changes_nothing() {
    let fixture = fixture().await;
    let mut job =
        json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": pod("p")["spec"]}}});
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let created = fixture.create("jobs", job).await;
    let labels = &created["metadata"]["labels"];
    assert_eq!(*labels, created["spec"]["template"]["metadata"]["labels"]);
    assert_eq!(labels["job-name"], "j");
    let updated = fixture.update("jobs/j", created.clone()).await;
    assert_eq!(updated, created);
}
