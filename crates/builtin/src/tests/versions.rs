//! Managed fields of built-in objects that are served in several versions: entries are in the version of the
//! request, and are compared in the version that they are in.

use super::*;

fn options(manager: &str) -> WriteOptions {
    WriteOptions {
        field_manager: manager.to_owned(),
        ..WriteOptions::default()
    }
}

impl Fixture {
    fn target_in(&self, group: &str, version: &str, plural: &str) -> Target {
        let resource = self.registry.resource(group, version, plural);
        Target {
            namespace: Some("default".to_owned()),
            resource: resource.unwrap(),
            name: "a".to_owned(),
            subresource: None,
        }
    }

    fn autoscalers(&self, version: &str) -> Target {
        self.target_in("autoscaling", version, "horizontalpodautoscalers")
    }

    async fn create_as(&self, manager: &str, target: &Target, body: Value) -> Value {
        let options = options(manager);
        let namespace = target.namespace.as_deref();
        let created = self
            .registry
            .create(&target.resource, namespace, body, &options);
        value(&created.await.unwrap())
    }

    async fn apply_as(
        &self,
        manager: &str,
        target: &Target,
        config: &Value,
    ) -> Result<Value, ApiError> {
        let options = options(manager);
        let applied = self.registry.apply(target, config, &options).await?;
        Ok(value(&applied.0))
    }

    async fn patch_as(&self, manager: &str, target: &Target, patch: Value) -> Value {
        let patched = self
            .registry
            .patch(target, &Patch::Merge(patch), &options(manager))
            .await;
        value(&patched.unwrap())
    }
}

/// Returns the manager, operation, version and fields of each managed fields entry.
fn entries(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array();
    let entry = |entry: &Value| {
        let text = |member: &str| entry[member].as_str().unwrap_or_default().to_owned();
        let who = ["manager", "operation", "apiVersion"].map(text).join(" ");
        (who, entry["fieldsV1"].clone())
    };
    entries.into_iter().flatten().map(entry).collect()
}

fn autoscaler(version: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"}, "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        },
    });
    for (name, value) in spec.as_object().unwrap() {
        object["spec"][name] = value.clone();
    }
    object
}

fn cpu(percentage: i64) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percentage});
    json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}])
}

/// A field that is atomic in v1, and not in v2.
const REFERENCE: &str = "f:scaleTargetRef";

/// An apply through autoscaling/v1 was a 500: its version was looked up as `v1`, of which there is no type.
#[tokio::test]
async fn autoscalers_are_applied_in_each_version() {
    let fixture = fixture().await;
    let (v1, v2) = (fixture.autoscalers("v1"), fixture.autoscalers("v2"));
    let config = |max: i64, cpu: i64| {
        let spec = json!({"maxReplicas": max, "targetCPUUtilizationPercentage": cpu});
        autoscaler("v1", spec)
    };
    let made = fixture.apply_as("a", &v1, &config(3, 50)).await.unwrap();
    assert_eq!(made["spec"]["metrics"], cpu(50));
    let fields = json!({"f:spec": {
        "f:maxReplicas": {}, "f:targetCPUUtilizationPercentage": {}, REFERENCE: {},
    }});
    let a = ("a Apply autoscaling/v1".to_owned(), fields);
    assert_eq!(entries(&made), std::slice::from_ref(&a));

    // Applying the same value in another version shares the field; another value is a conflict, reported with the field
    // names of that version.
    let metrics = autoscaler("v2", json!({"maxReplicas": 3, "metrics": cpu(50)}));
    let shared = fixture.apply_as("b", &v2, &metrics).await.unwrap();
    let fields = json!({"f:spec": {
        "f:maxReplicas": {}, "f:metrics": {}, REFERENCE: {"f:apiVersion": {}, "f:kind": {}, "f:name": {}},
    }});
    let b = ("b Apply autoscaling/v2".to_owned(), fields);
    assert_eq!(entries(&shared), [a.clone(), b.clone()]);
    let refused = fixture
        .apply_as("a", &v1, &config(3, 60))
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Apply failed with 1 conflict: conflict with \"b\": .spec.metrics"
    );
    let other = autoscaler("v2", json!({"maxReplicas": 3, "metrics": cpu(60)}));
    let refused = fixture.apply_as("b", &v2, &other).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Apply failed with 1 conflict: conflict with \"a\": .spec.targetCPUUtilizationPercentage"
    );

    // A field that one manager no longer applies remains as long as the other one owns it, in either version.
    let less = autoscaler("v2", json!({"maxReplicas": 3}));
    let left = fixture.apply_as("b", &v2, &less).await.unwrap();
    assert_eq!(left["spec"]["metrics"], cpu(50));
    let less = autoscaler("v1", json!({"maxReplicas": 3}));
    let left = fixture.apply_as("a", &v1, &less).await.unwrap();
    assert_eq!(left["spec"]["metrics"], cpu(80), "the default");
}

/// Updates through autoscaling/v1 recorded nothing.
#[tokio::test]
async fn updates_of_autoscalers_are_recorded_in_their_version() {
    let fixture = fixture().await;
    let (v1, v2) = (fixture.autoscalers("v1"), fixture.autoscalers("v2"));
    let body = autoscaler("v2", json!({"maxReplicas": 3, "metrics": cpu(50)}));
    let made = fixture.create_as("c", &v2, body).await;
    let of_creator = |spec: Value| {
        (
            "c Update autoscaling/v2".to_owned(),
            json!({"f:spec": spec}),
        )
    };
    let reference = json!({"f:apiVersion": {}, "f:kind": {}, "f:name": {}});
    let all = json!({
        "f:maxReplicas": {}, "f:metrics": {}, "f:minReplicas": {}, REFERENCE: reference,
    });
    assert_eq!(entries(&made), [of_creator(all)]);
    let changed = fixture
        .patch_as(
            "u",
            &v1,
            json!({"spec": {"targetCPUUtilizationPercentage": 60}}),
        )
        .await;
    assert_eq!(changed["spec"]["metrics"], cpu(60));
    let left = json!({"f:maxReplicas": {}, "f:minReplicas": {}, REFERENCE: reference});
    let fields = json!({"f:spec": {"f:targetCPUUtilizationPercentage": {}}});
    let u = ("u Update autoscaling/v1".to_owned(), fields);
    assert_eq!(entries(&changed), [of_creator(left), u.clone()]);
    // The same in the other direction.
    let changed = fixture
        .patch_as("w", &v2, json!({"spec": {"metrics": cpu(70)}}))
        .await;
    assert!(!entries(&changed).contains(&u), "{changed}");
}

/// Entries of writes through events.k8s.io had the version `v1` and the field names of the core group.
#[tokio::test]
async fn events_are_managed_in_the_group_of_the_request() {
    let fixture = fixture().await;
    let core = fixture.target_in("", "v1", "events");
    let newer = fixture.target_in("events.k8s.io", "v1", "events");
    let body = json!({
        "metadata": {"name": "a"}, "note": "n", "reason": "r", "type": "Normal", "action": "x",
        "reportingController": "example.com/c", "reportingInstance": "i",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    });
    let made = fixture.create_as("c", &newer, body).await;
    let who: Vec<_> = entries(&made);
    assert_eq!(who[0].0, "c Update events.k8s.io/v1");
    assert_eq!(who[0].1["f:note"], json!({}));
    assert!(who[0].1.get("f:regarding").is_some(), "{who:?}");
    assert!(who[0].1.get("f:message").is_none(), "{who:?}");
    let changed = fixture
        .patch_as("u", &core, json!({"message": "other"}))
        .await;
    let who = entries(&changed);
    assert_eq!(who.len(), 2, "{who:?}");
    assert!(who[0].1.get("f:note").is_none(), "{who:?}");
    assert_eq!(who[1], ("u Update v1".to_owned(), json!({"f:message": {}})));
    let config = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "a", "namespace": "default"}, "note": "third",
    });
    let refused = fixture.apply_as("a", &newer, &config).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Apply failed with 1 conflict: conflict with \"u\" using v1: .message"
    );
}

/// An object that was created in another version than the stored one lacked the defaults of the stored version until it was
/// updated, and an update without a change made a new version. Found by fuzzing.
#[tokio::test]
async fn an_object_is_stored_with_the_defaults_of_the_stored_version() {
    let fixture = fixture().await;
    let mut definition = definition("things", "Thing");
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["color"]["default"] = json!("red");
    fixture
        .create("customresourcedefinitions", definition)
        .await;
    let target = fixture.target_in("example.com", "v1alpha1", "things");
    let body = json!({"metadata": {"name": "a"}, "spec": {}});
    fixture.create_as("m", &target, body).await;
    let got = fixture.registry.get(&target, GetOptions::default()).await;
    let got = value(&got.unwrap());
    assert_eq!(got["spec"], json!({"color": "red"}));
    // The registry returns the stored version.
    let mut body = got.clone();
    body["apiVersion"] = json!("example.com/v1alpha1");
    let options = options("m");
    let updated = fixture.registry.update(&target, body, &options).await;
    assert_eq!(rv(&value(&updated.unwrap().0)), rv(&got));
}

/// The event is stored in the form of the core group. Of that form the members were missing that `events.k8s.io` calls otherwise,
/// so that each of them counted as changed if another member was.
#[tokio::test]
async fn only_the_changed_member_of_an_event_is_immutable() {
    let fixture = fixture().await;
    let target = fixture.target_in("events.k8s.io", "v1", "events");
    let event = json!({"metadata": {"name": "a"}, "eventTime": "2026-01-02T03:04:05.000000Z", "action": "A", "reason": "R",
        "type": "Normal", "note": "n", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reportingController": "c", "reportingInstance": "i"});
    fixture.create_as("m", &target, event).await;
    let patch = Patch::Merge(json!({"type": "Warning"}));
    let patched = fixture.registry.patch(&target, &patch, &options("m")).await;
    let causes = causes(patched.unwrap_err());
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert_eq!(causes[0].0, "type");
}
