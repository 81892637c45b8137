//! Tests with stored objects that an older version wrote, without the defaults of this version.

use super::*;
use watchet_protobuf::Messages;
use watchet_storage::Put;

impl Fixture {
    /// Writes an object to storage directly, without the registry.
    async fn store(&self, key: &str, object: Value) {
        self.store_bytes(key, object.to_string().into()).await;
    }

    async fn store_bytes(&self, key: &str, value: bytes::Bytes) {
        let put = Put {
            key: watchet_api::StorageKey::new(key).unwrap(),
            value,
            expect: watchet_storage::Expect::Absent,
            ttl: None,
        };
        self.storage.put(put).await.unwrap();
    }
}

fn held(api_version: &str, kind: &str, more: Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": "old", "namespace": "default", "uid": "u", "finalizers": ["a/b"]},
    });
    let members = more.as_object().unwrap().clone();
    object.as_object_mut().unwrap().extend(members);
    object
}

/// Defaults were applied to the new object only, so that the comparison found changes: of most kinds, an object that
/// was stored without defaults could not even lose its finalizers.
#[tokio::test]
async fn an_object_stored_without_defaults_can_be_updated() {
    let fixture = fixture().await;
    let containers = json!([{"name": "c", "image": "i"}]);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}});
    let selector = json!({"matchLabels": {"a": "b"}});
    for (path, key, object) in [
        (
            "secrets/old",
            "/secrets/default/old",
            held("v1", "Secret", json!({"data": {}})),
        ),
        (
            "pods/old",
            "/pods/default/old",
            held("v1", "Pod", json!({"spec": {"containers": containers}})),
        ),
        (
            "statefulsets/old",
            "/statefulsets/default/old",
            held(
                "apps/v1",
                "StatefulSet",
                json!({"spec": {"selector": selector, "serviceName": "s", "template": template}}),
            ),
        ),
        (
            "persistentvolumeclaims/old",
            "/persistentvolumeclaims/default/old",
            held(
                "v1",
                "PersistentVolumeClaim",
                json!({"spec": {"accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}}}),
            ),
        ),
    ] {
        fixture.store(key, object).await;
        let change = json!({"metadata": {"labels": {"now": "here"}}});
        let changed = fixture.merge_patch(path, change).await;
        assert_eq!(changed["metadata"]["labels"]["now"], "here");
        let finalizers = json!({"metadata": {"finalizers": null}});
        let freed = fixture.merge_patch(path, finalizers).await;
        assert!(freed["metadata"]["finalizers"].is_null(), "{path}");
    }
}

/// The finalizers of an object that is invalid by the present rules could not be removed, so it could never be deleted.
/// Such an update must not make the object more invalid, and does not make it valid.
#[tokio::test]
async fn invalid_stored_object_can_be_deleted() {
    let fixture = fixture().await;
    let containers = json!([{"name": "c", "image": "i"}]);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}});
    let mut job_template = template.clone();
    job_template["spec"]["restartPolicy"] = json!("Never");
    for (path, key, object, worse) in [
        (
            "deployments/old",
            "/deployments/default/old",
            held(
                "apps/v1",
                "Deployment",
                json!({"spec": {"template": template}}),
            ),
            json!({"spec": {"replicas": -1}}),
        ),
        (
            "jobs/old",
            "/jobs/default/old",
            held(
                "batch/v1",
                "Job",
                json!({"spec": {"template": job_template}}),
            ),
            json!({"spec": {"parallelism": -1}}),
        ),
        (
            "services/old",
            "/services/specs/default/old",
            held(
                "v1",
                "Service",
                json!({"spec": {"type": "Odd", "ports": [{"port": 0}]}}),
            ),
            json!({"spec": {"sessionAffinity": "Odd"}}),
        ),
        (
            "horizontalpodautoscalers/old",
            "/horizontalpodautoscalers/default/old",
            held(
                "autoscaling/v2",
                "HorizontalPodAutoscaler",
                json!({"spec": {"maxReplicas": 3, "metrics": [{"type": "Pods"}],
                    "scaleTargetRef": {"kind": "Deployment", "name": "d"}}}),
            ),
            json!({"spec": {"minReplicas": -1}}),
        ),
        (
            "events/old",
            "/events/default/old",
            held(
                "v1",
                "Event",
                json!({"eventTime": "2026-01-01T00:00:00.000000Z", "involvedObject": {}}),
            ),
            json!({"reportingInstance": "i".repeat(129)}),
        ),
        (
            "pods/old",
            "/pods/default/old",
            held("v1", "Pod", json!({"spec": {"containers": []}})),
            json!({"metadata": {"labels": {"a b": "c"}}}),
        ),
    ] {
        fixture.store(key, object).await;
        let label = json!({"metadata": {"labels": {"now": "here"}}});
        let changed = fixture.merge_patch(path, label).await;
        assert_eq!(changed["metadata"]["labels"]["now"], "here", "{path}");
        let refused = fixture.try_patch(path, Patch::Merge(worse)).await;
        let causes = causes(refused.unwrap_err());
        assert_eq!(
            causes.len(),
            1,
            "{path}: only new problems are reported: {causes:?}"
        );
        let deleted = fixture.delete(path).await;
        assert!(matches!(deleted, Deleted::Pending(_)), "{path}");
        let finalizers = json!({"metadata": {"finalizers": null}});
        fixture.merge_patch(path, finalizers).await;
        assert_eq!(fixture.stored(key).await, None, "{path}");
    }
}

/// The rules of expressions become stricter, too.
#[tokio::test]
async fn invalid_stored_policy_can_be_deleted() {
    let fixture = fixture().await;
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["pods"]});
    let validations = json!([{"expression": "variables.gone"}, {"expression": "object.spec.flag"}]);
    let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "validations": validations});
    let (group, kind) = (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
    );
    let mut object = held(group, kind, json!({"spec": spec}));
    object["metadata"]["namespace"].take();
    let (path, key) = (
        "validatingadmissionpolicies/old",
        "/validatingadmissionpolicies/old",
    );
    fixture.store(key, object).await;
    let label = json!({"metadata": {"labels": {"now": "here"}}});
    fixture.merge_patch(path, label).await;
    let worse = json!({"spec": {"validations": [validations[0], {"expression": "1"}]}});
    let refused = fixture.try_patch(path, Patch::Merge(worse)).await;
    let causes = causes(refused.unwrap_err());
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert_eq!(causes[0].0, "spec.validations[1].expression");
    fixture.delete(path).await;
    let finalizers = json!({"metadata": {"finalizers": null}});
    fixture.merge_patch(path, finalizers).await;
    assert_eq!(fixture.stored(key).await, None);
}

/// Two finalizers that no client may add: one is removed, then the other.
#[tokio::test]
async fn stored_invalid_finalizers_can_be_removed_one_by_one() {
    let fixture = fixture().await;
    let mut object = held("v1", "ConfigMap", json!({}));
    object["metadata"]["finalizers"] = json!(["bare", "a/b", "bare-too"]);
    fixture.store("/configmaps/default/old", object).await;
    let finalizers = |list: Value| Patch::Merge(json!({"metadata": {"finalizers": list}}));
    let path = "configmaps/old";
    let added = finalizers(json!(["bare", "a/b", "bare-too", "bare-again"]));
    let refused = causes(fixture.try_patch(path, added).await.unwrap_err());
    assert_eq!(refused[0].0, "metadata.finalizers[3]");
    assert_eq!(refused.len(), 1, "{refused:?}");
    for list in [json!(["a/b", "bare-too"]), json!(["bare-too"]), json!([])] {
        fixture.try_patch(path, finalizers(list)).await.unwrap();
    }
    fixture.delete(path).await;
    assert_eq!(fixture.stored("/configmaps/default/old").await, None);
}

/// Managed fields nest deeper than the fields that they list, and a stored object could then not be read, changed or
/// deleted.
#[tokio::test]
async fn object_of_maximum_depth_is_readable() {
    let fixture = fixture().await;
    for depth in [100, 115, 118, 120, 121, 122, 123, 124, 125] {
        let name = format!("deep-{depth}");
        // `json!` would copy `inner` at each level.
        let nest = |inner| Value::Object([("d".to_owned(), inner)].into_iter().collect());
        let data = (0..depth).fold(json!("x"), |inner, _| nest(inner));
        let body = json!({"metadata": {"name": name}, "revision": 1, "data": data});
        match fixture.try_create("controllerrevisions", body).await {
            Ok(_) => {}
            Err(ApiError::BadRequest(_)) if depth > 122 => continue,
            Err(other) => panic!("{depth}: {other}"),
        }
        let path = format!("controllerrevisions/{name}");
        let change = json!({"metadata": {"labels": {"a": "b"}}});
        fixture.merge_patch(&path, change).await;
        assert!(matches!(
            fixture.delete(&path).await,
            Deleted::Immediately(_)
        ));
    }
}

/// The managed fields entry for the time before the first apply nests deeper than the object, and only other writes
/// checked that depth.
#[tokio::test]
async fn object_of_maximum_depth_is_readable_after_an_apply() {
    let fixture = fixture().await;
    let options = WriteOptions {
        field_manager: "me".to_owned(),
        ..WriteOptions::default()
    };
    let mut refused = 0;
    for depth in 117..=126 {
        let name = format!("deep-{depth}");
        // `json!` would copy `inner` at each level.
        let nest = |inner| Value::Object([("d".to_owned(), inner)].into_iter().collect());
        let data = (0..depth).fold(json!("x"), |inner, _| nest(inner));
        let body = json!({"metadata": {"name": name}, "revision": 1, "data": data});
        fixture.create("controllerrevisions", body).await;
        let path = format!("controllerrevisions/{name}");
        let config = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": {"name": name, "labels": {"a": "b"}},
        });
        let target = fixture.target(&path);
        match fixture.registry.apply(&target, &config, &options).await {
            Ok(_) => assert_eq!(refused, 0, "{depth}"),
            Err(ApiError::BadRequest(message)) if message.contains("levels deep") => refused += 1,
            Err(other) => panic!("{depth}: {other}"),
        }
        let change = json!({"metadata": {"labels": {"c": "d"}}});
        fixture.merge_patch(&path, change).await;
        assert!(matches!(
            fixture.delete(&path).await,
            Deleted::Immediately(_)
        ));
    }
    assert!((1..10).contains(&refused), "{refused}");
}

/// Stores an object by a write of the server itself.
struct Store(Value);

impl Decide for Store {
    async fn decide(&mut self, _: Option<&Current>) -> Result<Change, ApiError> {
        Ok(Change::Put(self.0.clone()))
    }
}

#[tokio::test]
async fn object_that_nests_too_deeply_to_be_read_is_not_stored() {
    let fixture = fixture().await;
    let location = ObjectLocation::of(&fixture.target("configmaps/deep")).unwrap();
    // A much deeper value could overflow the stack when it is copied and dropped in a build without optimization.
    for (depth, expect) in [(126, true), (127, false), (500, false)] {
        // `json!` would copy `inner` at each level.
        let nest = |inner| Value::Object([("d".to_owned(), inner)].into_iter().collect());
        let data = (0..depth).fold(json!("x"), |inner, _| nest(inner));
        let mut object = json!({"metadata": {"name": "deep"}});
        object["data"] = data;
        let mut write = Store(object);
        let written = fixture
            .registry
            .guaranteed_write(&location, false, &mut write);
        assert_eq!(written.await.is_ok(), expect, "{depth}");
        if expect {
            assert!(matches!(
                fixture.delete("configmaps/deep").await,
                Deleted::Immediately(_)
            ));
        }
    }
}

/// A kube-apiserver does not parse raw JSON, such as `fieldsV1`. A value that `serde_json` cannot represent was a panic in
/// the reflector of its resource, which ended the server, and again after each start.
#[tokio::test]
async fn an_object_with_unreadable_raw_json_is_undecodable() {
    let nested = format!("{}1{}", r#"{"f:a":"#.repeat(200), "}".repeat(200));
    for fields in [&nested, r#"{"f:a":1e400}"#, r#"{"f:a":"\ud800"}"#] {
        let fixture = fixture().await;
        let job = format!(
            r#"{{"metadata":{{"name":"old","namespace":"default","managedFields":[{{"fieldsV1":{fields}}}]}}}}"#
        );
        let messages = Messages::new(watchet_schema::Types::builtins());
        let job = messages.to_protobuf(("batch/v1", "Job"), job.as_bytes());
        fixture
            .store_bytes("/jobs/default/old", job.unwrap().unwrap())
            .await;
        let error = fixture.try_get("jobs/old").await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("the JSON in it cannot be read"), "{text}");
        let (jobs, options) = (fixture.resource("jobs"), ListOptions::default());
        let listed = fixture.registry.list(&jobs, None, &options).await;
        let text = listed.unwrap_err().to_string();
        assert!(text.contains("the JSON in it cannot be read"), "{text}");
    }
}
