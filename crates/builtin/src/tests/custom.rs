//! Tests of custom resources: how a definition is established, validated and deleted.

use std::time::Duration;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

impl Fixture {
    pub(super) async fn define(&self, definition: Value) -> Value {
        self.create("customresourcedefinitions", definition).await
    }

    /// Waits until `condition` is true for the stored definition of this name.
    pub(super) async fn until_defined(
        &self,
        name: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let path = format!("customresourcedefinitions/{name}");
        let waiting = async {
            loop {
                let now = self.try_get(&path).await;
                if let Some(now) = now.ok().filter(|now| condition(now)) {
                    return now;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .expect("in vain")
    }

    async fn until_terminating(&self, path: &str) {
        let waiting = async {
            while !self.get(path).await["metadata"]["deletionTimestamp"].is_string() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .expect("the object is marked as terminating");
    }

    async fn wait_until_deleted(&self, path: &str) {
        let waiting = async {
            while !matches!(self.try_get(path).await, Err(e) if e.is_not_found()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .expect("the object is deleted");
    }

    fn serves(&self, plural: &str) -> bool {
        self.registry
            .resource("example.com", "v1", plural)
            .is_some()
    }
}

/// Returns the `reason` of a condition, and whether it is true.
pub(super) fn condition(definition: &Value, name: &str) -> String {
    let all = definition["status"]["conditions"].as_array().cloned();
    let one = all
        .unwrap_or_default()
        .into_iter()
        .find(|c| c["type"] == name);
    one.map_or_else(String::new, |c| {
        let text = |member: &str| c[member].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("status"), text("reason"))
    })
}

pub(super) fn established(definition: &Value) -> bool {
    condition(definition, "Established").starts_with("True")
}

#[tokio::test]
async fn an_established_definition_is_served() {
    let f = fixture().await;
    let defined = f.define(definition("foos", "Foo")).await;
    assert_eq!(defined["spec"]["names"]["singular"], "foo");
    assert_eq!(defined["spec"]["names"]["listKind"], "FooList");
    assert_eq!(defined["spec"]["conversion"]["strategy"], "None");
    assert_eq!(defined["status"]["storedVersions"], json!(["v1"]));
    let now = f.until_defined("foos.example.com", established).await;
    assert_eq!(condition(&now, "NamesAccepted"), "True NoConflicts");
    assert_eq!(condition(&now, "Established"), "True InitialNamesAccepted");
    assert_eq!(now["status"]["acceptedNames"]["kind"], "Foo");
    assert_eq!(now["metadata"]["generation"], 1);
    assert!(f.serves("foos"), "it is served before it says so");
    let foo = json!({"metadata": {"name": "a"}, "spec": {"color": "red"}, "status": {"s": 1}});
    let made = f.create("foos", foo).await;
    assert_eq!(made["apiVersion"], "example.com/v1");
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made.get("status"), None, "it has a subresource");
    let stored = f.stored("/example.com/foos/default/a").await.unwrap();
    assert_eq!(stored["spec"]["color"], "red");
}

/// WC-013, WC-014, WC-051
#[tokio::test]
async fn custom_object_generations_and_required_version() {
    let f = fixture().await;
    f.define(definition("foos", "Foo")).await;
    f.until_defined("foos.example.com", established).await;
    let mut made = f
        .create("foos", json!({"metadata": {"name": "a"}, "spec": {"n": 1}}))
        .await;
    made["metadata"]["labels"] = json!({"l": "1"});
    let labelled = f.update("foos/a", made).await;
    assert_eq!(labelled["metadata"]["generation"], 1);
    let changed = f
        .merge_patch("foos/a", json!({"spec": {"n": 2}, "status": {"x": 1}}))
        .await;
    assert_eq!(changed["metadata"]["generation"], 2);
    assert_eq!(changed.get("status"), None);
    let patch = json!({"spec": {"n": 3}, "status": {"x": 1}, "metadata": {"labels": {"l": "2"}}});
    let reported = f.merge_patch("foos/a/status", patch).await;
    assert_eq!(reported["status"], json!({"x": 1}));
    assert_eq!(reported["spec"], json!({"n": 2}));
    assert_eq!(reported["metadata"]["generation"], 2);
    assert_eq!(reported["metadata"]["labels"], json!({"l": "1"}));
    let error = f
        .try_update("foos/a", json!({"metadata": {"name": "a"}}))
        .await
        .unwrap_err();
    let expected = "Invalid value: 0: must be specified for an update";
    assert_eq!(
        causes(error),
        [("metadata.resourceVersion".to_owned(), expected.to_owned())]
    );
}

#[tokio::test]
async fn definition_with_names_in_use_is_not_established() {
    let f = fixture().await;
    f.define(definition("foos", "Foo")).await;
    f.until_defined("foos.example.com", established).await;
    f.define(definition("bars", "Foo")).await;
    let refused = |d: &Value| condition(d, "NamesAccepted").starts_with("False");
    let now = f.until_defined("bars.example.com", refused).await;
    // The singular name is derived from the kind, and the last conflict is reported.
    assert_eq!(condition(&now, "NamesAccepted"), "False ListKindConflict");
    assert_eq!(condition(&now, "Established"), "False NotAccepted");
    assert!(!f.serves("bars"));
    f.delete("customresourcedefinitions/foos.example.com").await;
    f.until_defined("bars.example.com", established).await;
    assert!(f.serves("bars"), "the names are free again");
}

#[tokio::test]
async fn definition_is_deleted_after_its_objects() {
    let f = fixture().await;
    f.define(definition("foos", "Foo")).await;
    f.until_defined("foos.example.com", established).await;
    for name in ["a", "b", "held"] {
        let finalizers = match name {
            "held" => json!(["example.com/x"]),
            _ => json!([]),
        };
        f.create(
            "foos",
            json!({"metadata": {"name": name, "finalizers": finalizers}}),
        )
        .await;
    }
    let deleted = f.delete("customresourcedefinitions/foos.example.com").await;
    let Deleted::Pending(object) = deleted else {
        panic!("{deleted:?}");
    };
    let marked = value(&object);
    let finalizers = json!(["customresourcecleanup.apiextensions.k8s.io"]);
    assert_eq!(marked["metadata"]["finalizers"], finalizers);
    assert_eq!(
        condition(&marked, "Terminating"),
        "True InstanceDeletionPending"
    );
    f.wait_until_deleted("foos/a").await;
    f.wait_until_deleted("foos/b").await;
    // The objects are deleted concurrently.
    f.until_terminating("foos/held").await;
    let now = f.get("customresourcedefinitions/foos.example.com").await;
    assert_eq!(
        condition(&now, "Terminating"),
        "True InstanceDeletionInProgress"
    );
    let error = f.try_create("foos", named("new")).await.unwrap_err();
    assert!(matches!(error, ApiError::MethodNotAllowed(_)), "{error}");
    let offered = f.resource("foos").offered().join(" ");
    assert_eq!(offered, "delete deletecollection get list watch");
    f.merge_patch("foos/held", json!({"metadata": {"finalizers": null}}))
        .await;
    f.wait_until_deleted("customresourcedefinitions/foos.example.com")
        .await;
    let waiting = async {
        while f.serves("foos") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("it is forgotten");
    assert_eq!(f.stored("/example.com/foos/default/held").await, None);
}

/// A definition that is in storage when a server starts is served before the server is ready.
#[tokio::test]
async fn definitions_are_served_after_a_restart() {
    let f = fixture().await;
    f.define(definition("foos", "Foo")).await;
    f.until_defined("foos.example.com", established).await;
    let (tasks, config) = (Tasks::new(), CacherConfig::default());
    let next = new_registry(f.storage.clone(), &tasks, config, Metrics::new());
    assert!(next.resource("example.com", "v1", "foos").is_none());
    next.bootstrap().await.unwrap();
    assert!(next.resource("example.com", "v1", "foos").is_some());
    tasks.cancel();
}

/// A request that resolved its resource just before the definition was deleted, or its selectable fields changed.
#[tokio::test]
async fn outdated_resource_starts_no_cache() {
    let f = fixture().await;
    f.define(definition("foos", "Foo")).await;
    f.until_defined("foos.example.com", established).await;
    let resource = f.resource("foos");
    let list = async |resource: &Arc<Resource>| {
        f.registry
            .list(resource, None, &ListOptions::default())
            .await
    };
    list(&resource).await.unwrap();
    let columns = json!({"spec": {"versions": definition("foos", "Foo")["spec"]["versions"]}});
    let mut patch = columns;
    patch["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.size"}]);
    f.merge_patch("customresourcedefinitions/foos.example.com", patch)
        .await;
    let waiting = async {
        while f.resource("foos").columns.resolve("spec.size").is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("it is followed");
    assert!(matches!(list(&resource).await, Err(ApiError::NotServed)));
    list(&f.resource("foos")).await.unwrap();
    f.delete("customresourcedefinitions/foos.example.com").await;
    f.wait_until_deleted("customresourcedefinitions/foos.example.com")
        .await;
    let waiting = async {
        while f.serves("foos") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("it is forgotten");
    assert!(matches!(list(&resource).await, Err(ApiError::NotServed)));
    let started = f.registry.cache_readiness();
    assert!(started.iter().all(|(name, _)| name != "foos.example.com"));
}

/// A definition that another API server has stored, by older validation rules.
#[tokio::test]
async fn non_structural_schema_is_reported_and_served() {
    let f = fixture().await;
    let mut foreign = definition("foos", "Foo");
    foreign["kind"] = "CustomResourceDefinition".into();
    foreign["apiVersion"] = "apiextensions.k8s.io/v1".into();
    foreign["metadata"]["uid"] = "u".into();
    foreign["metadata"]["generation"] = 1.into();
    foreign["spec"]["preserveUnknownFields"] = true.into();
    foreign["spec"]["names"]["listKind"] = "FooList".into();
    foreign["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({
        "properties": {"spec": {"properties": {"size": {"type": "integer"}}}},
    });
    let put = watchet_storage::Put {
        key: watchet_api::StorageKey::new(
            "/apiextensions.k8s.io/customresourcedefinitions/foos.example.com",
        )
        .unwrap(),
        value: foreign.to_string().into(),
        expect: watchet_storage::Expect::Absent,
        ttl: None,
    };
    watchet_storage::Storage::put(&*f.storage, put)
        .await
        .unwrap();
    let now = f.until_defined("foos.example.com", established).await;
    let of = |now: &Value| condition(now, "NonStructuralSchema");
    assert_eq!(of(&now), "True Violations");
    let all = now["status"]["conditions"].as_array().unwrap();
    let violations = all
        .iter()
        .find(|c| c["type"] == "NonStructuralSchema")
        .unwrap();
    let at = "spec.versions[0].schema.openAPIV3Schema";
    let expected = format!(
        "[{at}.type: Required value: must not be empty at the root, {at}.properties[spec].type: \
         Required value: must not be empty for specified object fields]"
    );
    assert_eq!(violations["message"], expected);
    let made = json!({"metadata": {"name": "a"}, "spec": {"size": 1, "other": {"x": 1}}, "y": 2});
    let stored = f.create("foos", made.clone()).await;
    assert_eq!(
        (&stored["spec"], &stored["y"]),
        (&made["spec"], &made["y"]),
        "nothing is pruned"
    );
    // The condition is removed when the definition is repaired.
    let repaired = definition("foos", "Foo")["spec"]["versions"].clone();
    let patch = json!({"spec": {"versions": repaired, "preserveUnknownFields": false}});
    f.merge_patch("customresourcedefinitions/foos.example.com", patch)
        .await;
    f.until_defined("foos.example.com", |now| of(now).is_empty())
        .await;
}
