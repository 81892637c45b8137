//! Tests of creates, and of the errors that precede the write to storage.

use super::*;

/// WC-005, WC-006, WC-008, WC-020
#[tokio::test]
async fn server_sets_uid_times_and_status_of_new_objects() {
    let fixture = fixture().await;
    let mut body = pod("a");
    body["metadata"]["uid"] = json!("mine");
    body["metadata"]["creationTimestamp"] = json!("1999-01-01T00:00:00Z");
    body["metadata"]["deletionTimestamp"] = json!("1999-01-01T00:00:00Z");
    body["metadata"]["generation"] = json!(7);
    body["metadata"]["selfLink"] = json!("/x");
    body["status"] = json!({"phase": "Running", "podIP": "10.0.0.1"});
    let created = fixture.create("pods", body).await;
    let metadata = &created["metadata"];
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert_ne!(metadata["creationTimestamp"], "1999-01-01T00:00:00Z");
    let time = metadata["creationTimestamp"].as_str().unwrap();
    assert!(
        time.len() == 20 && time.ends_with('Z'),
        "whole seconds: {time}"
    );
    assert!(metadata["deletionTimestamp"].is_null());
    assert_eq!(metadata["generation"], 1);
    let status = json!({"phase": "Pending", "qosClass": "BestEffort"});
    assert_eq!(created["status"], status);
    assert_eq!(
        (&created["apiVersion"], &created["kind"]),
        (&json!("v1"), &json!("Pod"))
    );

    let stored = fixture.stored("/pods/default/a").await.unwrap();
    assert!(stored["metadata"]["resourceVersion"].is_null());
    assert!(stored["metadata"]["selfLink"].is_null());
    assert_eq!(fixture.get("pods/a").await, created);
}

#[tokio::test]
async fn only_resources_with_desired_state_have_a_generation() {
    let fixture = fixture().await;
    let created = fixture.create("configmaps", named("c")).await;
    assert!(created["metadata"]["generation"].is_null());
    assert!(created["status"].is_null());
    let created = fixture.create("deployments", deployment("d")).await;
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created["status"], json!({}));
}

/// WC-009, WC-021, and other errors that precede the write to storage.
#[tokio::test]
async fn body_that_contradicts_the_url_is_a_bad_request() {
    let fixture = fixture().await;
    let refused =
        async |body: Value| bad_request(fixture.try_create("pods", body).await.unwrap_err());
    let mut body = pod("a");
    body["metadata"]["namespace"] = json!("other");
    assert_eq!(
        refused(body).await,
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    let mut body = pod("a");
    body["apiVersion"] = json!("v2");
    assert!(
        refused(body)
            .await
            .contains("no kind \"Pod\" is registered for version \"v2\"")
    );
    let mut body = pod("a");
    body["kind"] = json!("ConfigMap");
    assert!(
        refused(body)
            .await
            .contains("ConfigMap in version \"v1\" cannot be handled as a Pod")
    );
    for (body, member) in [
        (json!([]), "the body"),
        (
            json!({"metadata": 1}),
            "metadata must be an object, not a number",
        ),
        (
            json!({"metadata": {"name": 1}}),
            "metadata.name must be a string",
        ),
        (
            json!({"metadata": {"labels": {"a": 1}}}),
            "metadata.labels[a]",
        ),
        (
            json!({"metadata": {"annotations": []}}),
            "metadata.annotations",
        ),
        (
            json!({"metadata": {"finalizers": [1]}}),
            "metadata.finalizers",
        ),
        (
            json!({"metadata": {"ownerReferences": ["x"]}}),
            "metadata.ownerReferences",
        ),
        (json!({"kind": 1}), "kind must be a string"),
    ] {
        let message = refused(body).await;
        assert!(message.contains(member), "{message}");
    }
    assert_eq!(fixture.stored("/pods/default/a").await, None);
}

#[tokio::test]
async fn invalid_metadata_error_has_the_field() {
    let fixture = fixture().await;
    let refused = async |plural: &str, body: Value| {
        causes(fixture.try_create(plural, body).await.unwrap_err())
    };
    let mut nameless = pod("");
    nameless["metadata"] = json!({});
    let missing = refused("pods", nameless).await;
    let text = "Required value: name or generateName is required";
    assert_eq!(missing, [("metadata.name".to_owned(), text.to_owned())]);
    let wrong = refused("pods", pod("A_b")).await;
    assert_eq!(wrong[0].0, "metadata.name");
    let text = "Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must consist of";
    assert!(wrong[0].1.starts_with(text), "{wrong:?}");
    assert!(
        refused("namespaces", named("a.b")).await[0]
            .1
            .contains("RFC 1123 label")
    );
    assert!(
        refused("services", named("a.b")).await[0]
            .1
            .contains("RFC 1123 label")
    );
    assert!(
        refused("roles", named("a%b")).await[0]
            .1
            .contains("may not contain '%'")
    );
    let mut body = pod("a");
    body["metadata"]["labels"] = json!({"a b": "x", "ok": "-"});
    let fields: Vec<String> = refused("pods", body)
        .await
        .into_iter()
        .map(|c| c.0)
        .collect();
    assert_eq!(fields, ["metadata.labels", "metadata.labels"]);
    let mut body = named("a");
    body["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p"}]);
    assert_eq!(
        refused("pods", body).await[0].0,
        "metadata.ownerReferences.uid"
    );
    let mut body = named("");
    body["metadata"]["generateName"] = json!("Web-");
    assert_eq!(refused("pods", body).await[0].0, "metadata.generateName");
    fixture.create("roles", named("system:node")).await;
}

/// WC-011
#[tokio::test]
async fn generate_name_makes_a_name() {
    let fixture = fixture().await;
    let body = json!({"metadata": {"generateName": "web-"}, "spec": pod("")["spec"]});
    let created = fixture.create("pods", body).await;
    let name = created["metadata"]["name"].as_str().unwrap();
    assert!(name.len() == 9 && name.starts_with("web-"), "{name}");
    assert_eq!(created["metadata"]["generateName"], "web-");

    *fixture.storage.collisions.lock() = 7;
    let body = json!({"metadata": {"generateName": "ns-"}});
    let created = fixture.create("namespaces", body).await;
    let metadata = &created["metadata"];
    assert_eq!(
        metadata["labels"]["kubernetes.io/metadata.name"],
        metadata["name"]
    );
}

/// WC-012
#[tokio::test]
async fn generate_name_fails_after_eight_collisions() {
    let fixture = fixture().await;
    *fixture.storage.collisions.lock() = 8;
    let body = json!({"metadata": {"generateName": "web-"}, "spec": pod("")["spec"]});
    let error = fixture.try_create("pods", body).await.unwrap_err();
    assert!(matches!(error, ApiError::NamesExhausted { .. }), "{error}");
    assert_eq!(
        *fixture.storage.collisions.lock(),
        0,
        "eight tries, not more"
    );
}

/// WC-022
#[tokio::test]
async fn create_of_an_existing_name_is_already_exists() {
    let fixture = fixture().await;
    let mut body = pod("a");
    body["metadata"]["finalizers"] = json!(["x.y/z"]);
    fixture.create("pods", body).await;
    let exists = async || match fixture.try_create("pods", pod("a")).await.unwrap_err() {
        ApiError::AlreadyExists {
            resource,
            name,
            being_deleted,
        } => {
            assert_eq!((&*resource, &*name), ("pods", "a"));
            being_deleted
        }
        other => panic!("{other}"),
    };
    assert!(!exists().await);
    fixture.delete("pods/a").await;
    assert!(exists().await);
}

/// WC-030
#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let fixture = fixture().await;
    let pods = fixture.resource("pods");
    let options = WriteOptions {
        dry_run: true,
        ..WriteOptions::default()
    };
    let create = |name| {
        fixture
            .registry
            .create(&pods, Some("default"), pod(name), &options)
    };
    let created = value(&create("a").await.unwrap());
    assert!(created["metadata"]["resourceVersion"].is_null());
    assert!(created["metadata"]["uid"].is_string());
    assert_eq!(fixture.stored("/pods/default/a").await, None);

    let stored = fixture.create("pods", pod("b")).await;
    let error = create("b").await.unwrap_err();
    assert!(matches!(error, ApiError::AlreadyExists { .. }), "{error}");

    let mut body = stored.clone();
    body["metadata"]["labels"] = json!({"a": "b"});
    let target = fixture.target("pods/b");
    let (updated, _) = fixture
        .registry
        .update(&target, body, &options)
        .await
        .unwrap();
    assert_eq!(updated.label("a"), Some("b"));
    assert_eq!(updated.resource_version(), rv(&stored));
    let dry = json!({"dryRun": ["All"]});
    let deleted = fixture.try_delete("pods/b", dry).await.unwrap();
    assert!(matches!(deleted, Deleted::LastState(_)));
    assert_eq!(fixture.get("pods/b").await, stored);
}

#[tokio::test]
async fn duplicate_owners_and_nulls_are_removed() {
    let fixture = fixture().await;
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"});
    let created = fixture
        .create(
            "pods",
            json!({"metadata": {"name": "a", "creationTimestamp": null, "annotations": {"k": null},
                "ownerReferences": [owner, owner]}, "spec": pod("a")["spec"]}),
        )
        .await;
    assert_eq!(created["metadata"]["ownerReferences"], json!([owner]));
    assert_eq!(created["metadata"]["annotations"], json!({"k": ""}));
    assert!(created["metadata"]["creationTimestamp"].is_string());
}

/// They are valid in kube-apiserver, and were rejected.
#[tokio::test]
async fn finalizers_of_leases_and_events_need_no_domain() {
    let fixture = fixture().await;
    for plural in ["leases", "events", "poddisruptionbudgets"] {
        let object = json!({"metadata": {"name": "a", "finalizers": ["foo"]}});
        fixture.create(plural, object).await;
    }
    let object = json!({"metadata": {"name": "a", "finalizers": ["foo"]}});
    let rejected = fixture.try_create("configmaps", object).await;
    assert_eq!(causes(rejected.unwrap_err())[0].0, "metadata.finalizers[0]");
}

#[tokio::test]
async fn string_data_of_a_secret_is_stored_as_data() {
    let fixture = fixture().await;
    let body = json!({"metadata": {"name": "s"}, "data": {"b": "Yg=="}, "stringData": {"a": "x"}});
    let created = fixture.create("secrets", body).await;
    assert_eq!(created["data"], json!({"a": "eA==", "b": "Yg=="}));
    assert!(created["stringData"].is_null());
    let patched = fixture
        .merge_patch("secrets/s", json!({"stringData": {"a": "y"}}))
        .await;
    assert_eq!(patched["data"], json!({"a": "eQ==", "b": "Yg=="}));
}

/// WC-023, WC-049: every write of an event sets its TTL in storage.
#[tokio::test]
async fn events_are_kept_for_an_hour() {
    let fixture = fixture().await;
    let hour = Some(std::time::Duration::from_secs(3600));
    fixture.create("events", named("e")).await;
    assert_eq!(*fixture.storage.ttl.lock(), hour);
    fixture.create("pods", pod("a")).await;
    assert_eq!(*fixture.storage.ttl.lock(), None);
    fixture.merge_patch("events/e", json!({"count": 2})).await;
    assert_eq!(*fixture.storage.ttl.lock(), hour);
}

#[tokio::test]
async fn both_events_groups_serve_the_same_objects() {
    let fixture = fixture().await;
    let newer = fixture
        .registry
        .resource("events.k8s.io", "v1", "events")
        .unwrap();
    let body = json!({"metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p"},
        "note": "n", "reportingController": "c", "reportingInstance": "i", "action": "a", "reason": "r",
        "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z"});
    let options = WriteOptions::default();
    let created = fixture
        .registry
        .create(&newer, Some("default"), body, &options);
    let created = created.await.unwrap();
    let shown = fixture.registry.converted(&newer, created.body_slice());
    let shown: Value = serde_json::from_slice(&shown.unwrap().unwrap()).unwrap();
    assert_eq!(
        (&shown["apiVersion"], &shown["note"]),
        (&json!("events.k8s.io/v1"), &json!("n"))
    );

    let core = fixture.resource("events");
    assert_eq!(
        fixture
            .registry
            .converted(&core, created.body_slice())
            .unwrap(),
        None
    );
    let seen = fixture.get("events/e").await;
    assert_eq!(
        (&seen["apiVersion"], &seen["message"]),
        (&json!("v1"), &json!("n"))
    );
    let target = Target {
        resource: newer,
        ..fixture.target("events/e")
    };
    let series = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"});
    let patch = Patch::Merge(json!({"series": series}));
    fixture
        .registry
        .patch(&target, &patch, &options)
        .await
        .unwrap();
    assert_eq!(fixture.get("events/e").await["series"], series);
}

#[tokio::test]
async fn both_events_groups_share_one_cache_and_its_fields() {
    let fixture = fixture().await;
    for name in ["p", "q"] {
        let body = json!({"metadata": {"name": name}, "involvedObject": {"name": name}});
        fixture.create("events", body).await;
    }
    for (group, fields) in [
        ("", "involvedObject.name=p"),
        ("events.k8s.io", "regarding.name=p"),
    ] {
        let resource = fixture.registry.resource(group, "v1", "events").unwrap();
        let fields = fields.parse().unwrap();
        let select = ListOptions {
            fields,
            ..ListOptions::default()
        };
        let list = fixture
            .registry
            .list(&resource, Some("default"), &select)
            .await
            .unwrap();
        let names: Vec<&str> = list.items.iter().map(|o| o.key().name()).collect();
        assert_eq!(names, ["p"], "{group}");
    }
    let caches = fixture.registry.cache_readiness();
    assert_eq!(
        caches.iter().filter(|c| c.0.starts_with("events")).count(),
        1
    );
}

/// WC-208
#[tokio::test]
async fn unknown_field_selector_is_a_bad_request() {
    let fixture = fixture().await;
    let list = async |plural: &str| {
        let fields = "spec.x=1".parse().unwrap();
        let options = ListOptions {
            fields,
            ..ListOptions::default()
        };
        let list = fixture
            .registry
            .list(&fixture.resource(plural), None, &options)
            .await;
        bad_request(list.unwrap_err())
    };
    assert_eq!(list("pods").await, "field label not supported: spec.x");
    assert_eq!(
        list("configmaps").await,
        "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
    assert_eq!(
        list("jobs").await,
        "field label \"spec.x\" not supported for batchv1.Job"
    );
    assert_eq!(
        list("resourceslices").await,
        "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.x"
    );
    let target = Target {
        name: "a/b".to_owned(),
        ..fixture.target("pods/a")
    };
    let error = fixture
        .registry
        .get(&target, GetOptions::default())
        .await
        .unwrap_err();
    assert!(bad_request(error).contains("may not contain '/'"));
}

/// A small body may contain hundreds of thousands of owner references.
#[test]
fn duplicates_of_many_owners_are_removed() {
    let owner = |n: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": n});
    let owners: Value = (0..200_000).map(|n| owner(n % 100_000)).collect();
    let mut body = json!({"metadata": {"name": "a", "ownerReferences": owners}});
    let warnings = watchet_api::Warnings::default();
    metadata::dedupe_owners(&mut body, &warnings);
    assert!(warnings.texts()[0].ends_with("observed: [0,1,2,3,4,5,6,7]"));
    let kept = body["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(kept.len(), 100_000);
    assert_eq!(
        (&kept[0]["uid"], &kept[99_999]["uid"]),
        (&json!(0), &json!(99_999))
    );
}
