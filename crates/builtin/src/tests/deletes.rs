//! Deletion: immediate, graceful, blocked by finalizers, of collections.

use super::*;

/// WC-060, WC-061, WC-071
#[tokio::test]
async fn immediate_delete_returns_the_uid() {
    let fixture = fixture().await;
    let created = fixture.create("configmaps", named("c")).await;
    match fixture.delete("configmaps/c").await {
        Deleted::Immediately(object) => {
            assert_eq!(object.uid(), created["metadata"]["uid"]);
            assert!(
                object.resource_version() > rv(&created),
                "the deletion's own version"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.stored("/configmaps/default/c").await, None);
    assert!(
        fixture
            .try_get("configmaps/c")
            .await
            .unwrap_err()
            .is_not_found()
    );
    let again = fixture
        .try_delete("configmaps/c", json!({}))
        .await
        .unwrap_err();
    assert!(again.is_not_found(), "{again}");
}

/// WC-062, WC-073
#[tokio::test]
async fn delete_preconditions_are_checked_in_storage() {
    let fixture = fixture().await;
    let created = fixture.create("configmaps", named("c")).await;
    let with = |preconditions: Value| {
        fixture.try_delete("configmaps/c", json!({"preconditions": preconditions}))
    };
    let wrong = conflict(with(json!({"uid": "x"})).await.unwrap_err());
    assert!(
        wrong.starts_with("the UID in the precondition (x) does not match"),
        "{wrong}"
    );
    let wrong = conflict(with(json!({"resourceVersion": "1"})).await.unwrap_err());
    assert!(
        wrong.starts_with("the ResourceVersion in the precondition (1)"),
        "{wrong}"
    );
    let metadata = &created["metadata"];
    let right = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
    assert!(matches!(
        with(right).await.unwrap(),
        Deleted::Immediately(_)
    ));
}

/// WC-072
#[tokio::test]
async fn options_may_not_contradict_themselves() {
    let fixture = fixture().await;
    fixture.create("configmaps", named("c")).await;
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    let error = fixture.try_delete("configmaps/c", both).await.unwrap_err();
    assert!(error.to_string().contains("DeleteOptions"), "{error}");
    assert_eq!(causes(error)[0].0, "propagationPolicy");
    let error = fixture
        .try_delete("configmaps/c", json!({"dryRun": ["Some"]}))
        .await
        .unwrap_err();
    assert_eq!(causes(error)[0].0, "dryRun");
    assert!(fixture.stored("/configmaps/default/c").await.is_some());
}

/// WC-068, WC-069, WC-070
#[tokio::test]
async fn object_is_deleted_after_its_last_finalizer() {
    let fixture = fixture().await;
    let mut body = deployment("d");
    body["metadata"]["finalizers"] = json!(["x.y/1", "x.y/2"]);
    fixture.create("deployments", body).await;
    let pending = match fixture.delete("deployments/d").await {
        Deleted::Pending(object) => value(&object),
        other => panic!("{other:?}"),
    };
    assert_eq!(fixture.get("deployments/d").await, pending);
    assert_eq!(pending["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(pending["metadata"]["generation"], 2);
    let again = fixture
        .try_delete("deployments/d", json!({"gracePeriodSeconds": 0}))
        .await;
    match again.unwrap() {
        Deleted::Pending(object) => assert_eq!(value(&object), pending),
        other => panic!("{other:?}"),
    }
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    let more = Patch::Merge(finalizers(json!(["x.y/1", "x.y/2", "x.y/3"])));
    let error = fixture.try_patch("deployments/d", more).await.unwrap_err();
    assert!(causes(error)[0].1.contains("no new finalizers"));
    fixture
        .merge_patch("deployments/d", finalizers(json!(["x.y/2"])))
        .await;
    assert!(fixture.stored("/deployments/default/d").await.is_some());
    let last = fixture
        .merge_patch("deployments/d", finalizers(json!([])))
        .await;
    assert!(rv(&last) > rv(&pending));
    assert_eq!(fixture.stored("/deployments/default/d").await, None);
}

#[tokio::test]
async fn dependents_are_waited_for_by_finalizer() {
    let fixture = fixture().await;
    for (policy, finalizer) in [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")] {
        fixture.create("deployments", deployment("d")).await;
        let options = json!({"propagationPolicy": policy});
        let deleted = fixture.try_delete("deployments/d", options).await.unwrap();
        assert!(matches!(deleted, Deleted::Pending(_)), "{deleted:?}");
        let pending = fixture.get("deployments/d").await;
        assert_eq!(pending["metadata"]["finalizers"], json!([finalizer]));
        assert!(pending["metadata"]["deletionTimestamp"].is_string());
        // The new policy replaces the first one, and does not wait for dependents.
        let options = json!({"propagationPolicy": "Background"});
        let deleted = fixture.try_delete("deployments/d", options).await.unwrap();
        assert!(matches!(deleted, Deleted::Immediately(_)), "{deleted:?}");
    }
    fixture.create("events", named("e")).await;
    let options = json!({"propagationPolicy": "Foreground"});
    let deleted = fixture.try_delete("events/e", options).await.unwrap();
    assert!(
        matches!(deleted, Deleted::Immediately(_)),
        "nothing depends on an event"
    );
}

#[tokio::test]
async fn a_scheduled_pod_gets_time_to_end() {
    let fixture = fixture().await;
    fixture.create("pods", pod("free")).await;
    let free = fixture.delete("pods/free").await;
    assert!(matches!(free, Deleted::LastState(_)), "{free:?}");

    let mut body = pod("bound");
    body["spec"]["nodeName"] = json!("n1");
    fixture.create("pods", body).await;
    let pending = match fixture.delete("pods/bound").await {
        Deleted::Pending(object) => value(&object),
        other => panic!("{other:?}"),
    };
    assert_eq!(pending["metadata"]["deletionGracePeriodSeconds"], 30);
    let longer = fixture
        .try_delete("pods/bound", json!({"gracePeriodSeconds": 60}))
        .await;
    match longer.unwrap() {
        Deleted::Pending(object) => assert_eq!(value(&object), pending),
        other => panic!("{other:?}"),
    }
    fixture
        .try_delete("pods/bound", json!({"gracePeriodSeconds": 5}))
        .await
        .unwrap();
    let shorter = fixture.get("pods/bound").await;
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    let time = |v: &Value| -> jiff::Timestamp {
        v["metadata"]["deletionTimestamp"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap()
    };
    assert_eq!(time(&pending).duration_since(time(&shorter)).as_secs(), 25);
    assert_eq!(
        shorter["metadata"]["generation"],
        pending["metadata"]["generation"]
    );
    let forced = fixture
        .try_delete("pods/bound", json!({"gracePeriodSeconds": 0}))
        .await;
    assert!(matches!(forced.unwrap(), Deleted::LastState(_)));
    assert_eq!(fixture.stored("/pods/default/bound").await, None);
}

/// WC-074
#[tokio::test]
async fn a_collection_delete_obeys_its_selectors() {
    let fixture = fixture().await;
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
        let mut body = named(name);
        body["metadata"]["labels"] = json!({"app": app});
        fixture.create("configmaps", body).await;
    }
    let configmaps = fixture.resource("configmaps");
    let selection = |labels: &str| ListOptions {
        labels: labels.parse().unwrap(),
        ..ListOptions::default()
    };
    let options = DeleteOptions::default();
    let delete = async |labels: &str| {
        let selection = selection(labels);
        let list = fixture
            .registry
            .delete_collection(&configmaps, Some("default"), &selection, &options)
            .await;
        let names = |o: &Arc<Object>| o.key().name().to_owned();
        list.unwrap().items.iter().map(names).collect::<Vec<_>>()
    };
    assert_eq!(delete("app=web").await, ["a", "c"]);
    assert_eq!(delete("app=web").await, [""; 0]);
    assert!(fixture.try_get("configmaps/b").await.is_ok());
    assert_eq!(delete("").await, ["b"]);

    let namespaces = fixture.resource("namespaces");
    let all = ListOptions::default();
    let refused = fixture
        .registry
        .delete_collection(&namespaces, None, &all, &options)
        .await;
    assert!(matches!(refused, Err(ApiError::MethodNotAllowed(_))));
}

/// WC-075: an option deletes an object that cannot be decoded, and deletes no other object.
#[tokio::test]
async fn an_unreadable_object_can_be_deleted_with_the_unsafe_option() {
    const KEY: &str = "/configmaps/default/bad";
    let fixture = fixture().await;
    let blindly = json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true});
    fixture.create("configmaps", named("good")).await;
    let error = fixture.try_delete("configmaps/good", blindly.clone()).await;
    match error.unwrap_err() {
        ApiError::Invalid { kind, causes, .. } => {
            assert_eq!(kind, "configmaps");
            let field = "ignoreStoreReadErrorWithClusterBreakingPotential";
            assert_eq!(causes[0].field, field);
            assert!(
                causes[0]
                    .message
                    .starts_with("Invalid value: true: is exclusively used")
            );
        }
        other => panic!("{other}"),
    }
    fixture.get("configmaps/good").await;
    let absent = fixture.try_delete("configmaps/none", blindly.clone()).await;
    assert!(absent.unwrap_err().is_not_found());

    let corrupt = || Before::Put(KEY, json!(["garbage"]));
    fixture.storage.write_concurrently(corrupt()).await;
    for options in [json!({}), json!({"gracePeriodSeconds": 0})] {
        let error = fixture.try_delete("configmaps/bad", options).await;
        let error = error.unwrap_err();
        assert!(
            matches!(error, ApiError::Read(ReadError::Undecodable(_))),
            "{error}"
        );
    }
    let gone = fixture.try_delete("configmaps/bad", blindly.clone()).await;
    assert!(matches!(gone, Ok(Deleted::Corrupt)), "{gone:?}");
    assert_eq!(fixture.stored(KEY).await, None);

    // A read serves the bytes of this object, but it nests too deep to be decoded for an update or a delete.
    let mut deep = named("bad");
    deep["data"] = (0..130).fold(json!("x"), |inner, _| json!({"d": inner}));
    fixture
        .storage
        .write_concurrently(Before::Put(KEY, deep))
        .await;
    let error = fixture.try_delete("configmaps/bad", json!({})).await;
    assert!(matches!(error, Err(ApiError::Read(_))), "{error:?}");
    let gone = fixture.try_delete("configmaps/bad", blindly.clone()).await;
    assert!(matches!(gone, Ok(Deleted::Corrupt)), "{gone:?}");

    // A concurrent write repairs it just before the delete.
    fixture.storage.write_concurrently(corrupt()).await;
    let repaired = Before::Put(KEY, named("bad"));
    fixture.storage.before_writes.lock().push_back(repaired);
    let error = fixture.try_delete("configmaps/bad", blindly.clone()).await;
    assert_eq!(causes(error.unwrap_err()).len(), 1);
    assert!(fixture.stored(KEY).await.is_some());

    for (member, value) in [
        ("dryRun", json!(["All"])),
        ("propagationPolicy", json!("Background")),
        ("orphanDependents", json!(false)),
        ("gracePeriodSeconds", json!(0)),
        ("preconditions", json!({"uid": "u"})),
    ] {
        let mut options = blindly.clone();
        options[member] = value;
        let error = fixture.try_delete("configmaps/bad", options).await;
        let problems = causes(error.unwrap_err());
        assert_eq!(
            problems[0].1,
            format!("Invalid value: true: cannot be set together with .{member}")
        );
    }
    let options = serde_json::from_value(blindly).unwrap();
    let resource = fixture.resource("configmaps");
    let all = ListOptions::default();
    let error = fixture
        .registry
        .delete_collection(&resource, Some("default"), &all, &options);
    assert!(
        causes(error.await.unwrap_err())[0]
            .1
            .contains("DELETECOLLECTION")
    );
}
