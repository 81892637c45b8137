//! Requests as Go clients and controllers send them: metadata that upstream ignores or accepts.

use super::custom::established;
use super::*;

impl Fixture {
    async fn apply(&self, path: &str, config: Value) -> Value {
        let target = self.target(path);
        let options = WriteOptions {
            field_manager: "applier".to_owned(),
            ..WriteOptions::default()
        };
        let applied = self.registry.apply(&target, &config, &options).await;
        value(&applied.unwrap().0)
    }
}

/// A namespace in the metadata of a cluster-scoped object was a 400, where upstream clears it:
/// controller-runtime and generated manifests set one on any object.
#[tokio::test]
async fn a_namespace_on_a_cluster_scoped_object_is_cleared() {
    let fixture = fixture().await;
    let mut cluster_scoped = definition("globals", "Global");
    cluster_scoped["spec"]["scope"] = json!("Cluster");
    cluster_scoped["metadata"]["namespace"] = json!("x");
    let defined = fixture.define(cluster_scoped).await;
    assert_eq!(defined["metadata"].get("namespace"), None);
    fixture
        .until_defined("globals.example.com", established)
        .await;
    for (plural, api_version, kind) in [
        ("nodes", "v1", "Node"),
        ("persistentvolumes", "v1", "PersistentVolume"),
        ("namespaces", "v1", "Namespace"),
        ("globals", "example.com/v1", "Global"),
    ] {
        let metadata = json!({"name": "n", "namespace": "x"});
        let spec = match plural {
            "persistentvolumes" => json!({
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/tmp/n"},
            }),
            _ => json!({}),
        };
        let body = json!({"metadata": metadata, "spec": spec});
        let assert_cleared = |object: &Value, verb: &str| {
            let found = object["metadata"].get("namespace");
            assert_eq!(found, None, "{verb} of {plural}: {object}");
        };
        let mut object = fixture.create(plural, body).await;
        assert_cleared(&object, "POST");
        let path = format!("{plural}/n");
        object["metadata"]["namespace"] = json!("x");
        object["metadata"]["labels"]["a"] = json!("1");
        let mut object = fixture.update(&path, object).await;
        assert_cleared(&object, "PUT");
        object["metadata"]["namespace"] = json!("x");
        object["status"] = json!({"phase": "Active"});
        let object = fixture.update(&format!("{path}/status"), object).await;
        assert_cleared(&object, "PUT of the status");
        let merged = json!({"metadata": {"namespace": "x", "labels": {"a": "2"}}});
        assert_cleared(&fixture.merge_patch(&path, merged.clone()).await, "merge");
        let status = format!("{path}/status");
        let patched = fixture.merge_patch(&status, merged.clone()).await;
        assert_cleared(&patched, "merge of the status");
        let operations = json!([{"op": "add", "path": "/metadata/namespace", "value": "x"}]);
        let operations = Patch::Json(serde_json::from_value(operations).unwrap());
        let patched = fixture.try_patch(&path, operations).await.unwrap();
        assert_cleared(&patched, "JSON patch");
        if plural != "globals" {
            let patched = fixture.try_patch(&path, Patch::Strategic(merged)).await;
            assert_cleared(&patched.unwrap(), "strategic merge patch");
        }
        let config = |name: &str| {
            json!({"apiVersion": api_version, "kind": kind, "spec": spec,
                "metadata": {"name": name, "namespace": "x", "labels": {"b": "1"}}})
        };
        let applied = fixture.apply(&path, config("n")).await;
        assert_cleared(&applied, "apply");
        assert_eq!(applied["metadata"]["labels"]["b"], "1");
        let path = format!("{plural}/made");
        let applied = fixture.apply(&path, config("made")).await;
        assert_cleared(&applied, "apply that creates");
    }
    let stored = fixture.stored("/minions/n").await.unwrap();
    assert_eq!(stored["metadata"].get("namespace"), None, "{stored}");
}

/// A create with a resourceVersion was refused before any other check: also as a dry run, with "0", and with text that
/// is not a version. Upstream validates the object first, and only storage refuses the version.
#[tokio::test]
async fn create_with_version_is_rejected_after_validation() {
    let fixture = fixture().await;
    let maps = fixture.resource("configmaps");
    let try_create = async |name: &str, version: &str, dry_run: bool| {
        let body = json!({"metadata": {"name": name, "resourceVersion": version}});
        let options = WriteOptions {
            dry_run,
            ..WriteOptions::default()
        };
        let created = fixture
            .registry
            .create(&maps, Some("default"), body, &options);
        created.await.map(|object| value(&object))
    };
    let refused = try_create("a", "5", false).await.unwrap_err();
    assert!(matches!(refused, ApiError::Internal(_)), "{refused:?}");
    assert_eq!(
        refused.to_string(),
        "resourceVersion should not be set on objects to be created"
    );
    assert_eq!(fixture.stored("/configmaps/default/a").await, None);
    let invalid = try_create("A_b", "5", false).await.unwrap_err();
    assert_eq!(causes(invalid)[0].0, "metadata.name");
    let dry = try_create("a", "5", true).await.unwrap();
    assert_eq!(dry["metadata"]["resourceVersion"], "5");
    assert_eq!(fixture.stored("/configmaps/default/a").await, None);
    for (name, version) in [("zero", "0"), ("text", "abc"), ("negative", "-1")] {
        try_create(name, version, true).await.unwrap();
        let created = try_create(name, version, false).await.unwrap();
        assert!(rv(&created) > ResourceVersion::ZERO, "{created}");
        let stored = fixture.stored(&format!("/configmaps/default/{name}")).await;
        assert_eq!(stored.unwrap()["metadata"].get("resourceVersion"), None);
    }
    for (version, dry_run) in [("5", true), ("0", true), ("0", false), ("abc", false)] {
        let exists = try_create("zero", version, dry_run).await.unwrap_err();
        let exists = matches!(exists, ApiError::AlreadyExists { .. });
        assert!(exists, "{version}, dry run: {dry_run}");
    }
    let refused = try_create("zero", "5", false).await.unwrap_err();
    assert!(matches!(refused, ApiError::Internal(_)), "{refused:?}");
}

/// Controllers read these fields of new objects, which upstream always sets: the `nodeInfo` of a node, the time of a
/// volume's phase, the empty `serviceName` of a stateful set.
#[tokio::test]
async fn new_objects_have_the_fields_that_go_always_encodes() {
    let fixture = fixture().await;
    let node = fixture.create("nodes", named("n")).await;
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "");
    assert_eq!(node["status"]["nodeInfo"].as_object().unwrap().len(), 10);
    let port = &node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
    assert_eq!(*port, 0);
    let set = json!({"metadata": {"name": "s"}, "spec": deployment("s")["spec"]});
    let set = fixture.create("statefulsets", set).await;
    assert_eq!(set["spec"]["serviceName"], "");
    let managed = &set["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert!(managed.get("f:selector").is_some(), "{managed}");
    assert!(managed.get("f:serviceName").is_none(), "{managed}");

    let volume = json!({"metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/tmp/n"},
    }});
    let volume = fixture.create("persistentvolumes", volume).await;
    assert_eq!(volume["status"]["phase"], "Pending");
    let created = volume["status"]["lastPhaseTransitionTime"].clone();
    assert!(created.is_string(), "{volume}");
    let set = async |status: Value| {
        let patch = json!({"status": status});
        fixture
            .merge_patch("persistentvolumes/v/status", patch)
            .await
    };
    let given = "2026-01-01T00:00:00Z";
    let bound = set(json!({"phase": "Bound", "lastPhaseTransitionTime": given})).await;
    assert_eq!(bound["status"]["lastPhaseTransitionTime"], given);
    let same = set(json!({"message": "m", "lastPhaseTransitionTime": null})).await;
    assert_eq!(same["status"]["lastPhaseTransitionTime"], given);
    let released = set(json!({"phase": "Released"})).await;
    assert_ne!(released["status"]["lastPhaseTransitionTime"], given);
}
