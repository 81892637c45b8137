//! Tests of managed fields and server-side apply.

use http::Method;
use serde_json::{Value, json};

use super::site::{MAPS, Response, Site};

const APPLY: [(&str, &str); 1] = [("content-type", "application/apply-patch+yaml")];
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Applies `body` to the object at a path, with a query.
async fn apply(site: &Site, path: &str, body: &Value) -> Response {
    site.send(Method::PATCH, path, &APPLY, &body.to_string())
        .await
}

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data})
}

fn deployment(replicas: Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    })
}

/// Returns `manager operation subresource` of each entry.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array();
    let text = |entry: &Value, member: &str| entry[member].as_str().unwrap_or("-").to_owned();
    let entry = |entry: &Value| {
        ["manager", "operation", "subresource"]
            .map(|m| text(entry, m))
            .join(" ")
    };
    entries.into_iter().flatten().map(entry).collect()
}

pub(crate) async fn every_write_sets_managed_fields(site: &Site) {
    let path = format!("{MAPS}/m");
    let client = [
        ("content-type", "application/json"),
        ("user-agent", "curl/8.1 (x)"),
    ];
    let body = map(json!({"a": "1"})).to_string();
    let made = site.send(Method::POST, MAPS, &client, &body).await.ok(201);
    assert_eq!(managers(&made), ["curl Update -"]);
    let entry = &made["metadata"]["managedFields"][0];
    assert_eq!(entry["fieldsV1"], json!({"f:data": {".": {}, "f:a": {}}}));
    assert_eq!(entry["apiVersion"], "v1");

    let merge = json!({"data": {"b": "1"}});
    let patched = site
        .patch(&format!("{path}?fieldManager=p"), "merge", &merge)
        .await
        .ok(200);
    assert_eq!(managers(&patched), ["curl Update -", "p Update -"]);
    let operation = json!([{"op": "remove", "path": "/data/a"}]);
    site.patch(&format!("{path}?fieldManager=q"), "json", &operation)
        .await
        .ok(200);
    let strategic = json!({"data": {"c": "1"}});
    let query = format!("{path}?fieldManager=r");
    let now = site
        .patch(&query, "strategic-merge", &strategic)
        .await
        .ok(200);
    assert_eq!(
        managers(&now),
        ["curl Update -", "p Update -", "r Update -"]
    );
    let mut whole = now.clone();
    whole["data"]["b"] = "2".into();
    let now = site
        .put(&format!("{path}?fieldManager=s"), &whole)
        .await
        .ok(200);
    assert_eq!(
        managers(&now),
        ["curl Update -", "r Update -", "s Update -"]
    );
    // A client resets the managed fields.
    let mut whole = now.clone();
    whole["metadata"]["managedFields"] = json!([{}]);
    let now = site.put(&path, &whole).await.ok(200);
    assert_eq!(now["metadata"].get("managedFields"), None);
}

pub(crate) async fn wc_053_a_change_of_managed_fields_times_is_not_stored(site: &Site) {
    let path = format!("{MAPS}/m?fieldManager=a");
    let body = map(json!({"a": "1"}));
    let made = apply(site, &path, &body).await.ok(201);
    // The times of managed fields are whole seconds, so wait for another second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let revision = site.revision().await;
    assert_eq!(apply(site, &path, &body).await.ok(200), made);
    let mut whole = made.clone();
    whole["metadata"]["managedFields"][0]["time"] = "2001-02-03T04:05:06Z".into();
    assert_eq!(site.put(&path, &whole).await.ok(200), made);
    assert_eq!(site.revision().await, revision);
}

pub(crate) async fn wc_213_apply_requires_a_manager_and_reports_conflicts(site: &Site) {
    let path = format!("{MAPS}/m");
    let refused = apply(site, &path, &map(json!({"a": "1"}))).await;
    let refused = refused.failure(422, "Invalid");
    assert_eq!(
        refused["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for \
         apply patch"
    );
    let made = apply(
        site,
        &format!("{path}?fieldManager=a"),
        &map(json!({"a": "1"})),
    )
    .await;
    assert_eq!(managers(&made.ok(201)), ["a Apply -"]);

    site.patch(
        &format!("{path}?fieldManager=u"),
        "merge",
        &json!({"data": {"b": "1", "c": "1"}}),
    )
    .await
    .ok(200);
    let applied = map(json!({"a": "2", "b": "2", "c": "1"}));
    let other = format!("{path}?fieldManager=o");
    let refused = apply(site, &other, &applied).await.failure(409, "Conflict");
    assert_eq!(
        refused["message"],
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .data.a\nconflicts with \"u\" using \
         v1:\n- .data.b"
    );
    assert_eq!(
        refused["details"],
        json!({"causes": [
            {"reason": "FieldManagerConflict", "message": "conflict with \"a\"", "field": ".data.a"},
            {"reason": "FieldManagerConflict", "message": "conflict with \"u\" using v1",
             "field": ".data.b"},
        ]})
    );
    let forced = apply(site, &format!("{other}&force=true"), &applied)
        .await
        .ok(200);
    assert_eq!(forced["data"], applied["data"]);
    assert_eq!(managers(&forced), ["o Apply -", "u Update -"]);
    // A field that `u` shares remains when `o` releases it.
    let now = apply(site, &other, &map(json!({"a": "2"}))).await.ok(200);
    assert_eq!(now["data"], json!({"a": "2", "c": "1"}));
}

pub(crate) async fn an_invalid_apply_is_rejected(site: &Site) {
    let path = format!("{MAPS}/m?fieldManager=a");
    let expect_failure = |answer: Response, code, reason: &str| {
        answer.failure(code, reason)["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let with = |member: &str, value: Value| {
        let mut body = map(json!({}));
        body["metadata"][member] = value;
        body
    };
    for (body, message) in [
        (json!({}), "invalid object type: /, Kind="),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "m"}}),
            "invalid object type: /v1, Kind=Secret",
        ),
        (
            with("name", "other".into()),
            "the name of the object (other) does not match the name on the URL (m)",
        ),
        (
            with("namespace", "other".into()),
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            with("managedFields", json!([])),
            "metadata.managedFields must be nil",
        ),
        (
            map(json!({"a": 1})),
            "failed to create typed patch object (/m; /v1, Kind=ConfigMap): .data.a: expected string, \
             got 1",
        ),
        (
            json!([]),
            "an applied configuration must be an object, not []",
        ),
    ] {
        assert_eq!(
            expect_failure(apply(site, &path, &body).await, 400, "BadRequest"),
            message
        );
    }
    let stranger = with("uid", "u".into());
    let refused = expect_failure(apply(site, &path, &stranger).await, 409, "Conflict");
    assert!(refused.contains("uid mismatch"), "{refused}");
    assert_eq!(site.get(&format!("{MAPS}/m")).await.code, 404);

    let cbor = [("content-type", "application/apply-patch+cbor")];
    let answer = site.send(Method::PATCH, &path, &cbor, "x").await;
    answer.failure(415, "UnsupportedMediaType");
    let status = format!("{DEPLOYMENTS}/d/status?fieldManager=a");
    let answer = apply(site, &status, &deployment(json!(1))).await;
    answer.failure(404, "NotFound");
    let merge = site
        .patch(&format!("{path}&force=true"), "merge", &json!({}))
        .await;
    merge.failure(422, "Invalid");

    let made = apply(site, &path, &map(json!({"a": "1"}))).await.ok(201);
    let old = with("resourceVersion", "1".into());
    expect_failure(apply(site, &path, &old).await, 409, "Conflict");
    let stranger = with("uid", "u".into());
    expect_failure(apply(site, &path, &stranger).await, 409, "Conflict");
    let same = with(
        "resourceVersion",
        made["metadata"]["resourceVersion"].clone(),
    );
    apply(site, &path, &same).await.ok(200);
}

pub(crate) async fn a_dry_run_of_an_apply_stores_nothing(site: &Site) {
    let path = format!("{MAPS}/m");
    let query = format!("{path}?fieldManager=a&dryRun=All");
    let shown = apply(site, &query, &map(json!({"a": "1"}))).await.ok(201);
    assert_eq!(managers(&shown), ["a Apply -"]);
    assert_eq!(site.get(&path).await.code, 404);
    let made = site.post(MAPS, &map(json!({"a": "1"}))).await.ok(201);
    let query = format!("{query}&force=true");
    let shown = apply(site, &query, &map(json!({"a": "2"}))).await.ok(200);
    assert_eq!(shown["data"]["a"], "2");
    assert_eq!(site.get(&path).await.ok(200), made);
}

pub(crate) async fn subresources_have_their_own_manager_entries(site: &Site) {
    let path = format!("{DEPLOYMENTS}/d");
    let made = apply(
        site,
        &format!("{path}?fieldManager=a"),
        &deployment(json!(2)),
    )
    .await
    .ok(201);
    assert_eq!(made["status"], json!({}));
    let uses = |object: &Value, field: &str| {
        let entries = object["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .clone();
        let has = |entry: &&Value| !entry["fieldsV1"]["f:spec"][field].is_null();
        let names = entries
            .iter()
            .filter(has)
            .map(|e| e["manager"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(uses(&made, "f:replicas"), ["a"]);

    let status = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 9}, "status": {"replicas": 1},
    });
    let now = apply(site, &format!("{path}/status?fieldManager=s"), &status)
        .await
        .ok(200);
    assert_eq!(now["spec"]["replicas"], 2);
    assert_eq!(now["status"], json!({"replicas": 1}));
    assert_eq!(managers(&now), ["a Apply -", "s Apply status"]);

    let scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"},
        "spec": {"replicas": 5},
    });
    let query = format!("{path}/scale?fieldManager=hpa");
    let refused = apply(site, &query, &scale).await.failure(409, "Conflict");
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.ends_with("conflict with \"a\": .spec.replicas"),
        "{message}"
    );
    let scaled = apply(site, &format!("{query}&force=true"), &scale)
        .await
        .ok(200);
    assert_eq!(scaled["spec"], json!({"replicas": 5}));
    let now = site.get(&path).await.ok(200);
    assert_eq!(uses(&now, "f:replicas"), ["hpa"]);
    assert!(
        managers(&now).contains(&"hpa Apply scale".to_owned()),
        "{now}"
    );
    // The same with an update.
    let merge = json!({"spec": {"replicas": 6}});
    site.patch(&format!("{path}/scale?fieldManager=k"), "merge", &merge)
        .await
        .ok(200);
    let now = site.get(&path).await.ok(200);
    assert_eq!(uses(&now, "f:replicas"), ["k"]);
    assert!(
        managers(&now).contains(&"k Update scale".to_owned()),
        "{now}"
    );
    // A field that `a` no longer owns is not removed when `a` omits it.
    let mut without = deployment(json!(0));
    without["spec"].as_object_mut().unwrap().remove("replicas");
    let now = apply(site, &format!("{path}?fieldManager=a"), &without)
        .await
        .ok(200);
    assert_eq!(now["spec"]["replicas"], 6);
}

pub(crate) async fn a_field_that_its_manager_removes_is_defaulted_again(site: &Site) {
    let path = format!("{DEPLOYMENTS}/d?fieldManager=a");
    let made = apply(site, &path, &deployment(json!(3))).await.ok(201);
    assert_eq!(made["spec"]["replicas"], 3);
    let mut without = deployment(json!(0));
    without["spec"].as_object_mut().unwrap().remove("replicas");
    let now = apply(site, &path, &without).await.ok(200);
    assert_eq!(now["spec"]["replicas"], 1);
    assert_eq!(now["metadata"]["generation"], 2);
}

pub(crate) async fn events_of_both_api_groups_can_be_applied(site: &Site) {
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "note": "n", "reason": "r", "action": "a",
        "type": "Normal", "reportingController": "c.io/c", "reportingInstance": "i",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
    });
    let path = "/apis/events.k8s.io/v1/namespaces/default/events/e?fieldManager=a";
    let made = apply(site, path, &event).await.ok(201);
    assert_eq!(
        (&made["note"], &made["apiVersion"]),
        (&event["note"], &event["apiVersion"])
    );
    let core = site
        .get("/api/v1/namespaces/default/events/e")
        .await
        .ok(200);
    assert_eq!(core["message"], "n");
    assert_eq!(managers(&core), ["a Apply -"]);
    let mut other = event.clone();
    let series = serde_json::json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"});
    other["series"] = series.clone();
    let now = apply(site, path, &other).await.ok(200);
    assert_eq!(now["series"], series);
}

/// An older server, or another one, may have stored the text as it was sent.
pub(crate) async fn equal_quantities_in_two_forms_do_not_conflict(site: &Site) {
    let quota = |cpu: &str| {
        json!({"apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"cpu": cpu}}})
    };
    let mut stored = quota("1000m");
    stored["metadata"]["uid"] = "u".into();
    stored["metadata"]["managedFields"] = json!([{
        "manager": "old", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:hard": {"f:cpu": {}}}},
    }]);
    let key = "/resourcequotas/default/q";
    site.store(key, &stored.to_string()).await;
    let path = "/api/v1/namespaces/default/resourcequotas/q?fieldManager=a";
    let applied = apply(site, path, &quota("1")).await.ok(200);
    assert_eq!(applied["spec"]["hard"]["cpu"], "1");
    // The status is managed by the resource quota controller.
    let mut managers = managers(&applied);
    managers.retain(|manager| manager.ends_with(" -"));
    assert_eq!(managers, ["a Apply -", "old Update -"]);
    let other = apply(site, path, &quota("1001m")).await;
    other.failure(409, "Conflict");
}

/// Found by fuzzing: null as the value of a label was an internal error, and null in the data of a config map was stored.
/// kube-apiserver 1.36 stores empty strings.
pub(crate) async fn an_applied_null_in_a_map_is_an_empty_string(site: &Site) {
    let path = "/api/v1/namespaces/default/configmaps/nulls?fieldManager=a";
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "nulls", "labels": {"l": null}, "annotations": {"a": null}},
        "data": {"d": null},
    });
    for code in [201, 200] {
        let applied = apply(site, path, &config).await.ok(code);
        assert_eq!(applied["metadata"]["labels"], json!({"l": ""}));
        assert_eq!(applied["metadata"]["annotations"], json!({"a": ""}));
        assert_eq!(applied["data"], json!({"d": ""}));
    }
}
